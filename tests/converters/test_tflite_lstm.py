"""LSTM as TFLite's own operator where it can say it and no page must read it; else the steps, or a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

import edge_infer
from edge_infer.errors import UnsupportedOperator
from edge_infer.formats import tflite
from edge_infer.parity import comparison
from edge_infer_converters import convert
from edge_infer_converters.writers.tflite import FloatGraph
from tests.support import zoo
from tests.support.converters.engines import run_onnx
from tests.support.converters.recurrent import SAYABLE, recurrent

if TYPE_CHECKING:
    from pathlib import Path

BUILTIN = "UNIDIRECTIONAL_SEQUENCE_LSTM"
Arrays = dict[str, np.ndarray[Any, Any]]


def calls_of(model: bytes, count: int, batch: int = 3, scale: float = 1.0) -> list[Arrays]:
    dims = onnx.load_from_string(model).graph.input[0].type.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else batch for dim in dims]
    return [{"x": np.random.default_rng(i).normal(0, scale, shape).astype(np.float32)} for i in range(count)]


def answers(data: bytes, calls: list[Arrays]) -> list[dict[str, Any]]:
    """Run one interpreter call after call, as a program does that never resets it."""
    runner = Interpreter(model_content=data, num_threads=1).get_signature_runner()
    return [{name: np.array(value) for name, value in runner(**call).items()} for call in calls]


def graph_of(model: bytes, *, for_page: bool = False) -> FloatGraph:
    return FloatGraph.of_onnx(onnx.load_from_string(model), for_page=for_page)


UNSAYABLE: dict[str, dict[str, Any]] = {
    "the cell is wanted": {"outputs": ("y", "h", "c")},
    "a state to start from": {"initial": 0.5},
    "other activations": {"activations": ["Sigmoid", "Relu", "Tanh"]},
    "heavy weights": {"steps": 3, "hidden": 64},
}


@pytest.mark.parametrize("settings", SAYABLE.values(), ids=SAYABLE.keys())
def test_the_operator_gives_what_onnx_runtime_gives_call_after_call(settings: dict[str, Any]) -> None:
    """A call must not begin with the state that the call before it left."""
    model = recurrent(**settings)
    calls = calls_of(model, 4)

    written = graph_of(model).write()

    assert BUILTIN in written.operators
    wanted = [run_onnx(model, call) for call in calls]
    for one, other in zip(wanted, answers(written.data, calls), strict=True):
        assert comparison.compare([one], [other]).sqnr_db >= 115


def test_batch_first_is_the_same_layer() -> None:
    """ONNX Runtime has no kernel for `layout` 1: the numbers are those of the other layout, turned."""
    settings: dict[str, Any] = {"direction": "bidirectional", "batch": 2}
    model, turned = recurrent(**settings), recurrent(**settings, layout=1)
    call = calls_of(model, 1)[0]

    written = graph_of(turned).write()

    (got,) = answers(written.data, [{"x": np.ascontiguousarray(call["x"].swapaxes(0, 1))}])
    wanted = run_onnx(model, call)
    assert BUILTIN in written.operators
    assert comparison.compare([{"y": wanted["y"].transpose(2, 0, 1, 3)}], [{"y": got["y"]}]).sqnr_db >= 115
    assert comparison.compare([{"h": wanted["h"].swapaxes(0, 1)}], [{"h": got["h"]}]).sqnr_db >= 115


def test_a_free_batch_is_written_out() -> None:
    """The state of the operator is stored for one size."""
    model = recurrent(batch="n", steps=6, layout=1)

    written = graph_of(model).write()

    assert BUILTIN not in written.operators
    assert not written.is_batch_fixed
    assert answers(written.data, calls_of(model, 1, batch=3))[0]["y"].shape == (3, 6, 1, 9)


def test_inputs_that_saturate_every_gate_leave_no_trace() -> None:
    model = recurrent(peephole=True)
    loud, quiet = calls_of(model, 1, scale=1e4)[0], calls_of(model, 1)[0]
    data = graph_of(model).write().data

    (alone,) = answers(data, [quiet])
    *_, after = answers(data, [loud, loud, quiet])

    np.testing.assert_array_equal(after["y"], alone["y"])


@pytest.mark.parametrize("settings", UNSAYABLE.values(), ids=UNSAYABLE.keys())
def test_what_the_operator_cannot_say_or_would_not_shrink_is_written_out(settings: dict[str, Any]) -> None:
    model = recurrent(**{"steps": 5, **settings})
    calls = calls_of(model, 2)

    written = graph_of(model).write()

    assert BUILTIN not in written.operators
    wanted = [run_onnx(model, call) for call in calls]
    assert comparison.compare(wanted, answers(written.data, calls)).sqnr_db >= 115


def test_a_long_layer_is_little_more_than_its_weights() -> None:
    model = recurrent(steps=500, features=40, hidden=64)

    assert len(graph_of(model).write().data) < 1.05 * len(model)


def test_half_precision_reaches_its_weights() -> None:
    model = recurrent(steps=200, features=40, hidden=64)
    calls = calls_of(model, 2)
    graph = graph_of(model)

    written = graph.write("fp16")

    assert len(written.data) < 0.6 * graph.nbytes
    wanted = [run_onnx(model, call) for call in calls]
    assert comparison.judge(comparison.compare(wanted, answers(written.data, calls)), "fp16").word == "ok"


def test_a_file_for_the_page_has_no_variable_tensor() -> None:
    """LiteRT.js refuses them."""
    assert BUILTIN not in graph_of(recurrent(), for_page=True).write().operators
    with pytest.raises(UnsupportedOperator, match=r"1025 steps.*or --target pi"):
        graph_of(recurrent(steps=1025, hidden=2), for_page=True)


@pytest.mark.parametrize(("targets", "is_builtin"), [("any", False), ("pi", True), (["pi", "any"], False)])
def test_the_target_decides(tmp_path: Path, targets: list[str], is_builtin: bool) -> None:
    proto = onnx.load_from_string(recurrent(steps=200, features=40, hidden=64, batch=1, outputs=("y",)))
    proto.graph.output[0].CopyFrom(zoo.value("y", [200, 1, 1, 64]))
    onnx.save(proto, tmp_path / "lstm.onnx")

    convert(tmp_path / "lstm.onnx", tmp_path / "lstm.bundle", target=targets, precision="fp32", format="tflite")

    with edge_infer.load(tmp_path / "lstm.bundle", self_test=True):
        pass
    data = (tmp_path / "lstm.bundle/tflite/model.tflite").read_bytes()
    assert (BUILTIN in {one.code for one in tflite.read(data, "lstm").operators}) == is_builtin


@pytest.mark.parametrize("op", ["GRU", "RNN"])
def test_a_layer_without_an_operator_is_refused_beyond_a_length(op: str) -> None:
    with pytest.raises(UnsupportedOperator, match=rf"{op} \(a sequence of 1025 steps.*at most 1024.*`layer`"):
        graph_of(recurrent(op, steps=1025, hidden=2))


def test_a_free_length_is_refused_with_a_remedy() -> None:
    model = onnx.load_from_string(recurrent(batch="n"))
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1

    with pytest.raises(UnsupportedOperator, match=r"free length: fix it by --shape"):
        FloatGraph.of_onnx(model)
