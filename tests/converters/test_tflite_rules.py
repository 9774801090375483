"""Each rule of the TFLite writer gives what ONNX Runtime gives, on LiteRT, and so does the ONNX that is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from edge_infer.parity import comparison
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters.engines import onnx_of_tflite, random_feeds, run_onnx, run_tflite
from tests.support.converters.tflite_cases import CASES, CONV, DENSE, IMAGE, Case, integers, node, normal

if TYPE_CHECKING:
    Weights = dict[str, np.ndarray[Any, Any]]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_rule_gives_what_onnx_runtime_gives(case: Case) -> None:
    model = case.model()
    batches = (1, 3) if case.shape[0] == "batch" else (1,)

    written = tflite.write(onnx.load_from_string(model))

    assert not written.is_batch_fixed
    for batch in batches:
        feeds = random_feeds(model, batch)
        wanted, got = run_onnx(model, feeds), run_tflite(written.data, feeds)
        assert wanted["y"].shape == got["y"].shape
        assert comparison.judge(comparison.compare([wanted], [got]), "fp32") == ("ok", "")
        back = run_onnx(onnx_of_tflite(written.data), feeds)
        assert (back["y"].dtype, back["y"].shape) == (got["y"].dtype, got["y"].shape)
        assert comparison.judge(comparison.compare([got], [back]), "fp32") == ("ok", "")


@pytest.mark.parametrize(
    ("mode", "rounding", "extent", "size"),
    [
        ("asymmetric", "floor", 14, 8),
        ("asymmetric", "floor", 58, 30),
        ("asymmetric", "ceil", 58, 30),
        ("half_pixel", "round_prefer_floor", 14, 41),
        ("align_corners", "round_prefer_ceil", 44, 89),
    ],
)
def test_the_nearest_pixel_is_the_one_that_onnx_runtime_takes(mode: str, rounding: str, extent: int, size: int) -> None:
    """At these sizes a place lies on a bound between two pixels, and ONNX's own implementation rounds another way."""
    resize = node("Resize", "x _ _ s", mode="nearest", coordinate_transformation_mode=mode, nearest_mode=rounding)
    model = Case([resize], (1, 2, extent, 3), {"s": integers(1, 2, size, 3)}).model()
    feeds = {"x": np.arange(6 * extent, dtype=np.float32).reshape(1, 2, extent, 3)}

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, feeds)

    np.testing.assert_array_equal(got["y"], run_onnx(model, feeds)["y"])


PLACES = np.array([[0, 2, 1, -1]], np.int64)
ALONG_THE_BATCH = {
    "gather": Case([node("Gather", "x i")], ("batch", 4), {"i": integers(-1)}),
    "gather-elements": Case([node("GatherElements", "x i", axis=1)], ("batch", 4), {"i": PLACES}),
    "gather-parts": Case([node("GatherND", "x i")], ("batch", 4), {"i": integers(-1)}),
    "hardmax": Case([node("Hardmax", axis=0)], ("batch", 4)),
    "pad-edge": Case([node("Pad", "x p", mode="edge")], ("batch", 4), {"p": integers(1, 0, 0, 0)}),
    "pad-wrap": Case([node("Pad", "x p", mode="wrap")], ("batch", 4), {"p": integers(1, 0, 0, 0)}),
    "slice": Case([node("Slice", "x s e")], ("batch", 4), {"s": integers(-1), "e": integers(9)}),
    "trilu": Case([node("Trilu")], ("batch", 4)),
}


@pytest.mark.parametrize("case", ALONG_THE_BATCH.values(), ids=ALONG_THE_BATCH.keys())
def test_what_is_computed_along_the_batch_fixes_it_to_one(case: Case) -> None:
    model = case.model()
    feeds = random_feeds(model)

    written = tflite.write(onnx.load_from_string(model))

    assert written.is_batch_fixed
    np.testing.assert_allclose(run_tflite(written.data, feeds)["y"], run_onnx(model, feeds)["y"], atol=1e-6)


def test_parts_by_coordinates_that_are_not_negative_leave_the_batch_free() -> None:
    model = Case([node("GatherND", "x i")], ("batch", 4), {"i": integers(0)}).model()
    feeds = random_feeds(model, 3)

    written = tflite.write(onnx.load_from_string(model))

    assert not written.is_batch_fixed
    np.testing.assert_array_equal(run_tflite(written.data, feeds)["y"], run_onnx(model, feeds)["y"])


def test_a_chain_of_convolutions_is_turned_at_both_ends_only() -> None:
    """Between the first and the last convolution nothing is transposed."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("MaxPool", "b", "c", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "c w", "d"),
        node("Add", "d k", "e"),
        node("Sigmoid", "e"),
    ]
    case = Case(nodes, IMAGE, {"w": normal(4, 4, 3, 3), "k": normal(4, 1, 1)})

    written = tflite.write(onnx.load_from_string(case.model()))

    assert written.operators == (
        "TRANSPOSE", "CONV_2D", "MAX_POOL_2D", "CONV_2D", "LOGISTIC", "TRANSPOSE",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gelu-of-erf", "gelu-of-half-first"])
def test_the_nodes_of_a_gelu_become_one(name: str) -> None:
    written = tflite.write(onnx.load_from_string(CASES[name].model()))

    assert "GELU" in written.operators
    assert len(written.operators) <= 2


def test_the_angle_of_infinity_is_a_right_one() -> None:
    model = Case([node("Atan")], (4,)).model()
    feeds = {"x": np.array([np.inf, -np.inf, 0, 2], np.float32)}

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, feeds)

    np.testing.assert_allclose(got["y"], np.arctan(feeds["x"]), atol=1e-6)


@pytest.mark.parametrize("op", ["Relu", "Mod"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_have_kernels(op: str, dtype: str) -> None:
    made = node("Mod", "x by", fmod=1) if op == "Mod" else node("Relu")
    weights = {"by": np.array(-3, dtype)}
    model = zoo.model([made], [zoo.value("x", [7], dtype)], [zoo.value("y", None, dtype)], weights)
    x = np.arange(-4, 3).astype(dtype)

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, {"x": x})

    np.testing.assert_array_equal(got["y"], np.fmod(x, -3) if op == "Mod" else np.maximum(x, 0))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_the_largest_of_integers_is_none_of_the_padding(dtype: str) -> None:
    nodes = [node("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])]
    model = zoo.model(nodes, [zoo.value("x", ["n", 1, 6, 6], dtype)], [zoo.value("y", None, dtype)])
    feeds = {"x": np.arange(-100, -64).reshape(1, 1, 6, 6).astype(dtype)}

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, feeds)

    np.testing.assert_array_equal(got["y"], run_onnx(model, feeds)["y"])


def test_an_image_of_one_channel_is_not_transposed() -> None:
    """Moving an axis of size 1 moves no data: a reshape does it."""
    case = Case(
        [node("Conv", "x w", "c"), node("GlobalAveragePool", "c")], ("batch", 1, 8, 8), {"w": normal(6, 1, 3, 3)}
    )

    written = tflite.write(onnx.load_from_string(case.model()))

    assert written.operators == ("RESHAPE", "CONV_2D", "MEAN", "RESHAPE")


def test_a_dense_layer_takes_in_its_bias_and_activation() -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "s"), node("Relu", "s")]
    case = Case(nodes, ("batch", 5), DENSE)

    written = tflite.write(onnx.load_from_string(case.model()))

    assert written.operators == ("FULLY_CONNECTED",)


def test_an_activation_that_is_read_before_it_stays() -> None:
    """Two readers of the convolution: only one of them wants the activation."""
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("Sub", "c r")]
    model = Case(nodes, IMAGE, CONV).model()
    feeds = random_feeds(model)

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, feeds)

    np.testing.assert_allclose(got["y"], run_onnx(model, feeds)["y"], atol=1e-5)
