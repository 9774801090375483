/** Sums that are rounded once. */

/**
 * Add numbers without an error but the last rounding, as Python's `math.fsum` does: Shewchuk's partial sums, which do not
 * overlap ("Adaptive Precision Floating-Point Arithmetic", 1997).
 *
 * @param {ArrayLike<number>} values Finite.
 * @returns {number}
 */
export function exactSum(values) {
  /** @type {number[]} From the smallest to the largest. */
  const partials = [];
  for (let i = 0; i < values.length; i++) {
    let x = values[i];
    let kept = 0;
    for (let y of partials) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y;
      const low = y - (high - x);
      if (low !== 0) partials[kept++] = low;
      x = high;
    }
    partials.length = kept;
    partials.push(x);
  }
  let at = partials.length - 1;
  let high = at >= 0 ? partials[at] : 0;
  let low = 0;
  while (at > 0 && low === 0) {
    const x = high;
    at -= 1;
    high = x + partials[at];
    low = partials[at] - (high - x);
  }
  // Half way between two numbers: what is left below decides, not the even one.
  if (at > 0 && ((low < 0 && partials[at - 1] < 0) || (low > 0 && partials[at - 1] > 0))) {
    const twice = low * 2;
    const x = high + twice;
    if (twice === x - high) high = x;
  }
  return high;
}
