/** Asks for a camera or a microphone, and says what to do where there is none. */

import { notice } from "./parts.js";

/**
 * @param {"camera" | "microphone"} name
 * @param {MediaStreamConstraints} wanted
 * @param {string} instead What works without it, such as "choose a picture".
 * @returns {Promise<MediaStream | HTMLElement>} The stream, or what to tell.
 */
export async function streamOf(name, wanted, instead) {
  if (!navigator.mediaDevices) return notice("warn", `The browser gives a ${name} to secure pages only.`, `Open this page by https or at localhost, or ${instead}.`);
  try {
    return await navigator.mediaDevices.getUserMedia(wanted);
  } catch (error) {
    const kind = error instanceof DOMException ? error.name : "";
    if (kind === "NotFoundError") return notice("warn", `No ${name} was found.`, `Plug one in, or ${instead}.`);
    if (kind === "NotReadableError") return notice("warn", `The ${name} is in use.`, `Close the program that uses it, or ${instead}.`);
    return notice("warn", `The browser did not give the ${name}.`, `Allow it by the icon beside the address, or ${instead}.`);
  }
}

/** @param {MediaStream | null} stream Its camera or microphone goes off. */
export function end(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}
