"""ONNX Runtime's C interface, which needs no numpy; test_session makes its claims of both interfaces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

import edge_infer
from edge_infer.backends.onnxruntime import api as onnxruntime_api
from edge_infer.backends.onnxruntime.api import Api, library_path
from edge_infer.backends.onnxruntime.c import load_model
from edge_infer.errors import BackendUnavailable, ExecutionError, UnsupportedModel
from tests.support import zoo
from tests.support.conformance.cases import CASES, EXCUSED, Case, agrees
from tests.support.onnxruntime_c import take_c_interface

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the wheel has this library on Linux only")


@pytest.fixture(autouse=True)
def c_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    take_c_interface(monkeypatch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_computes_what_is_right(case: Case, write_model: WriteModel) -> None:
    path = write_model(case.model)

    if case.name in EXCUSED["onnxruntime"]:
        pytest.skip(f"the engine cannot: {EXCUSED['onnxruntime'][case.name]}")
    assert agrees(case, "onnxruntime", path)


def fresh(code: str) -> str:
    """Run code in an interpreter of its own, which has not imported numpy, and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_it_is_taken_where_numpy_is_not_imported(write_model: WriteModel) -> None:
    path = write_model(zoo.mlp())
    code = (
        "import sys, edge_infer\n"
        f"session = edge_infer.load({str(path)!r}, arrays='tensor')\n"
        "print(session.run({'x': [[0.5] * 64]})['logits'].tolist())\n"
        "print('numpy' in sys.modules, 'onnxruntime' in sys.modules, session.report().engine_version)"
    )
    with edge_infer.load(path, backend="reference") as session:
        expected = session.run({"x": [[0.5] * 64]})["logits"]

    values, loaded = fresh(code).splitlines()
    np.testing.assert_allclose(np.array(json.loads(values)), expected, rtol=1e-5, atol=1e-6)
    assert loaded.split()[:2] == ["False", "False"]
    assert loaded.split()[2] == onnxruntime.__version__


def test_the_same_numbers_as_the_python_binding(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(zoo.mlp())
    x = np.random.default_rng(5).normal(size=(7, 64)).astype(np.float32)
    ours = edge_infer.load(path, backend="onnxruntime").run({"x": x})["logits"]
    monkeypatch.undo()

    theirs = edge_infer.load(path, backend="onnxruntime").run({"x": x})["logits"]

    np.testing.assert_array_equal(ours, theirs)


def test_a_prepared_call_takes_a_view_where_numpy_is_not_imported(write_model: WriteModel) -> None:
    path = write_model(zoo.identity("float32", (2, 3)))
    code = (
        "import edge_infer\n"
        f"call = edge_infer.load({str(path)!r}, arrays='tensor').prepare()\n"
        "call.inputs['x'][1, 2] = 7.0\n"
        "print(call()['y'].tolist())"
    )

    printed = fresh(code)

    assert printed.strip() == "[[0.0, 0.0, 0.0], [0.0, 0.0, 7.0]]"


def test_a_prepared_call_takes_half_precision_where_numpy_is_not_imported(write_model: WriteModel) -> None:
    path = write_model(zoo.identity("float16", (1, 2)))
    code = (
        "import edge_infer, sys\n"
        f"call = edge_infer.load({str(path)!r}, arrays='tensor').prepare()\n"
        "call.inputs['x'][0, 1] = 1.5 if sys.version_info >= (3, 12) else 0x3E00\n"
        "print(call()['y'].tolist())"
    )

    assert fresh(code).strip() == "[[0.0, 1.5]]"


def test_what_the_engine_refuses_is_said_as_the_python_binding_says_it(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = write_model(b"\x08\x07no model", "broken.onnx")
    add = write_model(zoo.add())
    said = []
    for _ in range(2):
        with pytest.raises(UnsupportedModel) as refused:
            edge_infer.load(broken, backend="onnxruntime")
        with pytest.raises(ExecutionError) as failed, edge_infer.load(add, backend="onnxruntime") as session:
            session.run({"left": [1.0, 2.0], "right": [1.0, 2.0, 3.0]})
        said.append([(one.value.hint, one.value.details["engine_error"]) for one in (refused, failed)])
        monkeypatch.undo()

    assert said[0] == said[1]
    assert said[0][0][0] == "the file is cut short or no ONNX model: fetch or export it again"


@pytest.fixture
def another_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let `load_api` see another library, and forget it afterwards."""

    def use(path: Path | None) -> None:
        monkeypatch.setattr(onnxruntime_api, "library_path", lambda: None if path is None else str(path))
        monkeypatch.setattr(onnxruntime_api, "_LOADED", [])

    return use


def test_a_library_of_another_machine_is_named(another_library: Any, tmp_path: Path, write_model: WriteModel) -> None:
    foreign = tmp_path / "libonnxruntime.so"
    head = bytearray(Path(sys.executable).resolve().read_bytes()[:4096])
    head[18:20] = (22).to_bytes(2, "little")  # e_machine: IBM S/390, which nobody here has
    foreign.write_bytes(head)
    another_library(foreign)

    with pytest.raises(BackendUnavailable, match="cannot be loaded") as caught:
        edge_infer.load(write_model(zoo.add()), backend="onnxruntime")

    assert "built for another machine" in caught.value.hint


def test_a_missing_library_says_what_to_install(another_library: Any, write_model: WriteModel) -> None:
    another_library(None)

    with pytest.raises(BackendUnavailable) as caught:
        edge_infer.load(write_model(zoo.add()), backend="onnxruntime")

    assert caught.value.hint == "pip install 'edge-infer[onnxruntime]'"


def test_a_library_whose_table_differs_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    path = library_path()
    assert path is not None
    swapped = dict(onnxruntime_api._FUNCTIONS)
    index, arguments = swapped["GetDimensionsCount"]
    swapped["GetDimensionsCount"] = (60, arguments)  # the function that reads the element type
    monkeypatch.setattr(onnxruntime_api, "_FUNCTIONS", swapped)

    with pytest.raises(BackendUnavailable, match="is not the one that edge-infer knows"):
        Api(path)

    assert index == 61


def test_without_the_library_the_python_binding_takes_over(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())
    code = (
        "import sys, edge_infer\n"
        "from edge_infer.backends.onnxruntime import api\n"
        "api.library_path = lambda: None\n"
        f"result = edge_infer.load({str(path)!r}, arrays='tensor').run({{'x': [[1.0, 2.0, 3.0]]}})\n"
        "print(result['y'].tolist(), 'onnxruntime' in sys.modules)"
    )

    printed = fresh(code)

    assert printed.strip() == "[[1.0, 2.0, 3.0]] True"


def test_results_of_one_shape_do_not_overwrite_each_other(write_model: WriteModel) -> None:
    """Runs of small shapes go over the same buffers, one after the other."""
    with edge_infer.load(write_model(zoo.identity("float32", ("n", 2))), backend="onnxruntime") as session:
        first = session.run({"x": [[1.0, 2.0]]})["y"]
        second = session.run({"x": [[3.0, 4.0]]})["y"]

    assert (first.tolist(), second.tolist()) == ([[1.0, 2.0]], [[3.0, 4.0]])


def test_many_shapes_and_large_ones_are_run_too(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.identity("float32", ("n", 2))), backend="onnxruntime") as session:
        for size in (1, 2, 3, 4, 5, 6, 100_000, 1):
            x = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
            np.testing.assert_array_equal(session.run({"x": x})["y"], x)


def test_an_output_of_another_shape_than_promised_is_given_all_the_same(write_model: WriteModel) -> None:
    """The model names both dimensions alike, and they differ: only the engine knows."""
    nodes = [onnx.helper.make_node("Concat", ["x", "x"], ["y"], axis=0)]
    path = write_model(zoo.model(nodes, [zoo.value("x", ["n"])], [zoo.value("y", ["n"])]))

    with edge_infer.load(path, backend="onnxruntime") as session:
        for _ in range(2):
            assert session.run({"x": [1.0, 2.0]})["y"].tolist() == [1.0, 2.0, 1.0, 2.0]


def test_the_library_starts_without_a_thread_where_none_can_be_had(
    another_library: Any, monkeypatch: pytest.MonkeyPatch, write_model: WriteModel
) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    another_library(library_path())
    monkeypatch.setattr(onnxruntime_api, "start_new_thread", refused)

    load_model(str(write_model(zoo.identity())), "model.onnx", {}).close()


def test_what_the_other_thread_could_not_make_is_raised_where_it_is_needed(
    another_library: Any, monkeypatch: pytest.MonkeyPatch, write_model: WriteModel
) -> None:
    make = Api.make

    def failing(api: Api, name: str, *arguments: Any) -> Any:
        if name == "CreateEnv":
            raise onnxruntime_api.OrtError(1, "no environment today")
        return make(api, name, *arguments)

    another_library(library_path())
    monkeypatch.setattr(Api, "make", failing)

    with pytest.raises(UnsupportedModel, match="no environment today"):
        load_model(str(write_model(zoo.identity())), "model.onnx", {})
