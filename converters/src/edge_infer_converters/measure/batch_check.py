"""Check that a TFLite file with a free batch gives the source's numbers for two samples at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer.parity.comparison import INTEGER_GOOD_SQNR_DB
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.engine import run_tflite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer_converters.writers.tflite import FloatGraph

    Arrays = Mapping[str, np.ndarray]
    Run = Callable[[dict[str, np.ndarray]], Arrays]

#: A file of larger weights is not run once more: it would lie in memory beside the source's session.
MAX_BYTES = 64 * 2**20


def is_right_for_two(graph: FloatGraph, calls: Sequence[Arrays], run: Run) -> bool:
    """Compare the float file, or that of a quantized model, with the source on two samples at once.

    Args:
        graph: The model in TFLite operators.
        calls: Inputs for single calls.
        run: Runs the source once.

    Returns:
        Whether they agree; True as well where there is nothing to compare: the batch is fixed, there are no two samples
        of one size, the file is large, or the source does not run on two.
    """
    free = {tensor.name for tensor in graph.graph.inputs if tensor.signature[:1] == (-1,)}
    if not free or len(calls) < 2 or any(calls[0][name].shape != calls[1][name].shape for name in calls[0]):
        return True
    read = (tensor for operator in graph.graph.operators for tensor in operator.inputs)
    if sum(tensor.data.nbytes for tensor in read if tensor and tensor.data is not None) > MAX_BYTES:
        return True
    first, second = calls[:2]
    both = {name: np.concatenate([value, second[name]]) if name in free else value for name, value in first.items()}
    try:
        wanted = run(both)
    except ConversionError:
        return True
    try:
        (got,) = run_tflite(graph.write("fp32" if graph.scales is None else "int8").data, [both])
    except ConversionError:
        return False
    if any(got[name].shape != value.shape for name, value in wanted.items()):
        return False
    return decibels(noise([wanted], [got])) >= INTEGER_GOOD_SQNR_DB
