"""Write an ONNX model as TFLite, directly: no TensorFlow, no change of the model's interface.

`specialise` finds every value's shape and folds what is constant, `lowering` turns each ONNX operator into TFLite's by
the rules in `rules/`, `peephole` tidies up, `quantize` takes bits away, `flatbuffer` writes the file. Tensor names,
shapes and the NCHW order of inputs and outputs stay those of the ONNX model; between them, convolutions work on
channels-last values, and a value is transposed only where a reader needs the other order.
"""

from edge_infer_converters.writers.tflite.writer import FloatGraph, TFLiteModel, write

__all__ = ["FloatGraph", "TFLiteModel", "write"]
