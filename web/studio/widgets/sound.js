/** A sound from a file or the microphone, with its waveform. */

import { end, streamOf } from "../devices.js";
import { h, notice, takesFiles } from "../parts.js";
import { answerViews } from "./answers.js";
import { samplesOf } from "./samples.js";
import { wavOf } from "./wav.js";

/** How long the microphone is listened to. */
const RECORD_MS = 3000;
const COLUMNS = 200;
/** What the browser decodes other files to, in samples per second. */
const RATE = 48_000;

/** @type {import("./registry.js").Make} */
export function sound(model, state) {
  const wave = h(".cols.wave", { role: "img", "aria-label": "The waveform of the sound" });
  const news = h("");
  const answer = h("", h("p.small.quiet", "The answer stands here."));
  const stage = h(".stage", h(".view", wave, h("p.prompt", "Drop a sound here, choose a file, or record three seconds.")));
  const open = takesFiles(stage, "audio/*,.wav", (file) => take(file));
  const record = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => listen() }, "Record 3 seconds"));
  const samples = samplesOf(model, take, news);
  stage.append(h(".tools", h("button", { onclick: () => open() }, "Choose a sound"), record, samples.buttons, news));
  /** @type {MediaStream | null} */
  let microphone = null;

  /** @param {Blob} file @param {string} [sample] */
  async function take(file, sample = "") {
    samples.shown = sample;
    news.replaceChildren();
    try {
      const content = await file.arrayBuffer();
      const read = await samplesOfWav(content);
      if (read) {
        draw(read);
        return state.ask(file);
      }
      const buffer = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(content);
      draw(buffer.getChannelData(0));
      state.ask(wavOf(buffer));
    } catch {
      news.replaceChildren(notice("bad", "This file is not a sound that this browser reads.", "Choose a WAV, MP3, OGG or FLAC file."));
    }
  }

  async function listen() {
    news.replaceChildren();
    record.disabled = true;
    const given = await streamOf("microphone", { audio: true }, "choose a sound");
    if (!stage.isConnected) return end(given instanceof HTMLElement ? null : given); // the page was left meanwhile
    if (given instanceof HTMLElement) {
      record.disabled = false;
      return news.replaceChildren(given);
    }
    microphone = given;
    record.textContent = "Recording…";
    const recorder = new MediaRecorder(microphone);
    /** @type {Blob[]} */
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onstop = () => {
      stop();
      if (stage.isConnected) take(new Blob(parts));
    };
    recorder.start();
    setTimeout(() => recorder.state === "recording" && recorder.stop(), RECORD_MS);
  }

  function stop() {
    end(microphone);
    microphone = null;
    record.disabled = false;
    record.textContent = "Record 3 seconds";
  }

  /** @param {Float32Array | Float64Array} samples */
  function draw(samples) {
    const step = Math.max(1, Math.floor(samples.length / COLUMNS));
    const peaks = Array.from({ length: COLUMNS }, (_, i) => /** @type {Float64Array} */ (samples.subarray(i * step, (i + 1) * step)).reduce((most, value) => Math.max(most, Math.abs(value)), 0));
    wave.replaceChildren(...peaks.map((value) => h("i", { "--v": Math.min(1, value) })));
    stage.querySelector(".prompt")?.remove();
  }

  return { stage, answer, ready: () => state.hasInput || samples.first(), show: (found) => answer.replaceChildren(...answerViews(found)), link: samples.link, leave: stop };
}

/** @param {ArrayBuffer} content @returns {Promise<Float32Array | Float64Array | null>} What the steps read of a file themselves, exactly; null where the browser has to decode it. */
async function samplesOfWav(content) {
  const { isWav, readWav } = await import("../../src/tasks/audio/wav.js");
  try {
    const bytes = new Uint8Array(content);
    return isWav(bytes) ? readWav(bytes).samples : null;
  } catch {
    return null;
  }
}
