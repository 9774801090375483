"""Closed loops for `serve.py` by `wrk`, which costs a tenth of a client in Python; the latter where there is none.

`wrk` (https://github.com/wg/wrk, Debian's package `wrk`) runs one thread here: it shares the cores with the server.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop
from serve_client import closed_loop, p

WRK = shutil.which("wrk")
#: Where the interpreter of `wrk` puts the file of the body, whatever bytes it has.
_SCRIPT = """
local file = io.open(%s, "rb")
local body = file:read("*a")
file:close()
wrk.method, wrk.body = "POST", body
%s
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\nSUMMARY {"count": %%d, "us": %%d, "p50": %%d, "p99": %%d, "errors": %%d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class Load(NamedTuple):
    """What a closed loop did.

    Attributes:
        count: Requests answered.
        seconds: In so long.
        p50_s: The median latency, and `p99_s`; a closed loop flatters them.
        client_s: The CPU seconds of the client.
        errors: Answers other than 2xx, and connections that broke.
    """

    count: int
    seconds: float
    p50_s: float
    p99_s: float
    client_s: float
    errors: int = 0

    @property
    def rps(self) -> float:
        """Requests a second."""
        return self.count / self.seconds


class Post(NamedTuple):
    """A request to repeat: its path, body and headers."""

    path: str
    body: bytes
    headers: dict[str, str]

    def text(self, more: dict[str, str] | None = None) -> bytes:
        """Return what goes over the wire."""
        headers = {"Host": "x", **self.headers, **(more or {}), "Content-Length": str(len(self.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + self.body


def load(port: int, post: Post, clients: int, seconds: float) -> Load:
    """Keep some requests in flight for some seconds.

    Raises:
        SystemExit: An answer was not 2xx.
    """
    done = _by_wrk(port, post, clients, seconds) if WRK else _by_python(port, post, clients, seconds)
    if done.errors or not done.count:
        raise SystemExit(f"{post.path}: {done.errors} of {done.count} answers were none")
    return done


def _by_wrk(port: int, post: Post, clients: int, seconds: float) -> Load:
    with tempfile.TemporaryDirectory() as folder:
        body, script = Path(folder, "body"), Path(folder, "post.lua")
        body.write_bytes(post.body)
        headers = "\n".join(f"wrk.headers[{json.dumps(k)}] = {json.dumps(v)}" for k, v in post.headers.items())
        script.write_text(_SCRIPT % (json.dumps(str(body)), headers))
        before = _children_s()
        # It takes whole seconds only; a stop in between is its own signal.
        command = [str(WRK), "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "20s", "-s"]
        text = subprocess.run(
            [*command, str(script), f"http://127.0.0.1:{port}{post.path}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        client_s = _children_s() - before
    found = json.loads(text.partition("SUMMARY ")[2])
    return Load(found["count"], found["us"] / 1e6, found["p50"] / 1e6, found["p99"] / 1e6, client_s, found["errors"])


def _by_python(port: int, post: Post, clients: int, seconds: float) -> Load:
    before = time.process_time()
    times = uvloop.run(closed_loop(port, post.text(), clients, seconds))
    return Load(len(times), seconds, p(times, 0.5), p(times, 0.99), time.process_time() - before)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
