"""Generated text over HTTP: tokens a second by those of the generator alone, and how long clients wait for tokens.

A Llama of random weights (256 wide, 6 layers, 4 bits). Eight clients read streams of 64 tokens from a server of eight
slots; the peer is `Slots` in this process with the same eight prompts, in the same round. Then four clients read
streams while prompts of 900 tokens come one after the other: the longest times between two tokens are those of a client
that others' prompts hold up; the peer is the same without the prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from serve_client import p
from serve_servers import ours, started
from serve_table import row
from table import publish

from edge_infer.generation.generate import generate
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.slots import Slots
from tests.support.generation import bundles

_STREAMS, _TOKENS, _PROMPT = 8, 64, 900
_LEAST_PART = 0.8


def write_model(folder: Path) -> Path:
    """Write the bundle."""
    small = bundles.config

    def wide(vocab_size: int, context: int = 1024) -> Any:
        return replace(
            small(vocab_size, context),
            hidden_size=256,
            layers=6,
            heads=8,
            head_size=32,
            mlp_size=704,
            rotary_size=32,
            attention_scale=32**-0.5,
            layer_kinds=(0,) * 6,
        )

    bundles.config = wide
    return bundles.write_bundle(folder / "bench", context=1024)


async def read_stream(port: int, prompt: list[int], tokens: int, seed: int, until: float = 0.0) -> list[float]:
    """Return when each event of a stream came, the request's own time first; again until a time is over."""
    times: list[float] = []
    asked = {"prompt": prompt, "max_tokens": tokens, "seed": seed, "stream": True, "temperature": 1.0}
    body = json.dumps({**asked, "logit_bias": {"0": -100, "1": -100}, "logprobs": 0}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        times.append(time.perf_counter())
        writer.write(head % len(body) + body)
        line = b""
        while line != b"data: [DONE]\n":
            line = await reader.readline()
            if not line or (line.startswith(b"HTTP/1.1 ") and b" 200 " not in line):
                raise SystemExit(f"No answer: {line!r}")
            if line.startswith(b'data: {"id"') and b'"finish_reason":null' in line:
                times.append(time.perf_counter())
        await reader.readuntil(b"0\r\n\r\n")
        if time.perf_counter() >= until:
            writer.close()
            return times


def alone(generator: Any, prompts: list[list[int]]) -> float:
    """Return the tokens a second of slots that this process drives."""
    slots, begin, count = Slots(generator.decoder, ()), time.perf_counter(), 0
    for seed, prompt in enumerate(prompts):
        options = GenerationOptions(
            max_tokens=_TOKENS, seed=seed, temperature=1.0, logit_bias={0: -100, 1: -100}, logprobs=0
        )
        slots.submit(prompt, options)
    while not slots.is_idle:
        count += len(slots.step())
    return count / (time.perf_counter() - begin)


async def served(port: int, prompts: list[list[int]]) -> tuple[float, list[float]]:
    """Return the tokens a second of streams over HTTP, and the times to their first token."""
    begin = time.perf_counter()
    found = await asyncio.gather(*(read_stream(port, one, _TOKENS, seed) for seed, one in enumerate(prompts)))
    return _STREAMS * _TOKENS / (time.perf_counter() - begin), [times[1] - times[0] for times in found]


async def gaps(port: int, seconds: float, has_prompts: bool) -> list[float]:
    """Return the times between tokens of four streams, with or without long prompts beside them."""
    end = time.perf_counter() + seconds
    streams = [read_stream(port, [40 + i] * 20, _TOKENS * 4, i, end) for i in range(4)]

    async def prompts() -> list[float]:
        number = 0
        while has_prompts and time.perf_counter() < end:
            number += 1
            await read_stream(port, [50 + number % 200, 51 + number // 200] * (_PROMPT // 2), 1, 1)
        return []

    found = await asyncio.gather(*streams, prompts())
    return [later - one for times in found for one, later in pairwise(times[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="at most a minute")
    arguments = parser.parse_args()
    rounds, seconds = (3, 3.0) if arguments.quick else (7, 8.0)
    mine, peer, firsts, quiet, busy = [], [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        bundle = write_model(Path(name))
        prompts = [[30 + number] * 24 for number in range(_STREAMS)]
        options = ("--slots", str(_STREAMS), "--max-wait-ms", "60000")
        with started(ours(bundle, *options)) as server, generate(bundle, slots=_STREAMS, context=1024) as generator:
            asyncio.run(served(server.port, prompts))  # it loads
            for number in range(rounds):
                fresh = [[(30 + number * 8 + i) % 1900 + 2, *one] for i, one in enumerate(prompts)]
                rate, times = asyncio.run(served(server.port, fresh))
                mine.append(rate)
                firsts += times
                peer.append(alone(generator, fresh))
                quiet.append(p(asyncio.run(gaps(server.port, seconds, False)), 0.99) * 1000)
                busy.append(p(asyncio.run(gaps(server.port, seconds, True)), 0.99) * 1000)
    ratios = sorted(one / other for one, other in zip(mine, peer, strict=True))
    rows = [
        row(
            f"{_STREAMS} streams over HTTP",
            "tokens a second",
            statistics.median(mine),
            "slots in one process",
            statistics.median(peer),
            f">= {_LEAST_PART}",
            statistics.median(ratios) >= _LEAST_PART,
            spread=f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        ),
        row(
            f"{_STREAMS} prompts of 25 tokens at once",
            "first token, p99 ms",
            p(firsts, 0.99) * 1000,
            "",
            0.0,
            spread=f"median {statistics.median(firsts) * 1000:.1f}",
        ),
        row(
            f"4 streams beside prompts of {_PROMPT} tokens",
            "between tokens, p99 ms",
            statistics.median(busy),
            "without the prompts",
            statistics.median(quiet),
            spread=f"{min(busy):.1f} to {max(busy):.1f} by {min(quiet):.1f} to {max(quiet):.1f}",
        ),
    ]
    publish(rows, ("edge-infer", "uvloop", "httptools"), as_json=arguments.json)


if __name__ == "__main__":
    main()
