/** The widgets: what takes an input and shows the answer, by the kind of input. A new kind is one module and one line here. */

/** @typedef {import("../catalog.js").Model} Model */
/** @typedef {import("../state.js").State} State */
/**
 * @typedef {object} Link The input as short texts, for an address.
 * @property {() => string[]} get None where it is the first one, or too large.
 * @property {(texts: string[]) => void} set Puts an input from an address in place, before the model is ready; one that fits nothing is left.
 */
/**
 * @typedef {object} Widget
 * @property {HTMLElement} stage What takes the input.
 * @property {HTMLElement} answer Where the answer stands.
 * @property {(answer: any) => void} show
 * @property {() => void} [ready] The model can be asked: a widget with an input of its own asks now.
 * @property {Link} [link]
 * @property {() => void} [leave] Gives back what the widget holds, such as a camera.
 */
/** @typedef {(model: Model, state: State) => Widget | Promise<Widget>} Make */

/** By the raw input of a task; the first kind that fits is taken. @type {{fits: (model: Model) => boolean, make: () => Promise<Make>}[]} */
const KINDS = [
  { fits: ({ hasPipeline, task }) => hasPipeline && /^(image|object|keypoint|depth)/.test(task), make: async () => (await import("./image.js")).image },
  { fits: ({ hasPipeline, task }) => hasPipeline && /^(audio|voice)/.test(task), make: async () => (await import("./sound.js")).sound },
  { fits: ({ hasPipeline, task }) => hasPipeline && task === "feature-extraction", make: async () => (await import("./sentences.js")).sentences },
  { fits: ({ columns }) => columns.length > 0, make: async () => (await import("./row.js")).row },
  { fits: ({ hasPipeline }) => hasPipeline, make: async () => (await import("./text.js")).text },
  { fits: isSmallPicture, make: async () => (await import("./draw.js")).drawing },
  { fits: () => true, make: async () => (await import("./tensors.js")).tensors },
];
/** The largest side of a picture that is drawn by hand. */
const MAX_SIDE = 64;

/**
 * @param {Model} model
 * @param {State} state
 * @returns {Promise<Widget>}
 */
export async function widgetOf(model, state) {
  const kind = /** @type {(typeof KINDS)[number]} */ (KINDS.find(({ fits }) => fits(model)));
  return (await kind.make())(model, state);
}

/** Whether a model takes one grey picture of few pixels and names its classes: digits, letters, sketches. @param {Model} model */
function isSmallPicture({ inputs, outputs, labels }) {
  const [{ dtype, shape }] = inputs;
  const sides = shape.slice(-2);
  return inputs.length === 1 && outputs.length === 1 && dtype === "float32" && labels.length > 0 && shape.length === 4 && shape[1] === 1
    && sides.every((side) => typeof side === "number" && side >= 4 && side <= MAX_SIDE);
}
