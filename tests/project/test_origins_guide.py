"""The guide to origins does what it says: each part has ten lines at most, which are run from the file itself."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.generation import gguf_files, hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PARTS = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "docs/guide/origins.md").read_text("utf-8"), re.M | re.S)
)
#: Parts that need what lies in a folder of its own, which `tests/setup.sh all` makes.
FOLDERS = {"JAX": "jax", "Flax": "jax", "TensorFlow": "tensorflow"}
#: Parts that need torch. Keras on its other engines is opened in tests/converters/test_frameworks.py.
_TORCH = ("PyTorch", "A file of torch.export, or TorchScript", "Keras")
#: What a part takes from the reader: a model with its format, of random weights.
_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "A Hugging Face folder": ("SmolLM2-135M-Instruct", hub_folders.write_folder),
    "A GGUF file": ("SmolLM2-135M-Instruct-Q4_0.gguf", gguf_files.write_gguf),
}
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.M | re.S)


def test_every_part_has_ten_lines_at_most() -> None:
    for name, part in PARTS.items():
        lines = [line for _, block in _BLOCK.findall(part) for line in block.splitlines() if line.strip()]
        assert 0 < len(lines) <= 10, name


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.long, *([pytest.mark.torch] if one in _TORCH else [])]) for one in PARTS],
)
def test_what_a_part_says_works(tmp_path: Path, name: str) -> None:
    folder = ROOT / ".bench" / FOLDERS[name] if name in FOLDERS else None
    if folder is not None and not (folder / "ready").exists():
        pytest.skip(f"{name} is not installed: tests/setup.sh all")
    if name in _FILES:
        file, write = _FILES[name]
        write(tmp_path / file)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "bin").mkdir()
    for command, arguments in (("python", ""), ("edge-infer", "-m edge_infer ")):
        (tmp_path / "bin" / command).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (tmp_path / "bin" / command).chmod(stat.S_IRWXU)
    places = os.pathsep.join([*([str(folder)] if folder else []), str(tmp_path)])
    environment = {**os.environ, "PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": places}
    for language, text in _BLOCK.findall(PARTS[name]):
        if language == "python":
            (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    written = [json.loads(path.read_bytes()) for path in tmp_path.glob("*.bundle/manifest.json")]
    assert written
    if name == "TensorFlow":
        (manifest,) = written
        assert [one["name"] for one in (*manifest["inputs"], *manifest["outputs"])] == ["x", "y"]
