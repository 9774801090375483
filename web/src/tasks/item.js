/** One raw input on its way through a pipeline. */

/**
 * @typedef {object} Geometry How a step of the image moved its points: `x' = x * scaleX + left`, `y' = y * scaleY + top`, in pixels.
 * @property {number} scaleX
 * @property {number} scaleY
 * @property {number} left
 * @property {number} top
 */

/** @typedef {(value: any, item: Item) => any} Apply What a step does: it takes a value and its item, and returns the next value. */

/** What the later steps need to know of one raw input. */
export class Item {
  /** @param {Record<string, any>} [args] What the caller of the pipeline asked for, such as `top_k`. */
  constructor(args = {}) {
    this.args = args;
    /** The decoded image's width in pixels; 0 for other inputs. */
    this.width = 0;
    this.height = 0;
    /** The width of the pixels that reach the model; 0 for other inputs. */
    this.inputWidth = 0;
    this.inputHeight = 0;
    /** What the steps did to the image's points, in their order. @type {Geometry[]} */
    this.geometry = [];
    /** The tokens of a text. @type {import("./text/encoding.js").Encoding | null} */
    this.encoding = null;
    /** The token of an id, as the vocabulary spells it. @type {(number: number) => string} */
    this.tokenOf = String;
    /** The text of tokens, by the tokenizer that made them. @type {(ids: number[]) => string} */
    this.decode = () => "";
    /** The text, or the first of a pair. */
    this.text = "";
    /** The second text of a pair. @type {string | null} */
    this.pair = null;
    /** The samples per second of a sound; 0 for other inputs. */
    this.rate = 0;
    /** The samples in front of the first frame, where a sound goes on; null for silence. @type {Float32Array | null} */
    this.before = null;
    /** The samples between the starts of two frames; 0 where a sound is not cut into frames. */
    this.frame = 0;
  }

  /** @param {Record<string, any>} args @returns {Item} What is known of the same raw input, asked for with other arguments. */
  copy(args) {
    return Object.assign(new Item(), this, { args, geometry: [...this.geometry] });
  }

  /**
   * @param {string} name
   * @param {any} missing
   * @returns {any} What the caller asked for, else the definition's own value.
   */
  argument(name, missing) {
    return this.args[name] ?? missing;
  }
}
