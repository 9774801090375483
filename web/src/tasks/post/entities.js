/** The step `post.entities`: a class for each token to the names, places and so on in the text. */

import { EdgeInferError } from "../../errors.js";
import { best, rows } from "../values.js";
import { reader } from "./outputs.js";

/** @typedef {{entity: string, score: number, index: number, word: string, start: number, end: number}} Entity */

/**
 * Reads probabilities [tokens, classes]. `none`: `[{entity, score, index, word, start, end}]`, an answer for each token.
 * `simple`: tokens that belong together by their `B-` and `I-` are one, `[{entity_group, score, word, start, end}]`. These are
 * the rules of transformers' `TokenClassificationPipeline`, whose `word` is the tokens' own spelling.
 *
 * @param {{tensor: string | null, aggregation_strategy: "none" | "simple", ignore: string}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor, aggregation_strategy, ignore }, place) {
  const read = reader(tensor, place, "post.entities");
  return (value, item) => {
    const { encoding } = item;
    if (!encoding?.offsets) {
      throw new EdgeInferError("pipeline: `post.entities` needs the places of tokens", "manifest_error", {
        hint: 'give the step text.tokenize "offsets": true',
      });
    }
    /** @type {Entity[]} */
    const found = [];
    for (const [index, scores] of rows(read(value)).slice(0, encoding.ids.length).entries()) {
      if (encoding.specialTokensMask[index]) continue;
      place.checkLabels(scores.length);
      const label = best(scores);
      const [start, end] = encoding.offsets[index];
      found.push({ entity: place.label(label), score: scores[label], index, word: item.tokenOf(encoding.ids[index]), start, end });
    }
    if (item.argument("aggregation_strategy", aggregation_strategy) === "none") return found.filter(({ entity }) => entity !== ignore);
    return grouped(found, encoding.ids, item.decode).filter(({ entity_group }) => entity_group !== ignore);
  };
}

/** @param {Entity[]} found @param {number[]} ids @param {(ids: number[]) => string} decode */
function grouped(found, ids, decode) {
  /** @type {Entity[][]} */
  const groups = [];
  for (const one of found) {
    const { begins, tag } = tagOf(one.entity);
    const last = groups.at(-1)?.at(-1);
    if (last && !begins && tagOf(last.entity).tag === tag) groups[groups.length - 1].push(one);
    else groups.push([one]);
  }
  return groups.map((group) => {
    const { start } = group[0];
    const { end } = group[group.length - 1];
    const score = group.reduce((sum, one) => sum + one.score, 0) / group.length;
    const word = decode(group.map(({ index }) => ids[index]));
    return { entity_group: tagOf(group[0].entity).tag, score, word, start, end };
  });
}

/** @param {string} entity @returns {{begins: boolean, tag: string}} Whether an entity begins here, and its kind: `PER` for `B-PER` and `I-PER`. */
function tagOf(entity) {
  return /^[BI]-/.test(entity) ? { begins: entity[0] === "B", tag: entity.slice(2) } : { begins: false, tag: entity };
}
