"""After large outputs ONNX Runtime gives back what its arena has free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

import edge_infer
from edge_infer.backends.onnxruntime.model import OnnxRuntimeModel
from edge_infer.platform.posix import resident_bytes

if TYPE_CHECKING:
    from pathlib import Path

WIDE = 256


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model whose output has 128 times the bytes of its input, as has a value before it."""
    table = numpy_helper.from_array(numpy.ones((300, WIDE), "float32"), "table")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    found = helper.make_tensor_value_info("found", TensorProto.FLOAT, ["n", WIDE])
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Softmax", ["rows"], ["even"]),
        helper.make_node("Relu", ["even"], ["found"]),
    ]
    graph = helper.make_graph(nodes, "wide", [ids], [found], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "wide.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def ids_for(mebibytes: int) -> Any:
    return numpy.zeros(mebibytes * 2**20 // (4 * WIDE), "int64")


def test_memory_goes_back_after_a_large_output(path: Path) -> None:
    before = resident_bytes()
    if before is None:
        pytest.skip("this system does not tell the memory of a process")
    with edge_infer.load(path, backend="onnxruntime") as session:
        session.run({"ids": ids_for(1)})  # it learns how much comes of how little
        for _ in range(3):
            result = session.run({"ids": ids_for(200)})
            assert result["found"].nbytes == 200 * 2**20
            del result
        after = resident_bytes()
    assert after is not None
    assert after - before < 50 * 2**20


def test_outputs_that_somebody_keeps_are_no_part_of_the_arena(path: Path) -> None:
    before = resident_bytes()
    if before is None:
        pytest.skip("this system does not tell the memory of a process")
    with edge_infer.load(path, backend="onnxruntime") as session:
        session.run({"ids": ids_for(1)})
        kept = [session.run({"ids": ids_for(40)}) for _ in range(4)]
        assert [found["found"].nbytes for found in kept] == [40 * 2**20] * 4
        del kept
        after = resident_bytes()
    assert after is not None
    assert after - before < 30 * 2**20


def test_an_output_of_another_shape_than_the_model_says_is_right(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], "twice", [x], [y])
    path = tmp_path / "twice.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    value = numpy.arange(2**20, dtype="float32")
    with edge_infer.load(path, backend="onnxruntime") as session:
        for _ in range(3):
            assert numpy.array_equal(session.run({"x": value})["y"], numpy.concatenate([value, value]))


class _WithoutArena:
    """A session of ONNX Runtime that has no arena, as on a 32-bit processor."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.asked: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, outputs: Any, feeds: Any, options: Any) -> Any:
        self._check(options)
        return self._session.run(outputs, feeds)

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        self._check(options)
        self._session.run_with_iobinding(binding)

    def _check(self, options: Any) -> None:
        self.asked.append(options is not None)
        if options is not None:
            raise RuntimeError("Did not find an arena based allocator registered for device-id combination: cpu:0")


def test_a_session_without_an_arena_runs_all_the_same(path: Path) -> None:
    import onnxruntime

    from edge_infer.backends.base import Placement

    session = _WithoutArena(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
    model = OnnxRuntimeModel(session, Placement("cpu", 1, ("CPUExecutionProvider",)))
    for size in (1, 20, 20):
        found = model.run({"ids": ids_for(size)}, ["found"], {}, ())
        assert found["found"].nbytes == size * 2**20
    assert session.asked == [False, True, True, False, False]
