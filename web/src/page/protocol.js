/**
 * The messages between a page and its worker: requests, each answered by one result or error of the same `id`, and progress
 * while a request is worked on.
 */

/** @typedef {import("../errors.js").ErrorDocument} ErrorDocument */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../fetch/download.js").Progress} Progress */
/** @typedef {import("../engines/open.js").EngineSettings} EngineSettings */
/** @typedef {import("../bundle/in-memory.js").Files} Files */

/**
 * @typedef {object} Traffic What a worker has loaded.
 * @property {number} bytesFetched What came over the network, compressed as it was; 0 from the browser's cache.
 * @property {number} bytesLoaded What that is unpacked, from the cache or not.
 */

/**
 * @typedef {object} Placed What a session really runs on.
 * @property {string} model The bundle's name and the first digits of its revision.
 * @property {string} variant The variant's id.
 * @property {string} why What decided on it: `asked for`, or `rule` or `measured` with the reason.
 * @property {string} engine The engine's name.
 * @property {string} engineVersion
 * @property {string} device
 * @property {number} threads
 * @property {string} threadsWhy What decided on their number: `asked for`, the rule, or what the page lacks for more than one.
 * @property {import("../cache/place.js").PlaceKind | "none"} storage Where the model is kept for the next visit.
 * @property {boolean} fromStorage Whether it came from there.
 * @property {boolean} offline Whether the server could not be reached, and the bundle is the one of the last visit.
 * @property {string[]} fallbacks What was asked for and could not be used, each with the reason.
 * @property {string[]} notices What is lost or was given up: models that could not be kept, or were removed for this one.
 * @property {boolean} isolated Whether the page is cross-origin isolated, which threads need.
 * @property {import("./follow.js").Update} [update] Of a model of a signed store: what brought its weights.
 */
/** @typedef {Placed & Traffic} Report */

/**
 * @typedef {object} OpenRequest
 * @property {"open"} kind
 * @property {string} url
 * @property {string} [variant]
 * @property {import("../bundle/measured.js").EngineName} [backend]
 * @property {"auto" | "wasm" | "webgpu" | "webnn"} [device]
 * @property {boolean} [strict] Whether it has to run on that device.
 * @property {number} [latencyBudgetMs] What a run may take, as far as it was measured here.
 * @property {boolean} keep
 * @property {string} [apiKey] What the server asks for.
 * @property {EngineSettings} settings
 * @property {Files} [files] The files of the bundle, where they are here already.
 * @property {boolean} [selfTest] Whether it has to give its golden outputs, and is refused without them.
 * @property {boolean} [provesItself] Whether it has to give its golden outputs where it has some.
 * @property {string} [trial] Where it is a new version of a signed store, the model's address: this is its trial.
 * @property {boolean} [refusesPairs] Whether a bundle with an encoder and a decoder is refused before its files are fetched.
 */
/** @typedef {{kind: "survey", url: string, apiKey?: string} & import("../bundle/measured.js").Asked} SurveyRequest Answered by `Survey`. */
/** @typedef {{model: string, revision: string, variants: {id: string, format: string, bytes: number}[], rule: string, isMeasured: boolean}} Survey What there
 *   is to measure of a bundle, the variant that the rules choose, and whether something of what was asked for was measured. */
/** @typedef {{kind: "check", url: string, apiKey?: string, keep: boolean, settings: EngineSettings} & Omit<import("../bundle/measured.js").Asked, "threads">} CheckRequest
 *   Answered by `Preflight`. */
/** @typedef {{kind: "time", session: number, runs: number}} TimeRequest Answered by the milliseconds of one of so many runs. */
/** @typedef {{kind: "remember", revision: string, rows: import("../bundle/measured.js").Measurement[], failed: import("../bundle/measured.js").Failure[]}} RememberRequest */
/**
 * @typedef {object} SwapRequest
 * @property {"swap"} kind
 * @property {number} session
 * @property {Files} files
 * @property {string} [variant]
 * @property {string} trial As that of `OpenRequest`; empty for a version that was tried.
 */
/** @typedef {Omit<import("../sync/pull.js").PullOptions, "onProgress" | "signal">} PullSettings */
/** @typedef {{kind: "pull", address: string, options: PullSettings}} PullRequest Answered by `Pulled`. */
/** @typedef {{kind: "settle", address: string, result: "active" | "refused" | "undecided"}} SettleRequest */
/** @typedef {{kind: "kept"}} KeptRequest */
/** @typedef {{kind: "clear"}} ClearRequest */
/** @typedef {{kind: "abort", target: number}} AbortRequest Give up the request of that id; it is not answered itself. */
/** @typedef {{kind: "run", session: number, inputs: Record<string, unknown>, outputs?: string[]}} RunRequest The engine's session checks the inputs. */
/** @typedef {{kind: "read", session: number, path: string}} ReadRequest Answered by the bytes of a file of the bundle. */
/** @typedef {{kind: "file", url: string, keep: boolean, apiKey?: string}} FileRequest Answered by the bytes of a file that no manifest lists, and whence they are. */
/** @typedef {{kind: "memory", session: number}} MemoryRequest Answered by bytes, or null where they are not known. */
/** @typedef {{kind: "fork", session: number}} ForkRequest Answered by the number of a second session, whose hidden state stays from run to run. */
/** @typedef {{kind: "close", session: number}} CloseRequest Its forks are closed with it. */
/** @typedef {{kind: "python", settings: EngineSettings, wheel: string, engines: import("../bundle/measured.js").EngineName[]}} PythonRequest */
/** @typedef {{kind: "execute", code: string, names: Record<string, unknown>}} ExecuteRequest */
/** @typedef {{kind: "write", path: string, data: Uint8Array}} WriteRequest */
/** @typedef {{kind: "call", module: string, name: string, values: unknown[]}} CallRequest */
/** @typedef {{kind: "traffic"}} TrafficRequest */
/** @typedef {{kind: "image", root: string}} ImageRequest Keep an image of a Python that has just started; answered by whether one is kept. */
/** @typedef {{kind: "resources"}} ResourcesRequest Answered once the worker has told what it fetched. */
/** @typedef {OpenRequest | SwapRequest | RunRequest | ReadRequest | ForkRequest | CloseRequest | KeptRequest | ClearRequest | ResourcesRequest | ImageRequest | PullRequest | SettleRequest
 *   | SurveyRequest | CheckRequest | TimeRequest | RememberRequest | MemoryRequest | FileRequest} SessionRequest */
/** @typedef {PythonRequest | ExecuteRequest | WriteRequest | CallRequest | TrafficRequest} PythonRequests */
/** @typedef {import("../generation/requests.js").GenerationRequest} GenerationRequest */
/** @typedef {import("../generation/sequence-requests.js").SequenceRequest} SequenceRequest */
/** @typedef {(SessionRequest | PythonRequests | GenerationRequest | SequenceRequest | AbortRequest) & {id: number}} Request */

/** @typedef {{results: Record<string, Tensor>, placed?: import("../engines/open.js").Placement}} Ran The answer to `run`; where the session now runs on something else, on what. */
/** @typedef {{kind: "result", id: number, value: unknown}} ResultReply */
/** @typedef {{kind: "error", id: number, error: ErrorDocument}} ErrorReply */
/** @typedef {{kind: "progress", id: number, progress: Progress}} ProgressReply */
/** @typedef {{kind: "output", stream: "stdout" | "stderr", text: string}} OutputReply What Python printed. */
/** @typedef {{kind: "ready"}} ReadyReply The first message: the worker's modules are there. */
/** @typedef {{kind: "piece", id: number, piece: import("../generation/text-model.js").Piece}} PieceReply A part of a generated answer. */
/** @typedef {{kind: "resources", urls: string[]}} ResourcesReply What the worker has fetched since it told that last. */
/** @typedef {ResultReply | ErrorReply | ProgressReply | PieceReply | OutputReply | ResourcesReply | ReadyReply} Reply */

/**
 * @typedef {object} Opened The answer to `open`.
 * @property {number} session
 * @property {TensorSpec[]} inputs
 * @property {TensorSpec[]} outputs
 * @property {string[]} labels
 * @property {import("./stream.js").State[]} state What a stream carries from step to step, as the manifest names it.
 * @property {Report} report
 */

// Copying fewer bytes is cheaper than moving them.
const MOVED_BYTES = 4096;

/**
 * List the buffers of a message that are better moved than copied.
 *
 * @param {Record<string, unknown>} values Tensors, or what `Session.run` takes as inputs.
 * @returns {ArrayBuffer[]}
 */
export function transferable(values) {
  const buffers = new Set();
  for (const value of Object.values(values)) {
    const data = dataOf(value);
    if (ArrayBuffer.isView(data) && data.buffer instanceof ArrayBuffer && data.buffer.byteLength >= MOVED_BYTES) buffers.add(data.buffer);
  }
  return [...buffers];
}

/** @param {unknown} value @returns {unknown} */
function dataOf(value) {
  return value !== null && typeof value === "object" && "data" in value ? value.data : value;
}

/**
 * Copy an input, so that it can be moved to the worker and the caller keeps its own.
 *
 * @param {unknown} value
 * @returns {unknown}
 */
export function copyOf(value) {
  const data = dataOf(value);
  // `structuredClone` would copy the whole buffer that an array is a part of.
  const copy = ArrayBuffer.isView(data) && "slice" in data ? /** @type {Uint8Array} */ (data).slice() : structuredClone(data);
  if (data === value) return copy;
  const { dtype, shape } = /** @type {Tensor} */ (value);
  return { data: copy, dtype, shape };
}
