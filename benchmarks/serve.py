"""The server against its peers, and against itself under overload.

Every side runs as its own process on the same machine as the client, in turn, round after round; the ratio of medians
is reported. Throughput comes from a closed loop of `wrk` (of Python where there is none, which costs more of the same
cores; `client ... us a request` says how much). Latency under load comes from an open-loop client: requests leave at
Poisson times whether or not earlier ones were answered, and time counts from the moment a request should have left (no
coordinated omission).

    python benchmarks/serve.py [--quick] [--json] [--only NAME]... [--idle N]

The peers need environments of their own: see `serve_servers.py`. One that is not there is left out.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from serve_digits import PEERS, digits_overload_rows, digits_rows
from serve_idle import idle_rows, sse_rows
from serve_overload import encoder_rows, mobilenet_rows, refusal_rows
from serve_servers import peer_python
from serve_wrk import WRK
from table import publish

if TYPE_CHECKING:
    from collections.abc import Callable

#: What may be measured alone, and the seconds of each of its rounds in a full run.
PARTS: dict[str, tuple[Callable[..., list[dict[str, Any]]], float]] = {
    "digits": (digits_rows, 2.0),
    "encoder": (encoder_rows, 5.0),
    "mobilenet": (mobilenet_rows, 5.0),
    "digits-overload": (digits_overload_rows, 3.0),
    "refusal": (refusal_rows, 3.0),
    "idle": (idle_rows, 2.0),
    "sse": (sse_rows, 2.0),
}
_ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round of a second each, 3,000 idle connections")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="a part of the table; may be given again")
    parser.add_argument("--idle", type=int, default=0, help="how many idle connections; default: 15,000")
    chosen = parser.parse_args()
    idle = chosen.idle or (3000 if chosen.quick else 15000)
    rows: list[dict[str, Any]] = []
    gc.disable()  # the clients': a full collection of their records takes as long as a slow answer
    for name in chosen.only or PARTS:
        measure, seconds = PARTS[name]
        arguments = (1, 1.0) if chosen.quick else (_ROUNDS, seconds)
        rows += measure(*((idle,) if name in ("idle", "sse") else ()), *arguments)
    for name in PEERS:
        if not peer_python(name).exists():
            print(f"no peer {name}: see serve_servers.py", file=sys.stderr)
    cpu = f"{platform.machine()}, {os.cpu_count()} cores, client on the same cores, load {os.getloadavg()[0]:.1f}"
    publish(rows, (), as_json=chosen.json, versions=versions(), cpu=cpu)


def versions() -> dict[str, str]:
    """Return the versions of all that was measured."""
    names = ("edge-infer", "onnxruntime", "starlette", "uvicorn", "uvloop", "httptools", "msgspec", "websockets")
    found = {name: version(name) for name in names}
    found["client"] = _first_line([WRK, "--version"]) if WRK else "Python"
    for name in PEERS:
        if peer_python(name).exists():
            package = {"pytriton": "nvidia-pytriton"}.get(name, name)
            code = f"from importlib.metadata import version; print(version({package!r}))"
            found[name] = _first_line([str(peer_python(name)), "-c", code])
    return found


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # wrk's --version exits with 1
    return (done.stdout or done.stderr).partition("\n")[0].strip()


if __name__ == "__main__":
    main()
