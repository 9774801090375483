"""The settings with which ONNX Runtime computes stored integers beside floats as the file says.

Of `DequantizeLinear` and `MatMul` it makes `MatMulNBits`, which rounds the floats beside the weights to 8 bits too:
29 dB over three matrices of 256 x 256, where a page, whose engine does not, has the file's own numbers. Two settings
keep the floats (onnxruntime_session_options_config_keys.h). Median times of six matrices of 768 x 768 in version 1.31:
`disable_quant_qdq` turns the weights into floats at load (8 bits: 1 row .15 ms, 32 rows 1.1 ms; rounded .04 and .83;
with `qdq_matmulnbits_accuracy_level` 1 7.2 and 12.4), and that level keeps 4 bits packed (.16 and 1.6 ms; rounded .06
and 1.1; as floats .18 and 3.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from edge_infer_converters.passes.graphs import graphs_of

if TYPE_CHECKING:
    import onnx

_QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear")
#: Names, of which an older package `onnx` lacks some.
_PACKED = ("INT4", "UINT4", "INT2", "UINT2")


def exact_settings(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    """Return the settings of each backend for a model whose weights are integers and whose other values are floats."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    stored = {tensor.name: tensor.data_type for graph in graphs_of(model.graph) for tensor in graph.initializer}
    read = {node.input[0] for node in nodes if node.op_type == "DequantizeLinear"}
    kinds = {TensorProto.DataType.Name(stored[name]) for name in read.intersection(stored)}
    if not kinds or any(node.op_type in _QUANTIZERS for node in nodes):
        return {}
    entry = "qdq_matmulnbits_accuracy_level" if kinds.intersection(_PACKED) else "disable_quant_qdq"
    return {backend: {f"session.{entry}": "1"} for backend in ("onnxruntime", "ort-web")}
