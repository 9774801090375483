/** The step `post.top_k`: the best classes with their names. */

import { byScore, flat } from "../values.js";
import { reader } from "./outputs.js";

/**
 * It gives `[{label, score}]`, the highest score first; of equal ones the lower class first. Classes whose score is not above
 * `threshold` are left out.
 *
 * @param {{tensor: string | null, top_k: number, threshold: number | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor, top_k, threshold }, place) {
  const read = reader(tensor, place, "post.top_k");
  return (value, item) => {
    const scores = flat(read(value));
    place.checkLabels(scores.length);
    const least = item.argument("threshold", threshold);
    const best = byScore(scores.length, (i) => scores[i]).filter((i) => least === null || scores[i] > least);
    return best.slice(0, item.argument("top_k", top_k)).map((i) => ({ label: place.label(i), score: scores[i] }));
  };
}
