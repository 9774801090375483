"""Write a TFLite model as ONNX: one rule for each TFLite operator, quantized ones between quantizers."""

from edge_infer_converters.writers.from_tflite.translation import to_onnx

__all__ = ["to_onnx"]
