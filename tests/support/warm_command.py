"""`edge-infer` as a process of its own without the second of imports: forked off one that has imported what it needs.

The claims of a fresh start are not made here: what is imported when, the options of the environment that are read at
the start, signals, limits and crashes. Those tests start Python.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.support import command_server

_FILE = Path(command_server.__file__)


class _Server:
    """The process that forks, for one process of tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], timeout_s: float) -> int | None:
        """Run a command; return its exit status, or None where it took too long, after which there is no server."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()
        if not select.select([stdout], [], [], timeout_s)[0]:
            self.close()
            return None
        return int(stdout.readline())

    def close(self) -> None:
        """End it, and what it runs."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@cache
def _server() -> _Server:
    return _Server()


def run(arguments: list[str], cwd: Path | None = None, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run `edge-infer` as `subprocess.run(..., text=True, capture_output=True)` would.

    Args:
        arguments: What stands behind the command's name.
        cwd: Where.
        timeout_s: How long it may take.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        request = {
            "arguments": arguments,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ),
            "out": f"/proc/{os.getpid()}/fd/{out.fileno()}",
            "err": f"/proc/{os.getpid()}/fd/{err.fileno()}",
        }
        code = _server().ask(request, timeout_s)
        if code is None:
            _server.cache_clear()
            raise subprocess.TimeoutExpired(["edge-infer", *arguments], timeout_s)
        return subprocess.CompletedProcess(["edge-infer", *arguments], code, _all_of(out), _all_of(err))


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
