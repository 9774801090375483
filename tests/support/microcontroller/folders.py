"""Models in C as folders: written, built, run, and weighed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.writers.microcontroller.writer import Folder

STRICT = "-std=c99 -O1 -g -Wall -Wextra -Werror -pedantic -ffp-contract=off"
SANITIZED = f"{STRICT} -fsanitize=address,undefined -fno-sanitize-recover=all"
#: What this machine has for a Cortex-M4 and for an AVR; `tests/setup.sh all` installs them.
ARM = shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")
needs_arm = pytest.mark.skipif(not ARM, reason="no arm-none-eabi-gcc and qemu-system-arm: tests/setup.sh all")


def written(folder: Path, made: Folder) -> Path:
    folder.mkdir(exist_ok=True)
    for path, text in made.files.items():
        (folder / path).write_text(text)
    return folder


def make(folder: Path, *targets: str, flags: str = SANITIZED) -> str:
    command = ["make", "-s", "-C", str(folder), f"CFLAGS={flags}", *targets]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def flash_of(folder: Path) -> int:
    """Return the bytes of code and constants on a Cortex-M4, as the compiler says."""
    return int(make(folder, "size").split("\n")[1].split()[0])
