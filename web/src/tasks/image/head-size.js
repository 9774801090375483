/** The size that the head of an image file states, so that one that is too large is refused before it is decoded. */

/** How much of a file is looked at: JPEG has profiles and previews before its size. */
export const HEAD_BYTES = 2 ** 20;

/**
 * @param {Uint8Array} head The first bytes of a PNG, JPEG, GIF, WebP or BMP file.
 * @returns {[number, number] | null} Width and height; null for other files, and where the head does not reach so far.
 */
export function sizeInHead(head) {
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  try {
    if (view.getUint32(0) === 0x89504e47) return [view.getUint32(16), view.getUint32(20)];
    if (view.getUint16(0) === 0xffd8) return ofJpeg(view);
    if (view.getUint32(0) === 0x47494638) return [view.getUint16(6, true), view.getUint16(8, true)]; // GIF8
    if (view.getUint32(0) === 0x52494646 && view.getUint32(8) === 0x57454250) return ofWebp(view); // RIFF, WEBP
    if (view.getUint16(0) === 0x424d) return ofBmp(view); // BM
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // it ends before its size
  }
  return null;
}

/** The first segment that begins a frame (SOF), https://www.w3.org/Graphics/JPEG/itu-t81.pdf B.2.2. @param {DataView} view @returns {[number, number] | null} */
function ofJpeg(view) {
  for (let place = 2; ; ) {
    if (view.getUint8(place) !== 0xff) return null;
    const marker = view.getUint8(place + 1);
    if (marker === 0xff) {
      place += 1; // filling
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return [view.getUint16(place + 7), view.getUint16(place + 5)];
    if (marker === 0xd9 || marker === 0xda) return null; // the end, or pixels without a frame
    place += 2 + view.getUint16(place + 2);
  }
}

/** https://developers.google.com/speed/webp/docs/riff_container @param {DataView} view @returns {[number, number] | null} */
function ofWebp(view) {
  const kind = view.getUint32(12);
  if (kind === 0x56503858) return [1 + of24(view, 24), 1 + of24(view, 27)]; // VP8X
  if (kind === 0x56503820) return [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff]; // VP8
  if (kind !== 0x5650384c) return null; // VP8L
  const bits = view.getUint32(21, true);
  return [1 + (bits & 0x3fff), 1 + ((bits >>> 14) & 0x3fff)];
}

/** @param {DataView} view @returns {[number, number]} The height is negative where rows go downwards. */
function ofBmp(view) {
  if (view.getUint32(14, true) === 12) return [view.getUint16(18, true), view.getUint16(20, true)];
  return [view.getInt32(18, true), Math.abs(view.getInt32(22, true))];
}

/** @param {DataView} view @param {number} place */
function of24(view, place) {
  return view.getUint16(place, true) | (view.getUint8(place + 2) << 16);
}
