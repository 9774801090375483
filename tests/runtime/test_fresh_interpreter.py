"""What `import edge_infer` and a first run load, seen from a fresh interpreter."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

HEAVY = ["numpy", "onnxruntime", "ai_edge_litert", "tflite_runtime", "onnx", "starlette", "uvicorn", "click", "rich"]
HEAVY += ["asyncio", "dataclasses", "playwright", "importlib.metadata"]


def loaded(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the names of the modules that it loaded."""
    listing = "print(sorted(set(sys.modules) - before))"
    script = f"import sys; before = set(sys.modules)\n{code}\n{listing}"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(ast.literal_eval(run.stdout.splitlines()[-1]))


def write_bundle(folder: Path, model: Path) -> Path:
    """Write a bundle of one small model, in this process."""
    data = model.read_bytes()
    session = edge_infer.load(model)
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(data)
    entry = FileEntry("onnx/model.onnx", len(data), hashlib.sha256(data).hexdigest())
    variant = Variant("onnx/fp32", "onnx", "fp32", entry.path)
    manifest = Manifest("identity", "1", session.inputs, session.outputs, [variant], [entry])
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def test_import_loads_no_numpy_no_engine_no_server_no_command_line() -> None:
    assert loaded("import edge_infer").isdisjoint(HEAVY)


def test_asking_which_engines_are_here_loads_none_of_them() -> None:
    code = "from edge_infer.backends.registry import *\nfor name in backend_names(): get_backend(name).availability()"

    assert loaded(code).isdisjoint({"numpy", "onnxruntime", "ai_edge_litert", "onnx"})


def test_the_version_of_an_engine_is_known_without_importing_it_or_its_metadata() -> None:
    code = "from edge_infer.backends.registry import get_backend\n"
    code += "assert get_backend('onnxruntime').version().count('.') >= 1"

    assert loaded(code).isdisjoint({"onnxruntime", "importlib.metadata"})


def test_a_run_on_one_engine_loads_no_other(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())

    names = loaded(
        f"import edge_infer; edge_infer.load({str(path)!r}, arrays='tensor').run({{'x': [[1.0, 2.0, 3.0]]}})"
    )

    assert "edge_infer.backends.onnxruntime.backend" in names
    assert names.isdisjoint({"ai_edge_litert", "onnx", "starlette", "click"})


#: What a run by the C interface may load of the standard library: each more is felt on a device.
STANDARD = {
    "__future__",
    "ctypes",
    "_ctypes",
    "_struct",
    "struct",
    "math",
    "types",
    "warnings",
    "_warnings",
    "importlib",
}
#: A manifest is JSON, which the standard library parses with `re`.
OF_JSON = {"json", "_json", "re", "_sre", "enum", "copyreg", "functools", "_functools", "collections", "_collections"}
OF_JSON |= {"itertools", "keyword", "operator", "_operator", "reprlib", "_sha2", "_sha256"}
OWN = {
    "errors",
    "backends",
    "backends.registry",
    "backends.base",
    "bundle",
    "bundle.bundle",
    "bundle.fields",
    "bundle.manifest",
    "bundle.source",
    "bundle.variant",
    "tensors",
}
OWN |= {f"platform{part}" for part in ("", ".cpu", ".fetch", ".hashing", ".host", ".installed", ".records")}
OWN |= {f"runtime{part}" for part in ("", ".load", ".loader", ".measurements", ".open_session", ".options")}
OWN |= {
    "runtime.selection",
    "runtime.session",
    "tensors.arrays",
    "tensors.dtypes",
    "tensors.elements",
    "tensors.tensor",
}
OWN_BACKEND = {"", ".api", ".backend", ".c", ".c_call", ".c_values", ".entries", ".errors", ".shapes"}


@pytest.mark.skipif(sys.platform != "linux", reason="the C interface is used on Linux only")
@pytest.mark.parametrize("is_bundle", [False, True], ids=["file", "bundle"])
def test_a_run_that_gives_tensors_loads_these_modules_and_no_others(
    write_model: WriteModel, tmp_path: Path, is_bundle: bool
) -> None:
    path = write_model(zoo.identity())
    if is_bundle:
        path = write_bundle(tmp_path / "identity.bundle", path)

    names = loaded(
        f"import edge_infer; edge_infer.load({str(path)!r}, arrays='tensor').run({{'x': [[1.0, 2.0, 3.0]]}})"
    )

    own = {name.partition(".")[2] for name in names if name.startswith("edge_infer.")}
    standard = {name.partition(".")[0] for name in names} - {"edge_infer"}
    assert own == OWN | {f"backends.onnxruntime{part}" for part in OWN_BACKEND} | {"backends.base"}
    assert standard <= STANDARD | (OF_JSON if is_bundle else set())


def test_the_package_has_each_name_that_it_promises() -> None:
    code = (
        "import edge_infer\nfor name in edge_infer.__all__: getattr(edge_infer, name)\nassert 'load' in dir(edge_infer)"
    )

    assert "edge_infer.runtime.tuning" in loaded(code)


@pytest.mark.parametrize("source", ["nothing.onnx", "damaged.onnx"])
def test_a_load_that_fails_leaves_no_thread_of_the_library_behind(tmp_path: Path, source: str) -> None:
    """The library's own destructors run when a process ends: a thread that was still in it would crash it."""
    (tmp_path / "damaged.onnx").write_bytes(b"no model")
    code = f"import edge_infer\nedge_infer.load({str(tmp_path / source)!r}, arrays='tensor')"

    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False) for _ in range(3)]

    assert [run.returncode for run in runs] == [1, 1, 1]
    assert all("EdgeInferError" in run.stderr or "edge_infer.errors" in run.stderr for run in runs)


def test_the_command_line_imports_a_command_only_when_it_is_called() -> None:
    names = loaded("import edge_infer.cli")

    assert names.isdisjoint({"numpy", "onnxruntime", "starlette", "rich"})


#: Counts the threads once there is one, or after a second: that which makes the engine's environment ends by itself.
SETTLED = """
def settled():
    import time
    for _ in range(100):
        if len(os.listdir("/proc/self/task")) == 1:
            break
        time.sleep(0.01)
    return len(os.listdir("/proc/self/task"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of /proc")
def test_the_report_has_the_threads_of_the_engines_pool(write_model: WriteModel) -> None:
    """A model of one thread is loaded first: the second one then adds its pool only, less the caller's own thread."""
    code = f"""
import os, sys
import edge_infer
{SETTLED}
one = edge_infer.load(sys.argv[1], threads=1)
before = settled()
model = edge_infer.load(sys.argv[1])
print(model.report().threads, len(os.listdir("/proc/self/task")) - before + 1)
"""
    command = [sys.executable, "-c", code, str(write_model(zoo.mlp()))]
    told, counted = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    assert told == counted


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of /proc")
@pytest.mark.parametrize("module", ["numpy", "os"], ids=["binding", "c"])
def test_the_engine_reports_nothing_to_its_maker(tmp_path: Path, write_model: WriteModel, module: str) -> None:
    """A reporting library starts a thread for it and writes a number of the device into the user's cache.

    In CI it does not report anyway: the variables that say so are taken away.
    """
    code = f"""
import {module}, os, sys
import edge_infer
{SETTLED}
model = edge_infer.load(sys.argv[1], threads=1)
print(settled())
"""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(write_model(zoo.mlp()))]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)

    assert run.stdout.strip() == "1"
    assert [path for path in tmp_path.rglob("*") if "Microsoft" in path.parts] == []


def test_the_report_has_the_nodes_of_the_processor(write_model: WriteModel) -> None:
    """The C interface, which is taken where numpy is not imported, does not tell."""
    code = "import numpy, sys, edge_infer; print(edge_infer.load(sys.argv[1]).report().nodes)"
    command = [sys.executable, "-c", code, str(write_model(zoo.mlp()))]
    nodes = ast.literal_eval(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert [provider for provider, count in nodes if count] == ["CPUExecutionProvider"]
