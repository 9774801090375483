/** The worker that holds a decoder, and generates a page's text. */

import { openTextModel } from "../generation/open.js";
import { GenerationRequests } from "../generation/requests.js";
import { startDecoderThread } from "./decoder-threads.js";
import { answerRequests, post } from "./worker-loop.js";

const requests = new GenerationRequests((asked, options) => openTextModel(asked, { ...options, startWorker: startDecoderThread }));

answerRequests(async (request, signal, onProgress) => {
  const asked = /** @type {import("./protocol.js").GenerationRequest} */ (request);
  const onPiece = (/** @type {import("../generation/text-model.js").Piece} */ piece) => post({ kind: "piece", id: request.id, piece });
  return [await requests.request(asked, { signal, onProgress, onPiece }), []];
});
