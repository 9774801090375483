/** Windows: the weights of a frame's samples before its Fourier transform. The same as `edge_infer.tasks.audio.window`. */

/**
 * @param {"hann" | "hann_symmetric" | "hamming" | "povey"} name `hann` is periodic, the others are symmetric.
 * @param {number} length
 * @returns {Float64Array}
 */
export function windowOf(name, length) {
  const turns = name === "hann" ? length : length - 1;
  const cosines = Float64Array.from({ length }, (_, i) => Math.cos((2 * Math.PI * i) / turns));
  if (name === "hamming") return cosines.map((cosine) => 0.54 - 0.46 * cosine);
  const hann = cosines.map((cosine) => 0.5 - 0.5 * cosine);
  return name === "povey" ? hann.map((weight) => weight ** 0.85) : hann;
}
