/** The models: each cuts one word into the ids of its tokens. The same as the modules of `edge_infer/tasks/text/models`. */

import { EdgeInferError } from "../../errors.js";
import { malformed, unsupported } from "./definition.js";

/** @typedef {import("./definition.js").Part} Part */
/** @typedef {[start: number, end: number]} Place */
/** @typedef {[number: number, start: number, end: number]} Token An id, and where in the word it is, in UTF-16 units. */
/**
 * @typedef {object} Model
 * @property {Map<string, number>} vocabulary
 * @property {RegExp | null} cut What a long word may be cut by beforehand without changing its tokens.
 * @property {(word: string) => number[]} split
 * @property {(word: string) => Token[]} places The same tokens, each with its place in the word.
 */

const MAX_WORD = 1_000_000;
const MAX_LIMIT = 1000;
const MAX_TOKEN = 512;
const MAX_BEGINNINGS = 100_000_000;
const UNKNOWN_PENALTY = 10;
const encoder = new TextEncoder();

/** @type {Record<string, (part: Part) => Model>} */
const MODELS = { BPE: bpe, Unigram: unigram, WordLevel: wordLevel, WordPiece: wordPiece };

/** @param {Part} part @returns {Model} */
export function model(part) {
  const older = Object.hasOwn(part.values, "merges") ? "BPE" : Array.isArray(part.values.vocab) ? "Unigram" : "WordPiece";
  const kind = part.textOrNull("type") || older;
  if (!Object.hasOwn(MODELS, kind)) throw part.unknown("model");
  return MODELS[kind](part);
}

/** @param {string} word @returns {EdgeInferError} */
function cannotWrite(word) {
  return new EdgeInferError(`\`${word.slice(0, 40)}\` is not in the vocabulary, which has no unknown token`, "input_error", {
    hint: "name one in `model.unk_token` of tokenizer.json, or leave the word out",
  });
}

/** @param {string} word */
function checkLength(word) {
  if (word.length <= MAX_WORD) return;
  throw new EdgeInferError(`a word of ${word.length} characters is longer than ${MAX_WORD}`, "input_error", {
    hint: "cut the text, for example by line",
  });
}

/** @param {Map<string, number>} vocabulary @returns {(number | undefined)[]} The id of each byte's token. */
function byteTokens(vocabulary) {
  return Array.from({ length: 256 }, (_, byte) => vocabulary.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
}

/** @param {(number | undefined)[] | null} bytes @param {string} text @returns {number[] | null} */
function asBytes(bytes, text) {
  if (!bytes) return null;
  const found = Array.from(encoder.encode(text), (byte) => bytes[byte]);
  return found.includes(undefined) ? null : /** @type {number[]} */ (found);
}

/** @param {Part} part @returns {Model} */
function wordLevel(part) {
  const vocabulary = part.vocabulary("vocab");
  const unknown = vocabulary.get(part.text("unk_token", "<unk>"));
  const find = (/** @type {string} */ word) => {
    const found = vocabulary.get(word) ?? unknown;
    if (found === undefined) throw cannotWrite(word);
    return found;
  };
  return { vocabulary, cut: null, split: (word) => [find(word)], places: (word) => [[find(word), 0, word.length]] };
}

/** @param {Part} part @returns {Model} */
function wordPiece(part) {
  const vocabulary = part.vocabulary("vocab");
  const unknown = vocabulary.get(part.text("unk_token", "[UNK]"));
  const prefix = part.text("continuing_subword_prefix", "##");
  const limit = part.whole("max_input_chars_per_word", 100);
  if (limit > MAX_LIMIT) throw unsupported(`\`${part.where}.max_input_chars_per_word\``, `${limit}`);
  let longest = 0;
  for (const token of vocabulary.keys()) longest = Math.max(longest, token.length);
  /** @param {string} word @returns {Token[]} */
  const places = (word) => {
    const isShort = word.length <= limit || Array.from(word).length <= limit;
    /** @type {Token[]} */
    const found = [];
    let start = 0;
    while (isShort && start < word.length) {
      let end = Math.min(word.length, start + longest);
      let number;
      for (; end > start; end -= 1) {
        number = vocabulary.get(start ? prefix + word.slice(start, end) : word.slice(0, end));
        if (number !== undefined) break;
      }
      if (number === undefined) break;
      found.push([number, start, end]);
      start = end;
    }
    if (isShort && start === word.length) return found;
    if (unknown === undefined) throw cannotWrite(word);
    return [[unknown, 0, word.length]];
  };
  return { vocabulary, cut: null, split: (word) => places(word).map(([number]) => number), places };
}

/** @param {Part} part @returns {Model} */
function bpe(part) {
  if (part.values.dropout) throw unsupported(`\`${part.where}\``, "dropout", "it is for training: write null");
  const vocabulary = part.vocabulary("vocab");
  const [prefix, suffix] = [part.text("continuing_subword_prefix", ""), part.text("end_of_word_suffix", "")];
  const [isFused, isWhole] = [part.flag("fuse_unk", false), part.flag("ignore_merges", false)];
  const unknownToken = part.textOrNull("unk_token");
  const unknown = unknownToken === null ? undefined : vocabulary.get(unknownToken);
  const bytes = part.flag("byte_fallback", false) ? byteTokens(vocabulary) : null;
  let width = 1;
  for (const number of vocabulary.values()) width = Math.max(width, number + 1);
  if (width > 2 ** 26) throw unsupported(`\`${part.where}.vocab\``, `the id ${width - 1}`);
  /** @type {Map<number, number>} The rank of each pair. */
  const ranks = new Map();
  /** @type {number[]} What the pair of each rank makes. */
  const made = [];
  part.items("merges").forEach((merge, rank) => {
    const where = `\`${part.where}.merges[${rank}]\``;
    const space = typeof merge === "string" ? merge.indexOf(" ") : -1;
    const pair = typeof merge === "string" && space >= 0 ? [merge.slice(0, space), merge.slice(space + 1)] : merge;
    if (!Array.isArray(pair) || pair.length !== 2 || pair.some((one) => typeof one !== "string")) throw malformed(where, "must be two tokens");
    const [first, second] = pair.map((one) => vocabulary.get(one));
    const both = vocabulary.get(pair[0] + pair[1].slice(prefix.length));
    if (first === undefined || second === undefined || both === undefined) {
      throw malformed(where, "is of tokens that are not in the vocabulary");
    }
    ranks.set(first * width + second, rank);
    made.push(both);
  });

  /** @param {string} word @param {Place[]} [places] Where to write the place of each. @returns {number[]} The tokens of single characters. */
  const single = (word, places) => {
    const characters = Array.from(word);
    /** @type {number[]} */
    const found = [];
    let isPending = false;
    /** Where the unknown token is that waits. @type {Place} */
    let waiting = [0, 0];
    let isInOrder = true;
    let end = 0;
    characters.forEach((character, index) => {
      const written = (index ? prefix : "") + character + (index === characters.length - 1 ? suffix : "");
      const number = vocabulary.get(written);
      const fallen = number === undefined ? asBytes(bytes, written) : null;
      const start = end;
      end += character.length;
      if (number !== undefined) {
        if (isPending) {
          found.push(/** @type {number} */ (unknown));
          places?.push(waiting);
        }
        isPending = false;
        found.push(number);
        places?.push([start, end]);
      } else if (fallen) {
        found.push(...fallen);
        for (let i = 0; places && i < fallen.length; i++) places.push([start, end]);
        isInOrder &&= !isPending;
      } else if (unknown !== undefined) {
        if (isPending && !isFused) {
          found.push(unknown);
          places?.push(waiting);
        }
        waiting = isPending && isFused ? [waiting[0], end] : [start, end];
        isPending = true;
      } else {
        isInOrder = false;
      }
    });
    if (isPending) {
      found.push(/** @type {number} */ (unknown));
      places?.push(waiting);
    }
    if (places && !isInOrder) count(word, found, places);
    return found;
  };

  /**
   * Place tokens as the package does: one behind the other, by the bytes of their text. That is not where they are in the
   * word if a character before them is in no token, or if an unknown one comes behind the bytes of the next character.
   *
   * @param {string} word
   * @param {number[]} ids
   * @param {Place[]} places
   */
  const count = (word, ids, places) => {
    /** The character of each byte. @type {Place[]} */
    const owners = [];
    let start = 0;
    for (const character of word) {
      for (let i = encoder.encode(character).length; i > 0; i--) owners.push([start, start + character.length]);
      start += character.length;
    }
    let at = 0;
    ids.forEach((number, i) => {
      const size = bytes?.includes(number) ? 1 : encoder.encode(word.slice(...places[i])).length;
      places[i] = [owners[at][0], owners[at + size - 1][1]];
      at += size;
    });
  };

  /** @param {number[]} ids @param {Place[]} [places] @returns {number[]} */
  const join = (ids, places) => {
    while (ids.length > 1) {
      let [best, at] = [Infinity, 0];
      for (let index = 1; index < ids.length; index += 1) {
        const rank = ranks.get(ids[index - 1] * width + ids[index]);
        if (rank !== undefined && rank < best) [best, at] = [rank, index];
      }
      if (best === Infinity) break;
      ids.splice(at - 1, 2, made[best]);
      places?.splice(at - 1, 2, [places[at - 1][0], places[at][1]]);
    }
    return ids;
  };

  /** @param {string} word @param {Place[]} [places] @returns {number[]} */
  const cutWord = (word, places) => {
    const whole = isWhole ? vocabulary.get(word) : undefined;
    if (whole !== undefined) {
      places?.push([0, word.length]);
      return [whole];
    }
    checkLength(word);
    const ids = single(word, places);
    return ids.length < 48 ? join(ids, places) : joinByQueue(ids, ranks, made, width, places);
  };

  const canCut =
    !prefix && !suffix && !isWhole && vocabulary.has("▁") && ![...vocabulary.keys()].some((token) => /[^▁]▁/.test(token));
  return {
    vocabulary,
    cut: canCut ? /▁+[^▁]*|[^▁]+/g : null,
    split: (word) => cutWord(word),
    places: (word) => {
      /** @type {Place[]} */
      const places = [];
      return cutWord(word, places).map((number, i) => [number, ...places[i]]);
    },
  };
}

/**
 * Join in `n log n`: the pairs wait in a queue by rank and place, over a list that is linked.
 *
 * @param {number[]} ids
 * @param {Map<number, number>} ranks
 * @param {number[]} made
 * @param {number} width
 * @param {Place[]} [places] Where each is, changed in place.
 * @returns {number[]}
 */
function joinByQueue(ids, ranks, made, width, places) {
  const count = ids.length;
  const following = Int32Array.from(ids, (_, at) => (at + 1 < count ? at + 1 : -1));
  const previous = Int32Array.from(ids, (_, at) => at - 1);
  /** @type {number[]} rank * count + place, a heap. */
  const queue = [];
  const rankAt = (/** @type {number} */ at) => ranks.get(ids[at] * width + ids[following[at]]);
  const offer = (/** @type {number} */ at) => {
    const rank = rankAt(at);
    if (rank !== undefined) push(queue, rank * count + at);
  };
  for (let at = 0; at < count - 1; at += 1) offer(at);
  while (queue.length) {
    const entry = pop(queue);
    const at = entry % count;
    const rank = (entry - at) / count;
    const behind = following[at];
    if (behind < 0 || ids[at] < 0 || rankAt(at) !== rank) continue; // one of the two was joined with another since
    ids[at] = made[rank];
    ids[behind] = -1;
    if (places) places[at] = [places[at][0], places[behind][1]];
    following[at] = following[behind];
    if (following[at] >= 0) {
      previous[following[at]] = at;
      offer(at);
    }
    if (previous[at] >= 0) offer(previous[at]);
  }
  if (places) places.splice(0, places.length, ...places.filter((_, at) => ids[at] >= 0));
  return ids.filter((one) => one >= 0);
}

/** @param {number[]} heap @param {number} entry */
function push(heap, entry) {
  let at = heap.push(entry) - 1;
  while (at > 0) {
    const above = (at - 1) >> 1;
    if (heap[above] <= entry) break;
    heap[at] = heap[above];
    at = above;
  }
  heap[at] = entry;
}

/** @param {number[]} heap @returns {number} */
function pop(heap) {
  const least = heap[0];
  const last = /** @type {number} */ (heap.pop());
  if (heap.length === 0) return least;
  let at = 0;
  for (let below = 1; below < heap.length; below = 2 * at + 1) {
    if (below + 1 < heap.length && heap[below + 1] < heap[below]) below += 1;
    if (heap[below] >= last) break;
    heap[at] = heap[below];
    at = below;
  }
  heap[at] = last;
  return least;
}

/** @param {Part} part @returns {Model} */
function unigram(part) {
  /** @type {Map<string, number>} */
  const vocabulary = new Map();
  /** @type {Map<string, number>} */
  const scores = new Map();
  const entries = part.items("vocab");
  let [least, longest, beginnings] = [Infinity, 0, 0];
  entries.forEach((entry, number) => {
    if (!Array.isArray(entry) || entry.length !== 2 || typeof entry[0] !== "string" || !Number.isFinite(entry[1])) {
      throw malformed(`\`${part.where}.vocab[${number}]\``, "must be a token and its score");
    }
    vocabulary.set(entry[0], number);
    scores.set(entry[0], entry[1]);
    longest = Math.max(longest, entry[0].length);
    beginnings += entry[0].length ** 2 / 2;
  });
  for (const score of scores.values()) least = Math.min(least, score);
  const unknown = part.wholeOrNull("unk_id");
  if (!entries.length || (unknown !== null && unknown >= entries.length)) {
    throw malformed(`\`${part.where}\``, `has ${entries.length} tokens and the unknown one is ${unknown}`);
  }
  if (longest > MAX_TOKEN || beginnings > MAX_BEGINNINGS) {
    throw unsupported(`\`${part.where}\``, `a vocabulary with tokens of ${longest} characters`);
  }
  const bytes = part.flag("byte_fallback", false) ? byteTokens(vocabulary) : null;
  const trie = grow(scores, vocabulary);
  const unknownScore = least - UNKNOWN_PENALTY;

  /** @param {string} word @returns {[number, number][]} Where the tokens of the best way are. */
  const bestParts = (word) => {
    const length = word.length;
    const best = new Float64Array(length + 1);
    const starts = new Int32Array(length + 1).fill(-1);
    const isUnknown = new Uint8Array(length + 1);
    for (let start = 0; start < length; ) {
      const code = /** @type {number} */ (word.codePointAt(start));
      const single = start + (code > 0xffff ? 2 : 1);
      let hasSingle = false;
      let node = trie;
      for (let end = start; end < length; ) {
        const next = node.children?.get(word.charCodeAt(end));
        if (!next) break;
        node = next;
        end += 1;
        if (node.number < 0) continue;
        const score = node.score + best[start];
        if (starts[end] < 0 || score > best[end]) {
          [best[end], starts[end]] = [score, start];
          isUnknown[end] = node.number === unknown ? 1 : 0;
        }
        if (end === single) hasSingle = true;
      }
      if (!hasSingle) {
        if (unknown === null) throw cannotWrite(word.slice(start, single));
        const score = unknownScore + best[start];
        if (starts[single] < 0 || score > best[single]) {
          [best[single], starts[single], isUnknown[single]] = [score, start, 1];
        }
      }
      start = single;
    }
    /** @type {[number, number][]} */
    const parts = [];
    let wasUnknown = false;
    for (let end = length; end > 0; ) {
      const start = starts[end];
      if (isUnknown[end] && wasUnknown) parts[parts.length - 1][0] = start;
      else parts.push([start, end]);
      wasUnknown = isUnknown[end] === 1;
      end = start;
    }
    return parts.reverse();
  };

  /** @param {string} word @returns {Token[]} */
  const places = (word) => {
    checkLength(word);
    return bestParts(word).flatMap(([start, end]) => {
      const text = word.slice(start, end);
      const number = vocabulary.get(text);
      const numbers = number !== undefined ? [number] : (asBytes(bytes, text) ?? [unknown]);
      return numbers.map((one) => {
        if (one === null) throw cannotWrite(text);
        return /** @type {Token} */ ([one, start, end]);
      });
    });
  };
  return { vocabulary, cut: null, split: (word) => places(word).map(([number]) => number), places };
}

/** @typedef {{number: number, score: number, children: Map<number, Node> | null}} Node */

/** @param {Map<string, number>} scores @param {Map<string, number>} vocabulary @returns {Node} The trie of all tokens, by UTF-16 units. */
function grow(scores, vocabulary) {
  /** @type {Node} */
  const root = { number: -1, score: 0, children: null };
  for (const [token, score] of scores) {
    let node = root;
    for (let at = 0; at < token.length; at += 1) {
      node.children ??= new Map();
      let next = node.children.get(token.charCodeAt(at));
      if (!next) node.children.set(token.charCodeAt(at), (next = { number: -1, score: 0, children: null }));
      node = next;
    }
    if (node !== root) [node.number, node.score] = [/** @type {number} */ (vocabulary.get(token)), score];
  }
  return root;
}
