"""A compiled model is loaded and run like any other file, without an engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.backends.registry import get_backend
from edge_infer.cli import cli
from edge_infer.errors import BackendUnavailable, InputError
from edge_infer.kernels import library
from edge_infer_converters.compilation import compile_file
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.tflite import reading
from tests.support import stateful_tflite
from tests.support.converters import small_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small convolutional net as a .tflite file, and compiled."""
    folder = tmp_path_factory.mktemp("compiled")
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn()))
    content = tflite.write(model).data
    (folder / "net.tflite").write_bytes(content)
    (folder / "net.wasm").write_bytes(writer.write(reading.read(content, "net").graph).wasm)
    return folder / "net.tflite", folder / "net.wasm"


def _feeds(session: edge_infer.Session, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes = {spec.name: [dim if isinstance(dim, int) else 1 for dim in spec.shape] for spec in session.inputs}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in sizes.items()}


def test_it_computes_what_litert_computes(files: tuple[Path, Path]) -> None:
    source, compiled = files
    with edge_infer.load(source) as expected, edge_infer.load(compiled) as session:
        feeds = _feeds(session)
        want, got = expected.run(feeds), session.run(feeds)

        assert session.report().engine == "compiled"
        assert [*got] == [*want]
        for name in want:
            np.testing.assert_allclose(got[name], want[name], atol=1e-5 * float(np.sqrt(np.mean(want[name] ** 2))))


def test_results_stay_when_the_model_runs_again(files: tuple[Path, Path]) -> None:
    with edge_infer.load(files[1]) as session:
        first, name = _feeds(session), session.outputs[0].name
        kept = session.run(first)[name]
        copy = kept.copy()
        session.run(_feeds(session, 1))

        np.testing.assert_array_equal(kept, copy)
        np.testing.assert_array_equal(session.run(first)[name], copy)


def test_prepared_calls_and_buffers_give_the_same(files: tuple[Path, Path]) -> None:
    with edge_infer.load(files[1]) as session:
        feeds, name = _feeds(session), session.outputs[0].name
        want = session.run(feeds)[name]
        target = np.empty_like(want)
        assert session.run(feeds, into={name: target})[name] is target
        shapes = {key: value.shape for key, value in feeds.items()}
        with session.prepare(shapes) as call, session.prepare(shapes) as other:
            found = call(_feeds(session, 1))[name].copy()
            np.testing.assert_array_equal(other(feeds)[name], want)
            assert not np.array_equal(found, want)
            np.testing.assert_array_equal(call(feeds)[name], want)

        np.testing.assert_array_equal(target, want)


def test_no_numpy_is_needed(files: tuple[Path, Path]) -> None:
    code = f"""
import sys
sys.modules["numpy"] = None
import edge_infer
session = edge_infer.load({str(files[1])!r}, arrays="tensor")
(spec,) = session.inputs
size = 1
shape = [1 if isinstance(dim, str) else dim for dim in spec.shape]
for dim in shape: size *= dim
result = session.run({{spec.name: edge_infer.Tensor(bytes(4 * size), spec.dtype, shape)}})
print(result[session.outputs[0].name].tolist())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    with edge_infer.load(files[1]) as session:
        zeros = {name: np.zeros_like(value) for name, value in _feeds(session).items()}
        np.testing.assert_array_equal(json.loads(said), session.run(zeros)[session.outputs[0].name])


def test_options_of_other_engines_are_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="takes no option `interface`"):
        get_backend("compiled").prepare(
            str(files[1]),
            edge_infer.Bundle.open(files[1]).manifest.variants[0],
            device="cpu",
            options={"interface": "x"},
        )


def test_a_cpu_without_kernels_is_named(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_machine", lambda: "s390x")
    monkeypatch.setattr(library, "_LOADED", [])

    with pytest.raises(BackendUnavailable, match="on s390x"):
        edge_infer.load(files[1])


def test_info_shows_the_program(files: tuple[Path, Path]) -> None:
    shown = CliRunner().invoke(cli, ["info", str(files[1]), "--program"])
    assert shown.exit_code == 0, shown.output
    assert "convolution_float" in shown.output
    assert "kernel_height=" in shown.output

    document = json.loads(CliRunner().invoke(cli, ["info", str(files[1]), "--json", "--program"]).output)
    assert sum(document["kernels"].values()) == len(document["calls"])
    assert document["inputs"][0]["dtype"] == "float32"
    assert document["calls"][0]["kernel"] in document["kernels"]
    assert {*document["calls"][0]} == {"kernel", "tensors", "integers", "floats"}

    wrong = CliRunner().invoke(cli, ["info", str(files[0]), "--program"])
    assert "is not a compiled model" in str(wrong.exception)


def test_variables_start_over_in_each_run_and_stay_in_a_stream(tmp_path: Path) -> None:
    (tmp_path / "sum.wasm").write_bytes(compile_file(stateful_tflite.in_resource(), "sum").model.wasm)
    with edge_infer.load(tmp_path / "sum.wasm") as session:
        assert session.has_hidden_state
        with session.stream() as stream, session.stream() as other, session.prepare() as call:
            forms = (session.run, call, stream.step)
            found = [[float(form({"x": [value]})["y"][0]) for value in (1.0, 2.0, 2.0)] for form in forms]
            assert float(other.step({"x": [5.0]})["y"][0]) == 15

    assert found == [[11, 12, 12], [11, 12, 12], [11, 13, 15]]


def test_a_first_answer_imports_little(files: tuple[Path, Path]) -> None:
    program = """import sys
sys.path.insert(0, sys.argv[2])
before = {*sys.modules}
import edge_infer
session = edge_infer.load(sys.argv[1])
(one,) = session.inputs
value = 0.5
for size in reversed(one.shape):
    value = [value] * (size if isinstance(size, int) else 1)
assert session.run({one.name: value})
print(({*sys.modules} - before) & {"pathlib", "threading", "urllib", "dataclasses", "numpy"})
"""
    words = [sys.executable, "-S", "-c", program, str(files[1]), str(ROOT)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_the_content_of_the_file_is_given_back(files: tuple[Path, Path]) -> None:
    content = files[1].read_bytes()
    variant = edge_infer.Bundle.open(files[1]).manifest.variants[0]
    held = sys.getrefcount(content)
    model = get_backend("compiled").prepare(content, variant, device="cpu", options={})
    assert sys.getrefcount(content) == held
    model.close()
