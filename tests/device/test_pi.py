"""On an emulated Raspberry Pi (`make pi`): the digits bundle gives there what it gives on this machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edge_infer
from edge_infer import Tensor
from edge_infer.backends.registry import get_backend
from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BackendUnavailable
from edge_infer.parity.comparison import compare, judge
from edge_infer.parity.quantization_steps import steps_apart
from edge_infer.platform.cpu import is_emulated

MACHINE = os.environ.get("PI_MACHINE", "")
#: Of each machine: its name in Python, the bits of a pointer, the part number in /proc/cpuinfo.
FACTS = {"pi5": ("aarch64", 64, "0xd0b"), "pi4": ("aarch64", 64, "0xd08"), "pi2": ("armv7l", 32, "0xc07")}
WORK = Path("/tree")
BUNDLE = WORK / "digits.bundle"

pytestmark = [
    pytest.mark.pi,
    pytest.mark.skipif(not MACHINE, reason="not on an emulated Pi: `make pi` runs it there"),
]


def expected() -> list[dict[str, Any]]:
    """What x86 has computed, one entry for each variant."""
    path = WORK / "expected.json"
    return json.loads(path.read_text("utf-8")) if MACHINE and path.is_file() else []


@pytest.fixture
def bundle() -> Bundle:
    return Bundle.open(BUNDLE)


def test_the_machine_is_the_one_that_was_asked_for() -> None:
    name, bits, part = FACTS[MACHINE]

    assert platform.machine() == name
    assert sys.maxsize == 2 ** (bits - 1) - 1
    assert f"CPU part\t: {part}" in Path("/proc/cpuinfo").read_text("utf-8")


def test_there_is_something_to_compare_with() -> None:
    """Without this a missing file would leave the comparison without a case."""
    assert {entry["variant"].split("/")[0] for entry in expected()} == {"onnx", "tflite", "compiled"}
    assert {"fp32", "int8"} <= {entry["precision"] for entry in expected()}


@pytest.mark.parametrize("entry", expected(), ids=lambda entry: entry["variant"])
def test_a_variant_gives_what_x86_gives(entry: dict[str, Any], bundle: Bundle) -> None:
    if not get_backend(entry["backend"]).availability().ready:
        pytest.skip(f"{entry['backend']} has no wheel for {platform.machine()}")
    examples = bundle.examples()
    wanted = [{name: Tensor.from_list(value, "float32") for name, value in run.items()} for run in entry["outputs"]]

    with edge_infer.load(bundle, variant=entry["variant"], backend=entry["backend"], arrays="tensor") as session:
        results = [session.run(inputs) for inputs, _ in examples]

    parity = compare(wanted, results)
    steps = steps_apart(wanted, results)
    with (WORK / "results.txt").open("a", encoding="utf-8") as file:
        far = (
            "equal"
            if wanted == results or parity.sqnr_db == float("inf")
            else f"{parity.sqnr_db:.1f} dB, {steps:.3f} steps apart"
        )
        file.write(f"{MACHINE} {entry['variant']} by {entry['backend']}: {far} from {entry['engine']} on x86\n")
    if entry["precision"] == "fp16" and MACHINE == "pi5":
        # A Cortex-A76 computes float16 in float16 (fphp); older CPUs and x86 widen it to float32.
        assert parity.sqnr_db >= 50
        assert parity.top1 == 1
    elif entry["precision"] in ("fp32", "fp16"):
        assert judge(parity, "fp32").word == "ok", judge(parity, "fp32")
    else:
        # Integer products are exact on both; a value between two steps may be rounded to either.
        assert steps <= 1.001


def test_the_bundle_chooses_an_engine_and_passes_its_own_examples(bundle: Bundle) -> None:
    with edge_infer.load(bundle, self_test=True) as session:
        report = session.report()

    assert report.engine == ("litert" if MACHINE == "pi2" else "onnxruntime")


@pytest.mark.parametrize("backend", ["onnxruntime", "litert"])
def test_a_prepared_call_gives_what_run_gives(backend: str, bundle: Bundle) -> None:
    if not get_backend(backend).availability().ready:
        pytest.skip(f"{backend} has no wheel for {platform.machine()}")
    image = bundle.examples()[0][0]["image"]
    with edge_infer.load(bundle, backend=backend, arrays="tensor") as session:
        result = session.run({"image": image})["logits"].tolist()
        with session.prepare({"image": tuple(image.shape)}) as call:
            assert call({"image": image})["logits"].tolist() == result
            assert call()["logits"].tolist() == result


@pytest.mark.skipif(MACHINE != "pi2", reason="a 64-bit Pi has a wheel of onnxruntime")
def test_a_missing_wheel_is_said(bundle: Bundle) -> None:
    with pytest.raises(BackendUnavailable, match="onnxruntime: not installed"):
        edge_infer.load(bundle, variant="onnx/int8")


@pytest.mark.skipif(MACHINE == "pi2", reason="click and rich are not in the 32-bit root")
def test_the_command_line_verifies_the_bundle() -> None:
    command = [sys.executable, "-m", "edge_infer", "verify", str(BUNDLE), "--json"]
    engines = ["--backend", "onnxruntime", "--backend", "litert", "--backend", "compiled"]

    run = subprocess.run([*command, *engines], capture_output=True, text=True, check=False)

    rows = {f"{row['backend']} {row['variant']}": row["verdict"] for row in json.loads(run.stdout)["rows"]}
    assert set(rows) == {f"{entry['backend']} {entry['variant']}" for entry in expected()}
    # A Pi 5 computes the fp16 variant in float16: 57 dB, above the limit of 50.
    assert [name for name, verdict in rows.items() if verdict == "fail"] == []


@pytest.mark.skipif(not Path("/proc/sys/kernel/arch").exists(), reason="Linux before 6.1 does not say what it runs on")
def test_it_is_known_to_be_emulated() -> None:
    assert is_emulated(platform.machine())


@pytest.mark.skipif(MACHINE == "pi2", reason="click and rich are not in the 32-bit root")
@pytest.mark.skipif(not Path("/proc/sys/kernel/arch").exists(), reason="Linux before 6.1 does not say what it runs on")
def test_what_is_measured_here_is_marked_as_no_speed(bundle: Bundle) -> None:
    command = [sys.executable, "-m", "edge_infer", "bench", bundle.location, "--variant", "onnx/int8"]

    run = subprocess.run(
        [*command, "--rounds", "1", "--seconds", "0.02"],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ, COLUMNS="200"),
    )

    assert "not a speed" in run.stdout


@pytest.mark.skipif(MACHINE == "pi2", reason="onnxruntime has no library for it")
@pytest.mark.parametrize("program", ["slim", "slim-zip/app.pyz"])
def test_a_slim_folder_made_on_x86_runs_on_a_bare_python(program: str) -> None:
    wanted = next(entry for entry in expected() if entry["variant"] == "onnx/int8")["outputs"][0]
    image = Bundle.open(BUNDLE).examples()[0][0]["image"].tolist()
    bare = [sys.executable, "-I", "-S", str(WORK / program)]

    tested = subprocess.run([*bare, "--self-test"], capture_output=True, text=True, check=False)
    run = subprocess.run([*bare, "-"], input=json.dumps({"image": image}), capture_output=True, text=True, check=False)

    assert tested.returncode == 0, tested.stderr
    assert run.returncode == 0, run.stderr
    results = [{name: Tensor.from_list(value, "float32") for name, value in json.loads(run.stdout).items()}]
    references = [{name: Tensor.from_list(value, "float32") for name, value in wanted.items()}]
    assert steps_apart(references, results) <= 1.001
