"""The reference engine: ONNX models by plain numpy, an operator at a time, as the standard's documents say."""
