"""Fold each BatchNormalization into the convolution before it, as every exporter's inference mode does.

y = scale * (conv(x) - mean) / sqrt(var + epsilon) + bias is again a convolution: its weights times
scale / sqrt(var + epsilon) for each output channel (Jacob et al. 2018, "Quantization and Training of Neural Networks
for Efficient Integer-Arithmetic-Only Inference", eq. 14).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, drop_unread_tensors, names_in, reads_of


def fold_batch_norm(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which no BatchNormalization follows a Conv of constant weights that nothing else reads."""
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    fold_batch_norm_in(folded.graph)
    return folded


def fold_batch_norm_in(graph: onnx.GraphProto) -> None:
    """Do the same in place: a copy of a large model takes as much memory again."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    uses = Counter(name for node in graph.node for name in reads_of(node))
    uses.update(value.name for value in graph.output)
    fresh = FreshNames(names_in(graph))
    producers = {name: node for node in graph.node for name in node.output}

    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = producers.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or uses[norm.input[0]] != 1 or len(norm.output) != 1:
            continue
        needed = [*conv.input[1:], *norm.input[1:]]
        if any(name not in constants or constants[name].data_type != onnx.TensorProto.FLOAT for name in needed):
            continue
        epsilon = next((attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), 1e-5)
        scale, shift, mean, variance = (_array(constants[name]) for name in norm.input[1:5])
        with np.errstate(all="ignore"):  # a broken variance gives what it gives, in float64 and in the engine
            factor = scale / np.sqrt(variance + epsilon)
        weight = _array(constants[conv.input[1]])
        bias = _array(constants[conv.input[2]]) if len(conv.input) > 2 else np.zeros(len(weight))

        names = [fresh(f"{norm.output[0]}/weight"), fresh(f"{norm.output[0]}/bias")]
        values = [weight * factor.reshape(-1, *[1] * (weight.ndim - 1)), (bias - mean) * factor + shift]
        graph.initializer.extend(
            numpy_helper.from_array(value.astype(np.float32), name) for name, value in zip(names, values, strict=True)
        )
        del conv.input[1:]
        conv.input.extend(names)
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)

    drop_unread_tensors(graph)


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    """Read a tensor as float64, so that folding rounds once."""
    return numpy_helper.to_array(tensor).astype(np.float64)
