/** What a visitor can do with a model, in a sentence. */

/** By task. @type {Record<string, string>} */
const TRIES = {
  "object-detection": "Find things in a picture, or live by the camera",
  "image-classification": "Name what a picture shows",
  "image-segmentation": "Find the parts of a picture",
  "depth-estimation": "See how far away each part of a picture is",
  "audio-classification": "Name a sound, from a file or the microphone",
  "automatic-speech-recognition": "Write down what is said",
  "voice-activity-detection": "Hear when somebody speaks",
  "text-generation": "Begin a text; it goes on with it in this page",
  "feature-extraction": "Search sentences by their meaning",
  "text-classification": "Sort a text",
  "zero-shot-classification": "Sort a text by labels of your own",
  "question-answering": "Ask a text a question",
  "fill-mask": "Fill a gap in a text",
  "token-classification": "Find names in a text",
  "text-ranking": "Order documents by a question",
  "tabular-classification": "Fill in a row of a table",
  "tabular-regression": "Fill in a row of a table",
};

/**
 * @param {string} task Empty where the bundle names none.
 * @param {boolean} [chat] Of one that generates text: whether it takes conversations.
 * @returns {string}
 */
export function triesOf(task, chat) {
  return chat ? "Chat with it; it writes in this page" : (TRIES[task] ?? "Draw for it, or give it numbers");
}
