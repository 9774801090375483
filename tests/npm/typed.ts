import { generate, load, pipeline, EdgeInferError, type Pipeline, type Report, type Session, type Tensor } from "edge-infer";

export async function classify(pixels: Float32Array, signal: AbortSignal): Promise<[Tensor, Report]> {
  const session: Session = await load("/models/digits", {
    variant: "onnx/int8",
    device: "auto",
    signal,
    onProgress: ({ phase, loaded, total }) => console.log(phase, loaded / total),
  });
  try {
    const { logits } = await session.run({ image: pixels }, { signal });
    return [logits, session.report()];
  } catch (error) {
    if (error instanceof EdgeInferError) console.error(error.code, error.hint);
    throw error;
  } finally {
    await session.dispose();
  }
}

export async function faces(video: HTMLVideoElement): Promise<string> {
  const find: Pipeline = await pipeline("object-detection", "/models/faces", { threads: 1 });
  const found = await find(video, { threshold: 0.7 });
  await find.dispose();
  return `${find.task} ${find.labels[0]} ${found.length} ${find.session.report().engine}`;
}

void pipeline("/models/faces", { task: "object-detection" });
// @ts-expect-error  no such option
void pipeline("/models/faces", { taks: "object-detection" });

export async function talk(signal: AbortSignal): Promise<string> {
  const generator = await generate("/models/smol", { context: 512 });
  for await (const piece of generator.stream([{ role: "user", content: "Hello" }], { topK: 3, seed: 7n, signal })) console.log(piece);
  const { text, usage, logprobs } = await generator.complete("Hello", { stop: "x", logprobs: true, logitBias: { 3: 1 } });
  // @ts-expect-error  no such option
  void generator.complete("Hello", { top_k: 3 });
  await generator.dispose();
  return `${text} ${usage.cachedTokens} ${logprobs?.[0].top[0].text}`;
}

export async function once(pixels: Float32Array): Promise<number> {
  await using session = await load("/models/digits", { root: "/edge-infer/" });
  await using generator = await generate("/models/smol");
  await using find = await pipeline("/models/faces");
  const { logits } = await session.run({ image: pixels });
  return logits.data.length + (await find(pixels)).length + (await generator.tokenize("a")).length;
}

// @ts-expect-error  no such device
void load("/models/digits", { device: "tpu" });
// @ts-expect-error  no such option
void load("/models/digits", { varient: "onnx/int8" });
