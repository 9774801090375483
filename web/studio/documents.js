/** The visitor's own documents: indexed in this page by a model for feature-extraction, searched, ranked again and answered from. */

import { generate, ownIndex, pipeline } from "../src/index.js";
import { entries } from "./catalog.js";
import { h, milliseconds, notice, pick, progress, say, section, takesFiles, trouble } from "./parts.js";

/** @typedef {import("./catalog.js").Entry} Entry */
/** @typedef {import("../src/vectors/search-index.js").Hit} Hit */
const KINDS = ".txt,.md,.markdown,.html,.htm";
const REST_MS = 150;
const FOUND = 6;
/** So many hits are given to the model that ranks again. */
const RANKED = 24;
const SOURCES = 3;
const MAX_TOKENS = 200;
/** The characters of a source that a question takes along, and about how many a token has. */
const [MAX_SOURCE, TOKEN] = [600, 2.5];

/**
 * A document is known by its name: of files that come together under one name, out of several folders, the later ones get a number.
 *
 * @param {File[]} files
 * @returns {File[]}
 */
function numbered(files) {
  const names = new Set(files.map(({ name }) => name));
  const seen = new Set();
  return files.map((file) => {
    let { name } = file;
    if (seen.has(name)) {
      const dot = name.includes(".") ? name.lastIndexOf(".") : name.length;
      for (let i = 2; names.has(name); i++) name = `${file.name.slice(0, dot)} (${i})${file.name.slice(dot)}`;
      names.add(name);
    }
    seen.add(name);
    return name === file.name ? file : new File([file], name, { type: file.type });
  });
}

/** @param {import("./state.js").State} state @returns {HTMLElement} */
export function documents(state) {
  const { model } = state;
  const [news, list, hits, time] = [h("", { role: "status" }), h("ul.plain.shelf"), h("ol.hits"), h("p.small.quiet")];
  const [text, sources] = [h("p.mind", { "aria-live": "polite" }), h("p.small.quiet")];
  const answer = h(".notice", { hidden: true }, h("b", "Answer"), text, sources);
  const query = /** @type {HTMLInputElement} */ (h("input", { type: "search", disabled: true, autocomplete: "off" }));
  const ask = /** @type {HTMLButtonElement} */ (h("button.go", { hidden: true, disabled: true }, "Answer"));
  const more = h(".picks");
  /** @type {Promise<Awaited<ReturnType<typeof ownIndex>>> | null} */
  let opening = null;
  /** @type {Map<string, Promise<any>>} By address the models beside it, fetched when they are chosen. */
  const others = new Map();
  let [ranker, writer] = ["", ""];
  /** @type {Hit[]} */
  let found = [];
  let [turn, timer] = [0, 0];
  const left = new AbortController();

  const fail = (/** @type {any} */ error) => {
    if (left.signal.aborted) return;
    const anew = h("button", { onclick: () => index(true).then(show).catch(fail) }, "Index them anew");
    const asks = () => notice("warn", "The documents kept here cannot be searched by this model.", `They stay as they are until you index them anew: ${error.message.replaceAll("`", "")}.`, anew);
    news.replaceChildren(error.details?.isKept ? asks() : trouble(error));
  };

  /** Open what this browser has kept; the model comes with the first use. */
  function index(renew = false) {
    const bar = progress(`Fetching ${model.name}`);
    if (!opening) news.replaceChildren(bar);
    opening ??= ownIndex(`studio-${model.name.replace(/[^A-Za-z0-9._-]/g, "-")}`.slice(0, 64), { model: model.url, renew, onProgress: ({ loaded, total }) => bar.set(loaded, total), onRenewed: (done, total) => bar.set(done, total, "Indexing anew", `${done} of ${total} pieces`), signal: left.signal });
    opening.catch(() => (opening = null));
    return opening;
  }

  /** @param {File[]} files */
  async function add(files) {
    const bar = progress("Reading");
    const mine = new AbortController(); // each has its own: more may be dropped meanwhile
    left.signal.addEventListener("abort", () => mine.abort());
    const work = h(".row", bar, h("button", { onclick: () => mine.abort() }, "Stop"));
    try {
      const own = await index();
      for (const file of numbered(files)) {
        news.replaceChildren(work);
        bar.set(0, 0, `Reading ${file.name}`);
        const { removed } = await own.add([file], { signal: mine.signal, onProgress: (done, total) => bar.set(done, total, `Reading ${file.name}`, `${done} of ${total} pieces`) });
        await show();
        if (removed) news.append(h("p.small", `${file.name} was here with other content: this one took its place.`));
      }
    } catch (error) {
      if (left.signal.aborted) return;
      if (mine.signal.aborted) await show();
      else fail(error);
    }
  }

  /** Show which documents there are, and search in them. */
  async function show() {
    const own = await index();
    const all = own.documents();
    list.replaceChildren(...all.map(({ source, pieces }) => h("li.row.apart", h("span", source, h("span.quiet", ` ${pieces}`)), h("button.bare", { "aria-label": `Remove ${source}`, onclick: () => own.remove(source).then(show, fail) }, "Remove"))));
    query.disabled = ask.disabled = !all.length;
    const place = own.isKept ? "They are kept in this browser." : "They are gone with this page: the browser keeps nothing here.";
    const said = all.length ? `${own.size} pieces of ${all.length} ${all.length === 1 ? "document" : "documents"}. ${place}` : "No document is there yet.";
    news.replaceChildren(h("p.small.quiet", said));
    await search();
  }

  /** @returns {Promise<boolean>} Whether what was found is shown: nothing newer was typed, and nothing failed. */
  async function search() {
    clearTimeout(timer); // what was typed last is searched now
    const mine = ++turn;
    const asked = query.value.trim();
    answer.hidden = true;
    try {
      const own = asked ? await index() : null;
      const begun = performance.now();
      let next = own ? await own.search(asked, { k: ranker ? RANKED : FOUND, mode: "hybrid" }) : [];
      if (ranker && next.length) {
        const order = await (await other(ranker, (url) => pipeline("text-ranking", url)))({ query: asked, documents: next.map((hit) => hit.text ?? "") }, { top_k: FOUND });
        next = order.map((/** @type {any} */ { corpus_id: i, score }) => ({ ...next[i], score }));
      }
      if (mine !== turn) return false;
      found = next;
      time.textContent = asked ? `${found.length} found in ${milliseconds(performance.now() - begun)}` : "";
      hits.replaceChildren(...found.map(({ text: piece, metadata: { source, part, title } }) => h("li", h("h3", title ?? source), h("p.small", piece), h("p.small.quiet", `${source}, piece ${part + 1}`))));
      return true;
    } catch (error) {
      if (mine === turn) fail(error);
      return false;
    }
  }

  async function reply() {
    if (!(await search())) return;
    const mine = turn;
    const given = found.slice(0, SOURCES);
    if (!given.length) return;
    ask.disabled = true;
    [text.textContent, sources.textContent, answer.hidden] = ["", `From ${given.map(({ metadata }, i) => `[${i + 1}] ${metadata.source}, piece ${metadata.part + 1}`).join("; ")}`, false];
    try {
      const generator = await other(writer, (url) => generate(url));
      const { context, hasTemplate } = generator.report();
      const maxTokens = Math.min(MAX_TOKENS, Math.floor(context / 4));
      const room = Math.min(MAX_SOURCE, Math.floor(((context - maxTokens) * TOKEN) / SOURCES) - query.value.length - 40);
      const passages = given.map(({ text: piece }, i) => `[${i + 1}] ${(piece ?? "").slice(0, Math.max(40, room))}`).join("\n\n");
      const prompt = `Answer the question from these passages, and name their numbers.\n\n${passages}\n\nQuestion: ${query.value.trim()}\nAnswer:`;
      const stream = generator.stream(hasTemplate ? [{ role: "user", content: prompt }] : prompt, { maxTokens, seed: 0 });
      for await (const piece of stream) {
        if (mine !== turn || left.signal.aborted) break;
        text.append(piece);
      }
      say(text.textContent ?? "");
    } catch (error) {
      if (mine === turn) fail(error);
    }
    ask.disabled = query.disabled;
  }

  /** @param {string} url @param {(url: string) => Promise<any>} open */
  function other(url, open) {
    const there = others.get(url) ?? open(url);
    others.set(url, there);
    there.catch(() => others.delete(url)); // it can be tried again
    return there;
  }

  /** Give the memory of a model back that was chosen before. @param {string} url */
  function close(url) {
    others.get(url)?.then((one) => one.dispose(), () => {});
    others.delete(url);
  }

  /** @param {Entry[]} all @param {string} task @param {string} label @param {(url: string) => void} choose */
  function offer(all, task, label, choose) {
    const fitting = all.filter((one) => one.task === task && !one.error);
    if (!fitting.length) return;
    const part = pick(label, task, [{ id: "", text: "nothing" }, ...fitting.map(({ name, url, chat }) => ({ id: new URL(url, location.href).href, text: chat === false ? `${name} (no chat)` : name }))], choose);
    part.show("");
    more.append(part);
  }

  const drop = h(".stage.drop");
  const open = takesFiles(drop, KINDS, (_, files) => add(files), undefined, true);
  drop.append(h(".view", h("", h("p", "Drop documents here: text, Markdown or HTML."), h(".row", h("button", { onclick: () => open() }, "Choose documents"), h("button", { onclick: () => show().catch(fail) }, "Show those kept here")))), h(".tools", news));
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(search, REST_MS);
  });
  const form = h("form.row", { role: "search", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), writer ? reply() : search()) }, h("label.field.grow", "Search your documents", query), ask);
  ask.type = "submit";
  entries().then((all) => {
    offer(all, "text-ranking", "Rank again by", (url) => {
      close(ranker);
      ranker = url;
      search();
    });
    offer(all, "text-generation", "Answer by", (url) => {
      turn++; // an answer that is being written ends
      close(writer);
      writer = url;
      ask.hidden = !url;
      answer.hidden = true;
    });
  }, () => more.append(notice("warn", "The other models are not known: the server does not answer.", "Searching works without it.")));
  state.on({
    closed: () => {
      left.abort();
      clearTimeout(timer);
      for (const one of [opening, ...others.values()]) one?.then((own) => own.dispose(), () => {});
    },
  });
  return section("Your documents", "Read, indexed and searched in this page: nothing is sent.", h(".two.documents", h("", drop, list), h(".found", form, more, answer, time, hits)));
}
