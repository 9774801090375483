/** Exponential and logarithm from additions, multiplications and divisions alone: equal bits in every language and browser. */

// ln 2 in two parts, and 1 / ln 2: the constants of fdlibm's e_exp.c.
const [LN2_HIGH, LN2_LOW, INVERSE_LN2] = [6.93147180369123816490e-1, 1.90821492927058770002e-10, 1.442695040888963387];
/** Below it the exponential counts as 0. */
const LOWEST = -700;
/** 1/0!, 1/1!, ... 1/13!, each made from the one before by one division. */
const FACTORS = [1, 1, 0.5];
for (let i = 3; i < 14; i++) FACTORS.push(FACTORS[i - 1] / i);
/** 2 ** -n. */
const HALVES = [1];
for (let i = 1; i <= 1100; i++) HALVES.push(HALVES[i - 1] / 2);

/**
 * Range reduction in two parts (Cody and Waite 1980), then 13 terms of the series by Horner's rule.
 *
 * @param {number} x At most 0.
 * @returns {number} e to that power, to 3e-16 of its value; 0 below -700.
 */
export function exp(x) {
  if (x < LOWEST) return 0;
  const k = Math.trunc(-x * INVERSE_LN2 + 0.5);
  const r = x + k * LN2_HIGH + k * LN2_LOW;
  let total = FACTORS[13];
  for (let i = 12; i >= 0; i--) total = total * r + FACTORS[i];
  return total * HALVES[k];
}

/**
 * `x` is halved until it is below the root of 2; then ln x = 2 artanh((x - 1) / (x + 1)) by its series.
 *
 * @param {number} x At least 1.
 * @returns {number} Its natural logarithm, to 1e-15.
 */
export function log(x) {
  let k = 0;
  for (; x > 1.4142135623730951; k++) x = x / 2;
  const s = (x - 1) / (x + 1);
  const z = s * s;
  let total = 0;
  for (let odd = 25; odd > 0; odd -= 2) total = total * z + 1 / odd;
  return k * LN2_HIGH + (k * LN2_LOW + 2 * s * total);
}

/**
 * @param {Float32Array} logits
 * @param {number} best
 * @returns {number} The sum of `exp(logit - best)`, in the order of the ids.
 */
export function sumOfExps(logits, best) {
  let total = 0;
  for (const logit of logits) total = total + exp(logit - best);
  return total;
}
