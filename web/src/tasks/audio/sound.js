/** A sound in memory: samples of one channel. */

/** @typedef {{samples: Float32Array, rate: number}} Sound -1 to 1 where the recording is not louder than full scale; samples per second. */

/** The most samples of a sound, read or made: an hour of 48 kHz. */
export const MAX_SAMPLES = 3600 * 48_000;

/**
 * Mix the channels to one: their mean, each sample times `scale`, in float64, rounded once to float32.
 *
 * @param {ArrayLike<number>[]} planes The samples of each channel.
 * @param {number} scale 1 divided by full scale.
 * @returns {Float32Array}
 */
export function mixed(planes, scale) {
  const [first] = planes;
  const made = new Float32Array(first.length);
  for (let i = 0; i < made.length; i++) {
    if (planes.length === 1) {
      made[i] = first[i] * scale;
      continue;
    }
    let total = 0;
    for (const plane of planes) total += plane[i];
    made[i] = (total / planes.length) * scale;
  }
  return made;
}
