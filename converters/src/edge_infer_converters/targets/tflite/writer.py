"""From an ONNX model to the bytes of a TFLite file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.inliner

from edge_infer_converters.steps.fold_batch_norm import fold_batch_norm
from edge_infer_converters.targets.tflite import flatbuffer
from edge_infer_converters.targets.tflite.decompose import join_gelu, write_out_functions
from edge_infer_converters.targets.tflite.lowering import BatchDependent, lower
from edge_infer_converters.targets.tflite.peephole import tidy
from edge_infer_converters.targets.tflite.rules import RULES
from edge_infer_converters.targets.tflite.specialise import specialise

if TYPE_CHECKING:
    from edge_infer_converters.targets.tflite.graph import Graph


@dataclass(frozen=True, slots=True)
class TFLiteModel:
    """A written model.

    Attributes:
        data: The bytes of the `.tflite` file.
        is_batch_fixed: Whether a free batch had to be set to 1.
        operators: The TFLite operators in the order in which they run.
    """

    data: bytes
    is_batch_fixed: bool
    operators: tuple[str, ...]


def write(model: onnx.ModelProto, name: str = "model", *, keep_names: bool = False) -> TFLiteModel:
    """Write an ONNX model as TFLite with the same tensor names, shapes and axis order.

    A free first dimension stays free (`interpreter.resize_tensor_input`), or is set to 1 where the model stores
    numbers that depend on it.

    Args:
        model: A float32 model; other free dimensions must be fixed first.
        name: What to call the graph.
        keep_names: Whether tensors between inputs and outputs keep their names; they weigh, and nothing reads them.

    Raises:
        UnsupportedOperator: Operators, or settings of them, that have no rule: all of them, with the nodes' names.
        ConversionError: A dimension other than an input's first is free.
    """
    graph, is_batch_fixed = _graph_of(model)
    tidy(graph)
    codes = tuple(operator.code for operator in graph.operators)
    return TFLiteModel(flatbuffer.write(graph, name, keep_names=keep_names), is_batch_fixed, codes)


def check(model: onnx.ModelProto) -> None:
    """Find out whether a model can be written, without writing it.

    Raises:
        UnsupportedOperator: As `write` raises it.
        ConversionError: As `write` raises it.
    """
    _graph_of(model)


def _graph_of(model: onnx.ModelProto) -> tuple[Graph, bool]:
    """Return the graph, and whether its batch had to be fixed."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    with np.errstate(all="ignore"):  # broken weights give what they give, as in the engine
        return _lowered(write_out_functions(fold_batch_norm(model), RULES))


def _lowered(model: onnx.ModelProto) -> tuple[Graph, bool]:
    """Return the graph, and whether its batch had to be fixed."""
    try:
        return lower(join_gelu(specialise(model)), RULES), False
    except BatchDependent:
        return lower(join_gelu(specialise(model, fixed_batch=True)), RULES), True
