"""Compiled operators that are made of several kernels: products of computed matrices, GELU, integers as floats."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import EdgeInferError
from edge_infer_converters.compilation import compile_file, compile_to_c
from edge_infer_converters.measure.compiled_check import run
from tests.support.converters.tflite_files import File, Value, options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("left", "right", "made", "turned"),
    [
        ((3, 5), (5, 9), (3, 9), (False, False)),
        ((2, 3, 5), (2, 5, 8), (2, 3, 8), (False, False)),
        ((2, 4, 3, 5), (2, 4, 17, 5), (2, 4, 3, 17), (False, True)),
        ((2, 5, 3), (1, 5, 3), (2, 3, 3), (True, False)),
        ((4, 1, 3), (2, 1, 6, 3), (2, 4, 1, 6), (False, True)),
    ],
)
def test_products_of_computed_matrices(
    left: tuple[int, ...], right: tuple[int, ...], made: tuple[int, ...], turned: tuple[bool, bool]
) -> None:
    asked = options("BatchMatMul", adjX=turned[0], adjY=turned[1])
    one, other, product = Value("a", left), Value("b", right), Value("y", made)
    file = File([one, other], [product]).add("BATCH_MATMUL", [one, other], [product], asked)

    assert compile_file(file.data(), "product.tflite").checked.startswith("equal to LiteRT")


@pytest.mark.parametrize("is_tanh", [False, True])
def test_gelu_in_both_forms(is_tanh: bool) -> None:
    x, y = Value("x", (1, 2003)), Value("y", (1, 2003))
    file = File([x], [y]).add("GELU", [x], [y], options("Gelu", approximate=is_tanh))
    values = np.concatenate([np.linspace(-12, 12, 2001), [-1e4, 1e4]]).astype(np.float32).reshape(1, -1)

    compiled = compile_file(file.data(), "gelu.tflite")

    assert compiled.checked.startswith("equal to LiteRT")
    np.testing.assert_allclose(run(compiled.model, {"x": values})["y"], gelu(values, is_tanh), rtol=2e-6, atol=1e-6)


def gelu(values: np.ndarray, is_tanh: bool) -> np.ndarray:
    from math import erf, sqrt

    wide = values.astype(np.float64)
    if is_tanh:
        return np.asarray(wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))))
    return np.asarray(wide / 2 * (1 + np.vectorize(erf)(wide / sqrt(2))))


def test_integers_become_the_nearest_floats() -> None:
    values = np.array([0, 1, -1, 255, -256, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31), 123456789, -7], np.int32)
    x, y = Value("x", (11,), "int32"), Value("y", (11,))
    file = File([x], [y]).add("CAST", [x], [y], options("Cast", inDataType=2, outDataType=0))

    got = run(compile_file(file.data(), "cast.tflite").model, {"x": values})["y"]

    np.testing.assert_array_equal(got, values.astype(np.float32))


def test_a_product_in_c(tmp_path: Path) -> None:
    one, product, y = Value("a", (2, 3, 5)), Value("p", (2, 3, 3)), Value("y", (2, 3, 3))
    file = File([one], [y]).add("BATCH_MATMUL", [one, one], [product], options("BatchMatMul", adjY=True))
    file.add("GELU", [product], [y], options("Gelu"))
    for path, text in compile_to_c(file.data(), "product.tflite", "net").folder.files.items():
        (tmp_path / path).write_text(text)
    values = np.random.default_rng(1).normal(size=(2, 3, 5)).astype(np.float32)
    np.save(tmp_path / "in.npy", values)

    subprocess.run(["make", "-s", "-C", str(tmp_path), "net"], check=True, timeout=60)
    with (tmp_path / "in.npy").open("rb") as source, (tmp_path / "out.npy").open("wb") as target:
        subprocess.run([tmp_path / "net"], stdin=source, stdout=target, check=True, timeout=60)

    wanted = gelu(values @ values.transpose(0, 2, 1), is_tanh=False)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("code", "kind"), [("BATCH_MATMUL", "BatchMatMul"), ("GELU", "Gelu")])
def test_other_values_than_floats_are_refused(code: str, kind: str) -> None:
    x, y = Value("x", (4, 4), "int8", scale=0.1), Value("y", (4, 4), "int8", scale=0.1)
    file = File([x], [y]).add(code, [x, x] if code == "BATCH_MATMUL" else [x], [y], options(kind))

    with pytest.raises(EdgeInferError, match=f"No kernel computes `{code} "):
        compile_file(file.data(), "integers.tflite")
