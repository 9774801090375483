"""The guide to microcontrollers does what it says: its commands are run and its C is compiled, from the file itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guide/microcontroller.md"


@pytest.mark.long
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
    reason="no arm-none-eabi-gcc and qemu-system-arm: tests/setup.sh all",
)
def test_the_commands_and_the_code_of_the_guide_work(tmp_path: Path) -> None:
    text = GUIDE.read_text("utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = []
    for command in re.findall(r"^```sh\n(.*?)\n```$", text, re.M | re.S):
        words = command.split()
        if words[0] == "edge-infer":
            words = [sys.executable, "-m", "edge_infer", *words[1:]]
        done = subprocess.run(
            words,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ},
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
    code, _boxes = re.findall(r"^```c\n(.*?)^```$", text, re.M | re.S)
    (tmp_path / "firmware/use.c").write_text(code)
    strict = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "use.c")
    subprocess.run(["gcc", *strict], cwd=tmp_path / "firmware", check=True)

    assert "equal to LiteRT" in said[1]
    assert "RAM " in said[1]
    assert "Flash about" in said[1]
    assert "digits: 2 of 2 goldens as they should be" in said[2]
    assert "digits: 2 of 2 goldens as they should be" in said[3]
