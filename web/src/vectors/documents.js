/** Documents to pieces of text in the page: plain text, Markdown and HTML. The same pieces as `edge_infer/vectors/documents.py`. */

import { EdgeInferError } from "../errors.js";

/** @typedef {{text: string, metadata: {source: string, part: number, title?: string}}} Piece */

export const MAX_CHARACTERS = 800;
/** The largest document. */
const MAX_BYTES = 32 * 2 ** 20;
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const HEADING = /^#{1,6}\s+(.*?)\s*#*$/;
const FENCE = /^\s*(```|~~~)/;
/** Where a long paragraph may be cut, the best first. */
const CUTS = [/[.!?。！？]\s/g, /\s/g];
const HIDDEN = new Set(["script", "style", "template", "noscript", "head", "svg", "nav"]);
const BLOCK =
  /^(address|article|aside|blockquote|br|dd|div|dl|dt|figure|footer|form|h[1-6]|header|hr|li|main|ol|p|pre|section|table|td|th|tr|ul)$/;
/** Elements whose content is text up to their end, whatever stands in it. */
const RAW = ["script", "style"];
/** @type {Record<string, string>} */
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", hellip: "…", mdash: "—", ndash: "–", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", times: "×", middot: "·", euro: "€" };

/** The readers by the ending of a name. @type {Record<string, (text: string) => [string, string][]>} */
const READERS = { txt: (text) => [["", text]], md: markdown, markdown, html, htm: html };

/** The endings of the documents that are read. */
export const ENDINGS = Object.keys(READERS).map((one) => `.${one}`);

/**
 * @param {string} source The document's name, such as `notes/first.md`.
 * @param {string | Uint8Array} content Its text, or its bytes in UTF-8.
 * @param {number} [most] The most characters of a piece.
 * @returns {Piece[]}
 * @throws {EdgeInferError} `input_error`: it is of another kind, too large or not UTF-8.
 */
export function readPieces(source, content, most = MAX_CHARACTERS) {
  const read = READERS[/\.([a-z]+)$/i.exec(source)?.[1].toLowerCase() ?? ""];
  if (!read) throw new EdgeInferError(`\`${source}\` is not a document`, "input_error", { hint: `it reads ${ENDINGS.join(", ")}` });
  if (content.length > MAX_BYTES) throw new EdgeInferError(`\`${source}\` has more than ${MAX_BYTES} bytes`, "input_error", { hint: "cut it into parts" });
  let text = content;
  if (typeof text !== "string") {
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text);
    } catch (cause) {
      throw new EdgeInferError(`\`${source}\` is not UTF-8`, "input_error", { hint: "save it as UTF-8", cause });
    }
  }
  const plain = text.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
  return read(plain)
    .flatMap(([title, part]) => cut(part, most).map((piece) => ({ title, piece })))
    .map(({ title, piece }, part) => ({ text: piece, metadata: title ? { title, source, part } : { source, part } }));
}

/** @param {string} text @param {number} most @returns {string[]} Pieces; short paragraphs are joined. */
export function cut(text, most) {
  /** @type {string[]} */
  const found = [];
  let held = "";
  for (const paragraph of text.split(/\n\s*\n/)) {
    let left = paragraph.trim();
    while (left) {
      const size = lengthOf(left);
      if (held && lengthOf(held) + 2 + size <= most) [held, left] = [`${held}\n\n${left}`, ""];
      else if (size <= most) {
        if (held) found.push(held);
        [held, left] = [left, ""];
      } else {
        if (held) found.push(held);
        held = "";
        const [first, rest] = cutAt(left, most);
        found.push(first.trim());
        left = rest.trim();
      }
    }
  }
  return held ? [...found, held] : found;
}

/** @param {string} text @returns {number} Its characters as Python counts them. */
function lengthOf(text) {
  return /[\ud800-\udfff]/.test(text) ? [...text].length : text.length;
}

/** @param {string} text @param {number} most @returns {[string, string]} */
function cutAt(text, most) {
  const characters = /[\ud800-\udfff]/.test(text) ? [...text] : null;
  const flat = characters ? characters.map((one) => (one.length > 1 ? "\ue000" : one)).join("") : text;
  const inside = flat.slice(0, most);
  let end = most;
  for (const pattern of CUTS) {
    pattern.lastIndex = Math.floor(most / 2);
    let last = 0;
    while (pattern.exec(inside)) last = pattern.lastIndex;
    if (last) {
      end = last;
      break;
    }
  }
  return characters ? [characters.slice(0, end).join(""), characters.slice(end).join("")] : [text.slice(0, end), text.slice(end)];
}

/** @param {string} text @returns {[string, string][]} The parts under each heading. */
function markdown(text) {
  /** @type {[string, string][]} */
  const found = [];
  let [title, isCode] = ["", false];
  /** @type {string[]} */
  let lines = [];
  const all = text.split(LINE_END);
  if (all[all.length - 1] === "") all.pop();
  for (const line of all) {
    if (FENCE.test(line)) isCode = !isCode;
    const heading = isCode ? null : HEADING.exec(line);
    if (heading) {
      found.push([title, lines.join("\n")]);
      [title, lines] = [heading[1], []];
    }
    lines.push(line);
  }
  return [...found, [title, lines.join("\n")]];
}

/** @param {string} page @returns {[string, string][]} The text of a page by heading. */
function html(page) {
  /** @type {[string, string][]} */
  const parts = [];
  let [title, text, hidden, at] = ["", "", 0, 0];
  const tag = /<!--[\s\S]*?(?:-->|$)|<[!?][^>]*>|<(\/?)([a-zA-Z][^\s/>]*)((?:"[^"]*"|'[^']*'|[^'">])*)>/g;
  const say = (/** @type {string} */ data) => {
    if (!hidden) text += unescaped(data).replace(/\s+/g, " ");
  };
  for (let found = tag.exec(page); found; found = tag.exec(page)) {
    say(page.slice(at, found.index));
    at = tag.lastIndex;
    if (found[2] === undefined) continue;
    const [isEnd, name] = [found[1] === "/", found[2].toLowerCase()];
    const isHeading = /^h[1-6]$/.test(name);
    if (isEnd) {
      if (HIDDEN.has(name)) hidden = Math.max(0, hidden - 1);
      if (isHeading && !hidden) title = text.split(/\s+/).filter(Boolean).join(" ");
      if (BLOCK.test(name)) text += "\n\n";
      continue;
    }
    if (HIDDEN.has(name)) hidden++;
    if (BLOCK.test(name)) text += "\n\n";
    if (isHeading && !hidden) {
      parts.push([title, text]);
      text = "";
    }
    if (found[3].trimEnd().endsWith("/") && HIDDEN.has(name)) hidden--;
    else if (RAW.includes(name)) {
      const end = page.slice(at).search(new RegExp(`</${name}[\\s/>]`, "i"));
      at = end < 0 ? page.length : at + end;
      tag.lastIndex = at;
    }
  }
  say(page.slice(at));
  return [...parts, [title, text]];
}

/** @param {string} text @returns {string} */
function unescaped(text) {
  return text.replace(/&(#x[0-9a-f]+|#\d+|[a-z]+);/gi, (all, name) => {
    if (!name.startsWith("#")) return ENTITIES[name] ?? all;
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number.parseInt(name.slice(1), 10);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : "\ufffd";
  });
}
