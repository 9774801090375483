/** A conversation to the text of a prompt, by the model's chat template: the same as `edge_infer.generation.template`. */

import { EdgeInferError } from "../errors.js";
import { floatText, parseJson } from "./json-numbers.js";

/** @typedef {typeof import("@huggingface/jinja")} Jinja */
/** @typedef {any} Value What the package makes of a value. */
/**
 * @typedef {object} RenderOptions
 * @property {readonly Record<string, any>[] | null} [tools] Functions that the model may call, as JSON Schema describes them.
 * @property {boolean} [addGenerationPrompt] Whether the prompt ends where the answer begins; true unless given.
 * @property {Record<string, any>} [values] More that the template reads, such as `{enable_thinking: false}`.
 * @property {Date} [now] The time that a template may ask for.
 */

/** An entry of a list takes as much time, where it is gone through, as so many characters. */
const ENTRY = 64;
/** The longest template. */
const MAX_SOURCE = 256 * 1024;
/** The limits of one rendering: templates come with models, and so from strangers. */
const [MAX_STEPS, MAX_CHARACTERS, MAX_MS, MAX_RANGE] = [3_000_000, 16_000_000, 5000, 100_000];
const STRIPS = new Set(["strip", "lstrip", "rstrip"]);
// By its name here: what bundles a page would look for it.
const PACKAGE = "@huggingface/jinja";
const FILE = "vendor/jinja/index.js";

/**
 * Load the package that renders templates: in a page from `vendor/`, elsewhere as it is installed.
 *
 * @param {string} root The URL under which `vendor/` lies.
 * @returns {Promise<Jinja>}
 * @throws {EdgeInferError} `backend_unavailable`: it is missing.
 */
export async function loadJinja(root) {
  const place = globalThis.location ? new URL(FILE, root).href : PACKAGE;
  try {
    return await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ place);
  } catch (cause) {
    throw new EdgeInferError(`${place}, which chat templates need, cannot be loaded: ${cause}`, "backend_unavailable", {
      hint: "npm install edge-infer && npx edge-infer-files FOLDER, or install edge-infer-web again",
      cause,
    });
  }
}

/** A chat template of the Hugging Face Hub. Blocks are trimmed, and `raise_exception` and `strftime_now` are there. */
export class ChatTemplate {
  #jinja;
  #program;
  #specialTokens;

  /**
   * @param {Jinja} jinja
   * @param {string} source
   * @param {Record<string, string>} [specialTokens] The texts of special tokens by name, such as `bos_token`.
   * @throws {EdgeInferError} `bundle_error`: it is no template, or longer than 256 KiB.
   */
  constructor(jinja, source, specialTokens = {}) {
    this.#jinja = jinja;
    this.#specialTokens = specialTokens;
    if (source.length > MAX_SOURCE) throw wrong(`has ${source.length} characters, at most ${MAX_SOURCE} are read`);
    try {
      this.#program = new jinja.Template(source).parsed;
    } catch (error) {
      throw wrong(`cannot be read: ${said(error)}`, undefined, error);
    }
  }

  /**
   * The same for Python in the page, which hands JSON over.
   *
   * @param {Jinja} jinja
   * @param {string} source
   * @param {string} specialTokens
   * @returns {ChatTemplate}
   */
  static ofJson(jinja, source, specialTokens) {
    return new ChatTemplate(jinja, source, JSON.parse(specialTokens));
  }

  /**
   * @param {string} text JSON of `{messages, tools, values}`; floats stay floats.
   * @returns {string} The prompt.
   * @throws {EdgeInferError} As `render` does.
   */
  renderJson(text) {
    const { messages, ...options } = parseJson(text);
    return this.render(messages, options);
  }

  /**
   * @param {readonly Record<string, any>[]} messages Each with `role` and `content`, and what else the template reads.
   *   `new Number(1)` is written as `1.0`; `parseJson` makes it of JSON.
   * @param {RenderOptions} [options]
   * @returns {string} The prompt.
   * @throws {EdgeInferError} `input_error`: the template refuses the conversation. `bundle_error`: it is wrong, or takes too long.
   */
  render(messages, { tools = null, addGenerationPrompt = true, values = {}, now = new Date() } = {}) {
    const environment = new this.#jinja.Environment();
    const floats = new Floats(this.#jinja);
    const names = { true: true, false: false, none: null, True: true, False: false, None: null, ...this.#specialTokens };
    for (const [name, value] of Object.entries({ ...names, documents: null, add_generation_prompt: addGenerationPrompt })) environment.set(name, value);
    for (const [name, value] of Object.entries(values)) environment.setVariable(name, floats.valueOf(value));
    environment.setVariable("messages", floats.valueOf([...messages]));
    environment.setVariable("tools", floats.valueOf(tools));
    environment.set("range", range);
    environment.set("strftime_now", (/** @type {any} */ form) => written(now, form));
    environment.set("raise_exception", (/** @type {any} */ message) => {
      throw new EdgeInferError(`the chat template refuses the conversation: ${message}`, "input_error", { hint: "change the messages" });
    });
    try {
      return floats.written(String(limited(this.#jinja, environment).run(this.#program).value));
    } catch (error) {
      if (error instanceof EdgeInferError) throw error;
      throw wrong(`failed: ${said(error)}`, "check the roles and contents of the messages", error);
    }
  }
}

/** Values of a template whose floats are written as Python writes them, also as JSON. */
class Floats {
  #Environment;
  /** Stands around a float in JSON; no text of a conversation holds it. */
  #mark = `float ${[...crypto.getRandomValues(new Uint32Array(4))].join("-")} `;

  /** @param {Jinja} jinja */
  constructor({ Environment }) {
    this.#Environment = Environment;
  }

  /** @param {any} value @returns {Value} */
  valueOf(value) {
    const made = this.#converted(plain(value));
    return this.#withFloats(made, value);
  }

  /** @param {string} text @returns {string} The rendered text without the marks of floats. */
  written(text) {
    return text.includes(this.#mark) ? text.replaceAll(new RegExp(`"${this.#mark}([^"]*)"`, "g"), "$1") : text;
  }

  /** @param {any} value @returns {Value} */
  #converted(value) {
    return new this.#Environment().set("value", value);
  }

  /** @param {Value} made @param {any} value @returns {Value} The same with floats in place of numbers. */
  #withFloats(made, value) {
    if (typeof value === "bigint" || isFloat(value)) {
      const text = typeof value === "bigint" ? String(value) : floatText(Number(value));
      const number = Object.assign(new Number(value), { toString: () => text, toFixed: () => text, toJSON: () => `${this.#mark}${text}` });
      const float = this.#converted(0.5);
      float.value = number;
      return float;
    }
    if (Array.isArray(value)) made.value = value.map((one, i) => this.#withFloats(made.value[i], one));
    else if (value !== null && typeof value === "object") {
      for (const [key, one] of Object.entries(value)) made.value.set(key, this.#withFloats(made.value.get(key), one));
    }
    return made;
  }
}

/** @param {any} value @returns {boolean} */
function isFloat(value) {
  return value instanceof Number || (typeof value === "number" && !Number.isInteger(value));
}

/** @param {any} value @returns {any} It with what the package can convert in place of floats and long numbers. */
function plain(value) {
  if (typeof value === "bigint" || value instanceof Number) return 0;
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}

/**
 * @param {Jinja} jinja
 * @param {import("@huggingface/jinja").Environment} environment
 * @returns {import("@huggingface/jinja").Interpreter} One that ends a template that takes too much.
 */
function limited({ Environment, Interpreter }, environment) {
  let [steps, characters] = [MAX_STEPS, MAX_CHARACTERS];
  const end = performance.now() + MAX_MS;
  class Limited extends Interpreter {
    constructor() {
      super(environment);
    }

    /**
     * The package strips white space whatever a template asks for; Python strips the characters that are given.
     *
     * @param {any} statement
     * @param {any} inside
     * @returns {any} Undefined for everything else.
     */
    stripped(statement, inside) {
      const { type, callee, args } = statement ?? {};
      const isStrip = type === "CallExpression" && callee.type === "MemberExpression" && !callee.computed && STRIPS.has(callee.property.value);
      if (!isStrip || args.length !== 1) return undefined;
      const [text, characters] = [this.evaluate(callee.object, inside), this.evaluate(args[0], inside)];
      if (typeof text.value !== "string" || typeof characters.value !== "string") throw new Error("only texts are stripped, of the characters of a text");
      const units = Array.from(text.value);
      const set = new Set(characters.value);
      let [first, last] = [0, units.length];
      if (callee.property.value !== "rstrip") while (first < last && set.has(units[first])) first += 1;
      if (callee.property.value !== "lstrip") while (last > first && set.has(units[last - 1])) last -= 1;
      return new Environment().set("text", units.slice(first, last).join(""));
    }

    /** @param {any} statement @param {any} inside @returns {any} */
    evaluate(statement, inside) {
      steps -= 1;
      if (steps < 0) throw over(`${MAX_STEPS} steps`);
      if (performance.now() > end) throw over(`${MAX_MS / 1000} seconds`);
      const found = this.stripped(statement, inside) ?? super.evaluate(statement, inside);
      const { value } = found;
      // What a name stands for was paid where it was made.
      if (statement?.type !== "Identifier" && statement?.type !== "StringLiteral" && (typeof value === "string" || Array.isArray(value))) {
        characters -= typeof value === "string" ? value.length : ENTRY * value.length;
        if (characters < 0) throw over(`${MAX_CHARACTERS} characters`);
      }
      return found;
    }
  }
  return new Limited();
}

/** @param {number} start @param {number} [stop] @param {number} [step] @returns {number[]} Python's `range`, of limited length. */
function range(start, stop, step = 1) {
  const [first, last] = typeof stop === "number" ? [start, stop] : [0, start];
  if (!step) throw new Error("range() step must not be zero");
  const count = Math.max(0, Math.ceil((last - first) / step));
  if (count > MAX_RANGE) throw new Error(`range() of more than ${MAX_RANGE} numbers`);
  return Array.from({ length: count }, (_, i) => first + i * step);
}

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** @param {Date} moment @param {any} form As of Python's `strftime`. @returns {string} In English and local time. */
function written(moment, form) {
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const [month, day] = [MONTHS[moment.getMonth()], DAYS[moment.getDay()]];
  /** @type {Record<string, string | number>} */
  const parts = {
    "%": "%",
    Y: moment.getFullYear(),
    y: two(moment.getFullYear() % 100),
    m: two(moment.getMonth() + 1),
    d: two(moment.getDate()),
    B: month,
    b: month.slice(0, 3),
    A: day,
    a: day.slice(0, 3),
    H: two(moment.getHours()),
    I: two(moment.getHours() % 12 || 12),
    M: two(moment.getMinutes()),
    S: two(moment.getSeconds()),
    p: moment.getHours() < 12 ? "AM" : "PM",
  };
  const isKnown = typeof form === "string" && form.length <= 200 && [...form.matchAll(/%(-?.?)/gs)].every(([, part]) => part.replace("-", "") in parts);
  if (!isKnown) throw wrong(`writes the time as ${JSON.stringify(String(form).slice(0, 40))}, which is not supported`);
  return form.replaceAll(/%(-?)(.)/gs, (/** @type {string} */ _, /** @type {string} */ bare, /** @type {string} */ part) =>
    bare ? String(parts[part]).replace(/^0(?=\d)/, "") : String(parts[part]),
  );
}

/** @param {string} what */
function over(what) {
  return wrong(`takes more than ${what}`, "use a shorter conversation, or another template");
}

/** @param {string} what @param {string} [hint] @param {unknown} [cause] */
function wrong(what, hint, cause) {
  return new EdgeInferError(`the chat template ${what}`, "bundle_error", { hint, cause });
}

/** @param {unknown} error */
function said(error) {
  return (error instanceof Error ? error.message : String(error)).slice(0, 300);
}
