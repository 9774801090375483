/** The step `post.ctc`: speech to text, the best token of each frame, repeated ones and blanks left out. */

import { EdgeInferError } from "../../errors.js";
import { rows } from "../values.js";
import { didYouMean } from "../words.js";
import { reader } from "./outputs.js";

const HINT = "take the vocab.json of the same model";

/**
 * Reads scores [1, frames, vocabulary] and gives `{text}`, by the best path, as transformers' `Wav2Vec2CTCTokenizer` does.
 *
 * @param {{tensor: string | null, file: string, blank: string, delimiter: string, special: string[], lowers: boolean}} parameters
 * @param {import("../place.js").Place} place
 * @returns {Promise<import("../item.js").Apply>}
 */
export async function prepare({ tensor, file, blank, delimiter, special, lowers }, place) {
  const read = reader(tensor, place, "post.ctc");
  const tokens = readTokens(await place.read(file), file);
  if (!tokens.includes(blank)) {
    throw new EdgeInferError(`\`${file}\` has no token \`${blank}\`, expected the one that the model gives between letters`, "manifest_error", {
      hint: didYouMean(blank, tokens) || '"blank": "TOKEN"',
      details: { field: "blank" },
    });
  }
  const silent = new Set([blank, ...special]);
  return (value) => {
    let text = "";
    let before = -1;
    for (const row of rows(read(value))) {
      if (row.length > tokens.length) {
        throw new EdgeInferError(`the model has ${row.length} tokens, and \`${file}\` ${tokens.length}`, "input_error", { hint: HINT });
      }
      let best = 0;
      for (let index = 1; index < row.length; index += 1) if (row[index] > row[best]) best = index;
      if (best !== before && !silent.has(tokens[best])) text += tokens[best] === delimiter ? " " : tokens[best];
      before = best;
    }
    text = text.replace(/^ +| +$/g, "");
    return { text: lowers ? text.toLowerCase() : text };
  };
}

/**
 * Gives the tokens by their number.
 *
 * @param {Uint8Array} data
 * @param {string} name
 * @returns {string[]}
 */
function readTokens(data, name) {
  let values;
  try {
    values = JSON.parse(new TextDecoder().decode(data));
  } catch (error) {
    throw new EdgeInferError(`\`${name}\` is not JSON: ${error}`, "manifest_error", { hint: HINT });
  }
  const isObject = values !== null && typeof values === "object" && !Array.isArray(values);
  const pairs = isObject ? /** @type {[string, unknown][]} */ (Object.entries(values)) : [];
  /** @type {string[]} */
  const tokens = [];
  for (const [token, number] of pairs) {
    if (typeof number === "number" && Number.isInteger(number) && number >= 0 && number < pairs.length) tokens[number] = token;
  }
  if (pairs.length === 0 || Object.keys(tokens).length !== pairs.length) {
    throw new EdgeInferError(`\`${name}\` is not a vocabulary: an object with a number for each token, from 0 on`, "manifest_error", { hint: HINT });
  }
  return tokens;
}
