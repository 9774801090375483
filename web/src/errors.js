/**
 * The one error that this package throws on purpose. It crosses a worker or the wire as the JSON of Python's
 * `EdgeInferError.to_json` and is rebuilt on the other side.
 */

/**
 * @typedef {object} ErrorDocument
 * @property {string} error What is wrong, in one line.
 * @property {string} code One of the codes of `edge_infer.errors`.
 * @property {string} [hint] What to type or change next.
 * @property {Record<string, unknown>} [details] The facts behind the message.
 */

/** Something is wrong, and the message says what, the hint what to do next. */
export class EdgeInferError extends Error {
  /**
   * @param {string} message What is wrong, where, what was expected and what came: one line, no full stop.
   * @param {string} code One of the codes of `edge_infer.errors`: `input_error`, `unsupported_model`, ...
   * @param {{hint?: string, details?: Record<string, unknown>, cause?: unknown}} [more]
   */
  constructor(message, code, { hint = "", details = {}, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "EdgeInferError";
    this.code = code;
    this.hint = hint;
    this.details = details;
  }

  /** @returns {string} The message, and the hint in a line of its own. */
  toString() {
    return this.hint ? `${this.message}\nhint: ${this.hint}` : this.message;
  }

  /** @returns {ErrorDocument} What `fromJSON` rebuilds this error from. */
  toJSON() {
    return { error: this.message, code: this.code, hint: this.hint, details: this.details };
  }

  /**
   * @param {ErrorDocument} document
   * @returns {EdgeInferError}
   */
  static fromJSON(document) {
    return new EdgeInferError(document.error, document.code, { hint: document.hint, details: document.details });
  }

  /**
   * Describe anything that was thrown as JSON.
   *
   * @param {unknown} thrown
   * @returns {ErrorDocument}
   */
  static describe(thrown) {
    if (thrown instanceof EdgeInferError) return thrown.toJSON();
    const message = thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
    const stack = thrown instanceof Error ? { stack: thrown.stack } : {};
    return { error: message, code: "error", hint: "", details: stack };
  }
}
