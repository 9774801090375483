"""The real models of other people: where they are, which of them fall short, and the engines without this project.

`EDGE_INFER_ZOO` names the folder; `tests/zoo/models.toml` says what falls short and what is refused.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support import limited

LISTED = Path(__file__).parents[1] / "zoo/models.toml"
FORMATS = (".onnx", ".ort", ".tflite")
EDGE_INFER = (sys.executable, "-m", "edge_infer")

_ENGINE_ALONE = """
import sys
import numpy as np
path = sys.argv[1]
if path.endswith(".tflite"):
    from ai_edge_litert.interpreter import Interpreter
    interpreter = Interpreter(path)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    interpreter.invoke()
else:
    import onnxruntime
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
"""


def folder() -> Path | None:
    """Return the folder of the models, or None where none is named."""
    named = os.environ.get("EDGE_INFER_ZOO")
    if not named:
        return None
    found = Path(named).resolve()
    if not any(found.glob("*.onnx")):
        raise FileNotFoundError(f"EDGE_INFER_ZOO names {named}, which holds no .onnx file")
    return found


def paths(place: Path) -> list[Path]:
    """Return the models of a folder by name."""
    return sorted(path for path in place.iterdir() if path.suffix in FORMATS)


def foreign(place: Path) -> list[str]:
    """Name the models of a folder that are not those of the table in its README.md; none where it has no README.md.

    Some converters rewrite the file that they read: what is measured of it afterwards says nothing of the model.
    """
    readme = place / "README.md"
    if not readme.is_file():
        return []
    rows = re.findall(r"^\| `([^`]+)` \|.*?\| `([0-9a-f]{64})` \|", readme.read_text("utf-8"), re.MULTILINE)
    digests = dict(rows)
    return [path.name for path in paths(place) if digests.get(path.name) != sha256(path.read_bytes()).hexdigest()]


def listed(section: str) -> dict[str, str]:
    """Return a section of the list: what is said of each model that it names."""
    found: dict[str, Any] = tomllib.loads(LISTED.read_text())
    return dict(found.get(section, {}))


def inputs(name: str) -> dict[str, Any]:
    """Return what a model's inputs must be where its specs do not tell: a shape, or the value of every element."""
    found: dict[str, dict[str, Any]] = tomllib.loads(LISTED.read_text())["inputs"]
    return dict(found.get(name, {}))


def said_last(text: str) -> str:
    """Return the error that a command ended with, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["nothing"])[-1]


def engine_alone(path: Path) -> limited.Finished:
    """Load a model, and run a TFLite model on zeros, with onnxruntime or LiteRT and nothing of this project."""
    return limited.run((sys.executable, "-c", _ENGINE_ALONE, str(path)), seconds=60)
