/** The step `post.fill_mask`: the tokens that fit best in the place of `[MASK]`. */

import { EdgeInferError } from "../../errors.js";
import { Tokenizer } from "../text/tokenizer.js";
import { byScore, rows } from "../values.js";
import { reader } from "./outputs.js";

/**
 * Reads probabilities [tokens, vocabulary]. It gives `[{score, token, token_str, sequence}]`, and for a text with several masks
 * a list of these for each, as transformers' `FillMaskPipeline` does.
 *
 * @param {{tensor: string | null, file: string, mask: string, top_k: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {Promise<import("../item.js").Apply>}
 */
export async function prepare({ tensor, file, mask, top_k }, place) {
  const read = reader(tensor, place, "post.fill_mask");
  const tokenizer = new Tokenizer(await place.read(file));
  const maskId = tokenizer.tokenToId(mask);
  return (value, item) => {
    const ids = item.encoding?.ids ?? [];
    const places = ids.flatMap((number, index) => (number === maskId ? [index] : []));
    if (places.length === 0) throw new EdgeInferError(`the text has no \`${mask}\``, "input_error", { hint: `Paris is the ${mask} of France.` });
    const table = rows(read(value));
    const count = item.argument("top_k", top_k);
    const answers = places.map((index) => {
      const scores = table[index];
      return byScore(scores.length, (number) => scores[number])
        .slice(0, count)
        .map((number) => ({
          score: scores[number],
          token: number,
          token_str: tokenizer.decode([number]),
          sequence: tokenizer.decode(ids.with(index, number)),
        }));
    });
    return answers.length === 1 ? answers[0] : answers;
  };
}
