/** What a text becomes, and how long it may and must be. The same as `encoding.py`, `length.py`, `post_processors.py`. */

import { EdgeInferError } from "../../errors.js";
import { SPACE } from "./byte-alphabet.js";
import { isId, malformed, unsupported } from "./definition.js";
import { members } from "./unicode-table.js";

/** @typedef {import("./definition.js").Part} Part */
/** @typedef {import("./patterns.js").Span} Span */
/**
 * @typedef {object} Tokens Those of one text alone.
 * @property {number[]} ids
 * @property {Span[]} [offsets]
 * @property {Map<number, string>} [spellings] What an added token was in the text, by its place: white space beside it may belong to it.
 */
/**
 * @typedef {object} Encoding All lists have one entry for each token.
 * @property {number[]} ids
 * @property {number[]} typeIds 0, or 1 for the tokens of the second text, as the template says.
 * @property {number[]} attentionMask 1, or 0 where a token only fills the length.
 * @property {number[]} specialTokensMask 1 where the template put a token there or it fills the length.
 * @property {Span[]} [offsets] Where each token is in its text, in UTF-16 units; `[0, 0]` for one that stands for no text. Where asked for.
 */
/**
 * @typedef {object} Truncation
 * @property {number} maxLength The most tokens, those that the template adds included.
 * @property {"longest_first" | "only_first" | "only_second"} [strategy] Which text of a pair is cut.
 * @property {"right" | "left"} [side]
 */
/**
 * @typedef {object} Padding
 * @property {number | null} [length] How many tokens to fill up to; null for the most of the batch.
 * @property {number | null} [multipleOf]
 * @property {"right" | "left"} [side]
 * @property {number} [padId]
 * @property {number} [padTypeId]
 */
/** @typedef {{ids: number[], text: number | null, typeId: number}} Item One place of a template. */

const [STRATEGIES, SIDES] = [["longest_first", "only_first", "only_second"], ["right", "left"]];
const MAX_LENGTH = 2 ** 20;

/** @param {string} what @param {string} [hint] */
const wrong = (what, hint = "") => new EdgeInferError(what, "input_error", { hint });

/** @param {string} name @param {unknown} value @param {number} most */
function checkNumber(name, value, most) {
  if (!Number.isInteger(value) || Number(value) < 0 || Number(value) > most) {
    throw wrong(`\`${name}\` must be a whole number from 0 to ${most}, not ${value}`);
  }
}

/** @param {Part | null} part @returns {Truncation | null} */
export function readTruncation(part) {
  if (part === null) return null;
  return {
    maxLength: part.whole("max_length"),
    strategy: /** @type {any} */ (part.choice("strategy", STRATEGIES, "longest_first")),
    side: /** @type {any} */ (part.choice("direction", SIDES, "right")),
  };
}

/** @param {Part | null} part @returns {Padding | null} */
export function readPadding(part) {
  if (part === null) return null;
  const isFixed = typeof part.values.strategy === "object" && part.values.strategy !== null;
  if (!isFixed) part.choice("strategy", ["batch_longest"], "batch_longest");
  const found = {
    length: isFixed ? part.part("strategy").whole("Fixed") : null,
    multipleOf: part.wholeOrNull("pad_to_multiple_of"),
    side: /** @type {any} */ (part.choice("direction", SIDES, "right")),
    padId: part.whole("pad_id", 0),
    padTypeId: part.whole("pad_type_id", 0),
  };
  if ((found.length ?? 0) > MAX_LENGTH || (found.multipleOf ?? 0) > MAX_LENGTH) throw malformed("the file", `pads to more than ${MAX_LENGTH}`);
  return found;
}

/**
 * @param {Tokens[]} texts One text or two.
 * @param {Truncation} how
 * @param {number} added How many tokens the template adds.
 * @returns {Tokens[]}
 */
export function truncate(texts, how, added) {
  const { maxLength, strategy = "longest_first", side = "right" } = how;
  checkNumber("maxLength", maxLength, 2 ** 32);
  if (!STRATEGIES.includes(strategy) || !SIDES.includes(side)) throw wrong(`no such strategy \`${strategy}\` or side \`${side}\``);
  const room = maxLength - added;
  if (room < 0) throw wrong(`maxLength ${maxLength} is less than the ${added} tokens that the template adds`, "raise it");
  const lengths = texts.map((one) => one.ids.length);
  const excess = lengths.reduce((sum, one) => sum + one, 0) - room;
  let rooms = lengths;
  if (room === 0) {
    rooms = lengths.map(() => 0);
  } else if (excess > 0 && strategy === "longest_first") {
    rooms = lengths.length === 1 ? [room] : shared(lengths[0], lengths[1], room);
  } else if (excess > 0) {
    const at = strategy === "only_first" ? 0 : 1;
    if ((lengths[at] ?? 0) <= excess) throw wrong(`the text to cut has ${lengths[at] ?? 0} tokens: too few to cut ${excess} off`, "strategy longest_first cuts both");
    rooms = lengths.map((one, index) => (index === at ? one - excess : one));
  }
  return texts.map((one, index) => {
    const start = side === "right" ? 0 : Math.max(one.ids.length - rooms[index], 0);
    return sliced(one, start, side === "right" ? Math.min(rooms[index], one.ids.length) : one.ids.length);
  });
}

/** @param {Tokens} tokens @param {number} start @param {number} end @returns {Tokens} */
function sliced({ ids, offsets, spellings = new Map() }, start, end) {
  const kept = [...spellings].flatMap(([at, text]) => (at >= start && at < end ? [/** @type {[number, string]} */ ([at - start, text])] : []));
  return { ids: ids.slice(start, end), offsets: offsets?.slice(start, end), spellings: new Map(kept) };
}

/** @param {number} first @param {number} second @param {number} room */
function shared(first, second, room) {
  let shorter = Math.min(first, second);
  let longer = shorter > room ? shorter : Math.max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = Math.floor(room / 2);
    longer = shorter + (room % 2);
  }
  return first > second ? [longer, shorter] : [shorter, longer];
}

/** @param {Encoding[]} encodings Filled up in place. @param {Padding} how */
export function pad(encodings, how) {
  const { length = null, multipleOf = null, side = "right", padId = 0, padTypeId = 0 } = how;
  checkNumber("length", length ?? 0, MAX_LENGTH);
  checkNumber("multipleOf", multipleOf ?? 0, MAX_LENGTH);
  if (!SIDES.includes(side)) throw wrong(`no such side \`${side}\``);
  let target = length ?? encodings.reduce((most, one) => Math.max(most, one.ids.length), 0);
  if (multipleOf) target = Math.ceil(target / multipleOf) * multipleOf;
  for (const one of encodings) {
    const count = target - one.ids.length;
    if (count <= 0) continue;
    /** @template T @param {T[]} values @param {T} value @returns {T[]} */
    const fill = (values, value) => {
      const more = new Array(count).fill(value);
      return side === "right" ? values.concat(more) : more.concat(values);
    };
    one.ids = fill(one.ids, padId);
    one.typeIds = fill(one.typeIds, padTypeId);
    one.specialTokensMask = fill(one.specialTokensMask, 1);
    one.attentionMask = fill(one.attentionMask, 0);
    if (one.offsets) one.offsets = fill(one.offsets, [0, 0]);
  }
}

/** @param {number} number @param {number} typeId @returns {Item} */
const special = (number, typeId) => ({ ids: [number], text: null, typeId });
/** @param {number} text @param {number} typeId @returns {Item} */
const given = (text, typeId) => ({ ids: [], text, typeId });

/** Puts the tokens of a text or a pair together, as a part of the file says. */
export class PostProcessor {
  /** @type {[Item[], Item[]]} */
  #templates = [[given(0, 0)], [given(0, 0), given(1, 1)]];

  /** For each that trims offsets, whether the first token was given a space. @type {boolean[]} */
  #trims = [];
  #name;

  /** @param {Part | null} part @param {(number: number) => string | null} name Gives the token of an id. */
  constructor(part, name) {
    this.#name = name;
    for (const one of flat(part)) {
      const canTrim = one.kind === "ByteLevel" || one.kind === "RobertaProcessing";
      if (canTrim && one.flag("trim_offsets", true)) this.#trims.push(one.flag("add_prefix_space", true));
    }
    const templates = flat(part).filter((one) => one.kind !== "ByteLevel");
    if (part && templates.length > 1) throw unsupported(`\`${part.where}\``, "more than one template");
    if (templates.length) this.#templates = read(templates[0]);
  }

  /** @param {boolean} isPair @returns {number} How many tokens are put around one text or two. */
  added(isPair) {
    return this.#templates[Number(isPair)].reduce((sum, one) => sum + one.ids.length, 0);
  }

  /**
   * Take the spaces that a token begins and ends with out of its offsets, where the file asks for it. A single one in front of
   * a text may be there only because the tokenizer put it there.
   *
   * @param {Tokens} tokens Changed in place.
   */
  #trim({ ids, offsets, spellings }) {
    if (!offsets) return;
    for (const hasSpace of this.#trims) {
      ids.forEach((number, index) => {
        let [start, end] = offsets[index];
        const spelling = spellings?.get(index) ?? this.#name(number) ?? "";
        let leading = spaces(spelling);
        const trailing = spaces([...spelling].reverse().join(""));
        if (leading === 1 && hasSpace && (index === 0 || start === 0)) leading = 0;
        start = Math.min(start + leading, end);
        if (trailing && end >= trailing) end = Math.max(end - trailing, start);
        offsets[index] = [start, end];
      });
    }
  }

  /** @param {Tokens[]} texts @param {boolean} addSpecialTokens @returns {Encoding} */
  join(texts, addSpecialTokens) {
    for (const one of texts) this.#trim(one);
    /** @type {Encoding} */
    const found = { ids: [], typeIds: [], attentionMask: [], specialTokensMask: [] };
    /** @type {Span[] | undefined} */
    const offsets = texts[0].offsets && [];
    if (offsets) found.offsets = offsets;
    for (const item of this.#templates[texts.length - 1]) {
      if (item.text === null && !addSpecialTokens) continue;
      const given = item.text === null ? undefined : texts[item.text];
      for (const [at, id] of (given?.ids ?? item.ids).entries()) {
        offsets?.push(given?.offsets?.[at] ?? [0, 0]);
        found.ids.push(id);
        found.typeIds.push(item.typeId);
        found.specialTokensMask.push(item.text === null ? 1 : 0);
        found.attentionMask.push(1);
      }
    }
    return found;
  }
}

const isWhite = members("space");

/** @param {string} token @returns {number} How many spaces it begins with; `Ġ` is the one of byte-level vocabularies. */
function spaces(token) {
  let count = 0;
  while (count < token.length && (token[count] === SPACE || isWhite(token[count]))) count += 1;
  return count;
}

/** @param {Part | null} part @returns {Part[]} */
function flat(part) {
  if (part === null) return [];
  if (!["BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"].includes(part.kind)) {
    throw part.unknown("post-processor");
  }
  return part.kind === "Sequence" ? part.parts("processors").flatMap((one) => flat(one)) : [part];
}

/** @param {Part} part @returns {[Item[], Item[]]} */
function read(part) {
  if (part.kind === "TemplateProcessing") return [template(part, "single", "A"), template(part, "pair", "AB")];
  const [start, end] = ["cls", "sep"].map((key) => {
    const pair = part.items(key);
    if (pair.length !== 2 || !isId(pair[1])) throw malformed(`\`${part.where}.${key}\``, "must be a token and its id");
    return pair[1];
  });
  const one = [special(start, 0), given(0, 0), special(end, 0)];
  if (part.kind === "BertProcessing") return [one, [...one, given(1, 1), special(end, 1)]];
  return [one, [...one, special(end, 0), given(1, 0), special(end, 0)]];
}

/** @param {Part} part @param {string} key @param {string} texts @returns {Item[]} */
function template(part, key, texts) {
  const tokens = part.part("special_tokens");
  const items = part.parts(key).map((one) => {
    const sequence = one.optional("Sequence");
    if (sequence) return given(texts.indexOf(sequence.choice("id", [...texts])), sequence.whole("type_id", 0));
    const token = one.part("SpecialToken");
    const ids = tokens.part(token.text("id")).items("ids");
    if (!ids.every(isId)) throw malformed(`\`${tokens.where}\``, "must give ids");
    return { ids, text: null, typeId: token.whole("type_id", 0) };
  });
  if (new Set(items.flatMap((one) => one.text ?? [])).size !== texts.length) throw malformed(`\`${part.where}.${key}\``, "leaves a text out");
  return items;
}
