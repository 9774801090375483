"""`edge-infer slim`: the folder runs a model on a bare Python, and nothing else is in it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

import edge_infer
from edge_infer import InputError, Tensor, UnsupportedError
from edge_infer.bundle.bundle import Bundle
from edge_infer.formats.safetensors import write_examples
from edge_infer.tools.slim.engine import PLATFORMS, find_library, this_platform
from edge_infer.tools.slim.folder import write_slim
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or this_platform() not in PLATFORMS, reason="slim folders are for Linux"
)
ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00"
X = [[0.25] * 64]


@pytest.fixture
def bundle(write_bundle: WriteBundle, write_model: WriteModel) -> Path:
    with edge_infer.load(write_model(zoo.mlp()), backend="reference", arrays="tensor") as session:
        outputs = session.run({"x": X})
    examples = write_examples([({"x": Tensor.from_list(X, "float32")}, outputs)])
    extra = {"examples/examples.bin": examples, "labels.json": json.dumps([str(i) for i in range(10)]).encode()}
    models = {"onnx/fp32": zoo.mlp(), "onnx/int8": zoo.mlp()}
    return write_bundle(models, extra=extra, examples="examples/examples.bin", labels="labels.json")


def bare(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python without its site packages, without the environment."""
    return subprocess.run(
        [sys.executable, "-I", "-S", *arguments], input=stdin, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("as_zip", [False, True], ids=["folder", "zipapp"])
def test_a_bare_python_runs_it_and_gives_the_same_numbers(bundle: Path, tmp_path: Path, as_zip: bool) -> None:
    folder = tmp_path / "device"
    made = write_slim(str(bundle), folder, find_library(this_platform(), None), as_zip=as_zip)
    program = str(folder / "app.pyz") if as_zip else str(folder)
    with edge_infer.load(bundle, variant=made.variant) as session:
        expected = session.run({"x": X})["logits"]

    run = bare(program, "-", stdin=json.dumps({"x": X}))
    tested = bare(program, "--self-test")

    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(json.loads(run.stdout)["logits"], expected, rtol=1e-6)
    assert tested.stdout.endswith("the golden examples are right\n"), tested.stderr
    assert made.size <= 32_000_000


def test_only_one_variant_is_in_it(bundle: Path, tmp_path: Path) -> None:
    write_slim(str(bundle), tmp_path / "device", find_library(this_platform(), None), variant="onnx/fp32")

    inside = Bundle.open(tmp_path / "device/model.bundle")

    assert [variant.id for variant in inside.manifest.variants] == ["onnx/fp32"]
    assert inside.labels() == [str(i) for i in range(10)]
    assert sorted(path.name for path in (tmp_path / "device/model.bundle/onnx").iterdir()) == ["model_fp32.onnx"]


def test_a_bare_model_file_is_taken_too(write_model: WriteModel, tmp_path: Path) -> None:
    path = write_model(zoo.identity())

    write_slim(str(path), tmp_path / "device", find_library(this_platform(), None))
    run = bare(str(tmp_path / "device"), "-", stdin='{"x": [[1, 2, 3]]}')

    assert json.loads(run.stdout) == {"y": [[1.0, 2.0, 3.0]]}


def test_the_weights_beside_a_bare_model_are_taken_too(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node("Mul", ["x", "w"], ["y"])]
    value = onnx.helper.make_tensor_value_info
    weights = onnx.helper.make_tensor("w", 1, [3], b"".join(struct.pack("<f", i) for i in range(3)), raw=True)
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, [3])], [value("y", 1, [3])], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    write_slim(str(tmp_path / "m.onnx"), tmp_path / "device", find_library(this_platform(), None))

    run = bare(str(tmp_path / "device"), "-", stdin='{"x": [1, 2, 3]}')

    assert json.loads(run.stdout)["y"] == [0, 2, 6], run.stderr
    (tmp_path / "m.data").unlink()
    with pytest.raises(InputError, match="which is missing"):
        write_slim(str(tmp_path / "m.onnx"), tmp_path / "other", find_library(this_platform(), None))


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "said"),
    [
        (["-"], '{"y": [1]}', 1, "error: Input `y` is not known"),
        (["-"], "{", 1, "error: -: Expecting property name"),
        (["missing.json"], "", 1, "error: missing.json: [Errno 2]"),
        ([], "", 2, "usage: python FOLDER INPUTS.json"),
    ],
)
def test_its_program_says_what_is_wrong(
    write_model: WriteModel, tmp_path: Path, arguments: list[str], stdin: str, status: int, said: str
) -> None:
    write_slim(str(write_model(zoo.identity())), tmp_path / "device", find_library(this_platform(), None))

    run = bare(str(tmp_path / "device"), *arguments, stdin=stdin)

    assert (run.returncode, run.stdout) == (status, "")
    assert run.stderr.startswith(said)


def test_the_command_says_what_it_wrote(bundle: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edge_infer", "slim", str(bundle), "-o", str(tmp_path / "device"), "--json"]

    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert said["platform"] == this_platform()
    assert said["size"] == sum(path.stat().st_size for path in (tmp_path / "device").rglob("*") if path.is_file())


def test_a_folder_that_is_there_is_not_overwritten_unless_it_is_slim(bundle: Path, tmp_path: Path) -> None:
    library = find_library(this_platform(), None)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "diary.txt").write_text("dear diary")

    with pytest.raises(InputError, match="is there already"):
        write_slim(str(bundle), mine, library)
    with pytest.raises(InputError, match="is not a slim folder"):
        write_slim(str(bundle), mine, library, force=True)
    write_slim(str(bundle), tmp_path / "device", library)
    write_slim(str(bundle), tmp_path / "device", library, force=True)

    assert (mine / "diary.txt").read_text() == "dear diary"


def test_a_failure_leaves_nothing_behind(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = find_library(this_platform(), None)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edge_infer.tools.slim.folder.write_file", full)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(OSError, match="No space left"):
        write_slim(str(bundle), tmp_path / "device", library)

    assert sorted(tmp_path.iterdir()) == before


def wheel(folder: Path, machine: int, name: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("onnxruntime/capi/libonnxruntime_providers_shared.so", b"another library")
        archive.writestr("onnxruntime/capi/libonnxruntime.so.1.99.0", ELF + machine.to_bytes(2, "little"))
    return path


def test_the_library_comes_from_a_wheel_of_the_other_platform(tmp_path: Path) -> None:
    wheel(tmp_path, 183, "onnxruntime-1.99.0-cp311-cp311-manylinux_2_28_aarch64.whl")

    library = find_library("aarch64", tmp_path)

    assert library.data == ELF + b"\xb7\x00"
    assert library.source.endswith("libonnxruntime.so.1.99.0")


def test_a_wheel_of_the_wrong_architecture_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, 62, "onnxruntime-1.99.0-cp311-cp311-manylinux_2_28_x86_64.whl")

    with pytest.raises(InputError, match="is for x86_64, expected aarch64"):
        find_library("aarch64", path)


@pytest.mark.parametrize(
    ("place", "said"),
    [("nothing", "no file or folder"), ("", "no wheel of onnxruntime"), ("text.whl", "is not a wheel")],
)
def test_what_is_no_wheel_says_so(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "text.whl").write_text("text")

    with pytest.raises(InputError, match=said):
        find_library("aarch64", tmp_path / place)


def test_another_platform_needs_its_wheel() -> None:
    other = next(name for name in PLATFORMS if name != this_platform())

    with pytest.raises(InputError, match="is for") as caught:
        find_library(other, None)

    assert f"--platform manylinux_2_28_{other}" in caught.value.hint


def test_a_tflite_variant_is_refused(write_bundle: WriteBundle, tmp_path: Path) -> None:
    path = write_bundle({"tflite/fp32": b"never read"})

    with pytest.raises(UnsupportedError, match=r"run without numpy[\s\S]*edge-infer\[tflite\]"):
        write_slim(str(path), tmp_path / "device", find_library(this_platform(), None))


@pytest.mark.parametrize("as_zip", [False, True], ids=["folder", "zipapp"])
def test_a_compiled_variant_needs_no_engine(write_model: WriteModel, tmp_path: Path, as_zip: bool) -> None:
    from edge_infer_converters import convert

    source = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", format="compiled", precision="int8").path
    folder = tmp_path / "device"

    made = write_slim(str(source), folder, None, platform=this_platform(), as_zip=as_zip)
    program = str(folder / "app.pyz") if as_zip else str(folder)
    run = bare(program, "-", stdin=json.dumps({"x": X}))
    tested = bare(program, "--self-test")

    with edge_infer.load(source) as session:
        expected = session.run({"x": X})["logits"]
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["logits"] == np.asarray(expected).tolist()
    assert tested.stdout.endswith("the golden examples are right\n"), tested.stderr
    assert made.size <= 4_000_000
    write_slim(str(source), folder, None, platform="armv7", as_zip=as_zip, force=True)
    assert sorted(path.name for path in folder.rglob("*.so")) == ["linux_armv7.so"]
    with pytest.raises(edge_infer.errors.BackendUnavailable, match="no kernels for mips"):
        write_slim(str(source), tmp_path / "other", None, platform="mips")
    assert not (tmp_path / "other").exists()
