"""`convert` keeps what its data look like, so that drift is found without another step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import edge_infer
from edge_infer.monitor.making import MAX_BYTES, make_reference
from edge_infer.monitor.reference import PATH, read_reference
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters import convert
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

CHANCE = np.random.default_rng(7)


def linear(folder: Path, columns: int = 20) -> Path:
    weights = {"w": CHANCE.normal(size=(columns, 3)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"])]
    ends = [zoo.value("x", ["n", columns])], [zoo.value("scores", ["n", 3])]
    (folder / "linear.onnx").write_bytes(zoo.model(nodes, *ends, weights, 21))
    return folder / "linear.onnx"


def converted(folder: Path, rows: int, **options: Any) -> edge_infer.Bundle:
    np.savez(folder / "data.npz", x=CHANCE.normal(size=(rows, 20)).astype(np.float32))
    options = {"calibration": folder / "data.npz", "precision": "fp32", "format": "onnx", **options}
    return edge_infer.Bundle.open(convert(linear(folder), folder / "made.bundle", **options).path)


def test_a_bundle_finds_drift_by_the_data_it_was_converted_with(tmp_path: Path) -> None:
    bundle = converted(tmp_path, 1000)
    assert len(bundle.read(PATH)) <= MAX_BYTES
    for shift, word in ((0.0, "no drift"), (0.5, "drift")):
        with edge_infer.load(bundle) as session:
            counters = edge_infer.Counters.of(session.bundle)
            session.observe(counters.observe)
            session.run({"x": (CHANCE.normal(size=(1000, 20)) + shift).astype(np.float32)})
        assert counters.verdict().word == word


@pytest.mark.parametrize(("rows", "options"), [(199, {}), (300, {"drift": False}), (300, {"calibration": None})])
def test_few_rows_made_up_ones_and_unwanted_ones_are_not_kept(
    rows: int, options: dict[str, Any], tmp_path: Path
) -> None:
    assert converted(tmp_path, rows, **options).manifest.monitor is None


@pytest.mark.parametrize(("width", "least"), [(300, 16), (768, 8), (2048, 3)])
def test_long_vectors_get_fewer_directions(width: int, least: int) -> None:
    rows = CHANCE.normal(size=(250, width)).astype(np.float32)
    specs = [TensorSpec("x", "float32", ["n", width])], [TensorSpec("y", "float32", ["n", 2])]
    data = make_reference([({"x": rows}, {"y": rows[:, :2]})], *specs)
    reference = read_reference(data)
    assert len(data) <= MAX_BYTES
    assert least <= len(reference.directions) <= 16
    assert [one.name for one in reference.features[-2:]] == ["y 1", "y 2"]
    counters = edge_infer.Counters(reference)
    counters.observe({"x": rows}, {"y": rows[:, :2]})
    assert counters.rows == 250
    last = len(reference.directions)
    assert counters.counts[f"x {last}"][:20] == reference.features[last - 1].counts


def test_where_nothing_varies_there_is_no_direction() -> None:
    # What rounding makes of it would be another one with each number of threads, and the bundle with it.
    grey = np.ones((1, 3, 64, 64)) * CHANCE.random((250, 1, 1, 1))
    spec = TensorSpec("x", "float32", ["n", 3, 64, 64])
    assert len(read_reference(make_reference([({"x": grey.astype(np.float32)}, {})], [spec], [])).directions) == 1


def test_infinite_columns_are_kept_without_a_warning() -> None:
    rows = np.where(CHANCE.random((250, 4)) < 0.5, np.inf, 1.0).astype(np.float32)
    data = make_reference([({"x": rows}, {})], [TensorSpec("x", "float32", ["n", 4])], [])
    assert read_reference(data).rows == 250


def test_directions_of_few_long_rows_are_those_of_the_largest_variance() -> None:
    rows = CHANCE.normal(size=(250, 1200))
    rows[:, 7] *= 100  # all variance, nearly, is there
    data = make_reference([({"x": rows.astype(np.float32)}, {})], [TensorSpec("x", "float32", ["n", 1200])], [])
    first = np.array(read_reference(data).directions[0])
    assert first[7] == 127
    assert np.abs(np.delete(first, 7)).max() < 10
    constant = np.ones((250, 1200), np.float32)
    data = make_reference([({"x": constant}, {})], [TensorSpec("x", "float32", ["n", 1200])], [])
    assert len(read_reference(data).directions) == 1
