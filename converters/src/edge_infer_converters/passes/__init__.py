"""Passes over an ONNX model: one transformation in each file, `ModelProto` in, a new `ModelProto` out."""
