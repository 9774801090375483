"""The overload rows of `serve.py`: a compute-bound model at 0.8 and 4 times its capacity, priorities in a flood."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import uvloop
from onnx import TensorProto, helper
from serve_client import Outcome, closed_loop, open_loop, p, post
from serve_servers import ours, started
from serve_table import row

#: The width of the stand-in model's input and output.
EDGE = 16


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
            uvloop.run(closed_loop(server.port, request, 4, 1.0))
            capacity = len(uvloop.run(closed_loop(server.port, request, 16, seconds))) / seconds
            busy = uvloop.run(open_loop(server.port, request, 0.8 * capacity, 2 * seconds))
            flood = uvloop.run(open_loop(server.port, request, 4 * capacity, 2 * seconds))
            unloaded = uvloop.run(open_loop(server.port, high, 0.1 * capacity, 2 * seconds))

            async def both() -> tuple[list[Outcome], list[Outcome]]:
                low = open_loop(server.port, request, 3 * capacity, 2 * seconds)
                return await asyncio.gather(low, open_loop(server.port, high, 0.1 * capacity, 2 * seconds, seed=8))

            low, urgent = uvloop.run(both())
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
