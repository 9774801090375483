/** One object that a detector found. */

/** @typedef {[left: number, top: number, right: number, bottom: number]} Box */
/**
 * @typedef {object} Detection One object, in pixels of the model's input.
 * @property {number} score 0 to 1.
 * @property {number} label The class's number.
 * @property {Box} box
 * @property {[x: number, y: number][]} points Its points, such as the eyes of a face; none for most detectors.
 */

/** @param {number} x @param {number} y @param {number} width @param {number} height @returns {Box} A box that is given by its centre and size. */
export function corners(x, y, width, height) {
  return [x - width / 2, y - height / 2, x + width / 2, y + height / 2];
}
