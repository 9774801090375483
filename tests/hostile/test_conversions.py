"""What users hand to `edge-infer convert`: one clear line, the right exit code, and nothing half-written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from edge_infer import Bundle
from edge_infer.cli import main_here
from tests.support import interrupts, zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (24, 64)).astype(np.float32)
LABELS = run_onnx(zoo.mlp(), {"x": X})["logits"].argmax(axis=1)
METRICS = """
def raises(outputs, labels): raise RuntimeError("no such thing")
def nan(outputs, labels): return float("nan")
"""


def spoilt(value: float) -> np.ndarray[Any, Any]:
    data = X.copy()
    data[3, 5] = value
    return data


#: The arrays of the data, the options beside them, and what must be said.
DATA: dict[str, tuple[dict[str, Any], tuple[str, ...], str, str]] = {
    "wrong-name": ({"images": X}, ("--calibration",), "no array `x`; it has `images`", "an array for each of `x`"),
    "wrong-shape": ({"x": X[:, :63]}, ("--calibration",), "shape (24, 63), expected (samples, 64)", ""),
    "wrong-dtype": ({"x": X.astype(np.float64)}, ("--eval",), "dtype float64, expected float32", 'astype("float32")'),
    "nan": ({"x": spoilt(np.nan)}, ("--calibration",), "1 values that are NaN or infinite, the first at [3, 5]", ""),
    "infinite": ({"x": spoilt(np.inf)}, ("--eval",), "1 values that are NaN or infinite", "leave these samples out"),
    "empty": ({"x": X[:0]}, ("--eval",), "holds no sample", ""),
    "no-array": ({}, ("--eval",), "has no array `x`; it has nothing", ""),
    "one-sample": ({"x": X[:1]}, ("--max-loss", "1%", "--eval"), "one sample, on which no loss can be measured", ""),
    "no-labels": ({"x": X}, ("--metric", "accuracy", "--eval"), "labels", "labels"),
    "few-labels": ({"x": X, "labels": LABELS[:5]}, ("--eval",), "expected 24 integers", ""),
    "metric-raises": ({"x": X}, ("--metric", "bad_metrics:raises", "--eval"), "raised RuntimeError: no such thing", ""),
    "metric-nan": ({"x": X}, ("--metric", "bad_metrics:nan", "--eval"), "returned nan, expected a finite number", ""),
    "no-metric": (
        {"x": X},
        ("--metric", "bad_metrics:rases", "--eval"),
        "no function `rases`",
        "did you mean `raises`",
    ),
}


@pytest.fixture
def convert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run the command in a folder with `model.onnx`; return its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "500")
    (tmp_path / "model.onnx").write_bytes(zoo.mlp())
    (tmp_path / "bad_metrics.py").write_text(METRICS)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["edge-infer", "convert", *arguments])
        with pytest.raises(SystemExit) as ended:
            main_here()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(ended.value.code or 0), said.err

    return run


def left(folder: Path) -> list[str]:
    """Name what lies in a folder and was not put there."""
    given = {"model.onnx", "data.npz", "bad_metrics.py", "__pycache__"}
    return sorted(path.name for path in folder.iterdir() if path.name not in given)


@pytest.mark.parametrize(("arrays", "options", "said", "hint"), DATA.values(), ids=DATA.keys())
def test_data_that_do_not_fit(
    convert: Callable[..., tuple[int, str]],
    tmp_path: Path,
    arrays: dict[str, Any],
    options: tuple[str, ...],
    said: str,
    hint: str,
) -> None:
    np.savez(tmp_path / "data.npz", **arrays)

    code, text = convert("model.onnx", "-o", "m.bundle", *options, "data.npz")

    _, _, error = text.rpartition("error: ")
    assert code == 1
    assert said in error.splitlines()[0]
    assert hint in error
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--max-loss", "1%"), 2, "--max-loss needs data to measure on"),
        (("--metric", "accuracy"), 2, "--metric needs data to measure on"),
        (("--shape", "x"), 2, "Shape 'x' cannot be read"),
        (("--target", "moon"), 2, "Target `moon` is not known"),
        (("--shape", "y=1x64"), 1, "no input `y`"),
        (("--shape", "x=1x65"), 1, "Dimension 1 of input `x` is 64 and cannot become 65"),
        (("--opset", "99"), 1, "There is no operator set 99"),
    ],
)
def test_options_that_do_not_fit(
    convert: Callable[..., tuple[int, str]], tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    found, text = convert("model.onnx", "-o", "m.bundle", *options)

    assert (found, said in text) == (code, True)
    assert left(tmp_path) == []


def test_a_budget_that_nothing_meets_keeps_the_best_and_says_so(
    convert: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", x=X, labels=LABELS)

    code, text = convert("model.onnx", "-o", "m.bundle", "--eval", "data.npz", "--max-size", "1kB", "--format", "onnx")

    assert code == 1
    assert "the best found is onnx/" in text
    assert Bundle.open(tmp_path / "m.bundle").manifest.variants
    assert left(tmp_path) == ["m.bundle"]


def test_infinite_weights_are_no_reason_to_refuse(convert: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """A mask of attention is made of them."""
    proto = onnx.load_from_string(zoo.mlp())
    bias = onnx.numpy_helper.to_array(proto.graph.initializer[3]).copy()
    bias[0] = -np.inf
    proto.graph.initializer[3].CopyFrom(onnx.numpy_helper.from_array(bias, "b2"))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())

    code, text = convert("model.onnx", "-o", "m.bundle", "--format", "onnx", "--precision", "fp32")

    assert code == 0, text


def test_what_is_there_stays_without_force(convert: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    assert convert("model.onnx", "-o", "m.bundle", "--precision", "fp32")[0] == 0
    before = Bundle.open(tmp_path / "m.bundle").revision

    code, text = convert("model.onnx", "-o", "m.bundle", "--name", "other")

    assert (code, "hint: --force replaces it" in text) == (1, True)
    assert Bundle.open(tmp_path / "m.bundle").revision == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/sys is Linux's")
def test_a_folder_that_cannot_be_written_to(convert: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Not even root may make a folder there."""
    code, text = convert("model.onnx", "-o", "/sys/m.bundle")

    assert code == 1
    assert "error: `/sys` cannot be written to: " in text
    assert left(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """The system refuses the byte that goes beyond the limit, as a full disk does."""
    import resource

    (tmp_path / "model.onnx").write_bytes(zoo.mlp())
    (tmp_path / "old").mkdir()
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    code = f"{limit}; from edge_infer.cli import main; main()"
    arguments = ["convert", "model.onnx", "-o", "m.bundle", "--format", "onnx", "--precision", "fp32"]

    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096
    assert done.returncode == 1
    assert "error: `m.bundle` cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert left(tmp_path) == ["old"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """The metric of the user is where it waits: the interrupt comes when it is reached."""
    (tmp_path / "model.onnx").write_bytes(zoo.mlp())
    np.savez(tmp_path / "data.npz", x=X, labels=LABELS)
    waiting = "print('reached', flush=True); time.sleep(60); return 1.0"
    (tmp_path / "bad_metrics.py").write_text(f"import time\ndef slow(outputs, labels): {waiting}\n")
    arguments = ["convert", "model.onnx", "-o", "m.bundle", "--eval", "data.npz", "--metric", "bad_metrics:slow"]

    command = [sys.executable, "-m", "edge_infer", *arguments]
    with interrupts.heeded():
        begun = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with begun as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "reached\n"
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
        code = running.wait(60)

    assert code == 130
    assert said.splitlines()[-1] == "Interrupted"
    assert left(tmp_path) == []


def test_json_stays_json_when_a_target_lacks_a_format(tmp_path: Path, convert: Callable[..., tuple[int, str]]) -> None:
    code, text = convert("model.onnx", "-o", "m.bundle", "--format", "onnx", "--target", "cuda", "--json")

    assert code == 0, text
    assert json.loads((tmp_path / "m.bundle/manifest.json").read_text())["variants"][0]["targets"] == ["cuda"]
