"""The rows of `serve.py` of models that compute for milliseconds: throughput, overload, priorities in a flood."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from serve_client import Callers, Outcome, open_loop, p
from serve_models import encoder, mobilenet
from serve_servers import ours, peer, started
from serve_table import row
from serve_wrk import load

if TYPE_CHECKING:
    from serve_models import Model
    from serve_servers import Server

_URGENT = {"X-Priority": "1"}


class _Rounds:
    """Figures of a model, round after round."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, **figures: float) -> None:
        """Take note of some figures of a round."""
        for name, value in figures.items():
            self.values.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.values[name])

    def spread(self, *names: str, scale: float = 1.0, unit: str = "") -> str:
        """Show the least and the most of the rounds."""
        found = (self.values[name] for name in names)
        return " by ".join(f"{min(one) * scale:.3g} to {max(one) * scale:.3g}{unit}" for one in found)


def _latencies(outcomes: list[Outcome], status: int) -> list[float]:
    return [one.latency_s for one in outcomes if one.status == status]


async def _mixed(server: Server, model: Model, capacity: float, seconds: float) -> tuple[list[Outcome], list[Outcome]]:
    """Offer three times the capacity of plain requests and a tenth of it of urgent ones."""
    plain, urgent = model.binary().text(), model.binary().text(_URGENT)
    low = open_loop(server.port, plain, 3 * capacity, seconds)
    return tuple(await asyncio.gather(low, open_loop(server.port, urgent, 0.1 * capacity, seconds, seed=8)))  # type: ignore[return-value]


def _measure(model: Model, rounds: int, seconds: float, *, with_priority: bool) -> _Rounds:
    figures = _Rounds()
    post = model.binary()
    text, urgent = post.text(), post.text(_URGENT)
    with started(ours(model.path)) as server:
        load(server.port, post, 4, 1.0)
        for _ in range(rounds):
            figures.add(alone=model.alone(seconds / 2))
            done = load(server.port, post, 16, seconds)
            figures.add(capacity=done.rps, client_us=done.client_s / done.count * 1e6)
            capacity = done.rps
            busy = uvloop.run(open_loop(server.port, text, 0.8 * capacity, seconds))
            figures.add(busy=p(_latencies(busy, 200), 0.99), answered=len(_latencies(busy, 200)) / len(busy))
            before = time.process_time(), server.loop_s()
            over = uvloop.run(open_loop(server.port, text, 4 * capacity, seconds))
            client_s, loop_s = time.process_time() - before[0], server.loop_s() - before[1]
            accepted, refused = _latencies(over, 200), _latencies(over, 503)
            figures.add(
                over=p(accepted, 0.99),
                goodput=len(accepted) / seconds / capacity,
                refused=p(refused, 0.5),
                refused_p99=p(refused, 0.99),
                lost=len(over) - len(accepted) - len(refused),
                client=client_s / seconds,
                loop=loop_s / seconds,
            )
            if with_priority:
                calm = uvloop.run(open_loop(server.port, urgent, 0.1 * capacity, 2 * seconds))
                low, high = uvloop.run(_mixed(server, model, capacity, 2 * seconds))
                figures.add(
                    calm=p(_latencies(calm, 200), 0.99),
                    calm_p50=p(_latencies(calm, 200), 0.5),
                    urgent=p(_latencies(high, 200), 0.99),
                    urgent_p50=p(_latencies(high, 200), 0.5),
                    urgent_part=len(_latencies(high, 200)) / len(high),
                    low=len(_latencies(low, 200)) / seconds / 2 / capacity,
                )
    return figures


def _rows(model: Model, figures: _Rounds, throughput: float) -> list[dict[str, Any]]:
    name = model.name
    part = figures.median("capacity") / figures.median("alone")
    rows = [
        row(
            f"{name} c=16 v2 binary",
            "requests/s",
            figures.median("capacity"),
            "onnxruntime alone, all cores",
            figures.median("alone"),
            f">= {throughput}",
            part >= throughput,
            spread=f"{figures.spread('capacity', 'alone')}; client {figures.median('client_us'):.0f} us a request",
        ),
        row(f"{name} at 0.8 capacity", "answered part", figures.median("answered"), "all", 1.0),
        row(
            f"{name} overload 4x: accepted",
            "p99 s",
            figures.median("over"),
            "p99 at 0.8 capacity",
            figures.median("busy"),
            "<= 2",
            figures.median("over") <= 2 * figures.median("busy"),
            spread=figures.spread("over", "busy", scale=1000, unit=" ms"),
        ),
        row(
            f"{name} overload 4x: goodput",
            "part",
            figures.median("goodput"),
            "capacity",
            1.0,
            ">= 0.95",
            figures.median("goodput") >= 0.95,
            # What the requests themselves cost is not there for the model.
            spread=f"{figures.spread('goodput')}; client {figures.median('client'):.2f}, event loop "
            f"{figures.median('loop'):.2f} of {os.cpu_count()} cores",
        ),
        row(
            f"{name} overload 4x: refusal",
            "p50 s",
            figures.median("refused"),
            "5 ms",
            0.005,
            "<= 1",
            figures.median("refused") <= 0.005,
            spread=f"{figures.spread('refused', scale=1000, unit=' ms')}; "
            f"p99 {figures.median('refused_p99') * 1e3:.1f} ms; "
            f"{figures.median('lost'):.0f} neither answered nor refused",
        ),
    ]
    if "urgent" in figures.values:
        met = figures.median("urgent") <= 1.5 * figures.median("calm")
        halves = f"p50 {figures.median('urgent_p50') * 1e3:.1f} by {figures.median('calm_p50') * 1e3:.1f} ms"
        rows += [
            row(
                f"{name} priority 1 under a flood of 3x",
                "p99 s",
                figures.median("urgent"),
                "unloaded",
                figures.median("calm"),
                "<= 1.5",
                met,
                spread=f"{figures.spread('urgent', 'calm', scale=1000, unit=' ms')}; {halves}; "
                f"{figures.median('urgent_part'):.0%} answered",
            ),
            row(
                f"{name}: the low class still moves",
                "part",
                figures.median("low"),
                "capacity",
                1.0,
                "> 0",
                figures.median("low") > 0,
            ),
        ]
    return rows


def encoder_rows(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure the encoder: throughput, overload, priorities."""
    with tempfile.TemporaryDirectory() as folder:
        model = encoder(Path(folder))
        return _rows(model, _measure(model, rounds, seconds, with_priority=True), 0.88)


def mobilenet_rows(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure MobileNetV2, whose requests have 602 kB each."""
    with tempfile.TemporaryDirectory() as folder:
        model = mobilenet(Path(folder))
        return _rows(model, _measure(model, rounds, seconds, with_priority=False), 0.82)


def refusal_rows(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """What a refusal costs: the CPU of the event loop's thread for each, beside that of a handler that does nothing.

    A queue of one request in front of an encoder is always full; its models run in other threads, which do not count.
    The encoder computes on beside the null handler too: a thread that shares the machine's caches costs both alike.
    """
    mine: list[float] = []
    null: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        model = encoder(Path(folder))
        text = model.binary().text()
        full = ours(model.path, "--max-queue-size", "1", "--workers", "1")
        with started(full) as server, peer("null", Path(folder)) as other:
            uvloop.run(_flood(server, text, 4, 1.0))
            for _ in range(rounds):
                mine.append(uvloop.run(_flood(server, text, 32, seconds)))
                null.append(uvloop.run(_flood(other, text, 32, seconds, beside=server)))
    a, b = statistics.median(mine), statistics.median(null)
    spread = f"{min(mine):.0f} to {max(mine):.0f} by {min(null):.0f} to {max(null):.0f} us"
    return [row("a refusal: CPU of the loop", "us", a, "null handler", b, "<= 1.1", a <= 1.1 * b, spread=spread)]


async def _flood(server: Server, text: bytes, clients: int, seconds: float, beside: Server | None = None) -> float:
    """Return the CPU microseconds of the event loop for an answer."""
    callers, before = Callers(server.port, text), server.loop_s()
    others = [] if beside is None else [Callers(beside.port, text)]
    await asyncio.gather(callers.keep(clients, seconds), *(one.keep(1, seconds) for one in others))
    for one in (callers, *others):
        one.close()
    return (server.loop_s() - before) / len(callers.outcomes) * 1e6
