"""What goes wrong on devices: little memory, no /sys, no place to write, a clock at 1970, a model of another CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import edge_infer
from edge_infer.backends.onnxruntime.api import Api
from edge_infer.backends.onnxruntime.entries import session_entries
from edge_infer.errors import OutOfMemory, UnsupportedModel
from edge_infer.platform.cpu import Processor, read_processor
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.model_files import WriteModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="devices run Linux")
GROUPS = Path("/sys/fs/cgroup/memory")
NEW_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")


def runs(path: Path, before: str = "", after: str = "") -> list[str]:
    """Return the command of a process that runs the identity model without numpy, and prints its output."""
    code = f"import edge_infer; result = edge_infer.load({str(path)!r}, arrays='tensor').run({{'x': [[1, 2, 3]]}})"
    return [sys.executable, "-c", f"{before}\n{code}\nprint(result['y'].tolist())\n{after}"]


def may_mount() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*NEW_MOUNTS, "true"], check=False).returncode == 0


# -- memory --


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group whose memory is limited."""
    made = GROUPS / f"edge-infer-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no memory controller to write to: {error}")
    yield made
    made.rmdir()


def limited(group: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    shell = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    return subprocess.run(["sh", "-c", shell, "sh", *command], capture_output=True, text=True, check=False, timeout=120)


def test_a_small_model_runs_in_24_megabytes(group: Path, write_model: WriteModel) -> None:
    (group / "memory.limit_in_bytes").write_text(str(24 * 2**20))

    enough = limited(group, runs(write_model(zoo.identity())))
    too_much = limited(group, [sys.executable, "-c", "b'1' * (24 * 2**20)"])

    assert enough.stdout.strip() == "[[1.0, 2.0, 3.0]]", enough.stderr
    assert too_much.returncode != 0  # else the limit limits nothing


def test_an_output_that_fits_no_memory_is_said(write_model: WriteModel) -> None:
    node = helper.make_node("ConstantOfShape", ["x"], ["y"])
    path = write_model(zoo.model([node], [zoo.value("x", [1], "int64")], [zoo.value("y", ["n"])]))
    code = (
        "import edge_infer\n"
        f"session = edge_infer.load({str(path)!r}, arrays='tensor')\n"
        "try: session.run({'x': [2**45]})\n"
        "except edge_infer.OutOfMemory as error: print('said:', error.hint)"
    )

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.startswith("said: a smaller batch")
    with pytest.raises(OutOfMemory), edge_infer.load(path, backend="onnxruntime") as session:
        session.run({"x": np.array([2**45])})


# -- places --


@pytest.mark.parametrize("place", ["/sys", "/proc"])
def test_it_runs_where_the_kernels_files_are_missing(place: str, write_model: WriteModel) -> None:
    if not may_mount():
        pytest.skip("mounts of one's own are not allowed here")
    shell = f'mount -t tmpfs none {place} && exec "$@"'
    command = [*NEW_MOUNTS, "sh", "-c", shell, "sh", *runs(write_model(zoo.identity()))]

    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert run.stdout.strip() == "[[1.0, 2.0, 3.0]]", run.stderr


def test_loading_and_running_write_no_file(write_model: WriteModel) -> None:
    hook = (
        "import sys, os\n"
        "wrote = []\n"
        "def audit(event, arguments):\n"
        "    is_open = event == 'open' and isinstance(arguments[0], (str, bytes)) and arguments[2] is not None\n"
        "    if is_open and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):\n"
        "        wrote.append(arguments[0])\n"
        "    if event in ('os.mkdir', 'os.rename', 'os.remove', 'os.truncate'):\n"
        "        wrote.append(arguments[0])\n"
        "sys.dont_write_bytecode = True\n"
        "sys.addaudithook(audit)"
    )

    run = subprocess.run(
        runs(write_model(zoo.identity()), hook, "print(wrote)"), capture_output=True, text=True, check=True
    )

    assert run.stdout.splitlines() == ["[[1.0, 2.0, 3.0]]", "[]"]


def test_a_full_disk_leaves_no_half_of_a_slim_folder(write_model: WriteModel, tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("mounts of one's own are not allowed here")
    model, disk = write_model(zoo.identity()), tmp_path / "disk"
    disk.mkdir()
    shell = f'mount -t tmpfs -o size=4m none "{disk}" && "$@"; status=$?; ls -A "{disk}"; exit $status'
    command = [sys.executable, "-m", "edge_infer", "slim", str(model), "-o", str(disk / "device")]

    run = subprocess.run([*NEW_MOUNTS, "sh", "-c", shell, "sh", *command], capture_output=True, text=True, check=False)

    assert (run.returncode, run.stdout) == (1, "")
    assert "No space left on device" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_clock_at_1970_changes_nothing(write_model: WriteModel, tmp_path: Path) -> None:
    model = write_model(zoo.identity())
    os.utime(model, (0, 0))
    command = [sys.executable, "-m", "edge_infer", "slim", str(model), "-o", str(tmp_path / "device"), "--zipapp"]
    subprocess.run(command, check=True, capture_output=True)
    for path in (tmp_path / "device").rglob("*"):
        os.utime(path, (0, 0))
    app = str(tmp_path / "device/app.pyz")
    program = "import time, sys, runpy; time.time = lambda: 12.0; sys.argv = ['app', '-']; "
    program += f"runpy.run_path({app!r}, run_name='__main__')"

    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input='{"x": [[1, 2, 3]]}',
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(run.stdout) == {"y": [[1.0, 2.0, 3.0]]}, run.stderr


# -- the same numbers, the same file --


def test_a_model_optimised_for_another_cpu_is_refused_with_what_to_do(write_model: WriteModel) -> None:
    """What onnxruntime saves on an x86 at its highest level holds operators that an ARM build does not have."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain="com.microsoft.nchwc.elsewhere")
    weights = [numpy_helper.from_array(np.zeros((8, 8, 1, 1), np.float32), "w")]
    shape: list[int | str] = ["n", 8, 4, 4]
    graph = helper.make_graph([node], "saved", [zoo.value("x", shape)], [zoo.value("y", shape)], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft.nchwc.elsewhere", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    with pytest.raises(UnsupportedModel, match="is not a registered function/op") as caught:
        edge_infer.load(write_model(model), backend="onnxruntime")

    assert "the model uses an operator that this engine lacks" in caught.value.hint


@pytest.mark.skipif("PI_MACHINE" in os.environ, reason="the converters are not installed on the emulated Pi")
def test_what_convert_writes_loads_on_every_cpu(tmp_path: Path) -> None:
    """Its graphs hold no operator of one processor's layout: onnxruntime's optimisers run on the device alone."""
    root = Path(__file__).parents[2]
    digits = root / "examples/digits"
    command = [sys.executable, "-m", "edge_infer", "convert", str(digits / "digits.onnx"), "-o", str(tmp_path / "out")]
    command += ["--calibration", str(digits / "calibration.npz"), "--format", "onnx"]
    subprocess.run(command, check=True, capture_output=True)

    models = sorted((tmp_path / "out/onnx").glob("*.onnx"))
    domains = {node.domain for path in models for node in onnx.load(path).graph.node}

    assert len(models) >= 3
    assert domains <= {"", "ai.onnx", "com.microsoft"}


@pytest.mark.parametrize("wish", [None, "0"])
def test_the_parity_switch_reaches_the_engine(
    wish: str | None, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge_infer.backends.onnxruntime.c import load_model

    entries: dict[str, str] = {}
    call = Api.call

    def recorded(api: Api, name: str, *arguments: Any) -> None:
        if name == "AddSessionConfigEntry":
            entries[arguments[1].decode()] = arguments[2].decode()
        call(api, name, *arguments)

    monkeypatch.setattr(Api, "call", recorded)
    monkeypatch.setattr("edge_infer.backends.onnxruntime.entries.read_processor", lambda: Processor("", ("avx2",), 1))
    options = {"session.x64quantprecision": "1"}
    if wish is not None:
        options |= edge_infer.OnnxRuntimeOptions(session_settings={"session.x64quantprecision": wish}).settings()

    load_model(str(write_model(zoo.identity())), "model.onnx", options).close()

    assert entries["session.x64quantprecision"] == (wish or "1")


def test_the_switch_is_left_out_where_the_processor_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = {"session.x64quantprecision": "1"}
    programs = edge_infer.OnnxRuntimeOptions(session_settings=bundles).settings()

    monkeypatch.setattr(
        "edge_infer.backends.onnxruntime.entries.read_processor", lambda: Processor("", ("avx2", "avx_vnni"), 1)
    )

    assert session_entries(bundles) == {}
    assert session_entries(bundles | programs) == bundles  # who asks for it gets it


@pytest.mark.skipif(not read_processor().has_dot_product, reason="this processor has no VNNI")
def test_with_vnni_the_switch_changes_no_bit(write_model: WriteModel) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.integers(-128, 128, (64, 96), np.int8),  # the full range, which saturates 16-bit sums
        "scale": np.array(0.02, np.float32),
        "zero": np.array(128, np.uint8),
        "none": np.array(0, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero", "none"], ["y"]),
    ]
    path = write_model(zoo.model(nodes, [zoo.value("x", ["n", 64])], [zoo.value("y", ["n", 96], "int32")], weights))
    x = (rng.normal(size=(50, 64)) * 3).astype(np.float32)
    results = []

    for value in ("0", "1"):
        options = edge_infer.OnnxRuntimeOptions(session_settings={"session.x64quantprecision": value})
        with edge_infer.load(path, options=options) as session:
            results.append(session.run({"x": x})["y"])

    np.testing.assert_array_equal(*results)
    quantized = np.clip(np.round(x / np.float32(0.02)) + 128, 0, 255).astype(np.int64)
    np.testing.assert_array_equal(results[0], (quantized - 128) @ weights["w"].astype(np.int64))


# -- budgets, loosely: benchmarks/device.py has the figures --


@pytest.mark.skipif("PI_MACHINE" in os.environ, reason="there the emulator's own memory counts too")
def test_the_first_result_without_numpy_stays_small(write_model: WriteModel) -> None:
    after = "print([line for line in open('/proc/self/status') if 'RssAnon' in line][0].split()[1], len(sys.modules))"

    run = subprocess.run(
        runs(write_model(zoo.identity()), "import sys", after), capture_output=True, text=True, check=True
    )

    kilobytes, modules = map(int, run.stdout.splitlines()[1].split())
    assert kilobytes < 40_000  # 16 MB; the library's own pages, which the system shares and takes back, are not in it
    assert modules < 150
