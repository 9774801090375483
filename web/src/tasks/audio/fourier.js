/** The discrete Fourier transform of real numbers, of any length. */

/** @typedef {[real: Float64Array, imaginary: Float64Array]} Spectrum */

/** Transforms frames of one length: mixed radix 2, 3 and 5 (Cooley and Tukey, 1965), other factors directly. */
export class RealFourier {
  /** What each level writes: two of them take turns. @type {Spectrum[]} */
  #levels;

  /** @param {number} length Samples of a frame. */
  constructor(length) {
    this.length = length;
    this.cos = Float64Array.from({ length }, (_, k) => Math.cos((2 * Math.PI * k) / length));
    this.sin = Float64Array.from({ length }, (_, k) => -Math.sin((2 * Math.PI * k) / length));
    this.#levels = [0, 1].map(() => [new Float64Array(length), new Float64Array(length)]);
  }

  /**
   * @param {Float64Array} samples
   * @returns {Spectrum} Each frequency; those from 0 to half the rate are what counts. The next call writes over it.
   */
  transform(samples) {
    if (this.length > 1) this.#part(samples, 0, 1, this.length, 0, 0);
    else this.#levels[0][0][0] = samples[0];
    return this.#levels[0];
  }

  /**
   * Transform each `stride`th sample.
   *
   * @param {Float64Array} samples
   * @param {number} start
   * @param {number} stride
   * @param {number} length
   * @param {number} at Where in its level the result begins.
   * @param {number} level
   */
  #part(samples, start, stride, length, at, level) {
    const [outReal, outImaginary] = this.#levels[level];
    const radix = length % 2 === 0 ? 2 : length % 3 === 0 ? 3 : length % 5 === 0 ? 5 : length;
    const size = length / radix;
    const [real, imaginary] = this.#levels[1 - level];
    for (let q = 0; q < radix; q++) {
      if (size > 1) this.#part(samples, start + q * stride, stride * radix, size, at + q * size, 1 - level);
      else {
        real[at + q] = samples[start + q * stride];
        imaginary[at + q] = 0;
      }
    }
    const { cos, sin, length: whole } = this;
    for (let k = 0, low = 0; k < length; k++, low = low + 1 === size ? 0 : low + 1) {
      // One name a line: before it is compiled, destructuring costs more than the arithmetic.
      let totalReal = 0;
      let totalImaginary = 0;
      const step = (k * stride) % whole;
      for (let q = 0, turn = 0, place = at + low; q < radix; q++, place += size) {
        const re = real[place];
        const im = imaginary[place];
        const cosine = cos[turn];
        const sine = sin[turn];
        totalReal += re * cosine - im * sine;
        totalImaginary += re * sine + im * cosine;
        turn += step;
        if (turn >= whole) turn -= whole;
      }
      outReal[at + k] = totalReal;
      outImaginary[at + k] = totalImaginary;
    }
  }
}
