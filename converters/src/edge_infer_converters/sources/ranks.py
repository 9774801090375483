"""Find the rank of outputs that declare none, by running the model once: their sizes stay free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from edge_infer.errors import ConversionError
from edge_infer_converters.data.random_inputs import random_set_that_runs
from edge_infer_converters.engine import first_line
from edge_infer_converters.passes.sessions import session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.data.calibration import Feeds


def with_ranks(model: onnx.ModelProto, inputs: Sequence[TensorSpec], name: str) -> onnx.ModelProto:
    """Return the model with a shape for each tensor that it gives: the model itself where none is missing.

    A model that does not run on random inputs is returned unchanged.

    Args:
        model: A valid model.
        inputs: What it takes.
        name: What to call it in an error.

    Raises:
        UnsupportedModel: ONNX Runtime cannot load it.
    """
    missing = [value.name for value in model.graph.output if _is_unranked(value)]
    if not missing:
        return model
    session = session_of(model, name)
    ranks: list[int] = []

    def run(feeds: Feeds) -> None:
        try:
            ranks[:] = [array.ndim for array in session.run(missing, dict(feeds))]
        except Exception as error:  # onnxruntime's classes have no common base but this
            raise ConversionError(first_line(error)) from error

    try:
        random_set_that_runs(inputs, run)
    except ConversionError:
        return model
    ranked = onnx.ModelProto()
    ranked.CopyFrom(model)
    for value in ranked.graph.output:
        if value.name in missing:
            shape = value.type.tensor_type.shape
            shape.SetInParent()
            for axis in range(ranks[missing.index(value.name)]):
                shape.dim.add(dim_param=f"{value.name}_{axis}")
    return ranked


def _is_unranked(value: onnx.ValueInfoProto) -> bool:
    return value.type.WhichOneof("value") == "tensor_type" and not value.type.tensor_type.HasField("shape")
