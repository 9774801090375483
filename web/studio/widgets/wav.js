/** Writes decoded sound as a WAV file of 32-bit floats, which the steps read exactly and the server takes. */

const HEADER_BYTES = 44;
const FLOAT_FORMAT = 3;

/** @param {AudioBuffer} buffer @returns {Blob} One channel: the mean of all of them. */
export function wavOf(buffer) {
  const { numberOfChannels: channels, length, sampleRate } = buffer;
  const planes = Array.from({ length: channels }, (_, i) => buffer.getChannelData(i));
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + 4 * length));
  const text = (/** @type {number} */ at, /** @type {string} */ word) => [...word].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + 4 * length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, FLOAT_FORMAT, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, 4 * sampleRate, true);
  view.setUint16(32, 4, true);
  view.setUint16(34, 32, true);
  text(36, "data");
  view.setUint32(40, 4 * length, true);
  for (let i = 0; i < length; i++) view.setFloat32(HEADER_BYTES + 4 * i, planes.reduce((sum, plane) => sum + plane[i], 0) / channels, true);
  return new Blob([view.buffer], { type: "audio/wav" });
}
