"""Convolutions of groups: each group of filters reads channels of its own, as a convolution of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled import moves, windows

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


def convolution(operator: Operator, calls: Calls) -> None:
    """CONV_2D, whose filters say by their depth how many groups there are."""
    given, weights, bias = windows.operands(operator)
    depth = weights.shape[-1]
    groups = given.shape[-1] // depth if depth else 1
    if groups <= 1 or weights.data is None:
        windows.convolution(operator, calls)
        return
    if groups * depth != given.shape[-1] or weights.shape[0] % groups:
        raise UnsupportedModel(f"CONV_2D of {given.shape[-1]} channels by filters of {depth} is not supported")
    filters, output = weights.shape[0] // groups, operator.outputs[0]
    for group in range(groups):
        some = slice(group * filters, (group + 1) * filters)
        read = _channels(given, depth)
        made = _channels(output, filters)
        moves.move_channels(calls, given, read, group * depth, 0)
        own = [read, _rows(weights, some), None if bias is None else _rows(bias, some)]
        windows.convolution(replace(operator, inputs=own, outputs=[made]), calls)
        moves.move_channels(calls, made, output, 0, group * filters)


def _channels(tensor: Tensor, count: int) -> Tensor:
    """Return a tensor of so many channels of another one."""
    shape = (*tensor.shape[:-1], count)
    return replace(tensor, name=f"{count} channels of {tensor.name}", shape=shape, signature=shape)


def _rows(tensor: Tensor, some: slice) -> Tensor:
    """Return some rows of a constant, with their scales."""
    data = np.asarray(tensor.data)[some]
    found = tensor.quantization
    if found is not None and len(found.scales) > 1:
        found = replace(found, scales=found.scales[some])
    return replace(tensor, data=data, shape=data.shape, signature=data.shape, quantization=found)
