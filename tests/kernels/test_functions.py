"""The float functions of the kernels are near the true values, at the edges too."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.kernels import build, library
from edge_infer.kernels.declarations import KERNELS, UNARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SPECIAL = [0.0, -0.0, 1e-30, -1e-30, 88.5, 88.7, 88.73, np.inf, -np.inf, np.nan]
_GRID = np.concatenate([np.linspace(-87, 90, 20_001), np.linspace(-1, 1, 20_001), _SPECIAL]).astype(np.float32)

_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}


def _run(file: str, kernel: str, values: Mapping[str, float], data: bytes, output_bytes: int) -> bytes:
    """Run one kernel on an input that lies at 256, with its output behind it."""
    declared, output = KERNELS[kernel], 256 + -(-len(data) // 16) * 16
    memory = ctypes.create_string_buffer(output + output_bytes + 16)
    image = -(-ctypes.addressof(memory) // 16) * 16
    places = {"input": 256, "output": output, **values}
    integers = [int(places[name]) for name in (*declared.tensors, *declared.integers)]
    floats = [places[name] for name in declared.floats]
    row = struct.pack(f"<{len(integers)}i{len(floats)}f", *integers, *floats)
    ctypes.memmove(image, row, len(row))
    ctypes.memmove(image + 256, data, len(data))
    library.Library(build.BUILT / file).run(image, [(kernel, 0)])
    return ctypes.string_at(image + output, output_bytes)


@pytest.mark.parametrize("file", ["linux_x86_64.so", "linux_x86_64_v3.so"])
@pytest.mark.parametrize("function", [*_FUNCTIONS])
def test_a_function_is_within_two_units_of_the_true_value(file: str, function: str) -> None:
    values = {"count": len(_GRID), "operation": UNARY.index(function), "alpha": 1.0, "low": -1e38, "high": 1e38}

    found = np.frombuffer(_run(file, "unary_float", values, _GRID.tobytes(), _GRID.nbytes), np.float32)

    with np.errstate(over="ignore"):
        want = _FUNCTIONS[function](_GRID.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, want, rtol=2e-7, atol=2e-38)
    if function in ("elu", "tanh"):
        np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(want[:-1]))


def test_nan_becomes_the_lowest_integer() -> None:
    data = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    values = {"count": 4, "zero": 3, "low": -128, "high": 127, "scale": 0.5}

    found = np.frombuffer(_run("linux_x86_64.so", "quantize_float_fixed", values, data.tobytes(), 4), np.int8)

    assert found.tolist() == [-128, 127, -128, 5]


def test_a_pointwise_convolution_of_too_few_rows_reads_zeros() -> None:
    side = dict.fromkeys(("kernel_height", "kernel_width", "stride_height", "stride_width"), 1)
    side |= {"dilation_height": 1, "dilation_width": 1, "pad_top": 0, "pad_left": 0, "batch": 1}
    sizes = {"input_height": 1, "input_width": 2, "input_channels": 1, "output_height": 3, "output_width": 2}
    weights = np.zeros(16, np.float32)
    weights[0] = 2.0  # the first of eight channels; the other eight are the bias
    data = np.array([5.0, 7.0, 0.0, 0.0], np.float32).tobytes() + weights.tobytes() + bytes(64)
    places = {"weights": 256 + 16, "bias": 256 + 16 + 32, "scratch": 256 + 16 + 64}
    values = {**side, **sizes, **places, "output_channels": 1, "low": -1e38, "high": 1e38}

    found = np.frombuffer(_run("linux_x86_64.so", "convolution_float", values, data, 24), np.float32)

    assert found.tolist() == [10.0, 14.0, 0.0, 0.0, 0.0, 0.0]
