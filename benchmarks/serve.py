"""The server against its peers, and against itself under overload.

Every side runs as its own process on the same machine as the client, in turn, round after round; the ratio of medians
is reported. The client is Python too and takes about half a core, so `requests/s` says less than `us/request`, the CPU
time of the server's processes. Latency under load comes from an open-loop client: requests leave at Poisson times
whether or not earlier ones were answered, and time counts from the moment a request should have left (no coordinated
omission).

    python benchmarks/serve.py [--quick] [--json] [--idle N]

The peers need environments of their own: see `serve_servers.py`. One that is not there is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop
from serve_client import closed_loop, connect, p, post, stream_loop
from serve_overload import overload_rows
from serve_servers import DIGITS, ours, peer, peer_python, started
from serve_table import row

if TYPE_CHECKING:
    from collections.abc import Callable

    from serve_servers import Server

PLACE = "/v2/models/digits/infer"
PEERS = ("fastapi", "litserve", "mlserver", "mosec")
#: CPU microseconds a request on such a machine, measured on 2026-11-20 in a quiet round of its own.
ELSEWHERE = {"pytriton 0.7.0, v2 binary": 797}


def requests() -> dict[str, bytes]:
    """The same image in each form that a side takes."""
    numbers = [0.5] * 64
    tensor = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32"}
    octets = np.float32(numbers).tobytes()
    binary = json.dumps(
        {"inputs": [{**tensor, "parameters": {"binary_data_size": 256}}], "parameters": {"binary_data_output": True}}
    )
    v2 = json.dumps({"inputs": [{**tensor, "data": numbers}]}).encode()
    plain = json.dumps({"data": numbers}).encode()
    length = f"Inference-Header-Content-Length: {len(binary)}\r\n"
    return {
        "json": post(PLACE, v2, "application/json"),
        "binary": post(PLACE, binary.encode() + octets, "application/octet-stream", length),
        "raw": post(PLACE, octets, "application/octet-stream"),
        "fastapi": post("/predict", plain, "application/json"),
        "litserve": post("/predict", plain, "application/json"),
        "mlserver": post(PLACE, v2, "application/json"),
        "mosec": post("/inference", octets, "application/octet-stream"),
    }


class Figures:
    """What was measured of each side, round after round."""

    def __init__(self) -> None:
        self.rps: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}
        self.single: dict[str, list[float]] = {}

    def us(self, side: str) -> float:
        """Return the CPU microseconds of a request."""
        return statistics.median(self.cpu[side])

    def spread(self, side: str) -> str:
        """Show the least and the most of the rounds."""
        return f"{min(self.cpu[side]):.0f} to {max(self.cpu[side]):.0f} us"

    def add(self, side: str, server: Server, seconds: float, load: Callable[[], int]) -> None:
        """Measure one round: `load` answers how many requests were answered."""
        before = server.cpu_s()
        count = load()
        self.rps.setdefault(side, []).append(count / seconds)
        self.cpu.setdefault(side, []).append((server.cpu_s() - before) / max(1, count) * 1e6)


def measure(rounds: int, seconds: float) -> Figures:
    """Measure our server in all its forms and each peer that is there, in turn."""
    figures, texts = Figures(), requests()
    octets = np.full(64, 0.5, np.float32).tobytes()
    with ExitStack() as stack:
        server = stack.enter_context(started(ours(DIGITS)))
        sides = dict.fromkeys(("json", "binary", "raw"), server)
        for name in PEERS:
            if peer_python(name).exists():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                sides[name] = stack.enter_context(peer(name, folder))
        for name, side in sides.items():
            uvloop.run(closed_loop(side.port, texts[name], 4, 0.5))
        for _ in range(rounds):
            for name, side in sides.items():

                def load(port: int = side.port, text: bytes = texts[name]) -> int:
                    return len(uvloop.run(closed_loop(port, text, 64, seconds)))

                figures.add(name, side, seconds, load)
            figures.add(
                "stream",
                server,
                seconds,
                lambda: uvloop.run(stream_loop(server.port, "/v2/models/digits/stream", octets, 40, 64, seconds)),
            )
            for name in ("json", "fastapi"):
                if name in sides:
                    times = uvloop.run(closed_loop(sides[name].port, texts[name], 1, seconds / 2))
                    figures.single.setdefault(name, []).append(p(times, 0.5))
    return figures


def digits_rows(figures: Figures) -> list[dict[str, Any]]:
    """A small model: throughput, the server's CPU for a request, latency."""
    rows = []
    if "fastapi" in figures.cpu:
        for kind, target in (("json", 4.5), ("raw", 7.0)):
            mine, other = (statistics.median(figures.rps[side]) for side in (kind, "fastapi"))
            met = mine >= target * other
            rows.append(row(f"digits c=64 {kind}", "requests/s", mine, "FastAPI def", other, f">= {target}", met))
    targets = {
        ("json", "fastapi"): 4.5,
        ("raw", "fastapi"): 7.0,
        ("stream", "fastapi"): 12.0,
        ("json", "litserve"): 6.0,
        ("json", "mlserver"): 6.0,
        ("raw", "mosec"): 0.0,
        ("stream", "mosec"): 1.0,
    }
    for (kind, name), target in targets.items():
        if name in figures.cpu:
            mine, other = figures.us(kind), figures.us(name)
            wanted = f">= {target:g}" if target else "reported"
            rows.append(
                row(
                    f"digits, 64 in flight, {kind}: {name}'s server CPU by ours",
                    "us/request",
                    other,
                    f"ours, {kind}",
                    mine,
                    wanted,
                    other >= target * mine,
                    spread=f"ours {figures.spread(kind)}, {name} {figures.spread(name)}",
                )
            )
    for name, us in ELSEWHERE.items():
        mine = figures.us("binary")
        rows.append(
            row(
                f"digits c=64 binary: {name}'s server CPU by ours",
                "us/request",
                us,
                "ours, binary",
                mine,
                ">= 2.5",
                us >= 2.5 * mine,
                spread=f"ours {figures.spread('binary')}; the peer was not measured in this run",
            )
        )
    if "fastapi" in figures.single:
        mine, other = (statistics.median(figures.single[side]) for side in ("json", "fastapi"))
        rows.append(row("digits c=1 JSON", "p50 s", mine, "FastAPI def", other, "<= 1.25", mine <= 1.25 * other))
    return rows


def idle_rows(count: int, seconds: float) -> list[dict[str, Any]]:
    """Many idle connections: whether they stay, what each costs, and what others feel of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(count, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    text = requests()["raw"]

    async def run(server: Server) -> tuple[float, float, int, int]:
        calm = p(await closed_loop(server.port, text, 16, seconds), 0.99)
        before = server.resident_bytes()
        connections = []
        while len(connections) < count:
            connections += await asyncio.gather(
                *(connect(server.port) for _ in range(min(100, count - len(connections))))
            )
            for connection in connections[-100:]:
                await connection.send(text)  # a connection that never asked is hung up on
        size = server.resident_bytes() - before
        busy = p(await closed_loop(server.port, text, 16, seconds), 0.99)
        alive = sum(connection.is_open for connection in connections)
        for connection in connections:
            connection.transport.close()
        return calm, busy, alive, size

    with started(ours(DIGITS, "--max-connections", "20000")) as server:
        uvloop.run(closed_loop(server.port, text, 4, 0.5))
        calm, busy, alive, size = uvloop.run(run(server))
    each = size / count / 1000
    return [
        row(f"{count} idle connections: still open", "connections", alive, "opened", count, "1", alive == count),
        row(f"{count} idle connections: c=16 raw", "p99 s", busy, "none idle", calm, "<= 1.5", busy <= 1.5 * calm),
        row(f"{count} idle connections: each", "kB", each, "12 kB", 12, "<= 1", each <= 12),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--idle", type=int, default=15000, help="how many idle connections; 0 for none")
    chosen = parser.parse_args()
    rounds, seconds = (2, 1.0) if chosen.quick else (5, 2.0)
    rows = digits_rows(measure(rounds, seconds)) + overload_rows(2.0 if chosen.quick else 5.0)
    if chosen.idle:
        rows += idle_rows(chosen.idle, seconds)
    for name in PEERS:
        if not peer_python(name).exists():
            print(f"no peer {name}: see serve_servers.py", file=sys.stderr)
    names = ("edge-infer", "onnxruntime", "starlette", "uvicorn", "uvloop", "msgspec", "websockets")
    versions = {name: version(name) for name in names} | peer_versions()
    cpu = f"{platform.machine()}, {os.cpu_count()} cores, client on the same cores, load {os.getloadavg()[0]:.1f}"
    if chosen.json:
        print(json.dumps({"versions": versions, "cpu": cpu, "rows": rows}, indent=1))
        return
    print(cpu, versions)
    for one in rows:
        mark = "met" if one["met"] else "MISSED"
        sides = f"{one['ours']:>10} | {one['peer_name']:30} {one['peer']:>10}"
        print(f"{one['name']:62} {sides} | {one['ratio']} ({one['target']}) {mark} {one.get('spread', '')}")


def peer_versions() -> dict[str, str]:
    found = {}
    for name in PEERS:
        if peer_python(name).exists():
            code = f"from importlib.metadata import version; print(version({name!r}))"
            done = subprocess.run([peer_python(name), "-c", code], capture_output=True, text=True, check=False)
            found[name] = done.stdout.strip()
    return found


if __name__ == "__main__":
    main()
