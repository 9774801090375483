"""Select the operators that compute with integers: those with weights, and those between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor
    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme

# Where a small error of the operand becomes a large one of the result.
_SENSITIVE = ("DIV", "EXP", "LOG", "POW", "RSQRT", "SQRT")
# What leads to them without weights in between, as in layer normalization: squares and means of small numbers.
_LEADING = ("ADD", "MEAN", "MUL", "SUB", "SUM")
# These join what they read, a constant too.
_JOINING = ("CONCATENATION", "PACK")
# A constant that holds such a number is a mask of attention, which would leave the scores beside it no step.
_MASKS = 5e3


def in_integers(graph: Graph, scheme: Scheme, *, to_the_end: bool = False) -> set[int]:
    """Choose the operators that compute with integers.

    Args:
        graph: A float graph.
        scheme: Which integers.
        to_the_end: Whether also those at the end do that only spoil a result in integers: SOFTMAX, or a join, which
            has one scale for all that it reads.

    Returns:
        Their `id`.
    """
    makers = {id(tensor): operator for operator in graph.operators for tensor in operator.outputs}
    readers: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for tensor in operator.inputs:
            if tensor is not None:
                readers.setdefault(id(tensor), []).append(operator)
    kept_float = _leading_to_sensitive(graph, makers)
    ends = {id(tensor) for tensor in graph.outputs}
    last = set() if to_the_end else _moved_to_ends(graph, readers, scheme)
    chosen: set[int] = set()
    for operator in graph.operators:
        if operator.code in scheme.weighted:
            if _has_float_weights(operator):
                chosen.add(id(operator))
            continue
        if not _is_known(operator, scheme) or id(operator) in kept_float:
            continue
        spoils = operator.code in scheme.prescribed or is_join(operator, scheme)
        if spoils and any(id(one) in last for one in operator.outputs):
            continue
        values = [tensor for tensor in operator.inputs if tensor is not None and is_activation(tensor)]
        found = [makers.get(id(tensor)) for tensor in values]
        if values and all(maker is not None and id(maker) in chosen for maker in found):
            chosen.add(id(operator))
    # What prepares values for integers moves integers: a quarter of the bytes.
    for operator in reversed(graph.operators):
        read_by = [reader for tensor in operator.outputs for reader in readers.get(id(tensor), [])]
        is_end = any(id(tensor) in ends for tensor in operator.outputs)
        if operator.code not in scheme.moving or not _is_known(operator, scheme) or not read_by or is_end:
            continue
        if all(id(reader) in chosen for reader in read_by):
            chosen.add(id(operator))
    return chosen


def _moved_to_ends(graph: Graph, readers: dict[int, list[Operator]], scheme: Scheme) -> set[int]:
    """Return the `id` of the outputs, and of values that are only moved on their way there."""
    found = {id(tensor) for tensor in graph.outputs}
    for operator in reversed(graph.operators):
        read_by = [reader for tensor in operator.outputs for reader in readers.get(id(tensor), [])]
        if read_by and all(
            reader.code in scheme.moving and all(id(one) in found for one in reader.outputs) for reader in read_by
        ):
            found.update(id(tensor) for tensor in operator.outputs)
    return found


def is_join(operator: Operator, scheme: Scheme) -> bool:
    """Tell whether an operator that only moves values gives those of several in one scale."""
    values = sum(is_activation(one) for one in operator.inputs)
    return operator.code in scheme.moving and (operator.code in _JOINING or values > 1)


def is_activation(tensor: Tensor | None) -> bool:
    """Tell whether a tensor holds floats that are computed."""
    return tensor is not None and tensor.data is None and tensor.dtype == np.float32


def _is_known(operator: Operator, scheme: Scheme) -> bool:
    """Tell whether an operator without weights, of floats, has a kernel for integers."""
    known = operator.code in scheme.moving or operator.code in scheme.computing or operator.code in scheme.prescribed
    masks = operator.code in scheme.computing and any(map(_is_mask, operator.inputs))
    return known and not masks and all(is_activation(tensor) for tensor in operator.outputs)


def _is_mask(tensor: Tensor | None) -> bool:
    """Tell whether a tensor is a constant with numbers that are too far apart for integers, such as 0 and -inf."""
    if tensor is None or tensor.data is None or tensor.dtype != np.float32 or not tensor.data.size:
        return False
    return not bool(np.abs(tensor.data).max() < _MASKS)  # not a number is no smaller either


def _has_float_weights(operator: Operator) -> bool:
    weights = operator.inputs[1]
    bias = operator.inputs[-1] if len(operator.inputs) > 2 and operator.code != "TRANSPOSE_CONV" else None
    is_constant = weights is not None and weights.data is not None and weights.dtype == np.float32
    return is_constant and (bias is None or bias.data is not None)


def _leading_to_sensitive(graph: Graph, makers: dict[int, Operator]) -> set[int]:
    waiting: list[Tensor] = []
    for operator in graph.operators:
        if operator.code in _SENSITIVE:
            waiting += [tensor for tensor in operator.inputs if is_activation(tensor) and tensor is not None]
    found: set[int] = set()
    while waiting:
        maker = makers.get(id(waiting.pop()))
        if maker is None or maker.code not in _LEADING or id(maker) in found:
            continue
        found.add(id(maker))
        waiting += [tensor for tensor in maker.inputs if is_activation(tensor) and tensor is not None]
    return found
