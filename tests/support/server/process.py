"""A server started by `edge-infer serve` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run the command in a folder; give the process, its URL, and its first line."""
    command = [sys.executable, "-m", "edge_infer", "serve", *arguments, "--port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("DISPLAY", None)
    with interrupts.heeded():
        begun = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    with begun as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found, line + process.stdout.read()
            yield process, found[0], line
        finally:
            process.kill()
