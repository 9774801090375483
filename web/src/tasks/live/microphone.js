/** The sound of a microphone or a `MediaStream`, through an AudioWorklet into a ring: what is not taken in time is dropped. */

import { EdgeInferError } from "../../errors.js";

/** The program of the worklet: it hands each quantum of the first channel over. A text, so that a page needs no further file. */
const WORKLET = `registerProcessor("edge-infer-sound", class extends AudioWorkletProcessor {
  process([input]) {
    if (input[0]) this.port.postMessage(input[0]);
    return true;
  }
});`;

/** A track that the page itself stops has no event: it is looked at so often. */
const LOOK_MS = 250;

/** The newest samples of a sound; the oldest go where they are not taken in time. */
export class Ring {
  #held;
  #start = 0;
  #count = 0;
  #lost = 0;

  /** @param {number} capacity The most samples that wait. */
  constructor(capacity) {
    this.#held = new Float32Array(capacity);
  }

  /** @param {Float32Array} samples */
  push(samples) {
    const size = this.#held.length;
    for (const sample of samples) {
      this.#held[(this.#start + this.#count) % size] = sample;
      if (this.#count < size) {
        this.#count += 1;
      } else {
        this.#start = (this.#start + 1) % size;
        this.#lost += 1;
      }
    }
  }

  /** @returns {{samples: Float32Array, lost: number}} All that waits, and how many samples were dropped before it. */
  take() {
    const samples = Float32Array.from({ length: this.#count }, (_, i) => this.#held[(this.#start + i) % this.#held.length]);
    const lost = this.#lost;
    [this.#start, this.#count, this.#lost] = [0, 0, 0];
    return { samples, lost };
  }

  get isEmpty() {
    return this.#count === 0;
  }
}

/**
 * @param {MediaStream | null | undefined} given Nothing for the microphone, which is asked for and turned off at the end.
 * @param {number} rate The samples per second that are wanted: the browser converts.
 * @param {number} capacity The most samples that wait.
 * @returns {AsyncGenerator<{samples: Float32Array, lost: number}>} It ends with the stream's sound.
 * @throws {EdgeInferError} `unsupported`: there is no microphone, or the page may not have it.
 */
export async function* microphone(given, rate, capacity) {
  if (typeof AudioContext === "undefined" || (!given && !navigator.mediaDevices)) {
    throw new EdgeInferError("this page has no microphone", "unsupported", { hint: "open it by https or at localhost, or give blocks of samples" });
  }
  const stream = given ?? (await asked());
  const [track] = stream.getAudioTracks();
  if (!track) throw new EdgeInferError("the MediaStream has no sound", "input_error", { hint: "getUserMedia({ audio: true })" });
  /** @type {AudioContext | null} */
  let context = null;
  const module = URL.createObjectURL(new Blob([WORKLET], { type: "text/javascript" }));
  const ring = new Ring(capacity);
  let isOver = track.readyState === "ended";
  let wake = () => {};
  const over = () => {
    isOver = true;
    wake();
  };
  const timer = setInterval(() => track.readyState === "ended" && over(), LOOK_MS);
  try {
    context = new AudioContext({ sampleRate: rate });
    await context.audioWorklet.addModule(module);
    const node = new AudioWorkletNode(context, "edge-infer-sound", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => {
      ring.push(data);
      wake();
    };
    track.addEventListener("ended", over);
    context.createMediaStreamSource(stream).connect(node);
    await context.resume();
    for (;;) {
      if (ring.isEmpty && !isOver) await new Promise((resolve) => (wake = () => resolve(undefined)));
      if (ring.isEmpty) return;
      yield ring.take();
    }
  } finally {
    clearInterval(timer);
    track.removeEventListener("ended", over);
    URL.revokeObjectURL(module);
    await context?.close();
    if (!given) for (const one of stream.getTracks()) one.stop();
  }
}

/** @returns {Promise<MediaStream>} */
async function asked() {
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false } });
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    throw new EdgeInferError(`the browser did not give the microphone: ${said}`, "unsupported", { hint: "allow it by the icon beside the address" });
  }
}
