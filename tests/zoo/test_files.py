"""The files of the folder of real models are those that its README names."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.support import real_models

ROOT = Path(__file__).parents[2]


def write_models(folder: Path, *names: str) -> None:
    """Write files and a table of their digests."""
    rows = ["| file | what | licence | sha256 | inputs |", "|---|---|---|---|---|"]
    for name in names:
        (folder / name).write_bytes(name.encode())
        rows.append(f"| `{name}` | of `path/{name}` | MIT | `{sha256(name.encode()).hexdigest()}` | [] |")
    (folder / "README.md").write_text("\n".join(rows))


def test_changed_and_unknown_files_are_named(tmp_path: Path) -> None:
    write_models(tmp_path, "a.onnx", "b.tflite", "c.onnx")
    (tmp_path / "c.onnx").write_bytes(b"simplified in place")
    (tmp_path / "d.onnx").write_bytes(b"of nobody")
    (tmp_path / "notes.txt").write_bytes(b"no model")

    assert real_models.foreign(tmp_path) == ["c.onnx", "d.onnx"]


def test_a_folder_without_a_readme_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "d.onnx").write_bytes(b"of nobody")

    assert real_models.foreign(tmp_path) == []


def test_the_table_is_not_made_of_foreign_files(tmp_path: Path) -> None:
    write_models(tmp_path, "a.onnx")
    (tmp_path / "a.onnx").write_bytes(b"simplified in place")

    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/zoo.py", tmp_path, "--quick"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "by their sha256: a.onnx; copy them anew" in done.stderr
