"""The commands: data on stdout, talk on stderr, 0 done, 1 failed, 2 wrong usage, and no traceback."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from edge_infer import Tensor, cli
from edge_infer.backends.base import Availability
from edge_infer.backends.registry import get_backend
from edge_infer.formats.safetensors import read_tensors, write_examples, write_tensors
from edge_infer.tensors.arrays import to_tensor
from tests.support import warm_command, zoo
from tests.support.mutations import with_last_byte_changed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel

GOLDEN = "examples/golden.safetensors"
#: The sections of the help, each with its first command.
SECTIONS = {"Convert": "convert", "Run": "run", "Serve": "serve", "Sync": "publish", "Check": "verify"}


def edge_infer(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    if not environment:
        return warm_command.run([*map(str, arguments)])
    command = [sys.executable, "-m", "edge_infer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)


@pytest.fixture
def bundle(write_bundle: WriteBundle) -> Path:
    """y = x, with one golden example and three labels."""
    row = Tensor.from_list([[0.5, 2.0, 1.0]], "float32")
    return write_bundle(
        {"onnx/fp32": zoo.identity()},
        extra={GOLDEN: write_examples([({"x": row}, {"y": row})]), "labels.json": b'["cat", "dog", "emu"]'},
        examples=GOLDEN,
        labels="labels.json",
    )


def failed(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Claim that a command failed as commands do, and return what it said."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_help_lists_every_command() -> None:
    said = edge_infer("--help").stdout

    for command in ("backends", "convert", "info", "run", "serve", "verify"):
        assert command in said


def test_help_shows_the_commands_in_five_sections(tmp_path: Path) -> None:
    """Those of other distributions too: the converters' in its section, an unknown one in the last."""
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[edge_infer.commands]\nfly = other:fly\n")
    (tmp_path / "other.py").write_text("import click\n@click.command()\ndef fly():\n    'Fly away.'\n")

    said = edge_infer("--help", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])).stdout

    sections = {title: said.partition(f"\n{title}:\n")[2].partition("\n\n")[0] for title in SECTIONS}
    for title, first in SECTIONS.items():
        assert sections[title].split()[0] == first
    assert said.partition("Other distributions:\n")[2].split("\n")[0].split() == ["fly", "Fly", "away."]


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (["verify", "BUNDLE", "--backend", "ort-web"], "starlette", "browser"),
        (["verify", "BUNDLE", "--backend", "ort-web"], "playwright", "browser"),
        (["serve", "BUNDLE"], "starlette", "server"),
        (["store", "keys", "init", "store"], "tuf", "sync"),
        (["publish", "BUNDLE", "store"], "securesystemslib", "sync"),
        (["pull", "store/model", "--into", "device"], "cryptography", "sync"),
    ],
)
def test_an_extra_that_is_not_installed_is_named(bundle: Path, arguments: list[str], module: str, extra: str) -> None:
    """Run with one package of the extra hidden."""
    asked = [str(bundle) if argument == "BUNDLE" else argument for argument in arguments]
    code = (
        f"import sys; sys.modules[{module!r}] = None; sys.argv[0] = 'edge-infer'; import edge_infer.cli as c; c.main()"
    )

    done = subprocess.run([sys.executable, "-c", code, *asked], cwd=bundle.parent, capture_output=True, text=True)

    said = failed(done)
    assert module in said.lower()
    assert f"hint: pip install 'edge-infer[{extra}]'" in said


def every_command(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path} {name}")


def test_examples_in_every_help_stand_on_lines_of_their_own() -> None:
    """In a narrow terminal too: a line that is broken cannot be copied."""
    shown = 0
    for path, command in [("edge-infer", cli.cli), *every_command(cli.cli, "edge-infer")]:
        said = command.get_help(click.Context(command, info_name=path, terminal_width=40, help_option_names=["--help"]))
        assert "\\b" not in said, path
        examples = inspect.cleandoc(command.help or "").partition("\b\n")[2].split("\n\n")[0].splitlines()
        assert {f"  {line}" for line in examples} <= set(said.splitlines()), path
        shown += len(examples)

    assert shown > 15


def test_a_mistyped_command_is_wrong_usage_and_suggested() -> None:
    assert "did you mean `verify`?" in failed(edge_infer("verfy"), 2)


def test_the_converters_are_named_where_they_are_absent() -> None:
    """Run without site-packages' entry points: as if edge-infer-converters were not installed."""
    code = (
        "import sys, edge_infer.cli as cli; cli._entry_points = dict;"
        "sys.argv = ['edge-infer', 'convert', 'a.onnx', '-o', 'b']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "hint: pip install edge-infer-converters" in failed(done, 2)


def test_backends_says_why_not_and_what_to_do() -> None:
    rows = {row["backend"]: row for row in json.loads(edge_infer("backends", "--json").stdout)["backends"]}

    assert rows["onnxruntime"]["ready"]
    assert rows["onnxruntime"]["version"]
    assert rows["ort-web"]["reason"] == "only inside Pyodide"
    assert "only inside Pyodide" in edge_infer("backends").stdout


def test_info_shows_a_bundle(bundle: Path) -> None:
    done = edge_infer("info", bundle)

    assert done.returncode == 0
    assert "output  y: float32[n, 3]" in done.stdout
    assert "onnx/fp32" in done.stdout
    document = json.loads(edge_infer("info", bundle, "--json").stdout)
    assert document["labels"] == ["cat", "dog", "emu"]
    assert document["examples"] == 1


def test_info_shows_the_state_of_a_bundle(bundle: Path) -> None:
    place = bundle / "manifest.json"
    manifest = json.loads(place.read_text())
    for variant in manifest["variants"]:
        variant["state"] = [{"kind": "pair", "out": "h_out", "in": "h_in"}]
    place.write_text(json.dumps(manifest))

    assert "state   h_out -> h_in\n" in edge_infer("info", bundle).stdout


def test_info_shows_a_bare_model(write_model: WriteModel) -> None:
    assert "input   x: float32[batch, 64]" in edge_infer("info", write_model(zoo.mlp())).stdout


def test_run_on_a_golden_example_shows_the_best_labels(bundle: Path) -> None:
    done = edge_infer("run", bundle, "--example", 0)

    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "y: float32[1, 3]"
    assert lines[2].split() == ["1", "dog", "2.0000"]
    assert "Ran Session(model@" in done.stderr


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".json", ".safetensors", ".bin", ".csv", ".txt"])
def test_run_reads_every_kind_of_file(bundle: Path, tmp_path: Path, suffix: str) -> None:
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    path = tmp_path / f"x{suffix}"
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".npz":
        np.savez(path, x=x)
    elif suffix == ".json":
        path.write_text(json.dumps(x.tolist()))
    elif suffix in (".csv", ".txt"):
        path.write_text("1,2,3\n" if suffix == ".csv" else "1 2 3\n")
    else:
        path.write_bytes(x.tobytes() if suffix == ".bin" else write_tensors({"x": to_tensor(x)}))

    done = edge_infer("run", bundle, "--input", f"x={path}", "--json")

    assert json.loads(done.stdout)["outputs"]["y"] == {"dtype": "float32", "shape": [1, 3], "data": x.tolist()}


@pytest.mark.parametrize("suffix", [".npz", ".json", ".safetensors"])
def test_run_writes_every_kind_of_file(bundle: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"

    assert edge_infer("run", bundle, "--example", 0, "-o", path).returncode == 0

    if suffix == ".npz":
        found: Any = np.load(path)["y"].tolist()
    elif suffix == ".json":
        found = json.loads(path.read_text())["y"]
    else:
        found = read_tensors(path.read_bytes())["y"].tolist()
    assert found == [[0.5, 2.0, 1.0]]
    assert [other.name for other in tmp_path.iterdir() if other.name.startswith(".out")] == []


def test_texts_in_an_npz_can_be_read_again(tmp_path: Path, write_model: WriteModel) -> None:
    model, texts = write_model(zoo.identity("string", ("n",))), tmp_path / "texts.json"
    texts.write_text('["a", "ü"]')

    assert edge_infer("run", model, "--input", f"x={texts}", "-o", tmp_path / "out.npz").returncode == 0

    assert np.load(tmp_path / "out.npz", allow_pickle=False)["y"].tolist() == ["a", "ü"]
    again = edge_infer("run", model, "--input", f"x={tmp_path / 'out.npz'}", "--json")
    assert json.loads(again.stdout)["outputs"]["y"]["data"] == ["a", "ü"]


def test_what_numpy_has_no_dtype_for_goes_into_no_npz(tmp_path: Path, write_model: WriteModel) -> None:
    model, halves = write_model(zoo.identity("bfloat16", (1,))), tmp_path / "x.safetensors"
    halves.write_bytes(write_tensors({"x": Tensor(b"\x80\x3f", "bfloat16", (1,))}))

    done = edge_infer("run", model, "--input", f"x={halves}", "-o", tmp_path / "out.npz")

    assert done.returncode == 1
    assert "Output `y` is bfloat16, which numpy lacks" in done.stderr
    assert f"hint: -o {tmp_path}/out.safetensors" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--input", "missing.npy"], 1, "There is no file `missing.npy`"),
        (["--input", "xx=a.npy"], 1, "The model has no input `xx`"),
        (["--input", "x=missing.npy"], 1, "There is no file `missing.npy`"),
        (["--example", "7"], 1, "There is no golden example 7"),
        (["--example", "0", "--input", "x=a.npy"], 2, "exclude each other"),
        (["--example", "0", "-o", "out.txt"], 2, "no known suffix"),
        ([], 1, "Input `x` is missing"),
        (["--example", "0", "--device", "gpu"], 1, "Device `gpu` is not known"),
        (["--example", "0", "--backend", "onnx"], 1, "Backend `onnx` is not known"),
        (["--example", "0", "--variant", "onnx/int3"], 1, "choose from `onnx/fp32`"),
    ],
)
def test_run_says_what_is_wrong(bundle: Path, arguments: list[str], code: int, message: str) -> None:
    assert message in failed(edge_infer("run", bundle, *arguments), code)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.npz", b"PK\x03\x04 cut"),
        ("x.json", b"[" * 100_000),
        ("x.json", b"[1,"),
        ("x.safetensors", b"short"),
        ("x.npy", b""),
    ],
    ids=["npz", "deep json", "json", "safetensors", "npy"],
)
def test_run_says_that_an_input_file_is_damaged(bundle: Path, tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    assert "error:" in failed(edge_infer("run", bundle, "--input", f"x={path}"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "BUNDLE", "--example", "0", "-o", "missing/x.json"],
        ["run", "BUNDLE", "--example", "0", "--device", "cpu:7"],
        ["run", "BUNDLE", "--example", "0", "--device", "auto:1"],
        ["info", "http://127.0.0.1:1/a b.onnx"],
        ["info", "http://127.0.0.1:port/model.onnx"],
        ["info", "http://[::1/model.onnx"],
        ["info", "a" * 5000 + ".onnx"],
    ],
    ids=range(7),
)
def test_what_the_system_refuses_is_an_error_of_one_line(bundle: Path, arguments: list[str]) -> None:
    failed(edge_infer(*[str(bundle) if argument == "BUNDLE" else argument for argument in arguments]))


def test_json_output_is_json_whatever_the_values(bundle: Path, tmp_path: Path) -> None:
    path, target = tmp_path / "x.npy", tmp_path / "y.json"
    np.save(path, np.array([[np.nan, np.inf, 1.0]], np.float32))

    done = edge_infer("run", bundle, "--input", f"x={path}", "--json", "-o", target)

    def refuse(text: str) -> None:
        raise ValueError(text)

    assert json.loads(done.stdout, parse_constant=refuse)["outputs"]["y"]["data"] == [[None, None, 1.0]]
    assert json.loads(target.read_text(), parse_constant=refuse) == {"y": [[None, None, 1.0]]}


def test_info_survives_a_quality_file_of_another_kind(bundle: Path) -> None:
    for content in ('{"variants": {"onnx/fp32": 5}}', '{"variants": {"onnx/fp32": {"sqnr_db": "x"}}}', "[]", "{"):
        (bundle / "quality.json").write_text(content)
        assert edge_infer("info", bundle).returncode == 0


def test_run_refuses_pickled_arrays(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)

    assert "cannot be read" in failed(edge_infer("run", bundle, "--input", f"x={path}"))


def test_verify_compares_other_inputs_with_the_fp32_variant(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("4,5,6\n")

    done = edge_infer("verify", bundle, "--backend", "onnxruntime", "--input", tmp_path / "x.csv", "--json")

    found = json.loads(done.stdout)
    assert done.stderr.endswith("1 of 1 agree with onnx/fp32 on the input\n")
    assert (found["passed"], found["examples"]) == (True, 1)


def test_verify_compares_other_inputs_with_the_variant_of_most_bits(write_bundle: WriteBundle, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("4,5,6\n")
    bundle = write_bundle({"onnx/int8": zoo.passing_through(), "onnx/fp16": zoo.identity()})

    done = edge_infer("verify", bundle, "--variant", "onnx/fp16", "--input", tmp_path / "x.csv")

    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].endswith("agree with onnx/fp16 on the input")


def test_verify_passes_where_all_engines_agree(bundle: Path) -> None:
    done = edge_infer("verify", bundle, "--json")

    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["passed"]
    assert {row["backend"] for row in document["rows"]} == {"onnxruntime"}
    assert {row["verdict"] for row in document["rows"]} == {"ok"}
    assert re.search(r"^1 of 1 agree with .* on 1 golden example$", edge_infer("verify", bundle).stderr, re.MULTILINE)


def test_verify_fails_where_a_number_differs(write_bundle: WriteBundle) -> None:
    row, other = Tensor.from_list([[0.5, 2.0, 1.0]], "float32"), Tensor.from_list([[0.5, 2.0, 1.001]], "float32")
    golden = write_examples([({"x": row}, {"y": other})])
    bundle = write_bundle({"onnx/fp32": zoo.identity()}, extra={GOLDEN: golden}, examples=GOLDEN)

    done = edge_infer("verify", bundle)

    assert done.returncode == 1
    assert "fail: max err" in done.stdout
    assert "1 disagree" in done.stderr


def test_the_limits_of_the_user_set_the_exit_code(write_bundle: WriteBundle) -> None:
    row, other = Tensor.from_list([[0.5, 2.0, 1.0]], "float32"), Tensor.from_list([[0.5, 2.0, 1.001]], "float32")
    golden = write_examples([({"x": row}, {"y": other})])
    bundle = write_bundle({"onnx/fp32": zoo.identity()}, extra={GOLDEN: golden}, examples=GOLDEN)

    kept = edge_infer("verify", bundle, "--atol", "0.01")
    missed = edge_infer("verify", bundle, "--rtol", "1e-6", "--min-cosine", "0.9")

    assert kept.returncode == 0
    assert "warn: max err" in kept.stdout
    assert missed.returncode == 1
    assert "1 of 3 values are off by more than 0 + 1e-06 x the source's" in missed.stdout


def test_verify_fails_where_a_file_was_damaged(bundle: Path) -> None:
    path = bundle / "onnx/model_fp32.onnx"
    path.write_bytes(with_last_byte_changed(path.read_bytes()))

    done = edge_infer("verify", bundle)

    assert done.returncode == 1
    assert "sha256" in done.stdout


def test_verify_runs_the_reference_by_its_name_only(bundle: Path) -> None:
    done = edge_infer("verify", bundle, "--backend", "reference", "--backend", "onnxruntime", "--json")

    assert {row["backend"]: row["verdict"] for row in json.loads(done.stdout)["rows"]} == {
        "reference": "ok",
        "onnxruntime": "ok",
    }


def test_verify_takes_the_engines_that_have_the_device(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether CUDA then works here is another question."""
    state = Availability(ready=True, devices=("cuda", "cpu"))
    monkeypatch.setattr(get_backend("onnxruntime"), "availability", lambda: state)

    done = CliRunner().invoke(cli.cli, ["verify", str(bundle), "--device", "cuda:0", "--json"])

    assert [row["backend"] for row in json.loads(done.stdout)["rows"]] == ["onnxruntime"]


def test_verify_refuses_a_device_that_is_not_known_or_that_no_engine_has(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_backend("onnxruntime"), "availability", lambda: Availability(True, ("cpu",)))

    absent = CliRunner().invoke(cli.cli, ["verify", str(bundle), "--device", "cuda"]).exception

    assert "No engine here reads `onnx` on device `cuda`" in str(absent)
    assert "Device `gpuu` is not known" in failed(edge_infer("verify", bundle, "--device", "gpuu"))


def test_verify_needs_golden_examples(write_bundle: WriteBundle) -> None:
    assert "no golden examples" in failed(edge_infer("verify", write_bundle({"onnx/fp32": zoo.identity()})))


def test_colour_is_left_out_where_it_is_not_wanted(bundle: Path) -> None:
    assert "\x1b" in edge_infer("run", "missing.onnx", FORCE_COLOR="1").stderr
    assert "\x1b" not in edge_infer("run", "missing.onnx", FORCE_COLOR="1", NO_COLOR="1").stderr
    assert "\x1b" not in edge_infer("run", "missing.onnx").stderr


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in edge_infer("--debug", "info", "missing.onnx").stderr
    assert "Traceback" in edge_infer("info", "missing.onnx", "--debug").stderr


def test_an_error_that_nobody_foresaw_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise KeyError("h_in")

    monkeypatch.setattr(cli.cli, "main", fail)
    monkeypatch.setattr(sys, "argv", ["edge-infer", "backends"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "KeyError: 'h_in'" in (said := capsys.readouterr().err)
    assert "--debug shows the traceback" in said
    monkeypatch.setattr(sys, "argv", ["edge-infer", "backends", "--debug"])
    with pytest.raises(KeyError):
        cli.main()
