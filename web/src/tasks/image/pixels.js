/** The pixels of what a page shows or has fetched: files, elements, canvases, bitmaps. */

import { EdgeInferError } from "../../errors.js";
import { HEAD_BYTES, sizeInHead } from "./head-size.js";
import { checkSize } from "./image.js";

/** @typedef {import("./image.js").Image} Image */

/** The largest file. */
const MAX_BYTES = 256 * 2 ** 20;
const HINT = "give a URL, a Blob, bytes of a file, an <img>, <video> or <canvas>, an ImageBitmap, ImageData, or {data, width, height, channels}";
/** Pillow takes no notice of colour profiles and keeps what is under transparent pixels; files are turned upright. @type {ImageBitmapOptions} */
const OPTIONS = { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" };

/**
 * @param {any} value
 * @returns {Promise<Image>} Of 1, 3 or 4 channels; the fourth is how opaque a pixel is.
 * @throws {EdgeInferError} `input_error`: it is not an image, is broken or too large. `fetch_error`: its address cannot be fetched.
 */
export async function pixelsOf(value) {
  const given = ofArray(value);
  if (given) return given;
  if (typeof createImageBitmap === "undefined" || typeof OffscreenCanvas === "undefined") {
    throw new EdgeInferError("Image files cannot be decoded here", "input_error", { hint: "give pixels: {data, width, height, channels: 3}" });
  }
  const source = await sourceOf(value);
  /** @type {ImageBitmap | undefined} */
  let bitmap;
  try {
    if (source instanceof Blob) {
      const size = sizeInHead(new Uint8Array(await source.slice(0, HEAD_BYTES).arrayBuffer()));
      if (size) checkSize(...size);
    }
    bitmap = await createImageBitmap(source, OPTIONS);
    checkSize(bitmap.width, bitmap.height);
    return read(bitmap);
  } catch (cause) {
    if (cause instanceof EdgeInferError) throw cause;
    const said = cause instanceof Error ? cause.message : String(cause);
    throw new EdgeInferError(`the image cannot be read: ${said}`, "input_error", {
      hint: "give a JPEG, PNG, WebP or GIF file that is whole, or an element whose picture has loaded and is of this site",
      cause,
    });
  } finally {
    bitmap?.close();
  }
}

/** @param {any} value @returns {Image | null} */
function ofArray(value) {
  const { data, width, height, channels } = value ?? {};
  if (!(data instanceof Uint8Array || data instanceof Uint8ClampedArray)) return null;
  checkSize(width, height);
  const depth = channels ?? data.length / (width * height);
  if (![1, 3, 4].includes(depth) || data.length !== width * height * depth) {
    throw new EdgeInferError(`an image of ${width} x ${height} pixels has ${data.length} bytes and ${depth} channels`, "input_error", {
      hint: "give width * height * channels bytes of 1, 3 or 4 channels",
    });
  }
  return { data, width, height, channels: depth };
}

/** @param {any} value @returns {Promise<ImageBitmapSource>} */
async function sourceOf(value) {
  if (typeof value === "string" || value instanceof URL) return fetched(String(value));
  if (value instanceof Blob) return checkedBytes(value);
  if (value instanceof ArrayBuffer || value instanceof Uint8Array) return checkedBytes(new Blob([/** @type {BlobPart} */ (value)]));
  const width = value?.naturalWidth ?? value?.videoWidth ?? value?.displayWidth ?? value?.width;
  const height = value?.naturalHeight ?? value?.videoHeight ?? value?.displayHeight ?? value?.height;
  if (typeof width !== "number" || typeof height !== "number") {
    throw new EdgeInferError(`a ${value?.constructor?.name ?? typeof value} is not an image`, "input_error", { hint: HINT });
  }
  if (width === 0 || height === 0) {
    throw new EdgeInferError("the picture of the element has not loaded yet", "input_error", { hint: "await image.decode(), or wait for the video's `loadeddata`" });
  }
  checkSize(width, height);
  return value;
}

/** @param {string} url @returns {Promise<Blob>} */
export async function fetched(url) {
  /** @type {Response | undefined} */
  let response;
  try {
    response = await fetch(url);
    if (response.ok) {
      if (Number(response.headers.get("content-length") ?? 0) > MAX_BYTES) throw tooLarge(`of more than ${MAX_BYTES}`);
      return checkedBytes(await response.blob());
    }
  } catch (cause) {
    if (cause instanceof EdgeInferError) throw cause;
    throw new EdgeInferError(`the image \`${url}\` cannot be fetched`, "fetch_error", { details: { url }, cause });
  }
  throw new EdgeInferError(`the image \`${url}\` answers with status ${response.status}`, "fetch_error", { details: { url, status: response.status } });
}

/** @param {Blob} blob */
function checkedBytes(blob) {
  if (blob.size > MAX_BYTES) throw tooLarge(`${blob.size}`);
  return blob;
}

/** @param {string} bytes */
function tooLarge(bytes) {
  return new EdgeInferError(`the image has ${bytes} bytes, expected at most ${MAX_BYTES}`, "input_error", { hint: "give a smaller one" });
}

/** @param {ImageBitmap} bitmap @returns {Image} */
function read(bitmap) {
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new EdgeInferError("this page can make no canvas to read pixels from", "input_error");
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const image = { data, width, height, channels: 4 };
  for (let at = 3; at < data.length; at += 4) if (data[at] < 255) return transparent(bitmap) ?? image;
  return image;
}

/**
 * Read what is under transparent pixels: a 2D canvas multiplies colours by the opacity, and so loses a part of them.
 *
 * @param {ImageBitmap} bitmap
 * @returns {Image | null} Null where WebGL is not to be had, or not for this size.
 */
function transparent(bitmap) {
  const { width, height } = bitmap;
  const gl = new OffscreenCanvas(1, 1).getContext("webgl");
  if (!gl) return null;
  const data = new Uint8Array(width * height * 4);
  gl.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
  gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, gl.getParameter(gl.TEXTURE_BINDING_2D), 0);
  const isReadable = gl.checkFramebufferStatus(gl.FRAMEBUFFER) === gl.FRAMEBUFFER_COMPLETE;
  if (isReadable) gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, data);
  const isRead = isReadable && gl.getError() === gl.NO_ERROR;
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return isRead ? { data, width, height, channels: 4 } : null;
}
