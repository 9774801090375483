"""The one reader of each model file format: ONNX, TFLite, safetensors, WebAssembly."""
