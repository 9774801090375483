"""Measure the kernels of models in C on a Cortex-M4, as models call them.

`python -m tests.support.microcontroller.flash_table` writes `flash_sizes.json` of the converters anew.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.compiled.calls import Call
from edge_infer_converters.writers.microcontroller import flash, text
from edge_infer_converters.writers.microcontroller.layout import Array, Layer, Layout, Place, element_type
from tests.support.microcontroller.kernel_sizes import ARM, LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator

_MULTIPLIER = 1518500250
#: A call as networks have it: an image of 16 by 16 places of 8 channels, a window of 3 by 3.
_INTEGERS = {
    **dict.fromkeys(("batch", "size_0", "outer", "rows", "block", "rank", "stride_height", "stride_width"), 1),
    **dict.fromkeys(("dilation_height", "dilation_width", "pad_top", "pad_left", "half_pixel_centers"), 1),
    **dict.fromkeys(("input_height", "input_width", "output_height", "output_width", "size_1", "size_2", "steps"), 16),
    **dict.fromkeys(("kernel_height", "kernel_width", "targets", "classes"), 3),
    **dict.fromkeys(("input_channels", "channels", "size_3", "size_4", "inner", "first_2", "second_2", "input_3"), 8),
    **dict.fromkeys(("first_0", "second_0", "input_0", "input_1", "output_1"), 2048),
    **dict.fromkeys(("first_1", "second_1", "input_2"), 128),
    **dict.fromkeys(("first_3", "second_3", "input_4", "output_4", "bytes", "operation"), 1),
    **dict.fromkeys(("input_bytes", "output_bytes", "element_bytes", "state_bytes", "kind", "has_probabilities"), 1),
    **dict.fromkeys(("single", "weights_zero", "align_corners", "subtract", "is_log", "clip", "state_zero"), 0),
    **dict.fromkeys(("columns", "memory", "trees"), 10),
    **dict.fromkeys(("node_count", "vote_count"), 100),
    "output_channels": 16, "output_0": 4096, "output_2": 256, "output_3": 16, "reduced": 64, "count": 800,
    "inputs": 20, "cells": 24, "filters": 32, "low": -128, "high": 127, "bias": 12345, "cell_bits": -11,
    "output_shift": -19, "value": -3,
}  # fmt: skip
_FLOATS = {"low": -3e38, "high": 3e38, "multiplier": 0.01, "alpha": 0.1, "output_scale": 1 / 256, "beta": 1.0,
           "scale": 0.02, "clip": 0.0}  # fmt: skip
_CONSTANTS = (
    *("weights", "bias", "multipliers", "shifts", "table", "recurrent", "recurrent_bias", "roots", "positions"),
    *("nodes", "votes", "base", "points", "sigmoids", "features", "times"),
)
#: What some calls of a kernel ask for beside.
_MORE = {"convolution_int8_fixed": (" once",), "softmax_float": (" log",)}


def forms(way: str) -> Iterator[tuple[str, str, str]]:
    """Yield each form of a kernel with its name in C and in the program."""
    for kernel in KERNELS:
        is_window = kernel.startswith(("convolution_int8", "depthwise_int8"))
        name = kernel.removesuffix("_fixed") if is_window else kernel
        shapes = ("", " Nx1", " 1x1") if kernel.startswith(flash.SHAPED) else ("",)
        ends = ("", *_MORE.get(kernel, ()))
        for shape in shapes[: 2 if kernel.startswith("depthwise") else 3]:
            for end in ends:
                yield f"{kernel}{shape}{end}", name, kernel
    if way == "speed":
        yield "connected_int8", "connected_int8", "convolution_int8"
        for end in ("", " once"):
            yield f"connected_int8_fixed{end}", "connected_int8", "convolution_int8_fixed"
        yield "depthwise_3x3_int8_fixed", "depthwise_3x3_int8", "depthwise_int8_fixed"


def calls(form: str, name: str, kernel: str, count: int, *, are_alike: bool) -> Layout:
    """Return a model that calls a kernel alone.

    Args:
        form: What is known of the calls: see `flash.form`.
        name: The kernel's name in C.
        kernel: The same in the program.
        count: How many calls.
        are_alike: Whether all have the same integers.
    """
    found = Layout(arena_bytes=4096)
    for place in range(count):
        integers = _integers(form, kernel)
        if place and not are_alike:
            for one in flash.varying(form, kernel):
                integers[one] += 1000 if one.endswith("multiplier") and kernel != "add_int8" else 1
        tensors: dict[str, Place | None] = {}
        for one in KERNELS[kernel].tensors:
            tensors[one] = Place(64 * place + 8 * len(tensors))
            if one in _CONSTANTS:
                array = _array(kernel, one, integers, place)
                found.arrays.append(array)
                tensors[one] = Place(0, array)
        floats = {one: _FLOATS[one] for one in KERNELS[kernel].floats}
        call = Call(kernel, dict.fromkeys(tensors), integers, floats, (), "CALL", place)
        found.layers.append(Layer(call, name, tensors, 0))
    return found


def _integers(form: str, kernel: str) -> dict[str, int]:
    found = {}
    for one in KERNELS[kernel].integers:
        usual = {"multiplier": _MULTIPLIER, "shift": -7, "zero": -5}.get(one.rpartition("_")[2], 0)
        found[one] = _INTEGERS.get(one, usual)
    if "x1" in form or form.startswith("connected"):
        found |= dict.fromkeys(("kernel_width", "input_width", "output_width"), 1) | {"pad_left": 0}
    if "1x1" in form or form.startswith("connected"):
        found |= {"kernel_height": 1, "pad_top": 0}
    if form.startswith("connected"):
        found |= {"input_height": 1, "output_height": 1}
    if form.endswith("once"):
        found["single"] = 1
    if form.endswith("log"):
        found["is_log"] = 1
    if kernel.startswith(("depthwise", "average", "max")):
        found["output_channels"] = found["input_channels"]
    if kernel == "add_int8":
        found |= {"first_multiplier": 1000, "second_multiplier": 1200, "shift": 8}
    if kernel == "binary_float":
        found["operation"] = 0
    if "align_corners" in found:
        found |= {"output_height": 32, "output_width": 32}
    return found


def _array(kernel: str, name: str, integers: dict[str, int], place: int) -> Array:
    """Return a constant; `place` makes it another one in each call."""
    kind = "int8_t" if name == "shifts" else element_type(kernel, name, integers)
    is_weights = name == "weights" and kernel.startswith(("convolution", "depthwise"))
    # [outputs, taps], and of depthwise convolutions [taps, channels]
    shape: tuple[int, ...] = (20,) if name in ("bias", "multipliers", "shifts") else (6000,)
    if is_weights:
        shape = (20, 20 if kernel.startswith("depthwise") else 200)
    value = {"shifts": -8, "multipliers": 0.01 if kind == "float" else _MULTIPLIER}.get(name, 0)
    data = np.full(shape, value, "f4" if kind == "float" else kind.removesuffix("_t"))
    if name not in ("shifts", "multipliers"):
        data.reshape(-1)[0] = place
    return Array(f"{name}_{place}", kind, data)


def measure(layout: Layout, way: str, folder: Path) -> int:
    """Return the bytes of a model on a Cortex-M4 without its constants and the arguments of its calls."""
    (folder / "net.h").write_text(
        f"#include <stdint.h>\n#define NET_ARENA_BYTES {layout.arena_bytes}\nvoid net_run(void);\n"
    )
    (folder / "net.c").write_text(text.source("net", "net", layout, [], [], way))
    (folder / "net_kernels.h").write_text(text.kernels("net", layout, way))
    (folder / "net_weights.h").write_text(text.weights("net", layout))
    subprocess.run([*ARM, LEVELS[way], "-c", "-o", "net.o", "net.c"], cwd=folder, check=True)
    symbols = _said(["arm-none-eabi-nm", "-S", str(folder / "net.o")]).splitlines()
    constants = {one.name for one in layout.arrays}
    unused = sum(int(line.split()[1], 16) for line in symbols if line.split()[-1] in constants)
    total = int(_said(["arm-none-eabi-size", str(folder / "net.o")]).splitlines()[1].split()[0])
    return total - unused - flash.argument_bytes(layout, way)


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measured(form: str, name: str, kernel: str, way: str, folder: Path) -> flash.Sizes:
    """Return the bytes of a form of a kernel."""
    return flash.Sizes(
        *(
            measure(calls(form, name, kernel, count, are_alike=are_alike), way, folder)
            for count, are_alike in ((1, True), (2, True), (2, False))
        )
    )


def main() -> None:
    """Write the table."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            f'"{way}": {{\n'
            + ",\n".join(f'    "{one[0]}": {json.dumps(measured(*one, way, Path(folder)))}' for one in forms(way))
            + "\n  }"
            for way in LEVELS
        ]
    flash.TABLE.write_text("{\n  " + ",\n  ".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
