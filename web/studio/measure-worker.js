/** A worker that measures one way to run a model, in an engine of its own: nothing else shares its start or its memory. */

import { EdgeInferError } from "../src/index.js";
import { Runner } from "./runner.js";

addEventListener("message", async ({ data: { model, way, input, runs, keep } }) => {
  const runner = new Runner(model);
  try {
    if (model.hasPipeline) await import("../src/tasks/pipeline.js"); // the page's own, as a page has it
    postMessage({ kind: "begun" });
    const { report, startMs } = await runner.open(way, { keep });
    const { answer, ms } = await runner.answer(input.value, input.args);
    const first = { fetched: report ? report.bytesFetched : null, firstMs: startMs + ms, answer };
    postMessage({ kind: "first", ...first });
    const times = [];
    for (let i = 0; i < runs; i++) times.push((await runner.answer(input.value, input.args)).ms);
    times.sort((a, b) => a - b);
    postMessage({ kind: "done", ...first, medianMs: times[runs >> 1], memory: await runner.memory() });
  } catch (error) {
    postMessage({ kind: "error", error: EdgeInferError.describe(error) });
  }
  await runner.close();
  close();
});
postMessage({ kind: "ready" });
