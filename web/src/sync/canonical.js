/** Write canonical JSON as The Update Framework signs it, a relative of gibson042.github.io/canonicaljson-spec. */

/**
 * @param {unknown} value What `JSON.parse` gives.
 * @returns {string} Keys sorted, no space, and only `"` and `\` escaped.
 * @throws {TypeError} It has a number that is not an integer.
 */
export function canonical(value) {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return `"${value.replace(/[\\"]/g, "\\$&")}"`;
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value)) throw new TypeError(`${value} is not an integer`);
    return String(value);
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const entries = Object.entries(/** @type {object} */ (value)).sort(([one], [other]) => byCodePoint(one, other));
  return `{${entries.map(([key, one]) => `${canonical(key)}:${canonical(one)}`).join(",")}}`;
}

/** @param {string} one @param {string} other */
function byCodePoint(one, other) {
  const [left, right] = [Array.from(one), Array.from(other)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = /** @type {number} */ (left[i].codePointAt(0)) - /** @type {number} */ (right[i].codePointAt(0));
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}
