"""Wrong command lines: each error says what it got, what was expected, and the next step."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from edge_infer import cli
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

#: Each line, what its error says of it (the thing got), and of what is right (the thing expected).
LINES = """
convert m.onnx -o x.bundle --quantize int8 | --quantize | --precision int8
convert m.onnx -o x.bundle --int8 | --int8 | --precision int8
convert m.onnx -o x.bundle --half | --half | --precision fp16
convert m.onnx -o x.bundle --imgsz 320 | --imgsz | --shape
convert m.onnx -o x.bundle --dtype int8 | --dtype | --precision
convert m.onnx -o x.bundle --data d.npz | --data | --calibration
convert m.onnx --out x.bundle | --out | --output
convert m.onnx -o x.bundle --overwrite | --overwrite | --force
convert m.onnx -o x.bundle --classes a.json | --classes | --labels
convert m.onnx -o x.onnx | x.onnx | -o x.bundle
convert m.onnx -o x.tflite | x.tflite | -o x.bundle
convert m.onnx | Missing | --output
convert | Missing | SOURCE
convert m.onnx -o x.bundle --max-loss 1 | '1' means 100 % | 0.01
convert m.onnx -o x.bundle --max-loss 100% | '100%' means 100 % | 1%
convert m.onnx -o x.bundle --max-loss 250% | '250%' | less than 100%
convert m.onnx -o x.bundle --max-loss much | 'much' | 1% or 0.01
convert m.onnx -o x.bundle --max-loss 1% | --max-loss | --eval FILE.npz
convert m.onnx -o x.bundle --max-size big | 'big' | 5MB
convert m.onnx -o x.bundle --max-size 0 | '0' | 5MB
convert m.onnx -o x.bundle --max-latency pi=30ms | --max-latency | --host
convert m.onnx -o x.bundle --max-latency soon | 'soon' | pi=30ms
convert m.onnx -o x.bundle --max-ram 9MB | --max-ram | --measured
convert m.onnx -o x.bundle --max-latency-ratio -1 | -1.0 | above 0
convert m.onnx -o x.bundle --precision int3 | int3 | int8
convert m.onnx -o x.bundle --format coreml | coreml | tflite
convert m.onnx -o x.bundle --target phone | phone | mcu
convert m.onnx -o x.bundle --layout nwhc | nwhc | nhwc
convert m.onnx -o x.bundle --opset many | many | integer
convert m.onnx -o x.bundle --shape x=a | x=a | 1x3x224x224
convert m.onnx -o x.bundle --bind x | 'x' | NAME=16000
convert m.onnx -o x.bundle --calibration none.npz | none.npz | .safetensors
convert m.onnx -o x.bundle --calibration notes.txt | .txt | .npz
convert m.onnx -o x.bundle --labels none.json | none.json | .txt file
convert m.onnx -o x.bundle --goldens -1 | -1 | 1 or more
convert none.onnx -o x.bundle | none.onnx | m.onnx
convert none.pt -o x.bundle | none.pt | .pt2
convert weights.pt -o x.bundle | PyTorch | module:function
convert model.h5 -o x.bundle | model.h5 | model.save
convert notes.txt -o x.bundle | notes.txt | export
convert cut.onnx -o x.bundle | cut.onnx | export
convert nomodule:function -o x.bundle | nomodule | PYTHONPATH
convert m.onnx -o taken | taken | another name
run m.onnx | `x` is missing | float32[
run none.onnx | none.onnx | edge-infer convert
run m.onnx -i x | no file `x` | --input x=FILE
run m.onnx -i x=none.npy | none.npy | .npz
run m.onnx -i other=row.json | other | `x`
run m.onnx -i x=row.json | (1, 2, 1) | dimensions
run m.onnx -i x=notes.txt | notes.txt | takes numbers
run m.onnx -i x=m.onnx | m.onnx | .json
run m.onnx --example 0 | has 0 | --input NAME=FILE
run m.onnx -o out.dat | out.dat | .npz
run m.onnx --image cat.png | --image | --input
run m.onnx --device gpu | gpu | write cuda
run m.onnx --device tpu | tpu | cuda
run m.onnx --device cuda:x | cuda:x | cuda:1
run m.onnx --backend onnx | `onnx` | onnxruntime
run m.onnx --engine litert | --engine | --backend
run m.onnx --backend litert | litert | leave `backend` out
run m.onnx --variant onnx/int9 | int9 | onnx/model
rnu m.onnx | rnu | run
info cut.onnx | cut.onnx | fetch or export
info notes.txt | notes.txt | .onnx, .ort, .tflite
info none.bundle | none.bundle | edge-infer convert
verify m.onnx | m.onnx | edge-infer convert
verify none.bundle | none.bundle | edge-infer convert
verify m.bundle --atol -1 | --atol is -1 | 0 or more
verify m.bundle --min-cosine 95 | --min-cosine is 95 | at most 1
verify m.bundle --min-top1 95% | '95%' | float
bench m.onnx --device tpu | tpu | cuda
bench m.onnx --rounds 0 | 0 | 1<=x<=100
bench m.onnx --fail-above 10% | --fail-above | --compare
bench m.onnx --compare none.json | none.json | exist
bench m.onnx --pin 9999 | 9999 | numbers
tune m.onnx --variant nope | nope | onnx/model
tune m.onnx --backend tensorflow | tensorflow | litert
serve none.bundle | none.bundle | edge-infer convert
serve m.onnx --port 99999 | 99999 | 65535
publish m.onnx | Missing | STORE
publish none.bundle store | none.bundle | edge-infer convert
pull foo | Missing | --into
store status none | none | exist
slim m.onnx | Missing | --output
slim m.onnx -o out --platform amiga | amiga | aarch64
device install | install | install-service
backends --jsn | --jsn | --json
"""
#: A line to type, or the values to choose from.
NEXT_STEP = re.compile(r"hint: \S|Try 'edge-infer .*--help'|choose from|expected|only `cuda`")


@pytest.fixture
def folder(tmp_path: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the lines name: a model, a cut one, and files that are not models."""
    model = write_model(zoo.identity()).read_bytes()
    (tmp_path / "m.onnx").write_bytes(model)
    (tmp_path / "cut.onnx").write_bytes(model[: len(model) // 2])
    for name in ("notes.txt", "weights.pt", "model.h5"):
        (tmp_path / name).write_text("hello\n")
    (tmp_path / "row.json").write_text(json.dumps([[[1.0], [2.0]]]))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("row", LINES.strip().splitlines(), ids=lambda row: row.partition(" | ")[0])
def test_a_wrong_command_line_is_told_what_is_right(
    row: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, got, expected = row.split(" | ")
    monkeypatch.setattr(sys, "argv", ["edge-infer", *shlex.split(line)])

    with pytest.raises(SystemExit) as ended:
        cli.main_here()

    said = capsys.readouterr().err
    assert ended.value.code in (1, 2)
    assert got in said
    assert expected in said
    assert NEXT_STEP.search(said), said
    assert "Traceback" not in said
    assert "please report it" not in said
    assert not (folder / "x.bundle").exists()
