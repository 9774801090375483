"""The command, the models and the data of conversions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import warm_command, zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mlp_data(path: Path, samples: int = 48) -> Path:
    """Inputs of `zoo.mlp`, and its own answers as the right classes."""
    inputs = np.random.default_rng(5).normal(0, 1, (samples, 64)).astype(np.float32)
    classes = run_onnx(zoo.mlp(), {"x": inputs})["logits"].argmax(axis=1)
    np.savez(path, x=inputs, labels=classes)
    return path


def without_times(quality: bytes) -> dict[str, Any]:
    """Return what two conversions of the same model agree on: all of `quality.json` but what a clock measured."""
    document: dict[str, Any] = json.loads(quality)
    for variant in document["variants"].values():
        del variant["latency"]
    return document


def edge_infer(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `edge-infer convert` as a user does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "200")
        return warm_command.run(["convert", *map(str, arguments)], cwd=cwd, timeout_s=600)
