"""Compiled models on the processors of Raspberry Pis, emulated by qemu-user: the bits of this machine.

The sources of the kernels are built as one static program for each. For the first one's there is no library in the
package; those for the others run in the emulated Pis (`make pi`).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_infer.kernels import build
from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.measure.compiled_check import Image
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.tflite import reading
from tests.support.converters import small_models
from tests.support.kernels.compiled_models import FILTERED, RECURRENT

#: By processor the compiler's target and the emulator.
PROCESSORS = {
    "armv6": (("-target", "arm-linux-musleabihf", "-mcpu=arm1176jzf_s"), ("qemu-arm", "-cpu", "arm1176")),
    "armv7": (("-target", "arm-linux-musleabihf", "-mcpu=cortex_a7"), ("qemu-arm", "-cpu", "cortex-a7")),
    "aarch64": (("-target", "aarch64-linux-musl", "-mcpu=generic"), ("qemu-aarch64",)),
}
DRIVER = Path(__file__).parents[1] / "support/kernels/run.c"
NUMBERS = {name: number for number, name in enumerate(KERNELS)}


@pytest.fixture(scope="module", params=[*PROCESSORS])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the kernels."""
    target, emulator = PROCESSORS[request.param]
    assert shutil.which(emulator[0]), "run `tests/setup.sh all`, which installs qemu-user"
    folder = tmp_path_factory.mktemp("kernels")
    lines = ["#pragma once", "typedef void (*kernel)(uint8_t *image, const void *arguments);"]
    lines += [f"void {name}(uint8_t *image, const void *arguments);" for name in KERNELS]
    lines.append(f"static const kernel KERNEL_TABLE[] = {{{', '.join(KERNELS)}}};")
    (folder / "table.h").write_text("\n".join(lines) + "\n")
    made = folder / "run"
    sources = sorted(map(str, build.SOURCE.glob("*.c")))
    options = ("-static", "-O2", "-fno-builtin", "-ffp-contract=off", "-fno-vectorize")
    more = ("-fno-slp-vectorize", "-fno-stack-protector", "-fno-sanitize=all", "-Wno-psabi", f"-I{folder}")
    command = [sys.executable, "-m", "ziglang", "cc", *target, *options, *more, "-o", str(made), str(DRIVER), *sources]
    subprocess.run(command, check=True, timeout=900)
    return [*emulator, str(made)]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rounding", writer.ROUNDINGS)
def test_a_network_gives_the_same_bits(program: list[str], rounding: str) -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn()))
    rng = np.random.default_rng(7)
    floats = tflite.FloatGraph.of_onnx(model)
    name, shape = floats.graph.inputs[0].name, floats.graph.inputs[0].shape
    calls = [{name: rng.normal(size=shape).astype(np.float32)} for _ in range(4)]
    for file in (floats.write().data, floats.write("int8", calls, integer_interface=True).data):
        check(program, writer.write(reading.read(file, "net").graph, rounding))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("source", ["RECURRENT", "FILTERED"])
def test_a_stream_gives_the_same_bits(program: list[str], source: str) -> None:
    check(program, {"RECURRENT": RECURRENT, "FILTERED": FILTERED}[source])


def check(program: list[str], compiled: writer.Compiled) -> None:
    """Run a model there and here on the same inputs."""
    rng = np.random.default_rng(8)
    described = compiled.program
    image = bytearray(compiled.constants.ljust(described.image_bytes, b"\0"))
    for offset, nbytes, initial in described.state:
        image[offset : offset + nbytes] = bytes(nbytes) if initial < 0 else image[initial : initial + nbytes]
    feeds = {}
    for one in described.inputs:
        value = rng.normal(size=one.shape) if one.dtype.startswith("float") else rng.integers(0, 9, one.shape)
        feeds[one.name] = value.astype(one.dtype)
        data = feeds[one.name].tobytes()
        image[one.offset : one.offset + len(data)] = data
    words = [word for kernel, place in described.calls for word in (NUMBERS[kernel], place)]
    sent = struct.pack(f"<{2 + len(words)}I", len(image), len(described.calls), *words) + image

    done = subprocess.run(program, input=sent, capture_output=True, check=True)

    for name, want in Image(compiled).run(feeds).items():
        offset = next(one.offset for one in described.outputs if one.name == name)
        assert done.stdout[offset : offset + want.nbytes] == want.tobytes(), name
