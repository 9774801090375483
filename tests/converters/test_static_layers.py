"""The layers of static int8: each alone in 8 bits, the one that costs most first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer_converters import convert
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes.int8_static import to_int8
from edge_infer_converters.passes.ranges import activation_ranges
from edge_infer_converters.search import static_layers as static_layers_file
from edge_infer_converters.search.static_layers import static_layers
from tests.support import zoo
from tests.support.converters.engines import run_onnx
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def chain() -> onnx.ModelProto:
    """Three products; what the second reads has one value a hundred times as large as the others."""
    rng = np.random.default_rng(6)
    first = rng.normal(0, 1, (16, 32)) / 4
    first[:, 0] *= 100
    stored = {"a": first, "b": rng.normal(0, 1, (32, 32)) / 6, "c": rng.normal(0, 1, (32, 4)) / 6}
    stored["b"][0] *= 1e-3
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["one"], name="first"),
        helper.make_node("MatMul", ["one", "b"], ["two"], name="second"),
        helper.make_node("MatMul", ["two", "c"], ["y"], name="third"),
    ]
    floats = {name: value.astype(np.float32) for name, value in stored.items()}
    return onnx.load_from_string(zoo.model(nodes, [zoo.value("x", [1, 16])], [zoo.value("y", [1, 4])], floats))


def calls() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(0, 1, (1, 16)).astype(np.float32)} for _ in range(24)]


def test_the_layer_that_costs_most_stands_first() -> None:
    layers = static_layers(chain(), calls(), Told())

    assert layers[0].name == "second"
    assert {layer.name for layer in layers} == {"first", "second", "third"}
    assert sum(layer.share for layer in layers) == pytest.approx(1)
    assert layers[0].share > 0.9


def test_all_layers_together_make_the_error_of_the_file() -> None:
    """Small errors that know nothing of one another add up: the table explains what int8 loses."""
    model, given = chain(), calls()
    layers = static_layers(model, given, Told())
    quantized = to_int8(model, given)
    wanted, got = ([run_onnx(one.SerializeToString(), call) for call in given[:8]] for one in (model, quantized))

    together = decibels(sum(10 ** (-(layer.sqnr_db or 0) / 10) for layer in layers))

    assert together == pytest.approx(decibels(noise(wanted, got)), abs=2)


def test_the_option_puts_them_into_the_table_of_both_formats(write_model: WriteModel, tmp_path: Path) -> None:
    options: dict[str, Any] = {"format": "both", "precision": "fp32,int8", "keep_all": True}
    told = Told()

    made = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", layers=True, reporter=told, **options)

    assert set(made.layers) == {"onnx/int8", "tflite/int8"}
    assert made.to_json()["layers"]["onnx/int8"][0]["encoding"] == "int8"
    assert any(job.startswith("Measuring ") for job in told.jobs)


def test_the_layers_are_measured_with_the_ranges_of_each_file(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods: list[str] = []

    def told(model: onnx.ModelProto, given: Any, method: str) -> Any:
        methods.append(method)
        return activation_ranges(model, given, method)

    monkeypatch.setattr(static_layers_file, "activation_ranges", told)
    options: dict[str, Any] = {"format": "both", "precision": "fp32,int8", "keep_all": True, "layers": True}

    made = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", calibrate="mse", reporter=Told(), **options)

    assert methods == ["mse"]  # once for both formats
    assert set(made.layers) == {"onnx/int8", "tflite/int8"}


def test_a_variant_that_is_not_good_enough_shows_its_layers_too(write_model: WriteModel, tmp_path: Path) -> None:
    made = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", layers=True, precision="fp32,int8", min_sqnr=90)

    assert not any(one.is_kept for one in made.variants if one.variant.id == "onnx/int8")
    assert made.layers["onnx/int8"]


def test_without_static_int8_it_is_said_that_nothing_is_measured(write_model: WriteModel, tmp_path: Path) -> None:
    told = Told()

    convert(write_model(zoo.mlp()), tmp_path / "m.bundle", layers=True, precision="fp32", reporter=told)

    assert any("--layers" in line for line in told.warnings)
