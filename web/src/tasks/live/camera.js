/** Answers to the newest picture of a camera or a video. The same as `edge_infer.tasks.live.camera`. */

import { EdgeInferError } from "../../errors.js";

/** A track that the page itself stops has no event: it is looked at so often. */
const LOOK_MS = 250;

/**
 * Answer the picture that is shown, again and again: one that comes while the model runs is dropped.
 *
 * @param {(picture: HTMLVideoElement) => Promise<any>} answer
 * @param {HTMLVideoElement | MediaStream | null | undefined} source Nothing for the camera, which is asked for and turned off at the end.
 * @returns {AsyncGenerator<any>} It ends with the video.
 * @throws {EdgeInferError} `unsupported`: there is no camera, or the page may not have it. `input_error`: the source has no pictures.
 */
export async function* watch(answer, source) {
  if (typeof HTMLVideoElement !== "undefined" && source instanceof HTMLVideoElement) {
    while (await shown(source)) yield await answer(source);
    return;
  }
  const stream = source ?? (await asked());
  if (typeof MediaStream === "undefined" || !(stream instanceof MediaStream) || !stream.getVideoTracks().length) {
    throw new EdgeInferError("there is nothing to watch", "input_error", { hint: "give a <video>, a MediaStream with pictures, or nothing for the camera" });
  }
  const video = Object.assign(document.createElement("video"), { muted: true, playsInline: true });
  video.srcObject = stream;
  try {
    await video.play();
    while (await shown(video)) yield await answer(video);
  } finally {
    video.srcObject = null;
    if (!source) for (const one of stream.getTracks()) one.stop();
  }
}

/** @param {HTMLVideoElement} video @returns {Promise<boolean>} True with its next picture, false at its end. */
async function shown(video) {
  const tracks = video.srcObject instanceof MediaStream ? video.srcObject.getVideoTracks() : [];
  const isOver = () => video.ended || (tracks.length > 0 && tracks.every(({ readyState }) => readyState === "ended"));
  if (isOver()) return false;
  if (video.error) throw unplayable(); // its event came before
  const stopped = new AbortController();
  const { signal } = stopped;
  let timer = 0;
  try {
    return await new Promise((resolve, reject) => {
      timer = window.setInterval(() => isOver() && resolve(false), LOOK_MS);
      video.requestVideoFrameCallback(() => resolve(!isOver()));
      for (const one of [video, ...tracks]) one.addEventListener("ended", () => resolve(false), { signal });
      video.addEventListener("error", () => reject(unplayable()), { signal });
    });
  } finally {
    clearInterval(timer);
    stopped.abort();
  }
}

/** @returns {EdgeInferError} */
function unplayable() {
  return new EdgeInferError("the video cannot be shown", "input_error", { hint: "give one that the browser plays" });
}

/** @returns {Promise<MediaStream>} */
async function asked() {
  if (!globalThis.navigator?.mediaDevices) {
    throw new EdgeInferError("this page has no camera", "unsupported", { hint: "open it by https or at localhost, or give a <video>" });
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    throw new EdgeInferError(`the browser did not give the camera: ${said}`, "unsupported", { hint: "allow it by the icon beside the address" });
  }
}
