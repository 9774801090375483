"""Store scales and biases of int8 layers in half precision, and equal constants once.

An int8 convolution of 64 channels has 64 scales and 64 biases, 512 bytes in float32 beside weights of 576 bytes where
it is depthwise. ONNX Runtime turns the halves back when it loads the model (constant folding comes before its int8
fusions, in 1.31), so the same kernels run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, drop_unread_tensors, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable

#: From how many values on: the node that turns them back takes 30 bytes.
MIN_VALUES = 24
# Of 16 bits 11 are the number's: what is lost of a bias is a thousandth of one step of 8-bit weights.
_MOST_LOST = 2.0**-11


def halve(graph: onnx.GraphProto, names: Iterable[str], fresh: FreshNames | None = None) -> None:
    """Store, in place, these float32 tensors in half precision, with a `Cast` in front of their readers.

    Tensors are left as they are where half precision would lose more than its rounding (values below 2^-14 beside
    larger ones do no harm, values above 65504 do), or where it saves nothing.

    Args:
        graph: The graph to change.
        names: Its initializers to store so.
        fresh: Where names of values come from; by default those that the graph does not have.
    """
    stored = {tensor.name: tensor for tensor in graph.initializer}
    fresh = fresh or FreshNames(names_in(graph))
    casts: list[onnx.NodeProto] = []
    for name in dict.fromkeys(names):
        tensor = stored.get(name)
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if not _is_worth_it(values):
            continue
        half = fresh(f"{name}/half")
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), half))
        casts.append(helper.make_node("Cast", [half], [name], to=int(onnx.TensorProto.FLOAT)))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in (*casts, *graph.node)]
    del graph.node[:]
    graph.node.extend(nodes)


def after_halving(values: np.ndarray) -> np.ndarray:
    """Return what `halve` leaves of a float32 tensor's values."""
    return values.astype(np.float16).astype(np.float32) if _is_worth_it(values) else values


def share_scalars(graph: onnx.GraphProto) -> None:
    """Store, in place, equal scalars once: scales and zero points of values.

    Vectors stay apart: ONNX Runtime 1.31 refuses a model in precise mode that shares the zero points of int8 weights.
    """
    kept: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    renamed: dict[str, str] = {}
    given = {value.name for value in (*graph.input, *graph.output)}
    for tensor in graph.initializer:
        if tensor.name in given or any(dim != 1 for dim in tensor.dims):
            continue
        values = numpy_helper.to_array(tensor)
        if values.dtype.kind not in "fu":
            continue
        renamed[tensor.name] = kept.setdefault((tensor.data_type, values.shape, values.tobytes()), tensor.name)
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
    drop_unread_tensors(graph)


def _is_worth_it(values: np.ndarray) -> bool:
    return values.size >= MIN_VALUES and _fits(values)


def _fits(values: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        lost = np.abs(values - values.astype(np.float16).astype(np.float32))
    largest = float(np.abs(values).max(initial=0))
    return bool(np.isfinite(lost).all()) and float(lost.max(initial=0)) <= largest * _MOST_LOST
