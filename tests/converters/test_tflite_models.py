"""Whole networks of every kind through the TFLite writer: in float as ONNX Runtime, in fewer bits near it."""

from __future__ import annotations

import onnx
import pytest

from edge_infer.parity import comparison
from edge_infer_converters.writers.tflite import FloatGraph
from tests.support.converters.engines import run_onnx, run_tflite
from tests.support.converters.small_models import MODELS, calls_of


@pytest.mark.parametrize("name", MODELS)
def test_a_network_gives_what_onnx_runtime_gives(name: str) -> None:
    model = MODELS[name]()
    written = FloatGraph.of_onnx(onnx.load_from_string(model)).write()

    for batch in (1,) if written.is_batch_fixed else (1, 2):
        calls = calls_of(model, 2, batch)
        wanted = [run_onnx(model, call) for call in calls]
        figures = comparison.compare(wanted, [run_tflite(written.data, call) for call in calls])
        assert figures.sqnr_db >= 115
        assert figures.max_err <= 1e-5


@pytest.mark.parametrize("word", ["int8", "int8x16", "int8-dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_a_network_in_8_bits_stays_near(name: str, word: str) -> None:
    model = MODELS[name]()
    calls = calls_of(model, 12)
    graph = FloatGraph.of_onnx(onnx.load_from_string(model))
    written = graph.write(word, calls)

    wanted = [run_onnx(model, call) for call in calls[:4]]
    figures = comparison.compare(wanted, [run_tflite(written.data, call) for call in calls[:4]])
    assert figures.sqnr_db >= comparison.INTEGER_MIN_SQNR_DB
