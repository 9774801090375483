/** Names in errors: lists of them, and the one that was probably meant. */

/**
 * @param {readonly string[]} words
 * @returns {string} A readable list of literals: `a`, `b`, `c`.
 */
export function listed(words) {
  return words.length ? words.map((word) => `\`${word}\``).join(", ") : "nothing";
}

/** @param {unknown} value @param {number} [most] @returns {string} The value as JSON, cut to a number of characters. */
export function shown(value, most = 60) {
  const text = typeof value === "number" || typeof value === "bigint" ? String(value) : (JSON.stringify(value) ?? String(value));
  return text.length <= most ? text : `${text.slice(0, most - 3)}...`;
}

/** How alike two words are at least, of 1: that of Python's difflib, which finds parts and swapped words too. */
const ALIKE = 0.6;
const MAX_WORD = 100;

/**
 * @param {string} word
 * @param {readonly string[]} choices
 * @returns {string} A hint that names the choice nearest to a mistyped word, or an empty text: the same as Python's `did_you_mean`.
 */
export function didYouMean(word, choices) {
  const letters = [...word.toLowerCase()].slice(0, MAX_WORD);
  let [nearest, most, meant] = ["", ALIKE, ""];
  for (const [lower, choice] of new Map(choices.map((one) => [one.toLowerCase(), one]))) {
    const others = [...lower];
    const alike = (2 * common(others, letters)) / (others.length + letters.length || 1);
    if (alike > most || (alike === most && lower >= nearest)) [nearest, most, meant] = [lower, alike, choice];
  }
  return meant && `did you mean \`${meant}\`?`;
}

/**
 * @param {readonly string[]} one
 * @param {readonly string[]} other
 * @returns {number} How many letters are in both: the longest run, then the same left and right of it (Ratcliff and Metzener, 1988).
 */
function common(one, other) {
  let [size, from, to] = [0, 0, 0];
  /** @type {number[]} By place in the other word the length of the run that ends there. */
  let runs = [];
  for (let i = 0; i < one.length; i++) {
    /** @type {number[]} */
    const next = [];
    for (let j = 0; j < other.length; j++) {
      if (one[i] !== other[j]) continue;
      next[j] = (runs[j - 1] ?? 0) + 1;
      if (next[j] > size) [size, from, to] = [next[j], i + 1, j + 1];
    }
    runs = next;
  }
  if (!size) return 0;
  const left = common(one.slice(0, from - size), other.slice(0, to - size));
  return size + left + common(one.slice(from), other.slice(to));
}
