"""The server against a naive one, and against itself under overload.

Every side runs as its own process on the same machine as the client, in turn, round after round; the ratio of medians
is reported. The client is Python too and takes about half a core, so `requests/s` says less than `us/request`, the CPU
time of the server's process. Latency under load comes from an open-loop client: requests leave at Poisson times whether
or not earlier ones were answered, and time counts from the moment a request should have left (no coordinated omission).

    python benchmarks/serve.py [--quick] [--json]

The peer is FastAPI with a `def` endpoint that runs onnxruntime, in `.bench/fastapi`:

    uv venv .bench/fastapi && uv pip install --python .bench/fastapi fastapi 'uvicorn[standard]' onnxruntime numpy
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples/digits/digits.onnx"
#: The width of the stand-in model's input and output.
EDGE = 16
PEER_PYTHON = ROOT / ".bench/fastapi/bin/python"
PEER = """
import socket, sys
import numpy as np, onnxruntime as ort, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
model = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
class Body(BaseModel):
    data: list[float]
app = FastAPI()
@app.post("/predict")
def predict(body: Body):
    image = np.array(body.data, np.float32).reshape(1, 1, 8, 8)
    return {"logits": model.run(None, {"image": image})[0].tolist()}
sock = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[sock])
"""
#: CPU microseconds a request, measured on such a machine on 2026-11-20 (research/serve.md, quiet round).
ELSEWHERE = {"MLServer 1.7.1, v2 JSON": 1781, "LitServe 0.2.19, JSON": 2328, "pytriton 0.7.0, v2 binary": 797}


class Server(NamedTuple):
    """A process that listens."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Run a server that prints its URL once it listens."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not found:
                raise SystemExit(f"{command[0]} did not start: {line}{process.stdout.read()}")
            yield Server(int(found[1]), process.pid)
        finally:
            process.terminate()
            process.wait(30)


def ours(path: Path) -> list[str]:
    return [sys.executable, "-m", "edge_infer", "serve", str(path), "--port", "0", "--log-format", "none"]


# -- the client --


class Connection(asyncio.Protocol):
    """One keep-alive connection that carries one request at a time."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[int] | None = None
        self.buffer = b""
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """Take a whole answer."""
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator or self.answered is None:
            return
        lower = head.lower()
        start = lower.index(b"content-length:") + 15
        length = int(lower[start:].partition(b"\r\n")[0])
        if len(body) >= length:
            self.buffer = b""
            answered, self.answered = self.answered, None
            if not answered.done():
                answered.set_result(int(head[9:12]))

    def connection_lost(self, _error: Exception | None) -> None:
        """Answer with status 0."""
        self.is_open = False
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(0)

    def send(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; its status comes with the answer."""
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answered


def post(path: str, body: bytes, kind: str, more: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        + body
    )


async def connect(port: int) -> Connection:
    _, protocol = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return protocol


async def closed_loop(port: int, request: bytes, clients: int, seconds: float) -> list[float]:
    """Keep some requests in flight; return the latency of each in seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        connection = await connect(port)
        while (start := time.perf_counter()) < end:
            status = await connection.send(request)
            assert status == 200, status
            times.append(time.perf_counter() - start)
        connection.transport.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


class Outcome(NamedTuple):
    """What became of a request."""

    status: int
    latency_s: float


async def open_loop(port: int, request: bytes, rate: float, seconds: float, seed: int = 7) -> list[Outcome]:
    """Send requests at Poisson times; time counts from when each should have left."""
    outcomes: list[Outcome] = []
    idle: list[Connection] = [await connect(port) for _ in range(32)]
    chance = random.Random(seed)
    start = time.perf_counter()
    at, tasks = start, []

    async def one(due: float) -> None:
        connection = idle.pop() if idle else await connect(port)
        status = await connection.send(request)
        outcomes.append(Outcome(status, time.perf_counter() - due))
        if connection.is_open:
            idle.append(connection)

    while at < start + seconds:
        at += chance.expovariate(rate)
        delay = at - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.append(asyncio.create_task(one(at)))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.transport.close()
    return outcomes


def p(values: list[float], part: float) -> float:
    return float(np.quantile(values, part)) if values else float("nan")


# -- the rows --


def row(
    name: str, metric: str, mine: float, peer_name: str, peer: float, target: str, met: bool, **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "metric": metric,
        "ours": round(mine, 4),
        "peer_name": peer_name,
        "peer": round(peer, 4),
        "ratio": round(mine / peer, 3) if peer else None,
        "target": target,
        "met": met,
        **more,
    }


def digits_rows(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Throughput and latency of a small model, against FastAPI."""
    numbers = [0.5] * 64
    tensor = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32"}
    place = "/v2/models/digits/infer"
    binary = json.dumps(
        {"inputs": [{**tensor, "parameters": {"binary_data_size": 256}}], "parameters": {"binary_data_output": True}}
    )
    requests = {
        "json": post(place, json.dumps({"inputs": [{**tensor, "data": numbers}]}).encode(), "application/json"),
        "binary": post(
            place,
            binary.encode() + np.float32(numbers).tobytes(),
            "application/octet-stream",
            f"Inference-Header-Content-Length: {len(binary)}\r\n",
        ),
        "raw": post(place, np.float32(numbers).tobytes(), "application/octet-stream"),
    }
    naive = post("/predict", json.dumps({"data": numbers}).encode(), "application/json")
    rps: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    single: dict[str, list[float]] = {}
    with ExitStack() as stack:
        sides = {
            kind: (stack.enter_context(started(ours(DIGITS))), text) for kind, text in [("json", requests["json"])]
        }
        server = sides["json"][0]
        sides |= {kind: (server, requests[kind]) for kind in ("binary", "raw")}
        if PEER_PYTHON.exists():
            sides["naive"] = (stack.enter_context(started([str(PEER_PYTHON), "-c", PEER, str(DIGITS)])), naive)
        for side, request in sides.values():
            asyncio.run(closed_loop(side.port, request, 4, 0.3))
        for _ in range(rounds):
            for name, (side, request) in sides.items():
                before = side.cpu_s()
                times = asyncio.run(closed_loop(side.port, request, 64, seconds))
                rps.setdefault(name, []).append(len(times) / seconds)
                cpu.setdefault(name, []).append((side.cpu_s() - before) / len(times) * 1e6)
                single.setdefault(name, []).append(p(asyncio.run(closed_loop(side.port, request, 1, seconds / 2)), 0.5))
    rows = []
    if "naive" in sides:
        peer_name = "FastAPI def, same run"
        for kind, target in (("json", 4.5), ("raw", 7.0)):
            mine, peer = statistics.median(rps[kind]), statistics.median(rps["naive"])
            spread = f"{min(rps[kind]):.0f} to {max(rps[kind]):.0f}"
            rows.append(
                row(
                    f"digits c=64 {kind}",
                    "requests/s",
                    mine,
                    peer_name,
                    peer,
                    f">= {target}",
                    mine >= target * peer,
                    spread=spread,
                )
            )
            mine, peer = statistics.median(cpu["naive"]), statistics.median(cpu[kind])
            spread = f"{min(cpu[kind]):.0f} to {max(cpu[kind]):.0f} us"
            rows.append(
                row(
                    f"digits c=64 {kind}: naive's server CPU by ours",
                    "us/request",
                    mine,
                    "ours",
                    peer,
                    f">= {target}",
                    mine >= target * peer,
                    spread=spread,
                )
            )
        mine, peer = statistics.median(single["json"]), statistics.median(single["naive"])
        rows.append(row("digits c=1 JSON", "p50 s", mine, peer_name, peer, "<= 1.25", mine <= 1.25 * peer))
    for (peer_name, peer_us), kind, target in zip(
        ELSEWHERE.items(), ("json", "json", "binary"), (6.0, 6.0, 2.5), strict=True
    ):
        mine = statistics.median(cpu[kind])
        rows.append(
            row(
                f"digits c=64 {kind}: {peer_name}'s server CPU by ours",
                "us/request",
                peer_us,
                "ours",
                mine,
                f">= {target}",
                peer_us >= target * mine,
                source="the peer's figure was not measured in this run: research/serve.md, 2026-11-20",
            )
        )
    return rows


def dense(path: Path) -> Path:
    """Write a model that takes some milliseconds: it stands in for an encoder."""
    rng = np.random.default_rng(7)
    sizes, name = [EDGE, *[1536] * 7, EDGE], "x"  # narrow ends, so that bodies are small beside the work
    nodes, weights = [], []
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        weight = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        weights.append(helper.make_tensor(f"w{i}", TensorProto.FLOAT, weight.shape, weight.tobytes(), raw=True))
        nodes += [
            helper.make_node("MatMul", [name, f"w{i}"], [f"m{i}"]),
            helper.make_node("Tanh", [f"m{i}"], [f"h{i}"]),
        ]
        name = f"h{i}"
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", 64, EDGE]) for end in ("x", name)]
    model = helper.make_model(
        helper.make_graph(nodes, "dense", ends[:1], ends[1:], weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 10
    path.write_bytes(model.SerializeToString())
    return path


def ceiling(path: Path, seconds: float) -> float:
    """Return the runs per second of onnxruntime alone, one thread a core."""
    from threading import Thread

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.zeros((1, 64, EDGE), np.float32)}
    counts, end = [], time.perf_counter() + seconds

    def work() -> None:
        count = 0
        while time.perf_counter() < end:
            model.run(None, feeds)
            count += 1
        counts.append(count)

    threads = [Thread(target=work) for _ in range(len(os.sched_getaffinity(0)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def overload_rows(seconds: float) -> list[dict[str, Any]]:
    """What a compute-bound model does at 0.8 and at 4 times its capacity."""
    with tempfile.TemporaryDirectory() as folder:
        path = dense(Path(folder) / "dense.onnx")
        alone = ceiling(path, seconds)
        body = np.zeros((1, 64, EDGE), np.float32).tobytes()
        request = post("/v2/models/dense/infer", body, "application/octet-stream")
        high = post("/v2/models/dense/infer", body, "application/octet-stream", "X-Priority: 1\r\n")
        with started(ours(path)) as server:
            asyncio.run(closed_loop(server.port, request, 4, 1.0))
            capacity = len(asyncio.run(closed_loop(server.port, request, 16, seconds))) / seconds
            busy = asyncio.run(open_loop(server.port, request, 0.8 * capacity, 2 * seconds))
            flood = asyncio.run(open_loop(server.port, request, 4 * capacity, 2 * seconds))
            unloaded = asyncio.run(open_loop(server.port, high, 0.1 * capacity, 2 * seconds))

            async def both() -> tuple[list[Outcome], list[Outcome]]:
                low = open_loop(server.port, request, 3 * capacity, 2 * seconds)
                return await asyncio.gather(low, open_loop(server.port, high, 0.1 * capacity, 2 * seconds, seed=8))

            low, urgent = asyncio.run(both())
    at_busy = [one.latency_s for one in busy if one.status == 200]
    accepted = [one.latency_s for one in flood if one.status == 200]
    refused = [one.latency_s for one in flood if one.status == 503]
    goodput = len(accepted) / (2 * seconds)
    calm = [one.latency_s for one in unloaded if one.status == 200]
    first = [one.latency_s for one in urgent if one.status == 200]
    return [
        row(
            "dense c=16 raw",
            "requests/s",
            capacity,
            "onnxruntime alone, all cores",
            alone,
            ">= 0.88",
            capacity >= 0.88 * alone,
        ),
        row("dense at 0.8 capacity", "answered part", len(at_busy) / len(busy), "all", 1.0, "reported", True),
        row(
            "dense overload 4x: accepted",
            "p99 s",
            p(accepted, 0.99),
            "p99 at 0.8 capacity",
            p(at_busy, 0.99),
            "<= 2",
            p(accepted, 0.99) <= 2 * p(at_busy, 0.99),
        ),
        row(
            "dense overload 4x: goodput",
            "requests/s",
            goodput,
            "capacity",
            capacity,
            ">= 0.95",
            goodput >= 0.95 * capacity,
        ),
        row(
            "dense overload 4x: refusal",
            "p50 s",
            p(refused, 0.5),
            "5 ms",
            0.005,
            "<= 1",
            p(refused, 0.5) <= 0.005,
            spread=f"p99 {p(refused, 0.99) * 1000:.1f} ms",
        ),
        row(
            "dense priority 1 under a flood of 3x",
            "p99 s",
            p(first, 0.99),
            "unloaded",
            p(calm, 0.99),
            "<= 1.5",
            p(first, 0.99) <= 1.5 * p(calm, 0.99),
            spread=f"p50 {p(first, 0.5) * 1000:.1f} by {p(calm, 0.5) * 1000:.1f} ms; {len(first)} of {len(urgent)}",
        ),
        row(
            "dense: the low class still moves",
            "answered",
            sum(one.status == 200 for one in low),
            "none",
            1,
            "> 0",
            any(one.status == 200 for one in low),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="less than a minute")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rounds, seconds = (2, 1.0) if chosen.quick else (5, 2.0)
    rows = digits_rows(rounds, seconds) + overload_rows(2.0 if chosen.quick else 5.0)
    if not PEER_PYTHON.exists():
        print("no peer: see the top of this file for .bench/fastapi", file=sys.stderr)
    versions = {
        name: version(name) for name in ("edge-infer", "onnxruntime", "starlette", "uvicorn", "uvloop", "msgspec")
    }
    document = {
        "versions": versions,
        "cpu": f"{platform.machine()}, {os.cpu_count()} cores, client on the same cores",
        "rows": rows,
    }
    if chosen.json:
        print(json.dumps(document, indent=1))
        return
    for one in rows:
        mark = "met" if one["met"] else "MISSED"
        sides = f"{one['ours']:>10} | {one['peer_name']:30} {one['peer']:>10}"
        print(f"{one['name']:62} {sides} | {one['ratio']} ({one['target']}) {mark} {one.get('spread', '')}")


if __name__ == "__main__":
    main()
