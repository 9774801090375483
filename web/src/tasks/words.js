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

/**
 * @param {string} word
 * @param {readonly string[]} choices
 * @returns {string} A hint that names the choice nearest to a mistyped word, or an empty text.
 */
export function didYouMean(word, choices) {
  const ranked = choices.map((choice) => ({ choice, edits: distance(word.toLowerCase(), choice.toLowerCase()) }));
  const nearest = ranked.sort((one, other) => one.edits - other.edits)[0];
  return nearest && nearest.edits <= Math.max(word.length, nearest.choice.length) * 0.4 ? `did you mean \`${nearest.choice}\`?` : "";
}

/**
 * @param {string} one
 * @param {string} other
 * @returns {number} How many characters must be put in, taken out or changed (Levenshtein, 1966).
 */
function distance(one, other) {
  const [from, to] = [one.slice(0, 100), other.slice(0, 100)];
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (from[i - 1] === to[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[to.length];
}
