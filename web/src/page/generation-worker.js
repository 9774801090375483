/** The worker that holds a decoder, and generates a page's text. */

import { openTextModel } from "../generation/open.js";
import { GenerationRequests } from "../generation/requests.js";
import { startDecoderThread } from "./decoder-threads.js";
import { answerRequests, post } from "./worker-loop.js";

const requests = new GenerationRequests((asked, options) => openTextModel(asked, { ...options, startWorker: startDecoderThread }));

/** Of a model with an encoder and a decoder. @type {import("../generation/sequence-requests.js").SequenceRequests | undefined} */
let sequences;

answerRequests(async (request, signal, onProgress) => {
  if (request.kind === "open-sequence" || request.kind === "hear" || request.kind === "answer-text") {
    sequences ??= new (await import("../generation/sequence-requests.js")).SequenceRequests();
    return [await sequences.request(request, { signal, onProgress }), []];
  }
  const asked = /** @type {import("./protocol.js").GenerationRequest} */ (request);
  const onPiece = (/** @type {import("../generation/text-model.js").Piece} */ piece) => post({ kind: "piece", id: request.id, piece });
  return [await requests.request(asked, { signal, onProgress, onPiece }), []];
});
