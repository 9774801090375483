"""The decoder on 64-bit and 32-bit Arm, emulated by qemu-user, gives the bits of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.generation.decoder import Decoder
from edge_infer.generation.weight_file import WeightFile
from edge_infer.kernels import build
from tests.support.generation.decoders import random_decoder
from tests.support.generation.families import FAMILIES

if TYPE_CHECKING:
    from edge_infer.generation.weight_file import Encoding

ENCODINGS: tuple[Encoding, ...] = ("f32", "f16", "int8", "int4")
DRIVER = Path(__file__).parents[1] / "support/generation/run.c"
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 97, 18)]
TARGETS = {
    "qemu-aarch64": ("aarch64-linux-musl", "generation_linux_aarch64.so"),
    "qemu-arm": ("arm-linux-musleabihf", "generation_linux_armv7.so"),
}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("emulator", [*TARGETS])
def test_arm_gives_the_same_bits(tmp_path: Path, emulator: str) -> None:
    assert shutil.which(emulator), "run `tests/setup.sh all`, which installs qemu-user"
    target, name = TARGETS[emulator]
    processor = next(option for option in build.TARGETS[name] if option.startswith("-mcpu"))
    sources = sorted(map(str, (build.SOURCE / "generation").glob("*.c")))
    program = tmp_path / "run"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, processor, "-static", "-O2"]
    command += ["-ffp-contract=off", "-fno-vectorize", "-fno-slp-vectorize", "-Wno-psabi", "-fno-sanitize=all"]
    subprocess.run([*command, "-o", str(program), str(DRIVER), *sources], check=True, timeout=900)
    for family, (config, optional) in FAMILIES.items():
        for encoding in ENCODINGS:
            path = random_decoder(config, encoding, optional=optional).write(tmp_path / f"{family}_{encoding}")
            with WeightFile(path) as file:
                start, words = file.tensors["program"].start, len(file.program) // 4
            with Decoder.open(path, context=32) as decoder:
                decoder.run(TOKENS, [0] * 18, range(18), range(18))
                want = b"".join(bytes(decoder.logits(row)) for row in range(18))

            given = [str(path), str(start), str(words), "32", *map(str, TOKENS)]
            found = subprocess.run([emulator, str(program), *given], check=True, capture_output=True).stdout

            assert found == want * 3, (family, encoding)
