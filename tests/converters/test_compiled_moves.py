"""Compiled moves and logarithms of TFLite files of one or two operators; `compile_file` compares each with LiteRT."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import EdgeInferError
from edge_infer_converters.compilation import compile_file, compile_to_c
from edge_infer_converters.measure.compiled_check import run
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


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("code", ["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"])
def test_channels_become_blocks_of_places_and_back(code: str, dtype: str) -> None:
    shapes = (2, 3, 5, 12), (2, 6, 10, 3)
    is_deep, scale = code == "DEPTH_TO_SPACE", 0.05 if dtype == "int8" else 0.0
    first, second = shapes if is_deep else shapes[::-1]
    x, y = Value("x", first, dtype, scale=scale), Value("y", second, dtype, scale=scale)
    kind = options("DepthToSpace" if is_deep else "SpaceToDepth", blockSize=2)

    assert compile_file(File([x], [y]).add(code, [x], [y], kind).data(), "blocks.tflite").checked.startswith("equal")


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("pads", [[[0, 0], [2, 1], [0, 3]], [[1, 1], [2, 2], [3, 1]], [[0, 0], [0, 0], [0, 0]]])
def test_edges_are_mirrored(pads: list[list[int]], mode: int) -> None:
    made = tuple(size + sum(pair) for size, pair in zip((2, 3, 4), pads, strict=True))
    x, y = Value("x", (2, 3, 4)), Value("y", made)
    file = File([x], [y]).add("MIRROR_PAD", [x, constant(pads, name="pads")], [y], options("MirrorPad", mode=mode))

    assert compile_file(file.data(), "mirror.tflite").checked.startswith("equal")


@pytest.mark.parametrize("axes", [[1], [1, 2], [2, 3], [-1], [0, 1, 2, 3]])
@pytest.mark.parametrize("code", ["SUM", "REDUCE_MAX"])
def test_sums_and_the_highest_along_axes(code: str, axes: list[int]) -> None:
    left = tuple(size for axis, size in enumerate((2, 3, 5, 7)) if axis not in [one % 4 for one in axes])
    x, y = Value("x", (2, 3, 5, 7)), Value("y", left)
    file = File([x], [y]).add(code, [x, constant(axes, name="axes")], [y], options("Reducer"))

    assert compile_file(file.data(), "reduced.tflite").checked.startswith("equal")


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_powers_that_are_roots_and_squares(exponent: float) -> None:
    x, positive, cast, y = (Value(name, (3, 4)) for name in ("x", "a", "cast", "y"))
    file = File([x], [y]).add("ABS", [x], [positive]).add("CAST", [positive], [cast], options("Cast"))
    file.add("POW", [cast, constant([exponent], "float32", "by")], [y], options("Pow"))

    assert compile_file(file.data(), "power.tflite").checked.startswith("equal")


def test_forms_that_no_kernel_computes_are_named() -> None:
    x, y, whole = Value("x", (3, 4)), Value("y", (3, 4)), Value("whole", (3, 4), "int32")
    file = File([x], [y, whole]).add("POW", [x, constant([3.0], "float32", "by")], [y], options("Pow"))
    file.add("CAST", [x], [whole], options("Cast"))

    with pytest.raises(EdgeInferError, match=r"POW by another number.*CAST of float32 to int32"):
        compile_file(file.data(), "power.tflite")


@pytest.mark.parametrize(
    ("dtype", "wider"), [("uint8", "int32"), ("uint8", "int64"), ("int8", "int32"), ("int16", "int32")]
)
def test_integers_are_cast_to_wider_ones(dtype: str, wider: str) -> None:
    x, y = Value("x", (3, 4), dtype), Value("y", (3, 4), wider)
    compiled = compile_file(File([x], [y]).add("CAST", [x], [y], options("Cast")).data(), "cast.tflite").model

    limits = np.iinfo(dtype)
    given = np.linspace(limits.min, limits.max, 12).round().astype(dtype).reshape(3, 4)
    np.testing.assert_array_equal(run(compiled, {"x": given})["y"], given.astype(wider))


def test_integers_are_cast_to_narrower_ones_by_their_low_bytes() -> None:
    x, y = Value("x", (2, 3), "int64"), Value("y", (2, 3), "int32")
    compiled = compile_file(File([x], [y]).add("CAST", [x], [y], options("Cast")).data(), "cast.tflite").model

    given = np.array([[-(2**40) + 7, -1, 0], [2**31 - 1, -(2**31), 2**32 + 5]], np.int64)
    np.testing.assert_array_equal(run(compiled, {"x": given})["y"], given.astype(np.int32))


@pytest.mark.parametrize("rounding", ["litert", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(("groups", "filters"), [(3, 6), (2, 8), (6, 6)])
def test_groups_of_a_convolution_read_channels_of_their_own(
    groups: int, filters: int, dtype: str, rounding: str
) -> None:
    rng, is_whole = np.random.default_rng(groups), dtype == "int8"
    shape = (filters, 3, 2, 6 // groups)
    data = rng.integers(-100, 101, shape).astype(dtype) if is_whole else rng.normal(size=shape).astype(dtype)
    sums = rng.integers(-999, 999, filters).astype(np.int32) if is_whole else rng.normal(size=filters).astype(dtype)
    scales = (0.03, 0.02, 0.0006, 0.2) if is_whole else (0.0,) * 4
    x, y = Value("x", (2, 5, 4, 6), dtype, scale=scales[0]), Value("y", (2, 5, 4, filters), dtype, scale=scales[3])
    w = Value("w", shape, dtype, data, scale=scales[1])
    b = Value("b", (filters,), "int32" if is_whole else dtype, sums, scale=scales[2])
    kind = options("Conv2D", strideH=1, strideW=1, padding=0, fusedActivationFunction=1)

    found = compile_file(File([x], [y]).add("CONV_2D", [x, w, b], [y], kind, 3).data(), "groups.tflite", rounding)

    assert found.checked.startswith("equal")
    kernels = [call for call, _ in found.model.program.calls if call.startswith("convolution")]
    assert len(kernels) == groups
    assert found.model.multiply_accumulates == 2 * 5 * 4 * filters * 3 * 2 * 6 // groups
