import { load, InferError, type Report, type Session, type Tensor } from "edge-infer";

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
    if (error instanceof InferError) console.error(error.code, error.hint);
    throw error;
  } finally {
    await session.dispose();
  }
}

// @ts-expect-error  no such device
void load("/models/digits", { device: "tpu" });
// @ts-expect-error  no such option
void load("/models/digits", { varient: "onnx/int8" });
