"""`edge-infer` as a process of its own without the second of imports: forked off one that has imported what it needs.

A command has its own environment, folder, arguments, exit status and output, and nothing to read. These are not those
of a fresh start: what is imported already, the seed of hashes, and what Python and libraries read of the environment as
they are imported. So tests of imports, of such variables, of signals, limits and crashes start Python themselves.
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
        # -P: a command does not find the modules beside this file.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], timeout_s: float) -> int | None:
        """Run a command; return its exit status, or None where it took too long.

        Raises:
            RuntimeError: The process has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            if not select.select([stdout], [], [], timeout_s)[0]:
                return None
            line = stdout.readline()
        except BrokenPipeError:
            pass
        if not line:
            raise RuntimeError(f"The process that forks commands has ended with {self._process.wait()}: see its errors")
        return int(line)

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

    Raises:
        subprocess.TimeoutExpired: It took longer; it was ended, with all that it started in its session.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        request = {
            "arguments": arguments,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ),
            "out": f"/proc/{os.getpid()}/fd/{out.fileno()}",
            "err": f"/proc/{os.getpid()}/fd/{err.fileno()}",
        }
        server, code = _server(), None
        try:
            code = server.ask(request, timeout_s)
        finally:
            if code is None:  # too late, or interrupted: the next command must not get this one's status
                server.close()
                _server.cache_clear()
        if code is None:
            raise subprocess.TimeoutExpired(["edge-infer", *arguments], timeout_s)
        return subprocess.CompletedProcess(["edge-infer", *arguments], code, _all_of(out), _all_of(err))


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
