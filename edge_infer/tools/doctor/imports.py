"""Check that each engine starts, in a process of its own, because a wrong wheel can crash it."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.util import find_spec

from edge_infer.tools.doctor.findings import Finding

# The module of each engine that is native code, and what to install again.
_MODULES = {
    "onnxruntime": "onnxruntime",
    "ai_edge_litert.interpreter": "ai-edge-litert",
    "tflite_runtime.interpreter": "tflite-runtime",
}
_TIMEOUT_S = 60


def examine_imports(python: str = sys.executable) -> list[Finding]:
    """Import each installed native engine in a fresh process; say what stops it.

    Args:
        python: The interpreter to try with.
    """
    findings = []
    for module, distribution in _MODULES.items():
        if find_spec(module.partition(".")[0]) is not None:
            findings.append(_try(python, module, distribution))
    return findings


def _try(python: str, module: str, distribution: str) -> Finding:
    check = f"import.{distribution}"
    try:
        done = subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding(
            check, "problem", f"did not start within {_TIMEOUT_S} s", f"python -X faulthandler -c 'import {module}'"
        )
    if done.returncode == 0:
        return Finding(check, "ok", "starts")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        why = ": it uses instructions that this processor lacks" if name == "SIGILL" else ""
        return Finding(
            check,
            "problem",
            f"its start ends the process with {name}{why}",
            f"pip install --force-reinstall {distribution}",
        )
    said = (done.stderr.strip().splitlines() or ["no word"])[-1]
    return Finding(check, "problem", f"cannot be imported: {said}", _hint(said, distribution))


def _hint(said: str, distribution: str) -> str:
    if "cannot open shared object file" in said:
        library = said.rpartition("ImportError: ")[2].partition(":")[0]
        return f"a shared library is missing: apt-file search {library}, and install its package"
    if "numpy" in said:
        return "pip install 'numpy<2'" if distribution == "tflite-runtime" else "pip install --upgrade numpy"
    return f"pip install --force-reinstall {distribution}"
