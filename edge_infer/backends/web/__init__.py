"""The engines of a page: onnxruntime-web and LiteRT.js, driven from Python."""
