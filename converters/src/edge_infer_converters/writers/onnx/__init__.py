"""ONNX files: their bytes, and the ONNX graph of a TFLite model."""

from __future__ import annotations

from edge_infer_converters.writers.onnx.file import write
from edge_infer_converters.writers.onnx.lowering import SUPPORTED, to_onnx

__all__ = ["SUPPORTED", "to_onnx", "write"]
