/**
 * The features of microcontrollers: TensorFlow Lite Micro's audio frontend, in its own integer arithmetic. The same as
 * `edge_infer.tasks.audio.micro_frontend`, which names the sources. Products of 32 and 15 bits are exact in a number.
 */

const { floor, fround, max, min } = Math;
const [WINDOW_BITS, FILTER_BITS, NOISE_BITS] = [12, 12, 14];
const [SNR_BITS, PCAN_BITS] = [12, 6];
const [LOG_SEGMENTS, LOG_COEFFICIENT] = [128, 45_426];
const LOG_TABLE = Array.from({ length: LOG_SEGMENTS + 1 }, (_, i) => Math.round(65_536 * (Math.log2(1 + i / LOG_SEGMENTS) - i / LOG_SEGMENTS)));
const MOST = 0xffffffff;
const [SMOOTHING_BITS, EVEN, ODD, LEAST_SIGNAL] = [10, 409, 983, 819];
const [STRENGTH, OFFSET, GAIN_BITS, LOG_SHIFT] = [0.95, 80, 21, 6];

/**
 * @typedef {object} Settings
 * @property {number} rate Samples a second.
 * @property {number} window The samples of a frame.
 * @property {number} hop The samples from one frame to the next.
 * @property {number} channels The mel bands.
 * @property {number} low_hz The lower end of the first band.
 * @property {number} high_hz The upper end of the last.
 * @property {boolean} gain Whether each band gets a gain of its own.
 */
/** @typedef {[number, number]} Complex */

/** Makes features of sounds; it remembers the noise of what it has heard. */
export class MicroFrontend {
  /** @param {Settings} settings */
  constructor(settings) {
    this.settings = settings;
    const size = 1 << bits(max(settings.window - 1, 1));
    const turn = fround((Math.PI * 2) / settings.window);
    this.window = Array.from({ length: settings.window }, (_, i) => weight(fround(turn * (i + 0.5))));
    this.fourier = new Fourier(size);
    this.bands = filters(settings, size);
    this.correction = bits(size) - 1 - FILTER_BITS / 2;
    this.gains = settings.gain ? gainTable(SMOOTHING_BITS - this.correction) : [];
    this.noise = new Array(settings.channels).fill(0);
  }

  /**
   * @param {ArrayLike<number>} samples Of 16 bits.
   * @returns {number[][]} The features of each whole frame, from 0 to 65,535.
   */
  features(samples) {
    const { window, hop } = this.settings;
    const found = [];
    for (let at = 0; at + window <= samples.length; at += hop) found.push(this.frame(samples, at));
    return found;
  }

  /** @param {ArrayLike<number>} samples @param {number} at */
  frame(samples, at) {
    const values = this.window.map((one, i) => (samples[at + i] * one) >> WINDOW_BITS);
    // The C counts in 16 bits, where -32,768 has no positive number.
    const shift = 15 - bits(values.reduce((most, value) => max(most, value === -32_768 ? 0 : Math.abs(value)), 0));
    const spectrum = this.fourier.transform(values.map((value) => wrapped(value * 2 ** shift)));
    return energies(this.bands, spectrum).map((band, i) => this.finished(i, floor(root(band) / 2 ** shift)));
  }

  /** @param {number} band @param {number} given */
  finished(band, given) {
    const smoothing = band & 1 ? ODD : EVEN;
    const scaled = (given * 2 ** SMOOTHING_BITS) % 2 ** 32;
    const noise = floor((scaled * smoothing + this.noise[band] * (2 ** NOISE_BITS - smoothing)) / 2 ** NOISE_BITS);
    this.noise[band] = noise;
    const left = floor((scaled - min(noise, scaled)) / 2 ** SMOOTHING_BITS);
    let signal = max(left, floor((given * LEAST_SIGNAL) / 2 ** NOISE_BITS));
    if (this.gains.length) {
      signal = shrunk(floor((signal * gainOf(noise, this.gains)) / 2 ** (GAIN_BITS - this.correction - SNR_BITS)) % 2 ** 32);
    }
    signal = floor(signal * 2 ** this.correction) % 2 ** 32;
    return signal > 1 ? min(logOf(signal), 0xffff) : 0;
  }
}

/** A transform of real integers by one of half as many complex ones, as kissfft computes it in 16 bits. */
class Fourier {
  /** @param {number} size */
  constructor(size) {
    this.half = size / 2;
    this.twiddles = Array.from({ length: this.half }, (_, i) => unit((-2 * Math.PI * i) / this.half));
    this.turns = Array.from({ length: this.half / 2 }, (_, i) => unit(-Math.PI * ((i + 1) / this.half + 0.5)));
  }

  /** @param {number[]} values @returns {Complex[]} Half of the size, and one more. */
  transform(values) {
    const { half } = this;
    const padded = Array.from({ length: 2 * half }, (_, i) => values[i] ?? 0);
    const [real, imaginary] = [new Array(half).fill(0), new Array(half).fill(0)];
    this.part(real, imaginary, 0, padded, 0, 1, half);
    /** @type {Complex[]} */
    const spectrum = new Array(half + 1);
    const [first, second] = [divided(real[0], 2), divided(imaginary[0], 2)];
    [spectrum[0], spectrum[half]] = [[wrapped(first + second), 0], [wrapped(first - second), 0]];
    for (let k = 1; k <= half / 2; k++) {
      const [a, b] = [divided(real[k], 2), divided(imaginary[k], 2)];
      const [c, d] = [divided(real[half - k], 2), divided(-imaginary[half - k], 2)];
      const [turnedReal, turnedImaginary] = product([a - c, b - d], this.turns[k - 1]);
      spectrum[k] = [(a + c + turnedReal) >> 1, (b + d + turnedImaginary) >> 1];
      spectrum[half - k] = [(a + c - turnedReal) >> 1, (turnedImaginary - b - d) >> 1];
    }
    return spectrum;
  }

  /** @param {number[]} real @param {number[]} imaginary @param {number} at @param {number[]} given @param {number} start @param {number} stride @param {number} size */
  part(real, imaginary, at, given, start, stride, size) {
    const radix = size % 4 === 0 ? 4 : 2;
    const length = size / radix;
    for (let i = 0; i < radix; i++) {
      const [place, source] = [at + i * length, start + i * stride];
      if (length === 1) [real[place], imaginary[place]] = [given[2 * source], given[2 * source + 1]];
      else this.part(real, imaginary, place, given, source, stride * radix, length);
    }
    for (let k = 0; k < length; k++) {
      if (radix === 4) this.four(real, imaginary, at + k, length, k * stride);
      else this.two(real, imaginary, at + k, length, k * stride);
    }
  }

  /** @param {number[]} real @param {number[]} imaginary @param {number} k @param {number} length @param {number} turn */
  four(real, imaginary, k, length, turn) {
    const places = [k, k + length, k + 2 * length, k + 3 * length];
    const [[a, e], ...others] = places.map((place) => /** @type {Complex} */ ([divided(real[place], 4), divided(imaginary[place], 4)]));
    const [[b, f], [c, g], [d, h]] = others.map((one, i) => product(one, this.twiddles[(i + 1) * turn]));
    const [over, overI, under, underI] = [a - c, e - g, a + c, e + g];
    const [both, bothI, apart, apartI] = [b + d, f + h, b - d, f - h];
    [real[k], imaginary[k]] = [wrapped(under + both), wrapped(underI + bothI)];
    [real[places[2]], imaginary[places[2]]] = [wrapped(under - both), wrapped(underI - bothI)];
    [real[places[1]], imaginary[places[1]]] = [wrapped(over + apartI), wrapped(overI - apart)];
    [real[places[3]], imaginary[places[3]]] = [wrapped(over - apartI), wrapped(overI + apart)];
  }

  /** @param {number[]} real @param {number[]} imaginary @param {number} k @param {number} length @param {number} turn */
  two(real, imaginary, k, length, turn) {
    const other = k + length;
    const [a, b] = [divided(real[k], 2), divided(imaginary[k], 2)];
    const [c, d] = product([divided(real[other], 2), divided(imaginary[other], 2)], this.twiddles[turn]);
    [real[other], imaginary[other]] = [wrapped(a - c), wrapped(b - d)];
    [real[k], imaginary[k]] = [wrapped(a + c), wrapped(b + d)];
  }
}

/** @typedef {{start: number, weights: number[], others: number[]}} Filter Each bin counts for a band, and for the one before. */

/** @param {Settings} settings @param {number} size @returns {Filter[]} Triangles over the mel scale. */
function filters(settings, size) {
  const count = settings.channels + 1;
  const width = fround((0.5 * settings.rate) / (size / 2));
  const low = mel(settings.low_hz);
  const spacing = fround(fround(mel(settings.high_hz) - low) / count);
  const centers = Array.from({ length: count }, (_, i) => fround(low + fround(spacing * (i + 1))));
  let place = Math.trunc(1.5 + settings.low_hz / width);
  return centers.map((center, band) => {
    const before = band ? centers[band - 1] : low;
    /** @type {Filter} */
    const filter = { start: place, weights: [], others: [] };
    while (place <= size / 2 && mel(fround(place * width)) <= center) {
      const share = fround(fround(center - mel(fround(place * width))) / fround(center - before));
      filter.weights.push(floor(fround(share * 2 ** FILTER_BITS) + 0.5));
      filter.others.push(floor((1 - share) * 2 ** FILTER_BITS + 0.5));
      place += 1;
    }
    return filter;
  });
}

/** @param {Filter[]} bands @param {Complex[]} spectrum @returns {number[]} The energy of each band. */
function energies(bands, spectrum) {
  let carried = 0;
  return bands
    .map(({ start, weights, others }) => {
      let [found, next] = [carried, 0];
      for (let i = 0; i < weights.length; i++) {
        const [real, imaginary] = spectrum[start + i];
        const energy = real * real + imaginary * imaginary;
        found += weights[i] * energy;
        next += others[i] * energy;
      }
      carried = next;
      return found;
    })
    .slice(1);
}

/** @param {number} angle @returns {number} A weight of Hann's window; cosines are float32 there. */
function weight(angle) {
  return floor(fround(0.5 - fround(0.5 * fround(Math.cos(angle)))) * 2 ** WINDOW_BITS + 0.5);
}

/** @param {number} value @returns {number} How many bits a whole number of at most 32 takes. */
function bits(value) {
  return 32 - Math.clz32(value);
}

/** @param {number} angle @returns {Complex} */
function unit(angle) {
  return [floor(0.5 + 32_767 * Math.cos(angle)), floor(0.5 + 32_767 * Math.sin(angle))];
}

/** @param {number} value @returns {number} What 16 bits hold of it. */
function wrapped(value) {
  return (value << 16) >> 16;
}

/** @param {number} value */
function rounded(value) {
  return wrapped(floor((value + 2 ** 14) / 2 ** 15));
}

/** @param {number} value @param {number} by */
function divided(value, by) {
  return rounded(value * floor(32_767 / by));
}

/** @param {Complex} one @param {Complex} other @returns {Complex} */
function product([a, b], [c, d]) {
  return [rounded(a * c - b * d), rounded(a * d + b * c)];
}

/** @param {number} hertz */
function mel(hertz) {
  return fround(1127 * fround(Math.log1p(fround(hertz / 700))));
}

/** @param {number} number @returns {number} Its square root, rounded to the nearest. */
function root(number) {
  let found = floor(Math.sqrt(number));
  while (found * found > number) found -= 1;
  while ((found + 1) * (found + 1) <= number) found += 1;
  const most = number >= 2 ** 32 ? MOST : 0xffff;
  return number - found * found > found && found !== most ? found + 1 : found;
}

/** @param {number} places @returns {number[]} Parabolas over the octaves of the noise, three numbers and a gap for each. */
function gainTable(places) {
  /** @param {number} noise */
  const gain = (noise) => {
    const found = fround(2 ** GAIN_BITS * fround(fround(fround(noise / 2 ** places) + OFFSET) ** -fround(STRENGTH)));
    return found > 0x7fff ? 0x7fff : Math.trunc(found + 0.5);
  };
  const table = [gain(0), gain(1)];
  for (let interval = 2; interval < 33; interval++) {
    const low = 2 ** (interval - 1);
    const [y0, y1, y2] = [gain(low), gain(low + floor(low / 2)), gain(interval === 32 ? MOST : 2 * low)];
    const first = 4 * (y1 - y0) - (y2 - y0);
    table.push(y0, first, y2 - y0 - first, 0);
  }
  return table;
}

/** @param {number} noise @param {number[]} table */
function gainOf(noise, table) {
  if (noise <= 1) return table[noise];
  const interval = bits(noise);
  const at = 4 * interval - 6;
  const part = floor(noise * 2 ** (11 - interval)) & 0x3ff;
  const result = floor((table[at + 2] * part) / 32) + table[at + 1] * 32;
  return wrapped(floor((result * part + 2 ** 14) / 2 ** 15) + table[at]);
}

/** @param {number} snr */
function shrunk(snr) {
  if (snr < 2 * 2 ** SNR_BITS) return floor((snr * snr) / 2 ** (2 + 2 * SNR_BITS - PCAN_BITS));
  return floor(snr / 2 ** (SNR_BITS - PCAN_BITS)) - 2 ** PCAN_BITS;
}

/** @param {number} value */
function logOf(value) {
  const whole = bits(value) - 1;
  const part = floor((value - 2 ** whole) * 2 ** (16 - whole));
  const segment = part >> 9;
  const [low, high] = [LOG_TABLE[segment], LOG_TABLE[segment + 1]];
  const fraction = part + low + (((high - low) * (part - 512 * segment)) >> 16);
  const natural = floor((LOG_COEFFICIENT * (whole * 65_536 + fraction) + 2 ** 15) / 65_536);
  return floor((natural * 2 ** LOG_SHIFT + 2 ** 15) / 65_536);
}
