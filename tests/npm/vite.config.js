import { defineConfig } from "vite";

// Module workers, which import an engine when a model needs it.
export default defineConfig({ worker: { format: "es" }, optimizeDeps: { exclude: ["edge-infer"] } });
