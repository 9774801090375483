"""What `import edge_infer` and a first run load, seen from a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import zoo

if TYPE_CHECKING:
    from tests.conftest import WriteModel

HEAVY = ["numpy", "onnxruntime", "ai_edge_litert", "tflite_runtime", "onnx", "starlette", "uvicorn", "click", "rich"]
HEAVY += ["asyncio", "dataclasses", "playwright", "importlib.metadata"]


def loaded(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the names of the modules that it loaded."""
    listing = "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    script = f"import sys; before = set(sys.modules)\n{code}\n{listing}"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_loads_no_numpy_no_engine_no_server_no_command_line() -> None:
    assert loaded("import edge_infer").isdisjoint(HEAVY)


def test_asking_which_engines_are_here_loads_none_of_them() -> None:
    code = "from edge_infer.registry import *\nfor name in backend_names(): get_backend(name).availability()"

    assert loaded(code).isdisjoint({"numpy", "onnxruntime", "ai_edge_litert", "onnx"})


def test_the_version_of_an_engine_is_known_without_importing_it_or_its_metadata() -> None:
    code = "from edge_infer.registry import get_backend\nassert get_backend('onnxruntime').version().count('.') >= 1"

    assert loaded(code).isdisjoint({"onnxruntime", "importlib.metadata"})


def test_a_run_on_one_engine_loads_no_other(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())

    names = loaded(
        f"import edge_infer; edge_infer.load({str(path)!r}, arrays='tensor').run({{'x': [[1.0, 2.0, 3.0]]}})"
    )

    assert "edge_infer.backends.onnxruntime" in names
    assert names.isdisjoint({"ai_edge_litert", "onnx", "starlette", "click"})


@pytest.mark.skipif(sys.platform != "linux", reason="the C interface is used on Linux only")
def test_a_run_that_gives_tensors_loads_neither_numpy_nor_the_python_binding(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())

    names = loaded(
        f"import edge_infer; edge_infer.load({str(path)!r}, arrays='tensor').run({{'x': [[1.0, 2.0, 3.0]]}})"
    )

    assert "edge_infer.backends.onnxruntime_c" in names
    assert names.isdisjoint({"numpy", "onnxruntime", "hashlib", "asyncio", "importlib.metadata"})


def test_the_command_line_imports_a_command_only_when_it_is_called() -> None:
    names = loaded("import edge_infer.cli")

    assert names.isdisjoint({"numpy", "onnxruntime", "starlette", "rich"})
