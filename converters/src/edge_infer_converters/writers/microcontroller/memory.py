"""Place the values of a model in its arena: an output may lie over its input where what it covers was read before.

A convolution reads its image from the top to the bottom and writes its output so too. So an output that starts some
bytes below its input never overwrites what a later place of the image needs (diagonal memory optimization, Blacker
and others 2021; here the distance is computed exactly, place by place).
"""

from __future__ import annotations

import random
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.compiled.calls import Value

_TURNS = 300
_MAX_VALUES = 60


class Over(NamedTuple):
    """An output that may lie over an input.

    Attributes:
        output: The value that a call writes.
        given: The value that the call is the last one to read.
        distance: By how many bytes the output must start below the input at least.
        step: It starts a multiple of so many bytes below the input.
    """

    output: Value
    given: Value
    distance: int
    step: int = 1

    def fits(self, output: int, given: int) -> bool:
        """Return whether the output may lie at a place, and the input at another."""
        return output + self.distance <= given and (given - output) % self.step == 0


class Memory(NamedTuple):
    """Where values lie.

    Attributes:
        nbytes: The size of the arena.
        places: Of each value, by its identity, where it starts.
    """

    nbytes: int
    places: dict[int, int]


def place(values: Sequence[Value], over: Sequence[Over], alignment: int) -> Memory:
    """Place values; several orders are tried, and the smallest arena is kept.

    Args:
        values: Each once, with the calls that use it first and last.
        over: The outputs that may lie over inputs.
        alignment: Each starts at a multiple of it, in bytes.
    """
    allowed = {(id(one.output), id(one.given)): one for one in over}
    orders = [
        sorted(values, key=lambda one: (-one.nbytes, one.first)),
        sorted(values, key=lambda one: (one.first, -one.nbytes)),
        sorted(values, key=lambda one: (-one.first, -one.nbytes)),
        sorted(values, key=lambda one: (one.first - one.last, -one.nbytes)),
        sorted(values, key=lambda one: (-one.nbytes * (one.last - one.first + 1), one.first)),
    ]
    best = min((_greedy(order, allowed, alignment) for order in orders), key=lambda one: one.nbytes)
    if len(values) > _MAX_VALUES:
        return best
    chosen, turned = random.Random(0), list(orders[0])
    for _ in range(_TURNS):
        order = list(turned)
        for _ in range(chosen.randint(1, 3)):
            order.insert(chosen.randrange(len(order)), order.pop(chosen.randrange(len(order))))
        made = _greedy(order, allowed, alignment)
        if made.nbytes <= best.nbytes:
            best, turned = made, order
    return best


def _greedy(order: Sequence[Value], allowed: dict[tuple[int, int], Over], alignment: int) -> Memory:
    placed: list[tuple[int, Value]] = []
    for value in order:
        beside = [(start, one) for start, one in placed if one.first <= value.last and value.first <= one.last]
        starts = {0}
        for start, one in beside:
            starts.add(_up(start + one.nbytes, alignment))
            below, above = allowed.get((id(value), id(one))), allowed.get((id(one), id(value)))
            if below is not None and start >= _up(below.distance, lcm(below.step, alignment)):
                starts.add(start - _up(below.distance, lcm(below.step, alignment)))
            if above is not None:
                starts.add(start + _up(above.distance, lcm(above.step, alignment)))
        found = next(start for start in sorted(starts) if _fits(value, start, beside, allowed))
        placed.append((found, value))
    return Memory(
        max((start + one.nbytes for start, one in placed), default=0), {id(one): start for start, one in placed}
    )


def _fits(value: Value, at: int, beside: list[tuple[int, Value]], allowed: dict[tuple[int, int], Over]) -> bool:
    for start, one in beside:
        if at + value.nbytes <= start or start + one.nbytes <= at:
            continue
        below, above = allowed.get((id(value), id(one))), allowed.get((id(one), id(value)))
        if not ((below is not None and below.fits(at, start)) or (above is not None and above.fits(start, at))):
            return False
    return True


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def distance(kernel: str, integers: dict[str, int], size: int, *, in_columns: bool) -> int:
    """Return by how many bytes the output of a window must start below its input.

    Args:
        kernel: A convolution, a depthwise one or a pool.
        integers: Its arguments.
        size: The bytes of an element.
        in_columns: Whether what a place sees is copied before the place is written.
    """
    batch, rows, columns = integers["batch"], integers["output_height"], integers["output_width"]
    given, made, width = integers["input_channels"], integers["output_channels"], integers["input_width"]
    top = np.maximum(np.arange(rows) * integers["stride_height"] - integers["pad_top"], 0)
    left = np.maximum(np.arange(columns) * integers["stride_width"] - integers["pad_left"], 0)
    images = np.arange(batch) * integers["input_height"] * width
    first = ((images[:, None, None] + top[None, :, None] * width + left[None, None, :]) * given).reshape(-1)
    still = np.minimum.accumulate(first[::-1])[::-1]  # the first element that this place or a later one reads
    later = np.append(still[1:], batch * integers["input_height"] * width * given)
    places = np.arange(len(first))
    ends = (places + 1) * made
    needs = ends - later
    if not in_columns:
        # Of a channel alone the channels behind it are still needed at the same place.
        needs = np.maximum(needs, (places * made if not kernel.startswith("convolution") else ends) - still)
    return int(max(needs.max(), 0)) * size


def distance_of_rows(integers: dict[str, int]) -> int:
    """Return the same of a depthwise window of 3 by 3 int8, which computes one channel after another, row by row.

    Of a channel the rows of a window are copied before its row is written. So an output lies over its input where both
    have the same channel at a place: the distance is a multiple of the channels.
    """
    rows, width, height = integers["output_height"], integers["input_width"], integers["input_height"]
    made = rows * integers["output_width"]
    image, row = np.arange(integers["batch"])[:, None], np.arange(rows)[None, :]
    read = np.clip(row * integers["stride_height"] - integers["pad_top"] + 3, 0, height)
    needs = image * made + (row + 1) * integers["output_width"] - (image * height + read) * width
    return int(max(needs.max(), 0)) * integers["input_channels"]
