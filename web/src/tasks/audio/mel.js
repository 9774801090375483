/** Mel bands: triangles over the frequencies of a Fourier transform. */

/** @typedef {{first: number, weights: number[]}} Band One band: its first frequency's number, and the weights from there. */

/**
 * @param {object} of
 * @param {number} of.fft Samples of a frame.
 * @param {number} of.mels How many bands.
 * @param {number} of.rate Samples per second.
 * @param {number} of.low_hz Where the first band begins.
 * @param {number | null} of.high_hz Where the last one ends; null for half the rate.
 * @param {string} of.scale `slaney` (linear below 1 kHz, from Slaney's Auditory Toolbox, 1998) or `htk` (the HTK book, 2002).
 * @param {boolean} of.area_norm Whether each band is divided by half its width in Hz.
 * @param {string} of.slopes Where the sides of a band are straight: over `hz`, or over `mel`.
 * @returns {Band[]}
 */
export function melFilters({ fft, mels, rate, low_hz, high_hz, scale, area_norm, slopes }) {
  const [low, high] = [toMel(low_hz, scale), toMel(high_hz ?? rate / 2, scale)];
  const isMel = slopes === "mel";
  const hzOf = (/** @type {number} */ mel) => toHz(mel, scale);
  const inMel = Array.from({ length: mels + 2 }, (_, i) => low + ((high - low) * i) / (mels + 1));
  const points = isMel ? inMel : inMel.map(hzOf);
  const inHz = Array.from({ length: Math.floor(fft / 2) + 1 }, (_, k) => (k * rate) / fft);
  const frequencies = isMel ? inHz.map((hz) => toMel(hz, scale)) : inHz;
  return Array.from({ length: mels }, (_, band) => {
    const [start, middle, end] = points.slice(band, band + 3);
    const width = isMel ? hzOf(end) - hzOf(start) : end - start;
    const row = frequencies.map((hz) => weight(hz, start, middle, end) * (area_norm ? 2 / width : 1));
    const first = row.findIndex((one) => one !== 0);
    return first < 0 ? { first: 0, weights: [] } : { first, weights: row.slice(first, row.findLastIndex((one) => one !== 0) + 1) };
  });
}

/** @param {number} hz @param {number} start @param {number} middle @param {number} end */
function weight(hz, start, middle, end) {
  if (!(start < middle && middle < end)) return 0;
  return Math.max(0, Math.min((hz - start) / (middle - start), (end - hz) / (end - middle)));
}

/** @param {number} hz @param {string} scale */
function toMel(hz, scale) {
  if (scale === "htk") return 2595 * Math.log10(1 + hz / 700);
  return hz >= 1000 ? 15 + Math.log(hz / 1000) * (27 / Math.log(6.4)) : (3 * hz) / 200;
}

/** @param {number} mel @param {string} scale */
function toHz(mel, scale) {
  if (scale === "htk") return 700 * (10 ** (mel / 2595) - 1);
  return mel >= 15 ? 1000 * Math.exp((Math.log(6.4) / 27) * (mel - 15)) : (200 * mel) / 3;
}
