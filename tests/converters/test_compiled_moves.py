"""Compiled moves and logarithms of TFLite files of one or two operators; `compile_file` compares each with LiteRT."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import EdgeInferError
from edge_infer_converters.compilation import compile_file, compile_to_c
from tests.support.converters.tflite_files import File, Value, constant, options

if TYPE_CHECKING:
    from pathlib import Path

MARGINS = constant([[1, 1], [1, 1]], name="margins")


@pytest.mark.parametrize("dtype", ["int16", "int64", "uint8"])
def test_a_pad_of_integers_without_a_scale_is_zero_where_memory_was_used_before(dtype: str) -> None:
    x, turned, part, y = (
        Value(name, shape, dtype) for name, shape in (("x", (3, 4)), ("t", (4, 3)), ("p", (1, 2)), ("y", (3, 4)))
    )
    file = File([x], [y]).add("TRANSPOSE", [x, constant([1, 0], name="order")], [turned], options("Transpose"))
    file.add("SLICE", [turned, constant([0, 0], name="start"), constant([1, 2], name="size")], [part], options("Slice"))
    file.add("PAD", [part, MARGINS], [y], options("Pad"))

    assert compile_file(file.data(), "pad.tflite").checked.startswith("equal to LiteRT")


def test_a_pad_that_no_kernel_writes_is_refused() -> None:
    x, y = Value("x", (3, 4), "int64"), Value("y", (5, 6), "int64")
    file = File([x], [y]).add("PADV2", [x, MARGINS, constant(7, "int64", "seven")], [y], options("PadV2"))

    with pytest.raises(EdgeInferError, match="PADV2 of int64 with 7"):
        compile_file(file.data(), "pad.tflite")


def test_an_index_that_is_masked_and_shrunk_is_the_first() -> None:
    x, y = Value("x", (2, 5, 3)), Value("y", (2, 2))
    places = [constant(one, name=f"places{i}") for i, one in enumerate(([1, 1, 0], [2, 3, 3], [1, 1, 2]))]
    file = File([x], [y]).add(
        "STRIDED_SLICE", [x, *places], [y], options("StridedSlice", beginMask=1, shrinkAxisMask=1)
    )

    assert compile_file(file.data(), "slice.tflite").checked.startswith("equal to LiteRT")


def test_the_logarithm_of_a_negative_number_in_c_is_none(tmp_path: Path) -> None:
    x, sums, y = (Value(name, (1, 4)) for name in ("x", "sums", "y"))
    file = File([x], [y]).add("ADD", [x, constant(6.0, "float32")], [sums], options("Add")).add("LOG", [sums], [y])
    for path, text in compile_to_c(file.data(), "log.tflite", "net").folder.files.items():
        (tmp_path / path).write_text(text)
    np.save(tmp_path / "in.npy", np.array([[-10, -6, np.nan, 2]], np.float32))

    subprocess.run(["make", "-s", "-C", str(tmp_path), "net"], check=True, timeout=60)
    with (tmp_path / "in.npy").open("rb") as source, (tmp_path / "out.npy").open("wb") as target:
        subprocess.run([tmp_path / "net"], stdin=source, stdout=target, check=True, timeout=60)

    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), [[np.nan, -np.inf, np.nan, np.log(8)]], rtol=1e-6)
