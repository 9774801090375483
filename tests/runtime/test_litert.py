"""The LiteRT backend, on ai-edge-litert here and on tflite-runtime in an environment of its own."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
import onnx
import onnx.parser
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer import InputError, UnsupportedModel
from edge_infer.errors import ExecutionError
from edge_infer.formats.tflite_check import is_whole
from edge_infer_converters.writers.tflite import write
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer import Session
    from tests.support.model_files import WriteBundle, WriteModel

ROOT = Path(__file__).parents[2]
OLD_PYTHON = ROOT / ".venv-tflite/bin/python"
MLP = write(onnx.load_from_string(zoo.mlp())).data
X = np.random.default_rng(3).normal(size=(4, 64)).astype(np.float32)


@pytest.fixture
def mlp(write_model: WriteModel) -> Iterator[Session]:
    with edge_infer.load(write_model(MLP, "mlp.tflite")) as session:
        yield session


@pytest.fixture
def expected(write_model: WriteModel) -> Any:
    """What onnxruntime computes of the source."""
    with edge_infer.load(write_model(zoo.mlp(), "source.onnx")) as session:
        return session.run({"x": X})["logits"]


def test_it_gives_the_numbers_of_the_source(mlp: Session, expected: Any) -> None:
    result = mlp.run({"x": X})["logits"]

    assert repr(mlp).endswith("tflite/model, litert on cpu)")
    assert np.abs(result - expected).max() <= 1e-4 * np.sqrt((expected**2).mean())


def test_names_and_free_dimensions_come_from_the_signature(mlp: Session) -> None:
    assert [(spec.name, spec.dtype, spec.shape[1]) for spec in mlp.inputs] == [("x", "float32", 64)]
    assert isinstance(mlp.inputs[0].shape[0], str)
    assert [spec.name for spec in mlp.outputs] == ["logits"]


def shortened() -> bytes:
    """Return a convolution over 3 rows with a free number of rows, of which the file stores 1."""
    weights = ", ".join(map(str, range(12)))
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> rows (float[1, 2, 8, 3] x) => (float[1, 2, 6, 3] y)
        <float[2, 2, 3, 1] w = {{{weights}}}> {{ y = Conv(x, w) }}"""
    )
    model: Any = schema.ModelT.InitFromPackedBuf(write(source).data)
    graph = model.subgraphs[0]
    tensor = graph.tensors[graph.inputs[0]]
    tensor.shapeSignature = [-1 if dim == 8 else dim for dim in tensor.shape]
    tensor.shape = [1 if dim == 8 else dim for dim in tensor.shape]
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_a_model_that_cannot_run_with_the_sizes_that_it_stores_takes_those_of_each_run(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(shortened(), "rows.tflite")) as session:
        first = session.run({"x": np.ones((1, 2, 8, 3), np.float32)})["y"]
        with pytest.raises(ExecutionError, match="failed to prepare"):
            session.run({"x": np.ones((1, 2, 2, 3), np.float32)})
        second = session.run({"x": np.ones((1, 2, 5, 3), np.float32)})["y"]

    assert first.shape == (1, 2, 6, 3)
    assert (second == np.array([15, 51])[None, :, None, None]).all()
    assert second.shape == (1, 2, 3, 3)


def test_each_run_may_have_another_batch(mlp: Session, expected: Any) -> None:
    for rows in (1, 4, 2, 4):
        np.testing.assert_allclose(mlp.run({"x": X[:rows]})["logits"], expected[:rows], atol=1e-4)


def test_threads_take_turns(mlp: Session) -> None:
    inputs = [np.random.default_rng(i).normal(size=(1 + i % 3, 64)).astype(np.float32) for i in range(24)]
    expected = [mlp.run({"x": x})["logits"] for x in inputs]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: mlp.run({"x": x})["logits"], inputs))

    for result, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, want)


def test_a_prepared_call_has_buffers_of_its_own(mlp: Session, expected: Any) -> None:
    with mlp.prepare({"x": (4, 64)}) as call:
        mlp.run({"x": X[:1]})
        first = call({"x": X})["logits"]
        np.testing.assert_allclose(first, expected, atol=1e-4)
        assert call({"x": X})["logits"] is first


def test_an_output_is_written_into_a_buffer(mlp: Session, expected: Any) -> None:
    target = np.empty((4, 10), np.float32)

    assert mlp.run({"x": X}, into={"logits": target})["logits"] is target
    np.testing.assert_allclose(target, expected, atol=1e-4)
    with pytest.raises(InputError, match="buffer for output `logits`"):
        mlp.run({"x": X}, into={"logits": np.empty((4, 9), np.float32)})


def test_an_empty_batch_is_refused_by_name_and_the_next_run_is_well(mlp: Session, expected: Any) -> None:
    mlp.run({"x": X[:1]})
    with pytest.raises(InputError, match="LiteRT cannot run on it"):
        mlp.run({"x": np.zeros((0, 64), np.float32)})
    np.testing.assert_allclose(mlp.run({"x": X})["logits"], expected, atol=1e-4)


def test_a_session_closed_during_runs_ends_in_words(write_model: WriteModel) -> None:
    session = edge_infer.load(write_model(MLP, "mlp.tflite"))

    def run_until_closed() -> str:
        while True:
            try:
                session.run({"x": X})
            except InputError as error:
                return error.message

    with ThreadPoolExecutor(3) as pool:
        ends = [pool.submit(run_until_closed) for _ in range(3)]
        session.close()
        assert all("is closed" in end.result() for end in ends)


def test_a_file_of_many_pointers_to_one_table_is_walked_once() -> None:
    """20,000 subgraphs that are one, with 20,000 tensors that are one: 400 million walks if each were made."""
    count = 20_000

    def vector(table_after: int) -> bytes:
        """Offsets that all lead to one table, so many bytes after the vector's end."""
        places = (4 * (count - i) + table_after for i in range(count))
        return struct.pack("<I", count) + b"".join(struct.pack("<I", place) for place in places)

    # A table is the offset back to its vtable, then its fields; a vtable its own size, the table's, and its fields'.
    root = struct.pack("<HHHHH2x", 10, 8, 0, 0, 4) + struct.pack("<iI", 12, 4)
    subgraph = struct.pack("<HHH2x", 6, 8, 4) + struct.pack("<iI", 8, 4)
    tensor = struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    content = struct.pack("<I4s", 8 + 12, b"TFL3") + root + vector(8) + subgraph + vector(4) + tensor

    assert is_whole(content)
    assert not is_whole(content[:-4])


@pytest.mark.parametrize("data", [b"", b"TFL3" * 20, b"\0\0\0\0TFL3" + bytes(100), MLP[:-40], MLP[:500], zoo.mlp()])
def test_a_file_that_is_no_model_is_refused(write_model: WriteModel, data: bytes) -> None:
    with pytest.raises(UnsupportedModel, match=r"litert cannot load `bad\.tflite`") as caught:
        edge_infer.load(write_model(data, "bad.tflite"))

    assert "cut short" in caught.value.hint


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(MLP) - 1))
def test_no_part_of_a_file_passes_for_the_whole(length: int) -> None:
    assert is_whole(MLP)
    assert not is_whole(MLP[: length & ~3])


def test_an_option_that_it_does_not_know_is_refused(write_bundle: WriteBundle) -> None:
    path = write_bundle({"tflite/fp32": MLP})
    document = json.loads((path / "manifest.json").read_text())
    for options, said in (
        ({"interface": "int8"}, "knows the interface"),
        ({"inner": "x"}, "knows the inner"),
        ({"speed": "2"}, "takes no option `speed`"),
    ):
        document["variants"][0]["options"] = {"litert": options}
        (path / "manifest.json").write_text(json.dumps(document))

        with pytest.raises(InputError, match=said):
            edge_infer.load(path, backend="litert")


# -- tflite-runtime: Python 3.11 and numpy 1, as 32-bit ARM has it --

_SCRIPT = """
import json, sys
import edge_infer
path, rows = sys.argv[1], json.loads(sys.argv[2])
try:
    with edge_infer.load(path) as session, session.prepare({"x": (len(rows), 64)}) as call:
        result = session.run({"x": rows})["logits"]
        prepared = call({"x": rows})["logits"]
        report = session.report()
    print(json.dumps({"logits": result.tolist(), "prepared": prepared.tolist(), "engine": report.engine_version}))
except edge_infer.EdgeInferError as error:
    print(json.dumps(error.to_json()))
"""


def run_old(path: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(OLD_PYTHON), "-c", _SCRIPT, str(path), json.dumps(X.tolist())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_tflite_runtime_gives_the_same_numbers(write_model: WriteModel, expected: Any) -> None:
    answer = run_old(write_model(MLP, "mlp.tflite"))

    assert answer["engine"] == "2.14.0 (tflite-runtime)"
    np.testing.assert_allclose(answer["logits"], expected, atol=1e-4)
    assert answer["prepared"] == answer["logits"]


def test_tflite_runtime_is_not_given_a_file_that_would_end_the_process(write_model: WriteModel) -> None:
    assert run_old(write_model(MLP[:-400], "cut.tflite"))["code"] == "unsupported_model"
