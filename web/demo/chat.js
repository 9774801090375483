/** The chat page: write a message, and a model in this page answers it. */

import { InferError, generate, keepOffline } from "../src/index.js";
import { LoadProgress } from "./progress.js";

/** @typedef {import("../src/index.js").Generator} Generator */
/** @typedef {import("../src/page/generator.js").TextStream} TextStream */

/** @param {string} id @returns {HTMLElement} */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const MODELS = new URL("../models/", import.meta.url);
const REMEMBERED = "edge-infer chat model";
const words = /** @type {HTMLTextAreaElement} */ (byId("words"));
const messages = byId("messages");

/** @type {Generator | null} */
let generator = null;
/** @type {{role: string, content: string}[]} */
let talk = [];
/** The answer that is being written. @type {TextStream | null} */
let writing = null;
let isOffline = false;

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (writing) writing.return();
  else if (words.value.trim()) answer(words.value.trim());
});
words.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!writing) /** @type {HTMLFormElement} */ (byId("ask")).requestSubmit();
});
byId("fresh").addEventListener("click", () => {
  writing?.return();
  talk = [];
  messages.replaceChildren();
  words.focus();
});
byId("retry").addEventListener("click", () => load());
load();

async function load() {
  show("loading");
  const progress = new LoadProgress("chat");
  try {
    generator = await generate(await modelUrl(), { onProgress: (news) => progress.update(news) });
    const { model, variant, context } = generator.report();
    byId("fact-model").textContent = byId("fact-model").title = model;
    byId("fact-variant").textContent = variant;
    byId("fact-context").textContent = `${context} tokens`;
    show("talk");
    words.focus();
  } catch (error) {
    showError(error);
  }
}

/** @param {string} text */
async function answer(text) {
  const used = /** @type {Generator} */ (generator);
  const mine = talk;
  mine.push({ role: "user", content: text });
  write("user", text);
  words.value = "";
  const bubble = write("assistant", "");
  bubble.classList.add("is-writing");
  // A model without a template goes on from all that was written.
  const prompt = used.report().hasTemplate ? mine : mine.map(({ content }) => content).join("\n");
  const stream = used.stream(prompt, { maxTokens: 1024 });
  writing = stream;
  byId("send").textContent = "Stop";
  const content = document.createTextNode("");
  bubble.append(content);
  let first = 0;
  try {
    for await (const piece of stream) {
      first ||= performance.now();
      const isAtEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
      content.data += piece;
      if (isAtEnd) messages.scrollTop = messages.scrollHeight;
      showSpeed(stream, first);
    }
    mine.push({ role: "assistant", content: content.data });
  } catch (error) {
    mine.pop();
    const note = document.createElement("small");
    note.textContent = String(error);
    bubble.append(note);
  }
  const { completion } = stream;
  bubble.classList.remove("is-writing");
  bubble.title = `${completion.usage.completionTokens} tokens, ${completion.finishReason}; seed ${completion.seed}`;
  if (writing === stream) {
    writing = null;
    byId("send").textContent = "Send";
  }
  const { promptTokens, completionTokens } = completion.usage;
  const { context } = used.report();
  byId("fact-context").textContent = `${Math.min(promptTokens + completionTokens, context)} of ${context}`;
  if (!isOffline) await keep();
}

/** @param {TextStream} stream @param {number} first When its first piece came. */
function showSpeed(stream, first) {
  const { completionTokens } = stream.completion.usage;
  const seconds = (performance.now() - first) / 1000;
  if (completionTokens > 4 && seconds > 0.1) byId("fact-speed").textContent = `${((completionTokens - 1) / seconds).toFixed(0)} tokens/s`;
}

/** Keep the page for visits without its server, once all that an answer needs was loaded. */
async function keep() {
  try {
    const { isKept, why } = await keepOffline();
    isOffline = isKept;
    byId("fact-offline").textContent = isKept ? "ready" : "no";
    byId("fact-offline").title = why;
  } catch (error) {
    byId("fact-offline").textContent = "no";
    byId("fact-offline").title = String(error);
  }
}

/** @param {"user" | "assistant"} role @param {string} text @returns {HTMLElement} */
function write(role, text) {
  const bubble = document.createElement("div");
  bubble.className = `message is-${role}`;
  bubble.textContent = text;
  messages.append(bubble);
  messages.scrollTop = messages.scrollHeight;
  return bubble;
}

/** @param {"loading" | "talk" | "error"} state */
function show(state) {
  byId("talk").dataset.state = state;
  byId("loading").hidden = state !== "loading";
  byId("error").hidden = state !== "error";
  messages.hidden = byId("ask").hidden = byId("fresh").hidden = state !== "talk";
}

/** @param {unknown} thrown */
function showError(thrown) {
  const error = /** @type {Partial<InferError>} */ (thrown);
  byId("error-message").textContent = (error.message ?? String(thrown)).replaceAll("`", "");
  const hint = byId("error-hint");
  hint.replaceChildren();
  (error.hint ?? "").split("`").forEach((text, i) => {
    const part = document.createElement(i % 2 === 1 ? "code" : "span");
    part.textContent = text.trim();
    if (part.textContent) hint.append(part);
  });
  show("error");
}

/** @returns {Promise<string>} The address of the model: `?model=NAME`, or the first that generates text; without the server that of the last visit. */
async function modelUrl() {
  const name = new URLSearchParams(location.search).get("model");
  let response;
  try {
    response = await fetch(MODELS);
  } catch (cause) {
    const last = localStorage.getItem(REMEMBERED);
    if (last) return last;
    throw new InferError("The server does not answer", "fetch_error", { hint: "start it again: `edge-infer serve`", cause });
  }
  /** @type {{name: string, url: string, task?: string | null, error?: import("../src/errors.js").ErrorDocument}[]} */
  const models = response.ok ? (await response.json()).models : [];
  const found = models.find((model) => (name === null ? model.task === "text-generation" : model.name === name));
  if (found?.error) throw InferError.fromJSON(found.error);
  if (!found) {
    throw new InferError(name === null ? "The server has no model that generates text" : `The server has no model called \`${name}\``, "model_not_found", {
      hint: "make it and serve it: `edge-infer convert FOLDER -o chat.bundle` `edge-infer serve chat.bundle`",
    });
  }
  const url = new URL(found.url, location.href).href;
  localStorage.setItem(REMEMBERED, url);
  return url;
}
