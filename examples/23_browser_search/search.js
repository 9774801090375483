// Search your own documents in the page: behind `edge-infer serve minilm.bundle [ranker.bundle] [writer.bundle]`, with
// ?model=/models/minilm&ranker=/models/ranker&writer=/models/writer; the ranker and the writer may be left out.

import { generate, keepOffline, ownIndex, pipeline } from "/src/index.js";

const given = new URLSearchParams(location.search);
const at = (id) => document.getElementById(id);
const [query, status, hits, time] = ["query", "status", "hits", "time"].map(at);
const FOUND = 8;
let [index, ranker, writer, stop, turn, asked] = [null, null, null, null, 0, []];

const say = (text, isBad = false) => {
  status.textContent = text;
  status.classList.toggle("bad", isBad);
};
const failed = ({ message, hint }) => say([message, hint].filter(Boolean).join(": "), true);
const made = (name, ...children) => {
  const element = document.createElement(name);
  element.append(...children);
  return element;
};

function show() {
  const documents = index.documents();
  at("documents").replaceChildren(...documents.map(({ source, pieces }) => {
    const remove = Object.assign(made("button", "Remove"), { type: "button", ariaLabel: `Remove ${source}` });
    remove.onclick = async () => {
      await index.remove(source);
      show();
    };
    return made("li", Object.assign(made("span", source), { title: source }), Object.assign(made("span", `${pieces}`), { className: "quiet", title: "pieces" }), remove);
  }));
  if (!query.value) say(documents.length ? `${index.size} pieces of ${documents.length} documents are ready.` : "Add documents, then ask.");
  search();
}

async function add(files) {
  const [work, progress, said] = ["work", "progress", "said"].map(at);
  stop = new AbortController();
  work.hidden = false;
  try {
    for (const file of files) {
      said.textContent = `Reading ${file.name}`;
      const onProgress = (done, total) => Object.assign(progress, { max: total || 1, value: done });
      const { added, kept } = await index.add([file], { onProgress, signal: stop.signal });
      say(`${file.name}: ${added} new pieces, ${kept} were there.`);
      show();
    }
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  }
  work.hidden = true;
}

async function search() {
  const [mine, text] = [++turn, query.value.trim()];
  at("answer").hidden = true;
  if (!text || !index.size) {
    hits.replaceChildren();
    asked = [];
    time.textContent = "";
    return;
  }
  const begin = performance.now();
  try {
    let found = await index.search(text, { k: ranker && at("rank").checked ? 3 * FOUND : FOUND, mode: "hybrid" });
    if (ranker && at("rank").checked && found.length) {
      const order = await ranker({ query: text, documents: found.map((hit) => hit.text ?? "") }, { top_k: FOUND });
      found = order.map(({ corpus_id: i, score }) => ({ ...found[i], score }));
    }
    if (mine !== turn) return; // something newer was typed
    asked = found;
    time.textContent = `${(performance.now() - begin).toFixed(0)} ms`;
    say(`${found.length} found`);
    hits.replaceChildren(...found.map((hit, i) => hitOf(hit, i, text)));
  } catch (error) {
    if (mine === turn) failed(error);
  }
}

function hitOf({ text, metadata }, i, words) {
  const title = made("h3", `${i + 1}. ${metadata.title ?? metadata.source}`);
  return made("li", title, made("p", ...marked(text ?? "", words)), made("small", `${metadata.source}, piece ${metadata.part + 1}`));
}

function marked(text, words) {
  const wanted = [...new Set(words.match(/[\p{L}\p{N}]{3,}/gu) ?? [])].map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!wanted.length) return [text];
  return text.split(new RegExp(`(${wanted.join("|")})`, "giu")).map((part, i) => (i % 2 ? made("mark", part) : part));
}

async function answer() {
  await search();
  if (!asked.length) return;
  const [mine, sources] = [turn, asked.slice(0, 3)];
  const texts = sources.map(({ text }, i) => `[${i + 1}] ${(text ?? "").slice(0, 600)}`).join("\n\n");
  const prompt = `Answer the question from these passages, and name their numbers.\n\n${texts}\n\nQuestion: ${query.value.trim()}\nAnswer:`;
  at("answer").hidden = false;
  at("ask").disabled = true;
  [at("text").textContent, at("sources").textContent] = ["", `Sources: ${sources.map(({ metadata }, i) => `[${i + 1}] ${metadata.source}`).join(", ")}`];
  try {
    for await (const piece of writer.stream([{ role: "user", content: prompt }], { maxTokens: 200, seed: 0 })) {
      if (mine !== turn) break;
      at("text").append(piece);
    }
  } catch (error) {
    failed(error);
  }
  at("ask").disabled = false;
}

query.oninput = search;
at("rank").onchange = search;
at("stop").onclick = () => stop?.abort();
document.querySelector("form").onsubmit = (event) => {
  event.preventDefault();
  if (writer) answer();
  else search();
};
document.querySelector(".drop input").onchange = ({ target }) => add([...target.files]).finally(() => (target.value = ""));
for (const name of ["dragover", "dragleave", "drop"]) {
  addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", name === "dragover");
    if (name === "drop" && index) add([...event.dataTransfer.files]);
  });
}

try {
  index = await ownIndex("documents", { model: given.get("model") ?? "/models/minilm" });
  if (given.has("ranker")) ranker = await pipeline("text-ranking", given.get("ranker"));
  if (given.has("writer")) {
    writer = await generate(given.get("writer"));
    await writer.chat([{ role: "user", content: "Hello" }], { maxTokens: 1 }); // fetches what answers need, while there is a server
  }
  query.disabled = false;
  at("ranking").hidden = !ranker;
  at("ask").hidden = !writer;
  show();
  const kept = await keepOffline().catch(({ message }) => ({ isKept: false, why: message }));
  at("place").textContent = `${index.isKept ? "Kept in this browser" : "Kept until this page is closed"}${kept.isKept ? "; works offline" : ""}.`;
  at("place").dataset.offline = String(kept.isKept);
} catch (error) {
  failed(error);
}
