/** The discrete Fourier transform of real numbers, of any length. */

/** @typedef {[real: Float64Array, imaginary: Float64Array]} Spectrum */

/** Transforms frames of one length: mixed radix 2, 3 and 5 (Cooley and Tukey, 1965), other factors directly. */
export class RealFourier {
  /** @param {number} length Samples of a frame. */
  constructor(length) {
    this.length = length;
    this.cos = Float64Array.from({ length }, (_, k) => Math.cos((2 * Math.PI * k) / length));
    this.sin = Float64Array.from({ length }, (_, k) => -Math.sin((2 * Math.PI * k) / length));
  }

  /** @param {Float64Array} samples @returns {Spectrum} Each frequency; those from 0 to half the rate are what counts. */
  transform(samples) {
    return this.#part([samples, new Float64Array(this.length)], 0, 1, this.length);
  }

  /** @param {Spectrum} given @param {number} start @param {number} stride @param {number} length @returns {Spectrum} Of each `stride`th sample. */
  #part([real, imaginary], start, stride, length) {
    if (length === 1) return [Float64Array.of(real[start]), Float64Array.of(imaginary[start])];
    const radix = [2, 3, 5].find((factor) => length % factor === 0) ?? length;
    const size = length / radix;
    const parts = Array.from({ length: radix }, (_, q) => this.#part([real, imaginary], start + q * stride, stride * radix, size));
    /** @type {Spectrum} */
    const [outReal, outImaginary] = [new Float64Array(length), new Float64Array(length)];
    for (let k = 0; k < length; k++) {
      let [totalReal, totalImaginary] = [0, 0];
      for (let q = 0; q < radix; q++) {
        const turn = (q * k * stride) % this.length;
        const [re, im] = [parts[q][0][k % size], parts[q][1][k % size]];
        const [cosine, sine] = [this.cos[turn], this.sin[turn]];
        totalReal += re * cosine - im * sine;
        totalImaginary += re * sine + im * cosine;
      }
      outReal[k] = totalReal;
      outImaginary[k] = totalImaginary;
    }
    return [outReal, outImaginary];
  }
}
