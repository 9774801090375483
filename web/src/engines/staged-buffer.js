/** A buffer that Python and an engine share, so that a run crosses between the languages once, not once per tensor. */

import { EdgeInferError } from "../errors.js";

/** @typedef {{data: Uint8Array, release: () => void}} Shared */
/** @typedef {{getBuffer: (type: "u8") => Shared}} Shareable A Python buffer, as Pyodide shows it. */
/** @typedef {{shared: Uint8Array, own: Uint8Array}} Part */

/** The bytes of all inputs and then of all outputs, in their order and without gaps. */
export class StagedBuffer {
  /**
   * @param {Shareable} buffer
   * @param {Uint8Array[]} inputs Where the engine has them.
   * @param {Uint8Array[]} outputs
   */
  constructor(buffer, inputs, outputs) {
    this.buffer = buffer;
    this.own = { inputs, outputs };
    this.share();
  }

  /**
   * Run a call on the inputs in its shared buffer, and put the outputs there.
   *
   * @param {{staged?: StagedBuffer, run: () => unknown}} call
   */
  static cross(call) {
    const { staged } = call;
    if (!staged) throw new EdgeInferError("The call shares no buffer", "input_error");
    staged.read();
    call.run();
    staged.write();
  }

  share() {
    this.shared = this.buffer.getBuffer("u8");
    const { data } = this.shared;
    let offset = 0;
    const pair = (/** @type {Uint8Array} */ own) => {
      const part = { shared: data.subarray(offset, offset + own.byteLength), own };
      offset += own.byteLength;
      return part;
    };
    /** @type {Part[]} */
    this.inputs = this.own.inputs.map(pair);
    /** @type {Part[]} */
    this.outputs = this.own.outputs.map(pair);
  }

  /** Put what the engine has into the buffer. */
  fill() {
    for (const { shared, own } of [...(this.inputs ?? []), ...(this.outputs ?? [])]) shared.set(own);
  }

  /** Copy the inputs to the engine. */
  read() {
    // Python's memory moved when it grew.
    if (this.shared?.data.byteLength === 0) {
      this.shared.release();
      this.share();
    }
    for (const { shared, own } of this.inputs ?? []) own.set(shared);
  }

  /** Copy the engine's outputs into the buffer. */
  write() {
    for (const { shared, own } of this.outputs ?? []) shared.set(own);
  }

  /** Let the buffer go. A second call does nothing. */
  close() {
    this.shared?.release();
    this.shared = undefined;
  }
}
