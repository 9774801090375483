/** The page of a model that generates text: a chat, its speed, and code; it works without the server once it was used. */

import { generate, keepOffline } from "../src/index.js";
import { bytes, facts, h, progress, say, section, trouble } from "./parts.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {import("../src/index.js").Generator} Generator */
/** @typedef {import("../src/page/generator.js").TextStream} TextStream */

/** The most tokens of one answer. */
const MAX_TOKENS = 1024;
/** What a model without a chat template goes on with. */
const BEGINNING = "Return a list of";
/** How far from its end a reader of the talk may be and still be taken along, in pixels. */
const AT_END = 40;

/**
 * @param {Model} model
 * @returns {{parts: HTMLElement[], start: () => void, leave: () => void}}
 */
export function chat(model) {
  const talk = new Talk(model);
  const code = section("Take it along", "The same tokens come out in every place, for the same seed.", h(".code", h("pre", { tabIndex: 0, "aria-label": "Code" }, codeOf(model))));
  const sizes = section("Weights", "", h("ul.plain", model.variants.map(({ id, size }) => h("li", `${id}: ${bytes(size)}`))));
  return { parts: [talk.stage, talk.figures, talk.offline, sizes, code], start: () => talk.load(), leave: () => talk.leave() };
}

/** One talk with the model. */
class Talk {
  /** @type {Generator | null} */
  #generator = null;
  /** @type {{role: string, content: string}[]} */
  #messages = [];
  /** The answer that is being written. @type {TextStream | null} */
  #writing = null;
  #isKept = false;
  #left = new AbortController();

  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.log = h(".log", { role: "log", tabIndex: 0, "aria-label": "Conversation" });
    this.words = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, placeholder: "Write a message", "aria-label": "Your message", onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event) }));
    this.send = /** @type {HTMLButtonElement} */ (h("button.go", { disabled: true, onclick: () => this.#onSend() }, "Send"));
    const fresh = h("button", { onclick: () => this.#restart() }, "Start over");
    this.news = h("", { role: "status" });
    this.offline = h("p.small.quiet", { role: "status" });
    this.figures = h("");
    this.stage = h(".stage.chat", this.log, h(".tools", this.news, this.words, this.send, fresh));
  }

  /** Fetch the model; a failure can be tried again. */
  async load() {
    const bar = progress(`Fetching ${this.model.name}`);
    this.news.replaceChildren(bar);
    try {
      const generator = await generate(this.model.url, { onProgress: ({ loaded, total }) => bar.set(loaded, total), signal: this.#left.signal });
      if (this.#left.signal.aborted) return generator.dispose();
      this.#generator = generator;
      this.news.replaceChildren();
      this.send.disabled = false;
      if (!generator.report().hasTemplate) {
        this.words.placeholder = "Begin a text: the model goes on with it";
        this.words.value ||= BEGINNING;
        this.send.textContent = "Write on";
      }
      this.#show({});
      this.words.focus({ preventScroll: true });
    } catch (error) {
      this.news.replaceChildren(trouble(error, h("button", { onclick: () => this.load() }, "Try again")));
    }
  }

  leave() {
    this.#left.abort();
    this.#writing?.return();
    this.#generator?.dispose();
  }

  #onSend() {
    const text = this.words.value.trim();
    if (this.#writing) this.#writing.return();
    else if (text && this.#generator) this.#answer(this.#generator, text);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.#writing) this.#onSend();
  }

  #restart() {
    this.#writing?.return();
    this.#messages = [];
    this.log.replaceChildren();
    this.words.focus();
  }

  /** @param {Generator} generator @param {string} text */
  async #answer(generator, text) {
    const mine = this.#messages;
    mine.push({ role: "user", content: text });
    this.log.append(h("p.you", text));
    this.words.value = "";
    const bubble = h("p", "");
    this.log.append(bubble);
    // A model without a template goes on from all that was written.
    const prompt = generator.report().hasTemplate ? mine : mine.map(({ content }) => content).join("\n");
    const stream = generator.stream(prompt, { maxTokens: MAX_TOKENS });
    this.#writing = stream;
    this.send.textContent = "Stop";
    const start = performance.now();
    let first = 0;
    try {
      for await (const piece of stream) {
        first ||= performance.now();
        const isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < AT_END;
        bubble.append(piece);
        if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
        this.#show({ first: first - start, speed: speedOf(stream, first) });
      }
      mine.push({ role: "assistant", content: bubble.textContent ?? "" });
    } catch (error) {
      // The next message is not about one that has no answer.
      mine.pop();
      bubble.append(trouble(error));
    }
    const { completion } = stream;
    bubble.title = `${completion.usage.completionTokens} tokens, ${completion.finishReason}; seed ${completion.seed}`;
    say(completion.text);
    const { promptTokens, completionTokens } = completion.usage;
    this.#show({ first: first ? first - start : undefined, speed: first ? speedOf(stream, first) : 0, used: Math.min(promptTokens + completionTokens, generator.report().context) });
    if (this.#writing === stream) {
      this.#writing = null;
      this.send.textContent = generator.report().hasTemplate ? "Send" : "Write on";
    }
    // Once an answer was written, all that another one needs has been fetched.
    if (!this.#isKept) {
      this.#isKept = await keepOffline().then(({ isKept }) => isKept, () => false);
      this.offline.textContent = this.#isKept ? "This page works without the server from now on." : "";
    }
  }

  /** @param {{first?: number, speed?: number, used?: number}} figures */
  #show({ first, speed, used }) {
    const report = this.#generator?.report();
    this.figures.replaceChildren(facts([
      ["Weights", report?.variant ?? "–"],
      ["First piece", first === undefined ? "–" : `${Math.round(first)} ms`],
      ["Tokens per second", speed ? speed.toFixed(0) : "–"],
      ["Context", `${used === undefined ? "" : `${used} of `}${report?.context ?? "–"}`],
    ]));
  }
}

/** @param {TextStream} stream @param {number} first When its first piece came. @returns {number} Tokens per second; 0 where it is too early to tell. */
function speedOf(stream, first) {
  const seconds = (performance.now() - first) / 1000;
  const { completionTokens } = stream.completion.usage;
  return completionTokens > 4 && seconds > 0.1 ? (completionTokens - 1) / seconds : 0;
}

/** @param {Model} model */
function codeOf({ name, url }) {
  return `# Python\nimport edge_infer\n\ngenerator = edge_infer.generate("${name}.bundle")\nfor piece in generator.stream("Hello", seed=1):\n    print(piece, end="")\n\n`
    + `// JavaScript\nimport { generate } from "edge-infer";\n\nconst generator = await generate("${new URL(url).pathname}");\nfor await (const piece of generator.stream("Hello", { seed: 1 })) document.body.append(piece);\n`;
}
