/** The worker that starts Python with its engines, and runs the page's code in it. */

import { startPython } from "../engines/pyodide.js";
import { EdgeInferError } from "../errors.js";
import { answerRequests, place, post, traffic, unknownRequest } from "./worker-loop.js";

/** @type {import("../engines/pyodide.js").Python | undefined} */
let python;
/** Files of the server that this start did without, and the next may need. @type {string[]} */
let spared = [];

answerRequests(async (request, _signal, onProgress) => {
  switch (request.kind) {
    case "python": {
      const onOutput = (/** @type {"stdout" | "stderr"} */ stream, /** @type {string} */ text) =>
        post({ kind: "output", stream, text });
      const { settings, wheel, engines } = request;
      const begun = await startPython(settings, wheel, engines, { onProgress, onOutput });
      ({ python, spared } = begun);
      const { engines: [engine], isFromImage } = begun;
      const facts = { engine: engine.name, engineVersion: engine.version, threads: engine.threads, threadsWhy: engine.threadsWhy, isFromImage };
      return [{ ...facts, ...place(), ...(await traffic()) }, []];
    }
    case "execute":
      return [await started().execute(request.code, request.names), []];
    case "call":
      return [await started().call(request.module, request.name, request.values), []];
    case "image":
      return [await (await import("../engines/python-image.js")).keepImage(request.root), []];
    case "traffic":
      return [await traffic(), []];
    case "write":
      return [started().write(request.path, request.data), []];
    default:
      throw unknownRequest(request);
  }
}, () => spared);

function started() {
  if (!python) throw new EdgeInferError("Python has not started", "input_error", { hint: "await loadPython()" });
  return python;
}
