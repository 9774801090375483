"""Matrices in int8 with a scale for each block of 128, multiplied by values that are rounded block by block too.

`com.microsoft.MatMulNBits` with 8 bits and `accuracy_level` 4: ONNX Runtime rounds each row of the other side in
blocks of the same size, so one outlier spoils 128 values and not a whole tensor. On MiniLM its cosine is .999 where
dynamic int8 has .994, at 0.8 of the time of float32 where dynamic int8 has 0.45 (x86 with VNNI). ONNX Runtime has such
kernels on x86 and arm; onnxruntime-web computes the same in float, and slower than float32 would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, drop_unread_tensors, names_in

if TYPE_CHECKING:
    from collections.abc import Collection

BLOCK = 128
_DOMAIN = "com.microsoft"
_BITS = 8
# Compute in int8 (onnxruntime/docs/ContribOperators.md, MatMulNBits).
_ACCURACY_LEVEL = 4


def store_in_blocks(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return a copy in which these MatMul nodes multiply by int8 blocks.

    Args:
        model: A model of float32 weights.
        names: Names of MatMul nodes whose second input is a stored matrix [inputs, outputs] with at least
            `BLOCK` inputs.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    packed = onnx.ModelProto()
    packed.CopyFrom(model)
    graph = packed.graph
    fresh = FreshNames(names_in(graph))
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.name not in names:
            nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
            continue
        codes, scales = pack(numpy_helper.to_array(stored[node.input[1]]))
        # As they are and not in half precision: without its optimizations ONNX Runtime 1.31 reads constants only here.
        for kind, values in (("codes", codes), ("scales", scales.reshape(-1))):
            graph.initializer.append(numpy_helper.from_array(values, fresh(f"{node.input[1]}/{kind}/{node.output[0]}")))
        inputs = [node.input[0], *(tensor.name for tensor in list(graph.initializer)[-2:])]
        settings: dict[str, Any] = {"bits": _BITS, "block_size": BLOCK, "accuracy_level": _ACCURACY_LEVEL}
        rows, columns = stored[node.input[1]].dims
        nodes.append(
            helper.make_node(
                "MatMulNBits", inputs, list(node.output), node.name, domain=_DOMAIN, K=rows, N=columns, **settings
            )
        )
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unread_tensors(graph)
    if names and all(entry.domain != _DOMAIN for entry in packed.opset_import):
        packed.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return packed


def pack(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pack a matrix.

    Args:
        matrix: Finite floats [inputs, outputs].

    Returns:
        Codes, uint8 [outputs, blocks, BLOCK] with 128 for zero, and scales, float32 [outputs, blocks].
    """
    inputs, outputs = matrix.shape
    blocks = -(-inputs // BLOCK)
    rows = np.zeros((outputs, blocks * BLOCK), np.float32)
    rows[:, :inputs] = matrix.T
    parts = rows.reshape(outputs, blocks, BLOCK)
    largest = np.abs(parts).max(axis=2, keepdims=True)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    codes = (np.clip(np.rint(parts / scales), -127, 127) + 128).astype(np.uint8)
    return codes, scales[:, :, 0]


def can_be_blocked(node: onnx.NodeProto, stored: Collection[str], shape: tuple[int, ...]) -> bool:
    """Tell whether a node is a MatMul by a stored matrix that fills a block."""
    return node.op_type == "MatMul" and node.input[1] in stored and len(shape) == 2 and shape[0] >= BLOCK
