/** Random numbers from a seed: the same in Python and JavaScript. */

/** Uniform numbers of sfc32, the small fast counting generator of C. Doty-Humphrey's PractRand, on 32-bit integers. */
export class RandomNumbers {
  #a = 0x9e3779b9;
  #b;
  #c;
  #count = 1;

  /** @param {number | bigint} seed A whole number; its lower 64 bits count. */
  constructor(seed) {
    this.#b = Number(BigInt.asUintN(32, BigInt(seed)));
    this.#c = Number(BigInt.asUintN(32, BigInt(seed) >> 32n));
    for (let i = 0; i < 15; i++) this.word();
  }

  /** @returns {number} The next 32 bits. */
  word() {
    const found = (this.#a + this.#b + this.#count) >>> 0;
    this.#count = (this.#count + 1) >>> 0;
    this.#a = (this.#b ^ (this.#b >>> 9)) >>> 0;
    this.#b = (this.#c + (this.#c << 3)) >>> 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + found) >>> 0;
    return found;
  }

  /** @returns {number} The next number of 53 bits, at least 0 and below 1. */
  uniform() {
    const high = this.word() >>> 5;
    return (high * 67108864 + (this.word() >>> 6)) / 9007199254740992;
  }
}
