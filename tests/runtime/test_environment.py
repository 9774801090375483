"""One script, unchanged, on the engine that the environment names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tools.browser.page import PagePython

BUNDLE = Path(__file__).parents[1] / "compat/a0bb1c1/dense-1"
SCRIPT = """
import edge_infer, json

with edge_infer.load(bundle) as session:
    ((inputs, outputs),) = list(session.bundle.examples())[:1]
    (name,) = outputs
    found = session.run(inputs)[name]
    worst = max(abs(a - b) for a, b in zip(found.reshape(-1).tolist(), outputs[name].reshape(-1).tolist()))
    report = session.report()
said = json.dumps([report.engine, report.device, worst])
"""


def claim(said: str, backend: str, device: str) -> None:
    engine, place, worst = json.loads(said)
    assert (engine, place) == (backend, device)
    assert worst < 0.1  # the rule takes an int8 variant where the engine has a good one


@pytest.mark.parametrize("backend", ["onnxruntime", "litert", "reference"])
def test_a_script_runs_on_the_engine_of_the_environment(backend: str) -> None:
    code = f"bundle = {str(BUNDLE)!r}\n{SCRIPT}\nprint(said)"
    environment = {**os.environ, "EDGE_INFER_BACKEND": backend, "EDGE_INFER_DEVICE": "cpu"}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    claim(done.stdout, backend, "cpu")


@pytest.mark.browser
@pytest.mark.long
def test_the_same_script_runs_on_the_engines_of_a_page() -> None:
    with ServerThread(create_app({"dense": BUNDLE})) as server, PagePython(server.url) as page:
        for backend in ("ort-web", "litert-web"):
            start = f"import edge_infer.compat; await edge_infer.compat.start({backend.partition('-')[0]!r})"
            chosen = f"import os; os.environ['EDGE_INFER_BACKEND'] = {backend!r}"
            code = f"{chosen}\nbundle = {server.url + '/models/dense'!r}\n{SCRIPT}\nsaid"
            if backend == "litert-web":
                page.run(start)
            claim(page.run(code), backend, "wasm")
