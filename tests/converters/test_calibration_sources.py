"""Calibration data from folders, images and functions; and the ways to find ranges in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from PIL import Image

from edge_infer import Bundle, load
from edge_infer.errors import InputError
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters import Recipe, convert
from edge_infer_converters.data.calibration import MAX_FUNCTION_CALLS, read_set
from edge_infer_converters.passes.int8_static import to_int8
from edge_infer_converters.passes.ranges import Histogram, activation_ranges
from tests.support import zoo
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

VECTOR = TensorSpec("x", "float32", ("batch", 4))
FIRST = TensorSpec("image", "float32", ("batch", 3, 2, 5))
LAST = TensorSpec("image", "uint8", ("batch", 2, 5, 3))


def picture(folder: Path, name: str = "a.png") -> np.ndarray[Any, Any]:
    pixels = np.random.default_rng(3).integers(0, 256, (2, 5, 3), np.uint8)
    Image.fromarray(pixels).save(folder / name)
    return pixels


def test_each_file_of_a_folder_is_a_sample_in_the_order_of_names(tmp_path: Path) -> None:
    for name, value in [("b", 2.0), ("a", 1.0)]:
        np.save(tmp_path / f"{name}.npy", np.full(4, value, np.float32))
    np.save(tmp_path / "c.npy", np.full((1, 4), 3.0, np.float32))
    (tmp_path / "notes.txt").write_text("not a sample")

    found = read_set(tmp_path, [VECTOR])

    assert [call["x"].tolist() for call in found.calls] == [[[value] * 4] for value in (1.0, 2.0, 3.0)]
    assert not found.is_made_up


def test_the_hash_of_a_folder_follows_its_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, np.float32))
    before = read_set(tmp_path, [VECTOR]).sha256
    np.save(tmp_path / "a.npy", np.ones(4, np.float32))

    assert read_set(tmp_path, [VECTOR]).sha256 != before


def test_images_are_laid_out_as_the_input_is(tmp_path: Path) -> None:
    pixels = picture(tmp_path)

    first = read_set(tmp_path, [FIRST]).calls[0]["image"]
    last = read_set(tmp_path, [LAST]).calls[0]["image"]

    np.testing.assert_array_equal(last[0], pixels)
    np.testing.assert_allclose(first[0], np.moveaxis(pixels, 2, 0) / 255, atol=1e-7)


def test_an_image_of_another_size_is_not_resized(tmp_path: Path) -> None:
    picture(tmp_path)

    with pytest.raises(InputError, match=r"a.png` has shape \(3, 2, 5\), expected \(3, 4, 4\)"):
        read_set(tmp_path, [TensorSpec("image", "float32", (1, 3, 4, 4))])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", b"no picture", "cannot be read as an image"),
        ("a.npy", b"no array", "cannot be read"),
        ("a.txt", b"", "holds no .npy or .npz file and no image"),
    ],
)
def test_a_folder_of_something_else_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InputError, match=message):
        read_set(tmp_path, [LAST])


def test_images_are_refused_where_the_input_is_none(tmp_path: Path) -> None:
    picture(tmp_path)

    with pytest.raises(InputError, match="is an image, and input"):
        read_set(tmp_path, [VECTOR])


def test_a_folder_of_arrays_is_for_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, np.float32))

    with pytest.raises(InputError, match=r"a\.npy` holds one input, and this model takes `x`, `image`"):
        read_set(tmp_path, [VECTOR, LAST])


def test_samples_in_a_folder_may_have_other_lengths(tmp_path: Path) -> None:
    specs = [TensorSpec("ids", "int64", ("n", "t")), TensorSpec("mask", "float32", ("n", "t"))]
    for length in (3, 5):
        np.savez(tmp_path / f"{length}.npz", ids=np.arange(length), mask=np.ones((1, length), np.float32))

    found = read_set(tmp_path, specs)

    assert [call["ids"].tolist() for call in found.calls] == [[[0, 1, 2]], [[0, 1, 2, 3, 4]]]
    assert [call["mask"].shape for call in found.calls] == [(1, 3), (1, 5)]


def test_each_sample_of_a_folder_may_have_its_class(tmp_path: Path) -> None:
    for label in (2, 1):
        np.savez(tmp_path / f"{label}.npz", x=np.ones(4, np.float32), labels=label)

    found = read_set(tmp_path, [VECTOR])
    assert found.classes is not None
    assert found.classes.tolist() == [1, 2]

    np.savez(tmp_path / "3.npz", x=np.ones(4, np.float32), labels=[1, 2])
    with pytest.raises(InputError, match="has another shape in each sample"):
        read_set(tmp_path, [VECTOR])

    np.savez(tmp_path / "3.npz", x=np.ones(4, np.float32))
    with pytest.raises(InputError, match=r"3\.npz` has `x`, `1\.npz` has `labels`, `x`"):
        read_set(tmp_path, [VECTOR])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": np.arange(3)}, "has no array `mask`"),
        ({"ids": np.zeros((2, 2, 2)), "mask": np.ones(3)}, "has shape"),
        ({"ids": np.arange(3), "mask": np.ones(3), "mas": np.ones(3)}, "has an array `mas`"),
    ],
)
def test_a_sample_that_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    specs = [TensorSpec("ids", "int64", ("n", "t")), TensorSpec("mask", "float32", ("n", "t"))]
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]

    with pytest.raises(InputError, match=f"a.npz` {message}"):
        read_set(tmp_path, specs)


def test_a_model_is_calibrated_with_samples_of_other_lengths(tmp_path: Path) -> None:
    """A mean over a free length; the evaluation and the golden examples keep each sample's own."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("ReduceMean", ["r", "axes"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w2"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = {"w1": rng.normal(0, 0.5, (8, 16)).astype(np.float32), "axes": np.array([1])}
    weights["w2"] = rng.normal(0, 0.5, (16, 4)).astype(np.float32)
    model = zoo.model(nodes, [zoo.value("x", ["n", "t", 8])], [zoo.value("y", ["n", 4])], weights)
    (tmp_path / "m.onnx").write_bytes(model)
    (tmp_path / "samples").mkdir()
    for i, length in enumerate((2, 3, 5, 7, 11, 3)):
        np.save(tmp_path / f"samples/{i}.npy", rng.normal(0, 1, (length, 8)).astype(np.float32))

    convert(tmp_path / "m.onnx", tmp_path / "m.bundle", format="onnx", keep_all=True, calibration=tmp_path / "samples")

    bundle = Bundle.open(tmp_path / "m.bundle")
    assert {inputs["x"].shape[1] for inputs, _ in bundle.examples()} == {2, 3, 5, 7, 11}
    with load(bundle, variant="onnx/int8", self_test=True) as session:
        assert session.run({"x": np.zeros((1, 13, 8), np.float32)})["y"].shape == (1, 4)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "samples_of_mine.py").write_text(
        "import itertools\n"
        "import numpy as np\n"
        "def some():\n    for i in range(3):\n        yield {'x': np.full(4, i, np.float32)}\n"
        "def bare():\n    return [np.zeros(4, np.float32)]\n"
        "def endless():\n    return (np.zeros(4, np.float32) for _ in itertools.count())\n"
        "def none():\n    return []\n"
        "def broken():\n    raise RuntimeError('no disk')\n"
        "def uneven():\n    return [np.zeros(4, np.float32), np.zeros(5, np.float32)]\n"
        "def wide():\n    return [np.zeros(9, np.float32)]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "samples_of_mine"


@pytest.mark.parametrize(("name", "count"), [("some", 3), ("bare", 1), ("endless", MAX_FUNCTION_CALLS)])
def test_a_function_gives_samples(module: str, name: str, count: int) -> None:
    found = read_set(f"{module}:{name}", [VECTOR])

    assert len(found.calls) == count
    assert found.calls[0]["x"].shape == (1, 4)
    assert len(found.sha256) == 64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "gave no sample"),
        ("broken", "raised RuntimeError: no disk"),
        ("uneven", r"has shape \(1, 5\), expected"),
        ("wide", r"has shape \(1, 9\), expected"),
        ("missing", "has no function `missing`"),
    ],
)
def test_a_function_that_gives_no_samples_is_named(module: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_set(f"{module}:{name}", [VECTOR])


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 50))
def test_ranges_that_clip_stay_within_all_that_was_seen(seed: int, size: float) -> None:
    values = np.random.default_rng(seed).standard_t(3, 5000) * size
    low, high = float(values.min()), float(values.max())
    histogram = Histogram(low, high)
    histogram.add(values)

    for found in (histogram.percentile(), histogram.least_error()):
        assert low - 1e-9 <= found.low <= 0 <= found.high <= high + 1e-9


def test_the_range_of_least_error_beats_the_whole_range() -> None:
    values = np.random.default_rng(5).normal(0, 1, 100_000)
    values[:10] *= 20
    histogram = Histogram(float(values.min()), float(values.max()))
    histogram.add(values)

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        rounded = np.clip(np.rint((values - low) / step), 0, 255) * step + low
        return float(np.square(rounded - values).mean())

    assert error(*histogram.least_error()) < 0.8 * error(float(values.min()), float(values.max()))


def with_outlier() -> list[dict[str, Any]]:
    rng = np.random.default_rng(6)
    calls = [{"x": rng.normal(0, 1, (1, 64)).astype(np.float32)} for _ in range(400)]
    calls[77]["x"][0, 3] = 300
    return calls


def test_one_outlier_does_not_spoil_the_percentile() -> None:
    model = onnx.load_from_string(zoo.mlp())

    whole, inner = (activation_ranges(model, with_outlier(), method)["x"] for method in ("minmax", "percentile"))

    assert whole.high == 300
    assert inner.high < 6


def test_the_quantizer_takes_the_ranges(write_model: WriteModel) -> None:
    model = onnx.load(write_model(zoo.mlp()))

    scales = [
        next(
            float(onnx.numpy_helper.to_array(tensor))
            for tensor in quantized.graph.initializer
            if tensor.name == next(n for n in quantized.graph.node if n.op_type == "QuantizeLinear").input[1]
        )
        for quantized in (to_int8(model, with_outlier(), method=method) for method in ("minmax", "percentile"))
    ]

    assert scales[0] > 1
    assert scales[1] < 0.05


def test_auto_takes_what_measures_best_and_says_so(write_model: WriteModel, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.concatenate([call["x"] for call in with_outlier()]))
    told = Told()
    recipe = Recipe(("onnx",), ("int8",), keep_all=True, calibrate="auto")

    convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", calibration=tmp_path / "data.npz", recipe=recipe, reporter=told
    )

    (line,) = [text for text in told.steps if "onnx/int8" in text and "Converted" in text]
    assert "by percentile" in line or "by mse" in line


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(InputError, match="Calibration `entropy` is not known"):
        Recipe(calibrate="entropy")
