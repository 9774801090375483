/** A picture from a file, the clipboard or the camera; labels, boxes, points and masks as the answer. */

import { end, streamOf } from "../devices.js";
import { h, notice, takesFiles, trouble } from "../parts.js";
import { answerViews } from "./answers.js";
import { samplesOf } from "./samples.js";

const SVG = "http://www.w3.org/2000/svg";
/** The side of a frame that the camera is asked for. */
const CAMERA_WIDTH = 640;
const COLOURS = 12;

/** @type {import("./registry.js").Make} */
export function image(model, state) {
  const picture = /** @type {HTMLImageElement} */ (h("img", { alt: "The picture that was given", hidden: true }));
  const video = /** @type {HTMLVideoElement} */ (h("video", { muted: true, playsInline: true, hidden: true, "aria-label": "The camera" }));
  const mask = /** @type {HTMLCanvasElement} */ (h("canvas.mask", { "aria-hidden": true }));
  const overlay = document.createElementNS(SVG, "svg");
  const prompt = h("p.prompt", "Drop a picture here, paste one, or choose a file.");
  const photo = h(".photo", picture, video, mask, prompt);
  photo.append(overlay);
  const news = h("");
  const answer = h("", h("p.small.quiet", "The answer stands here."));
  /** @type {MediaStream | null} */
  let camera = null;

  const stage = h(".stage", h(".view", photo));
  const open = takesFiles(stage, "image/*", (file) => takeFile(file));
  const live = h("button", { onclick: () => (camera ? stop() : start()) }, "Use the camera");
  const samples = samplesOf(model, takeFile, news);
  stage.append(h(".tools", h("button", { onclick: () => open() }, "Choose a picture"), live, samples.buttons, news));

  /** @param {File} file @param {string} [sample] */
  async function takeFile(file, sample = "") {
    stop();
    samples.shown = sample;
    news.replaceChildren();
    URL.revokeObjectURL(picture.src);
    picture.src = URL.createObjectURL(file);
    try {
      await picture.decode();
    } catch {
      news.replaceChildren(notice("bad", `${file.name} is not a picture that this browser reads.`, "Choose a PNG, JPEG, WebP or GIF file."));
      return;
    }
    [picture.hidden, video.hidden, prompt.hidden] = [false, true, true];
    fit(picture.naturalWidth, picture.naturalHeight);
    state.ask(file);
  }

  async function start() {
    news.replaceChildren();
    const given = await streamOf("camera", { video: { width: CAMERA_WIDTH } }, "choose a picture");
    // The page was left, or the button was pressed twice.
    if (!stage.isConnected || camera) return end(given instanceof HTMLElement ? null : given);
    if (given instanceof HTMLElement) return news.replaceChildren(given);
    camera = given;
    samples.shown = "";
    video.srcObject = camera;
    await video.play().catch((error) => news.replaceChildren(trouble(error)));
    [picture.hidden, video.hidden, prompt.hidden] = [true, false, true];
    live.textContent = "Stop the camera";
    fit(video.videoWidth, video.videoHeight);
    frame();
  }

  /** Ask about the frame that is shown now; the next one is asked about after its answer. */
  async function frame() {
    if (!camera) return;
    const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width: video.videoWidth, height: video.videoHeight }));
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(video, 0, 0);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    if (camera && blob) state.ask(blob);
  }

  function stop() {
    end(camera);
    camera = null;
    live.textContent = "Use the camera";
  }

  /** @param {number} width @param {number} height */
  function fit(width, height) {
    photo.style.setProperty("--ratio", String(width / height));
    overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
    overlay.replaceChildren();
    mask.width = 0;
  }

  return {
    stage,
    answer,
    ready: () => state.hasInput || samples.first(),
    link: samples.link,
    show: (found) => {
      answer.replaceChildren(...(isMask(found) ? [h("p.small.quiet", `A mask of ${found.width} x ${found.height}`)] : answerViews(found)));
      overlay.replaceChildren(...marksOf(found));
      if (isMask(found)) paint(mask, found);
      if (camera) requestAnimationFrame(() => frame());
    },
    leave: () => {
      stop();
      URL.revokeObjectURL(picture.src);
    },
  };
}

/** @param {any} found @returns {SVGElement[]} Boxes with their labels, and points, in the picture's own pixels. */
function marksOf(found) {
  const list = Array.isArray(found) ? found : [found];
  return list.flatMap((one) => {
    const marks = [];
    if (one?.box) {
      const { xmin, ymin, xmax, ymax } = one.box;
      marks.push(svg("rect", { x: xmin, y: ymin, width: xmax - xmin, height: ymax - ymin, class: "found" }));
    }
    for (const point of one?.keypoints ?? []) marks.push(svg("circle", { cx: point.x ?? point[0], cy: point.y ?? point[1], r: 3, class: "found" }));
    return marks;
  });
}

/** @param {string} name @param {Record<string, string | number>} attributes @returns {SVGElement} */
function svg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/** @param {any} found */
function isMask(found) {
  return ArrayBuffer.isView(found?.data) && typeof found.width === "number" && typeof found.height === "number";
}

/** @param {HTMLCanvasElement} canvas @param {{data: Uint8Array, width: number, height: number}} mask Class 0 is left clear. */
function paint(canvas, { data, width, height }) {
  [canvas.width, canvas.height] = [width, height];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const pixels = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    if (!data[i]) continue;
    const hue = ((data[i] * 5) % COLOURS) * (360 / COLOURS);
    pixels.data.set([...rgbOf(hue), 150], 4 * i);
  }
  context.putImageData(pixels, 0, 0);
}

/** A clear colour of a hue. @param {number} hue In degrees. @returns {number[]} */
function rgbOf(hue) {
  const part = (/** @type {number} */ n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (0.5 - 0.4 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}
