import { load } from "edge-infer";

const said = document.querySelector("#said");
try {
  const session = await load("/models/digits", { root: "/edge-infer/", variant: "onnx/int8" });
  const { logits } = await session.run({ image: new Float32Array(64) });
  const { engine, variant } = session.report();
  await session.dispose();
  said.textContent = JSON.stringify({ engine, variant, shape: logits.shape });
} catch (error) {
  said.textContent = `failed: ${error}`;
}
