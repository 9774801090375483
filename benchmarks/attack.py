"""What clients that mean harm cost the others, on our server: patient ones, a tenant's flood, a stop under load.

Beside each patient attack a healthy client asks 50 times a second; its peer is itself alone, on the same server.
The flood keeps 40 requests in flight, in a process of its own: in one process its answers would hold up the other
tenant's in the client. That one, of the same weight, keeps 4; its peer is itself alone, in the same round. At a stop 16
clients open a connection for each request, until they are told that it is over.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from attack_clients import ATTACKS, LARGE, under_attack
from onnx import TensorProto, helper, numpy_helper
from serve_client import Outcome, flood, p
from serve_models import Model, digits, mobilenet
from serve_servers import DIGITS, Server, behind_nginx, ours, peer, peer_python, started
from serve_table import row
from table import publish

_KEYS = {"a": "a" * 64, "b": "b" * 64}
_LEAST_SHARE, _MOST_P99 = 0.45, 3.0
_MOST_MS = 100.0
#: `--max-bodies-mb`, and what else may come to it; what is left of it after ten seconds, by what was there before.
_MOST_MB, _MOST_LEFT = 512 + 150, 1.3


def config(folder: Path) -> Path:
    """Write the file of two tenants of one weight."""
    lines = []
    for name, key in _KEYS.items():
        lines += [f"[tenants.{name}]", f'keys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]']
    path = folder / "serve.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _beside(port: int, model: Model, seconds: float, flooding: dict[str, str] | None) -> list[Outcome]:
    """Return what tenant b gets, alone or while a floods with these headers."""
    asked = model.raw().text({"X-Api-Key": _KEYS["b"]})
    if flooding is None:
        return asyncio.run(flood(port, asked, 4, seconds))
    started_at = get_context("spawn").Event()
    other = model.raw().text({"X-Api-Key": _KEYS["a"], **flooding})
    process = get_context("spawn").Process(target=_flood, args=(port, other, seconds + 0.5, started_at))
    process.start()
    started_at.wait(60)
    time.sleep(0.2)
    found = asyncio.run(flood(port, asked, 4, seconds))
    process.join()
    return found


def _flood(port: int, asked: bytes, seconds: float, started_at: Any) -> None:
    started_at.set()
    asyncio.run(flood(port, asked, 40, seconds))


def tenant_rows(folder: Path, model: Model, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure the share of a tenant beside a flood, plain and urgent."""
    cases: dict[str, dict[str, str] | None] = {"alone": None, "plain": {}, "urgent": {"X-Priority": "1"}}
    counts: dict[str, list[int]] = {name: [] for name in cases}
    p99s: dict[str, list[float]] = {name: [] for name in cases}
    with started(ours(model.path, "--config", str(config(folder)))) as server:
        _beside(server.port, model, 1.0, None)  # loads it
        for _ in range(rounds):
            for name, flooding in cases.items():
                answered = [
                    one.latency_s for one in _beside(server.port, model, seconds, flooding) if one.status == 200
                ]
                counts[name].append(len(answered))
                p99s[name].append(p(answered, 0.99) * 1000)
    rows = []
    for name in ("plain", "urgent"):
        for metric, values, target in (
            ("answers of b", counts, f">= {_LEAST_SHARE}"),
            ("p99 of b, ms", p99s, f"<= {_MOST_P99:g}"),
        ):
            mine, alone = (statistics.median(values[one]) for one in (name, "alone"))
            met = mine / alone >= _LEAST_SHARE if values is counts else mine / alone <= _MOST_P99
            spread = f"{min(values[name]):.4g} to {max(values[name]):.4g}"
            rows.append(row(f"{model.name}, {name} flood", metric, mine, "b alone", alone, target, met, spread=spread))
    return rows


def _healthy(port: int, model: Model, seconds: float) -> tuple[list[float], int]:
    """Return the latencies in ms of a client that asks 50 times a second, and how often it got no answer."""
    post, latencies, failures = model.raw(), [], 0
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        try:
            connection.request("POST", post.path, post.body, post.headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, HTTPException):
            failures += 1
            connection.close()
        else:
            failures += answer.status != 200
            latencies.append((time.perf_counter() - start) * 1000)
        time.sleep(max(0.0, start + 0.02 - time.perf_counter()))
    connection.close()
    return latencies, failures


def large_answers(folder: Path) -> Path:
    """Write a model whose answer has 1024 bytes for each byte that it is sent: an embedding of bytes."""
    table = numpy_helper.from_array(np.zeros((256, 256), np.float32), "table")
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "ids"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, ["n"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256]),
    ]
    graph = helper.make_graph(nodes, LARGE, ends[:1], ends[1:], [table])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"{LARGE}.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def patient_rows(folder: Path, model: Model, seconds: float, kinds: list[str], *, waits: bool) -> list[dict[str, Any]]:
    """Measure a healthy client beside each of these patient attacks, and the memory that it takes and keeps."""
    rows, large = [], large_answers(folder)
    for kind in kinds:
        with started(ours(model.path, str(large), "--max-rows", "0")) as server:
            _healthy(server.port, model, 1.0)
            alone, _ = _healthy(server.port, model, seconds)
            before = server.resident_bytes()
            server.peak_bytes()
            with under_attack(kind, server.port, model.name, seconds + 2):
                time.sleep(2.0)  # the attack unfolds
                beside, failures = _healthy(server.port, model, seconds)
            peak = server.peak_bytes()
            if waits:
                time.sleep(10)
            after = server.resident_bytes()
        mine, other = p(beside, 0.99), p(alone, 0.99)
        more = {"failures": failures, "answers": len(beside)}
        met = mine <= _MOST_MS and not failures
        rows.append(row(kind, "p99 of a healthy client, ms", mine, "alone", other, "<= 100, none", met, **more))
        grown = (peak - before) / 2**20
        met = grown <= _MOST_MB
        rows.append(row(kind, "memory at most, MB more", grown, "before", before / 2**20, f"<= {_MOST_MB}", met))
        if waits:
            mine, other = after / 2**20, before / 2**20
            met = mine / other <= _MOST_LEFT
            rows.append(row(kind, "memory after 10 s, MB", mine, "before", other, f"<= {_MOST_LEFT} times", met))
    return rows


def peer_row(folder: Path, model: Model, mine: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Measure the same beside nginx in front of mosec, for the one attack that is an attack on both."""
    kind = str(mine["name"])
    with peer("mosec", folder) as behind, behind_nginx(behind, folder) as server:
        _healthy(server.port, model, 1.0)
        before = server.resident_bytes()
        with under_attack(kind, server.port, model.name, seconds + 2):
            time.sleep(2.0)
            beside, failures = _healthy(server.port, model, seconds)
            grown = (server.resident_bytes() - before) / 2**20
    more: dict[str, Any] = {"failures": failures, "answers": len(beside), "grown_mb": round(grown, 1)}
    return row(kind, mine["metric"], mine["ours"], "nginx, mosec", p(beside, 0.99), **more)


def _until_told(server: Server, model: Model, seen: Counter[str]) -> None:
    """Ask on new connections until the server says 503 or is gone."""
    post = model.raw()
    while True:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
        try:
            connection.request("POST", post.path, post.body, {**post.headers, "Connection": "close"})
            status = connection.getresponse().status
        except ConnectionRefusedError:
            return
        except (OSError, HTTPException):
            seen["reset"] += 1
        else:
            if status == 503:
                return
        finally:
            connection.close()


def stop_row(model: Model, rounds: int) -> dict[str, Any]:
    """Count the connections that a stop resets, with and without a delay before the port is closed."""
    found: dict[str, list[int]] = {"1": [], "0": []}
    for _ in range(rounds):
        for delay, resets in found.items():
            seen: Counter[str] = Counter()
            with started(ours(model.path, "--drain-delay-s", delay)) as server:
                clients = [Thread(target=_until_told, args=(server, model, seen)) for _ in range(16)]
                for client in clients:
                    client.start()
                time.sleep(1.0)
            for client in clients:
                client.join()
            resets.append(seen["reset"])
    mine, other = (sum(found[delay]) / rounds for delay in ("1", "0"))
    spread = f"{min(found['1'])} to {max(found['1'])} by {min(found['0'])} to {max(found['0'])}"
    return row("16 clients at SIGTERM", "connections reset", mine, "no delay", other, "0", not mine, spread=spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="at most a minute")
    parts = (*ATTACKS, "mobilenet", "digits", "stop")
    parser.add_argument("--only", action="append", choices=parts, help="an attack, the tenants of a model, or the stop")
    arguments = parser.parse_args()
    rounds, seconds = (2, 2.0) if arguments.quick else (5, 6.0)
    wanted = arguments.only or [one for one in parts if not arguments.quick or one != "mobilenet"]
    small = digits(DIGITS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "mobilenet" in wanted:
            rows += tenant_rows(folder, mobilenet(folder), rounds, seconds)
        kinds = [one for one in ATTACKS if one in wanted]
        rows += patient_rows(folder, small, seconds, kinds, waits=not arguments.quick)
        announced = next((one for one in rows if one["name"] == "announced bodies"), None)
        if announced is not None and peer_python("mosec").exists() and shutil.which("nginx"):
            rows.append(peer_row(folder, small, announced, seconds))
        if "digits" in wanted:
            rows += tenant_rows(folder, small, rounds, seconds)
        if "stop" in wanted:
            rows.append(stop_row(small, rounds))
    publish(rows, ("edge-infer", "onnxruntime", "uvloop", "httptools"), as_json=arguments.json)


if __name__ == "__main__":
    main()
