"use client";

import { load } from "edge-infer";
import { useEffect, useState } from "react";

async function answer() {
  const session = await load("/models/digits", { root: "/edge-infer/", variant: "onnx/int8" });
  const { logits } = await session.run({ image: new Float32Array(64) });
  const { engine, variant } = session.report();
  await session.dispose();
  return { engine, variant, shape: logits.shape };
}

export default function Page() {
  const [said, say] = useState("loading");
  useEffect(() => void answer().then(JSON.stringify, (error) => `failed: ${error}`).then(say), []);
  return <p id="said">{said}</p>;
}
