/** Numbers of JSON as Python writes them: JavaScript does not tell 1.0 from 1, and chat templates write them out. */

/** A number of JSON text: a fraction or a power, or a whole number, which may be longer than a float64 holds. */
const NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;

/**
 * Parse JSON. A fraction without a rest, such as 1.0, becomes `new Number(1)`, and so stays apart from 1; a whole number
 * above 2 ** 53 becomes a bigint.
 *
 * @param {string} text
 * @returns {any}
 * @throws {SyntaxError} It is not JSON.
 */
export function parseJson(text) {
  JSON.parse(text);
  // A key that no text of this JSON holds.
  let mark = "number:";
  while (text.includes(mark)) mark += ":";
  const marked = text.replace(NUMBER, (found) => {
    if (found.startsWith('"')) return found;
    const isWhole = !/[.eE]/.test(found);
    return (isWhole ? Number.isSafeInteger(Number(found)) : !Number.isInteger(Number(found))) ? found : `"${mark}${found}"`;
  });
  return JSON.parse(marked, (_, value) => {
    if (typeof value !== "string" || !value.startsWith(mark)) return value;
    const written = value.slice(mark.length);
    return /[.eE]/.test(written) ? new Number(written) : BigInt(written);
  });
}

/**
 * @param {number} value A float.
 * @returns {string} It as Python's `repr` writes it: the fewest digits, `1.0`, `1e-07`, `1e+16`.
 */
export function floatText(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  const [digits, power] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  const text = Object.is(value, -0) ? "-0" : String(value);
  return Number.isInteger(value) ? `${text}.0` : text;
}
