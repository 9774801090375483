"""The command: its options, what goes to stdout and what to stderr, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from edge_infer import Bundle
from edge_infer.cli import main_here
from edge_infer.server.execution.repository import name_models
from tests.support import zoo
from tests.support.converters.conversions import edge_infer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

VARIANTS = [
    *("onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32", "tflite/fp16", "tflite/int8"),
    *("compiled/fp32", "compiled/int8"),
]


def test_the_table_is_data_and_the_rest_is_talk(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", "-o", "mlp.bundle", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["VARIANT", "SIZE", "SQNR", "MAX", "ERR/RMS", "TOP-1", "LATENCY", "VERDICT"]
    assert [line.split()[0] for line in lines[1:]] == VARIANTS
    assert all(line.split()[-1] == "ok" for line in lines[1:])
    assert done.stderr.splitlines()[-1].startswith("Wrote mlp.bundle: 8 variants, ")
    assert "warning: There are no calibration data" in done.stderr


@pytest.mark.parametrize(("asked", "said"), [((), "`mlp`, 1 variant, "), (("--name", "faces"), "1 variant, ")])
def test_the_last_line_says_the_name_where_the_bundle_has_another(
    asked: tuple[str, ...], said: str, write_model: WriteModel, tmp_path: Path
) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", "-o", "faces.bundle", "--format", "onnx", "--precision", "fp32", *asked, cwd=tmp_path)

    assert done.stderr.splitlines()[-1].startswith(f"Wrote faces.bundle: {said}")


def test_json_is_one_document(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", "-o", "mlp.bundle", "--json", cwd=tmp_path)

    result = json.loads(done.stdout)
    assert [variant["id"] for variant in result["variants"]] == VARIANTS
    assert result["revision"] == Bundle.open(tmp_path / "mlp.bundle").revision
    assert result["left_out"] == {}


def test_only_what_is_asked_for_is_made(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    arguments = ("--precision", "int8,fp32", "--format", "onnx", "--name", "small")
    done = edge_infer("mlp.onnx", "-o", "mlp.bundle", *arguments, cwd=tmp_path)

    manifest = Bundle.open(tmp_path / "mlp.bundle").manifest
    assert done.returncode == 0, done.stderr
    assert (manifest.name, [variant.id for variant in manifest.variants]) == ("small", ["onnx/fp32", "onnx/int8"])


def test_two_versions_of_one_model_can_be_made_and_served_together(write_model: WriteModel, tmp_path: Path) -> None:
    options = ("--name", "id", "--precision", "fp32", "--format", "onnx")
    write_model(zoo.identity(), "id.onnx")
    write_model(zoo.identity(), "trained_again.onnx")

    first = edge_infer("id.onnx", "-o", "1.bundle", *options, cwd=tmp_path)
    second = edge_infer("trained_again.onnx", "-o", "2.bundle", "--model-version", "2", *options, cwd=tmp_path)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    paths = [tmp_path / "1.bundle", tmp_path / "2.bundle"]
    assert [Bundle.open(path).manifest.version for path in paths] == ["1", "2"]
    assert name_models(paths) == {"id": paths}


def test_a_variant_that_cannot_be_made_is_in_the_table(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.identity("string"), "text.onnx")

    done = edge_infer("text.onnx", "-o", "text.bundle", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert ["tflite/fp32", "left", "out"] in [line.split() for line in done.stdout.splitlines()]
    assert "warning: tflite/fp32 is left out: TFLite has no type" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("missing.onnx", "-o", "m.bundle"),
            1,
            "error: There is no file `missing.onnx`\nhint: in that folder: `mlp.onnx`",
        ),
        (("mpl.onnx", "-o", "m.bundle"), 1, "error: There is no file `mpl.onnx`\nhint: did you mean `mlp.onnx`?"),
        (("mlp.onnx", "-o", "there"), 1, "error: `there` exists and is not a bundle"),
        (("mlp.onnx", "-o", "m.bundle", "--name", "../x"), 1, "error: Name '../x' does not fit"),
        (
            ("mlp.onnx", "-o", "m.bundle", "--model-version", "2/3"),
            1,
            "error: Version '2/3' does not fit, expected letters, digits, `.`, `_`, `+` and `-`\n"
            "hint: --model-version 2",
        ),
        (("mlp.onnx", "-o", "m.bundle", "--model-version", ""), 1, "error: Version '' does not fit"),
        (("mlp.onnx", "--version"), 2, "--model-version"),
        (("mlp.onnx", "-o", "m.bundle", "--eval", "none.npz"), 1, "error: There is no file `none.npz`"),
        (("mlp.onnx",), 2, "Missing option '-o'"),
        (("mlp.onnx", "-o", "m.bundle", "--precision", "int9"), 2, "Precision `int9` is not known"),
        (("mlp.onnx", "-o", "m.bundle", "--format", "caffe"), 2, "Invalid value for '--format'"),
    ],
)
def test_errors_are_short_and_leave_nothing(
    write_model: WriteModel,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_model(zoo.mlp(), "mlp.onnx")
    (tmp_path / "there").write_text("a file")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["edge-infer", "convert", *arguments])

    with pytest.raises(SystemExit) as ended:
        main_here()

    printed = capsys.readouterr()
    assert ended.value.code == code
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp.onnx", "there"]


def test_the_second_time_needs_force(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.identity(), "id.onnx")
    assert edge_infer("id.onnx", "-o", "id.bundle", cwd=tmp_path).returncode == 0

    refused = edge_infer("id.onnx", "-o", "id.bundle", cwd=tmp_path)
    forced = edge_infer("id.onnx", "-o", "id.bundle", "--force", cwd=tmp_path)

    assert (refused.returncode, forced.returncode) == (1, 0)
    assert "hint: --force replaces it" in refused.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, edge_infer_converters; print([m for m in ('onnx', 'numpy', 'onnxruntime') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_conversion_that_is_ended_leaves_nothing_behind(write_model: WriteModel, tmp_path: Path) -> None:
    """`kill`, or the `timeout` of a build, comes while half of the files are written."""
    write_model(zoo.mlp(), "mlp.onnx")
    code = """
import os, signal, sys
from edge_infer.cli import main_here
from edge_infer_converters import variant_files

def ended(*_, **__):
    assert any(name.startswith(".mlp.bundle") for name in os.listdir())
    os.kill(os.getpid(), signal.SIGTERM)

variant_files.encode = ended
sys.argv = ["edge-infer", "convert", "mlp.onnx", "-o", "mlp.bundle"]
main_here()
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert done.returncode == 128 + 15, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp.onnx"]
