"""The runtime on emulated Raspberry Pis: `make pi`.

Each machine is a Debian of its architecture in a folder (`arm_root.py`), entered by chroot with the emulator of that
CPU (`enter.sh`). The runtime's tests run there, and its results are compared with those of this machine, which is
asked first. An emulator proves that wheels load and numbers agree; it says nothing of speed.

    python -m tests.device.emulated [--machine pi4]... [--required]

Where the kernel or the permissions forbid it the reason is printed, loudly, and nothing is proven: exit status 0, or
1 with `--required`, as in CI.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.device.arm_root import ARMS, SITE, CannotBuildError, build, emulator
from tests.device.by_ssh import run_by_ssh
from tests.support import limited
from tests.support.conformance import node_cases

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".bench/device"
ENTER = ROOT / "tests/device/enter.sh"
# Beyond these a hanging machine is ended: a run takes five minutes, and longer beside others.
_LIMIT_S = 1500
_MEMORY = 16 * 10**9

#: In the folder that the machines share: the engine of a 64-bit one.
_WHEEL = "onnxruntime-0-cp3-cp3-manylinux_2_28_aarch64.whl"
_DEVICE = ("tests/device/test_pi.py", "tests/device/test_faults.py")
# The reference engine is numpy alone, whose results one ARM proves: pi5 has the whole folder.
_ENGINES = tuple(f"tests/conformance/test_{name}.py" for name in ("backends", "calling_forms", "hidden_state"))
_RUNTIME = (
    "session",
    "onnxruntime_c",
    "litert",
    "bundle",
    "manifest",
    "codec",
    "tensors",
    "parity",
    "select",
    "errors",
)
# What a Pi's environment does not hold, or takes too long there, with the reason.
_DESELECTED = {
    "tests/conformance/test_calling_forms.py::test_many_aliases_give_the_same_in_every_form": "eight minutes",
    "tests/runtime/test_bundle.py::test_a_server_of_ours_says_why_it_refuses": "the server is not installed there",
    "tests/runtime/test_litert.py::test_tflite_runtime_gives_the_same_numbers": "pi2 runs tflite-runtime",
    "tests/runtime/test_litert.py::test_tflite_runtime_is_not_given_a_file_that_would_end_the_process": "likewise",
}


class Machine(NamedTuple):
    """A Raspberry Pi: its architecture, the tests that run on it, and whether this machine uses it by ssh as well."""

    arm: str
    tests: tuple[str, ...]
    is_by_ssh: bool = False


MACHINES = {
    "pi4": Machine(
        "arm64",
        (
            *_DEVICE,
            *(f"tests/runtime/test_{name}.py" for name in _RUNTIME),
            *_ENGINES,
            "tests/sync/test_pull.py",
        ),
    ),
    "pi5": Machine("arm64", (*_DEVICE, "tests/conformance"), is_by_ssh=True),
    "pi2": Machine("armhf", ("tests/device/test_pi.py",), is_by_ssh=True),  # it has neither onnx nor onnxruntime
}


def unshare() -> list[str]:
    """Return the command that gives a process mounts of its own, and a binfmt_misc of its own where the kernel can.

    Raises:
        CannotBuildError: Neither is allowed here.
    """
    if shutil.which("unshare") is None:
        raise CannotBuildError("no `unshare` here (util-linux)")
    said = []
    for flags in (("--user", "--map-root-user"), ()):
        command = ["unshare", *flags, "--mount", "--fork", "--kill-child"]
        with tempfile.TemporaryDirectory() as folder:
            trial = ["sh", "-c", 'mount -t binfmt_misc binfmt_misc "$1" && test -w "$1/register"', "sh", folder]
            run = subprocess.run([*command, *trial], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return command
        said.append(run.stderr.strip() or "no binfmt_misc/register")
    raise CannotBuildError(f"mounts and binfmt_misc are not allowed here: {'; '.join(said)}")


def prepare(shared: Path) -> None:
    """Copy the sources, make the digits bundle and ONNX's node tests, and write down what this machine computes."""
    tree = shared / "tree"
    ignore = shutil.ignore_patterns("__pycache__", "node_modules", "*.bundle")
    for name in ("edge_infer", "tests", "converters/src", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / "docs/reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs/reference/manifest.schema.json", tree / "docs/reference")
    digits = ROOT / "examples/digits"
    bundle = shared / "digits.bundle"
    data = ("--calibration", digits / "calibration.npz", "--eval", digits / "eval.npz")
    edge_infer("convert", digits / "digits.onnx", "-o", bundle, "--name", "digits", *data)
    wheel = shared / _WHEEL  # pip keeps none
    library = next((CACHE / "arm64" / SITE / "onnxruntime/capi").glob("libonnxruntime.so*"))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, f"onnxruntime/capi/{library.name}")
    slim = ("slim", bundle, "--variant", "onnx/int8", "--platform", "aarch64", "--wheel", wheel)
    edge_infer(*slim, "-o", shared / "slim")
    edge_infer(*slim, "-o", shared / "slim-zip", "--zipapp")
    node_cases.write(node_cases.collect(), shared / "node_cases.npz")
    (shared / "expected.json").write_text(json.dumps(computed_here(bundle)), "utf-8")
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "-s", str(tree), "-p", "/tree/tree", str(tree)], check=True
    )


def edge_infer(*arguments: object) -> None:
    """Run the command line of this checkout."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "converters/src")))}
    command = [sys.executable, "-m", "edge_infer", *map(str, arguments)]
    run = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"edge-infer {arguments[0]} failed:\n{run.stderr}")


def computed_here(bundle: Path) -> list[dict[str, object]]:
    """Run the golden examples of a bundle by each engine that reads a variant."""
    from edge_infer import load
    from edge_infer.backends.registry import get_backend
    from edge_infer.bundle.bundle import Bundle

    opened = Bundle.open(bundle)
    found: list[dict[str, object]] = []
    engines = {"onnx": "onnxruntime", "tflite": "litert", "compiled": "compiled"}
    for variant in opened.manifest.variants:
        backend = engines[variant.format]
        with load(bundle, backend=backend, variant=variant.id, arrays="tensor") as session:
            outputs = [
                {name: value.tolist() for name, value in session.run(inputs).items()} for inputs, _ in opened.examples()
            ]
        engine = f"{backend} {get_backend(backend).version()}"
        found.append(
            {
                "variant": variant.id,
                "backend": backend,
                "engine": engine,
                "precision": variant.precision,
                "outputs": outputs,
            }
        )
    return found


def entered(command: list[str], name: str, shared: Path) -> list[str]:
    """Return the command that runs on a machine what is added to it; the machine sees the folder as `/tree`."""
    arm = ARMS[MACHINES[name].arm]
    places = (CACHE / arm.debian, CACHE / f"qemu-{arm.qemu}-static", shared)
    return [*command, "sh", str(ENTER), name, *map(str, places)]


def run_suite(command: list[str], name: str, shared: Path) -> tuple[int, str, float]:
    """Run the tests of a machine; return the exit status, what was printed, and the seconds."""
    machine = MACHINES[name]
    python = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "/tree/tree"]
    python += ["-c", "/tree/tree/pyproject.toml", "--durations=5"]
    for test in _DESELECTED:
        python += ["--deselect", test]
    tests = [f"/tree/tree/{test}" for test in machine.tests]
    ended = limited.run([*entered(command, name, shared), *python, *tests], seconds=_LIMIT_S, memory_bytes=_MEMORY)
    late = f"\nended after {_LIMIT_S} s" if ended.is_late else ""
    return ended.code, f"{ended.out}{ended.err}{late}", ended.seconds


def main() -> int:
    """Build what is missing, run the machines two at a time, print what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", choices=list(MACHINES), help="only this one; may be repeated")
    parser.add_argument("--required", action="store_true", help="fail where it cannot run")
    options = parser.parse_args()
    names = options.machine or list(MACHINES)
    try:
        command = unshare()
        CACHE.mkdir(parents=True, exist_ok=True)
        for name in dict.fromkeys(MACHINES[machine].arm for machine in names):
            print(f"root {name}: {build(ARMS[name], CACHE)}", flush=True)
            emulator(ARMS[name], CACHE)
    except CannotBuildError as error:
        print(f"make pi: SKIPPED, nothing is proven: {error}", file=sys.stderr)
        return 1 if options.required else 0
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder)
        prepare(shared)
        with ThreadPoolExecutor(2) as pool:
            runs = {name: pool.submit(run_suite, command, name, shared) for name in names}
            for name in [name for name in names if MACHINES[name].is_by_ssh]:
                enter = entered(command, name, shared)
                runs[f"{name} by ssh"] = pool.submit(run_by_ssh, enter, name, shared, shared / _WHEEL)
            results = {name: run.result() for name, run in runs.items()}
        compared = shared / "results.txt"
        parity = compared.read_text("utf-8") if compared.is_file() else "nothing was compared"
    for name, (status, said, _) in results.items():
        print(f"--- {name} ---\n{said if status else chr(10).join(said.strip().splitlines()[-12:])}")
    print(parity)
    for name, (status, said, seconds) in results.items():
        last = said.strip().splitlines()[-1] if said.strip() else "nothing was printed"
        print(f"{name}: {'passed' if status == 0 else f'FAILED ({status})'} in {seconds:.0f} s: {last}")
    return 1 if any(status for status, _, _ in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
