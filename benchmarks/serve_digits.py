"""The rows of `serve.py` of a small model: there the server's own work is what counts."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import uvloop
from serve_client import flood, p, stream_loop
from serve_models import OCTETS, digits
from serve_servers import DIGITS, ours, peer, peer_python, started, together
from serve_table import row
from serve_wrk import Load, Post, load

if TYPE_CHECKING:
    from serve_servers import Server

PEERS = ("fastapi", "litserve", "mlserver", "mosec", "pytriton")
_NUMBERS = [0.5] * 64
_OCTETS = np.float32(_NUMBERS).tobytes()


def posts() -> dict[str, Post]:
    """Return the same image in each form that a side takes."""
    model = digits(DIGITS)
    plain = Post("/predict", b'{"data": %s}' % str(_NUMBERS).encode(), {"Content-Type": "application/json"})
    return {
        "json": model.json(),
        "binary": model.binary(),
        "raw": model.raw(),
        "fastapi": plain,
        "litserve": plain,
        "mlserver": model.json(),
        "mosec": Post("/inference", _OCTETS, {"Content-Type": OCTETS}),
        "pytriton": model.binary(),
    }


class _Round(NamedTuple):
    """Requests a second, and the CPU microseconds of the server and the client for each."""

    rps: float
    server_us: float
    client_us: float


class Figures:
    """What was measured of each side, round after round."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[_Round]] = {}
        self.single: dict[str, list[float]] = {}

    def rps(self, side: str) -> float:
        """Return the median of the requests a second."""
        return statistics.median(one.rps for one in self.rounds[side])

    def us(self, side: str) -> float:
        """Return the median of the server's CPU microseconds for a request."""
        return statistics.median(one.server_us for one in self.rounds[side])

    def client_us(self, side: str) -> float:
        """Return the median of the client's."""
        return statistics.median(one.client_us for one in self.rounds[side])

    def add(self, side: str, server: Server, before_s: float, done: Load) -> None:
        """Take note of a round."""
        cpu_s = server.cpu_s() - before_s
        found = _Round(done.rps, cpu_s / done.count * 1e6, done.client_s / done.count * 1e6)
        self.rounds.setdefault(side, []).append(found)


def measure(rounds: int, seconds: float) -> Figures:
    """Measure our server in all its forms and each peer that is there, in turn."""
    figures, texts = Figures(), posts()
    with ExitStack() as stack:
        names = [name for name in PEERS if peer_python(name).exists()]
        folders = [Path(stack.enter_context(TemporaryDirectory())) for _ in names]
        contexts = [started(ours(DIGITS)), *(peer(name, folder) for name, folder in zip(names, folders, strict=True))]
        server, *others = together(stack, contexts)
        sides = dict.fromkeys(("json", "binary", "raw"), server) | dict(zip(names, others, strict=True))
        for name, side in sides.items():
            uvloop.run(flood(side.port, texts[name].text(), 4, 0.3))
        for _ in range(rounds):
            for name, side in sides.items():
                before_s = side.cpu_s()
                figures.add(name, side, before_s, load(side.port, texts[name], 64, seconds))
            before_s = server.cpu_s()
            figures.add("stream", server, before_s, _stream(server.port, seconds))
            for name in ("json", "fastapi"):
                if name in sides:
                    figures.single.setdefault(name, []).append(load(sides[name].port, texts[name], 1, 1.0).p50_s)
    return figures


def _stream(port: int, seconds: float) -> Load:
    before = time.process_time()
    count = uvloop.run(stream_loop(port, "/v2/models/digits/stream", _OCTETS, 40, 64, seconds))
    return Load(count, seconds, 0.0, 0.0, time.process_time() - before)


def digits_rows(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Throughput, the server's CPU for a request, latency."""
    figures = measure(rounds, seconds)
    targets = [
        ("json", "fastapi", 4.5),
        ("raw", "fastapi", 7.0),
        ("json", "mlserver", 6.0),
        ("json", "litserve", 6.0),
        ("binary", "pytriton", 2.5),
        ("binary", "mlserver", 5.0),
    ]
    known = [one for one in targets if one[1] in figures.rounds]
    rows = [_throughput(figures, *one) for one in known]
    known += [one for one in [("stream", "fastapi", 12.0), ("stream", "mosec", 1.0)] if one[1] in figures.rounds]
    rows += [_cpu(figures, *one) for one in known]
    if "mosec" in figures.rounds:
        rows.append(_cpu(figures, "raw", "mosec", 0.0))
    if "fastapi" in figures.single:
        mine, other = (statistics.median(figures.single[side]) for side in ("json", "fastapi"))
        rows.append(row("digits c=1 JSON", "p50 s", mine, "FastAPI def", other, "<= 1.25", mine <= 1.25 * other))
    return rows


def _throughput(figures: Figures, side: str, other: str, target: float) -> dict[str, Any]:
    mine, theirs = figures.rps(side), figures.rps(other)
    everything = [one.rps for one in figures.rounds[side]], [one.rps for one in figures.rounds[other]]
    spread = ", ".join(
        f"{name} {min(found):.0f} to {max(found):.0f}" for name, found in zip((side, other), everything, strict=True)
    )
    costs = f"client {figures.client_us(side):.0f} and {figures.client_us(other):.0f} us a request"
    met = mine >= target * theirs
    return row(
        f"digits c=64 {side}", "requests/s", mine, other, theirs, f">= {target:g}", met, spread=f"{spread}; {costs}"
    )


def _cpu(figures: Figures, side: str, other: str, target: float) -> dict[str, Any]:
    mine, theirs = figures.us(side), figures.us(other)
    found = [[one.server_us for one in figures.rounds[name]] for name in (side, other)]
    spread = ", ".join(f"{name} {min(us):.0f} to {max(us):.0f}" for name, us in zip((side, other), found, strict=True))
    wanted = f"<= 1/{target:g}" if target else "reported"
    name = f"digits, 64 in flight, {side}: server CPU"
    return row(name, "us/request", mine, other, theirs, wanted, mine * target <= theirs, spread=f"{spread} us")


def digits_overload_rows(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Four times the clients that fill the server with a small model: a refusal costs about as much as an answer here.

    An open loop of four times the capacity is more than any server in this table can read, so that its queue would be
    in the kernel; 256 clients that never wait, where 64 fill the server, are what it can be asked. So 0.8 of the
    capacity are 51 of them. What a handler that does nothing makes of the same clients is the floor: no server on this
    event loop is better.
    """
    post = digits(DIGITS).raw()
    text = post.text()
    calm: list[float] = []
    busy: list[float] = []
    floor: dict[int, list[float]] = {51: [], 256: []}
    goodput: list[float] = []
    refused: list[float] = []
    with TemporaryDirectory() as folder, started(ours(DIGITS)) as server, peer("null", Path(folder)) as null:
        uvloop.run(flood(server.port, text, 4, 0.3))
        for _ in range(rounds):
            capacity = len(uvloop.run(flood(server.port, text, 64, seconds))) / seconds
            outcomes = uvloop.run(flood(server.port, text, 51, seconds))
            calm.append(p([one.latency_s for one in outcomes if one.status == 200], 0.99))
            outcomes = uvloop.run(flood(server.port, text, 256, seconds))
            accepted = [one.latency_s for one in outcomes if one.status == 200]
            busy.append(p(accepted, 0.99))
            goodput.append(len(accepted) / seconds / capacity)
            refused.append(sum(one.status == 503 for one in outcomes) / len(outcomes))
            for clients, found in floor.items():
                found.append(p([one.latency_s for one in uvloop.run(flood(null.port, text, clients, seconds))], 0.99))
    mine, other = statistics.median(busy), statistics.median(calm)
    name, part = "digits overload, 256 clients", statistics.median(goodput)
    spread = f"{_range(busy, 1000)} by {_range(calm, 1000)} ms"
    return [
        row(f"{name}: accepted", "p99 s", mine, "51 clients", other, "<= 2", mine <= 2 * other, spread=spread),
        row(
            "null handler, 256 clients",
            "p99 s",
            statistics.median(floor[256]),
            "51 clients",
            statistics.median(floor[51]),
            "the floor",
            None,
            spread=f"{_range(floor[256], 1000)} by {_range(floor[51], 1000)} ms",
        ),
        row(f"{name}: goodput", "part", part, "capacity", 1.0, spread=_range(goodput)),
        row(f"{name}: refused", "part", statistics.median(refused), "all", 1.0),
    ]


def _range(values: list[float], scale: float = 1.0) -> str:
    return f"{min(values) * scale:.3g} to {max(values) * scale:.3g}"
