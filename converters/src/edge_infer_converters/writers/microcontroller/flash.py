"""What a model takes of a Cortex-M4: flash and stack, before anything is compiled.

`flash_sizes.json` has the bytes of each kernel with all that it needs, compiled by arm-none-eabi-gcc 12.2 (`-Os` for
size, `-O2` for speed, with DSP instructions), as models call it: once, and twice, with calls that are alike and calls
that have no size in common. Between these two lies what a model takes: the more of its integers all calls share, the
less code is left. `python -m tests.support.microcontroller.flash_table` writes the table anew.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.microcontroller import kernel_source
from edge_infer_converters.writers.microcontroller.text import by_kernel, integer_kinds, known_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.writers.microcontroller.layout import Layer, Layout

TABLE = Path(__file__).parent / "flash_sizes.json"
#: The most that a run takes of the stack: its own frame, a kernel's and those of what that calls.
STACK_BYTES = {"size": 400, "speed": 512}
#: Functions that several kernels need and that are not written into them, in bytes.
_SHARED = {"exponential": 292}
_CALL_BYTES = 6
#: Kernels that have forms by the shape of their windows.
SHAPED = ("convolution", "depthwise_int8", "depthwise_float")
#: Of the function of an input or output, and of a variable's start.
_END_BYTES, _STATE_BYTES = 8, 24
#: Integers that are the same in all calls of nearly every model, those of windows of one column, and of one place.
_USUAL = ("batch", "dilation_height", "dilation_width", "weights_zero", "single", "is_log")
_OF_COLUMN = ("kernel_width", "stride_width", "pad_left", "input_width", "output_width")
_OF_PLACE = (*_OF_COLUMN, "kernel_height", "stride_height", "pad_top")


class Sizes(NamedTuple):
    """The bytes of a kernel, without its arguments: called once, twice alike, and twice with nothing in common."""

    once: int
    alike: int
    apart: int


@cache
def sizes() -> Mapping[str, Mapping[str, Sizes]]:
    """Return by `size` and `speed` the bytes of each form of a kernel."""
    return {
        way: {form: Sizes(*row) for form, row in rows.items()} for way, rows in json.loads(TABLE.read_text()).items()
    }


def form(layers: Sequence[Layer]) -> str:
    """Return the form of a kernel that some calls need: its name, the shape of its windows, rounded once, a logarithm.

    The shape is `1x1` for windows of one place, `Nx1` for those over a sequence.
    """
    name, call = layers[0].kernel, layers[0].call
    found = name
    if call.kernel.endswith("_fixed") and not name.endswith("_fixed"):
        found += "_fixed"
    if name.startswith(SHAPED) and all(_has_columns(layer.call.integers) for layer in layers):
        is_place = all(layer.call.integers["kernel_height"] == 1 for layer in layers)
        found += " 1x1" if is_place and name.startswith("convolution") else " Nx1"
    asked = {one for layer in layers for one, value in layer.call.integers.items() if value}
    return found + " once" * ("single" in asked) + " log" * ("is_log" in asked)


def _has_columns(integers: Mapping[str, int]) -> bool:
    return integers["kernel_width"] == integers["output_width"] == integers["input_width"] == 1


def varying(form: str, kernel: str) -> list[str]:
    """Return the integers of a kernel that may differ from call to call."""
    same: tuple[str, ...] = _USUAL
    if "1x1" in form or form.startswith("connected"):
        same += _OF_PLACE
    elif "Nx1" in form:
        same += _OF_COLUMN
    elif form.startswith("depthwise_3x3"):
        same += ("kernel_height", "kernel_width")
    return [name for name in KERNELS[kernel].integers if name not in same]


def flash_bytes(layout: Layout, way: str) -> int:
    """Estimate the bytes of code and constants on a Cortex-M4.

    Args:
        layout: The model.
        way: `size` or `speed`.
    """
    total = sum(one.data.nbytes for one in layout.arrays) + argument_bytes(layout, way)
    total += _END_BYTES * (len(layout.inputs) + len(layout.outputs)) + _STATE_BYTES * len(layout.state)
    known = known_calls(layout, way)
    sharing = dict.fromkeys(_SHARED, 0)
    for name, layers in by_kernel(layout).items():
        which = form(layers)
        found = sizes()[way][which]
        names = varying(which, layers[0].call.kernel)
        unknown = [one for one in names if one not in known[name].common]
        if (way, name, unknown) == ("speed", "copy", ["block"]):  # GCC writes memmove into each call
            continue
        total += (
            found.once
            if len(layers) == 1
            else found.alike + round((found.apart - found.alike) * len(unknown) / len(names))
        )
        needed = "\n".join(kernel_source.needed({name: layers[0].call.kernel}, way, {}))
        for function in sharing:
            sharing[function] += f" {function}(" in needed
    return total - sum(_SHARED[function] * max(count - 1, 0) for function, count in sharing.items())


def argument_bytes(layout: Layout, way: str) -> int:
    """Return the bytes of the arguments of all calls and of the calls themselves.

    Those of a kernel that is called once are part of its code.
    """
    known, total = known_calls(layout, way), 0
    for name, layers in by_kernel(layout).items():
        if len(layers) > 1:
            declared = KERNELS[layers[0].call.kernel]
            kinds = integer_kinds([one for one in declared.integers if one not in known[name].common], layers)
            words = (
                len(declared.tensors) + len(declared.floats) + len(kinds["int32_t"]) + -(-len(kinds["int16_t"]) // 2)
            )
            total += len(layers) * (4 * words + _CALL_BYTES)
    return total
