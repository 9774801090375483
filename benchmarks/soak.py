"""Mixed load for minutes: whether the server's memory stays where it is, and nothing fails.

    python benchmarks/soak.py [--seconds 600]

Good requests as octets, v2 JSON and v2 binary, large ones, bad ones, a WebSocket, steps as server-sent events, clients
that leave, and a second model that is loaded and unloaded. It prints memory over time and exits with 1 where it grew by
more than 2 % after the first fifth, or an answer was not what it must be.
`tests/server/test_faults.py` has a short form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import uvloop
from serve_client import closed_loop, connect, post, stream_loop
from serve_models import digits
from serve_servers import DIGITS, ours, started

_PLACE = "/v2/models/digits/infer"
_MOST_DRIFT = 0.02


async def mixed(port: int, seconds: float) -> int:
    """Load the server for some seconds; return how many answers were not what they must be."""
    octets = np.full(64, 0.5, np.float32).tobytes()
    model = digits(DIGITS)
    good = post(_PLACE, octets, "application/octet-stream")
    wrong = 0

    async def bad() -> None:
        nonlocal wrong
        end = time.perf_counter() + seconds
        texts = {
            400: post(_PLACE, b"123", "application/octet-stream"),
            404: post("/v2/models/none/infer", b"{}", "application/json"),
            415: post(_PLACE, b"x", "text/html"),
        }
        while time.perf_counter() < end:
            for status, text in texts.items():
                connection = await connect(port)
                wrong += await connection.send(text) != status
                connection.transport.close()
            leaving = await connect(port)
            leaving.transport.write(good[: len(good) // 2])
            leaving.transport.close()
            await asyncio.sleep(0.02)

    async def reload() -> None:
        """Load and unload the second model, and ask it: an answer is one, or says that it is unloaded."""
        nonlocal wrong
        end = time.perf_counter() + seconds
        asked = post("/v2/models/other/infer", octets, "application/octet-stream")
        while time.perf_counter() < end:
            for what in ("load", "unload"):
                connection = await connect(port)
                path = f"/v2/repository/models/other/{what}"
                wrong += await connection.send(post(path, b"", "application/json")) != 200
                wrong += await connection.send(asked) != (200 if what == "load" else 404)
                connection.transport.close()
            await asyncio.sleep(0.2)

    async def steps() -> None:
        """Ask for steps as events, and read them to the end."""
        nonlocal wrong
        end = time.perf_counter() + seconds
        document = json.loads(model.json().body) | {"parameters": {"steps": 5}}
        text = post("/v2/models/digits/infer_stream", json.dumps(document).encode(), "application/json")
        while time.perf_counter() < end:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            answer = await reader.readuntil(b"event: end")
            wrong += answer.count(b"event: step") != 5
            writer.close()
            await asyncio.sleep(0.02)

    async def large() -> None:
        """Send bodies of 262 kB, which come in pieces, and leave in the middle of one."""
        nonlocal wrong
        end = time.perf_counter() + seconds
        text = post(_PLACE, octets * 1024, "application/octet-stream")
        while time.perf_counter() < end:
            connection = await connect(port)
            for _ in range(3):
                wrong += await connection.send(text) != 200
            connection.transport.write(text[: len(text) // 2])
            await asyncio.sleep(0.05)
            connection.transport.close()

    await asyncio.gather(
        reload(),
        large(),
        steps(),
        closed_loop(port, good, 8, seconds),
        closed_loop(port, model.json().text(), 2, seconds),
        closed_loop(port, model.binary().text(), 2, seconds),
        stream_loop(port, "/v2/models/digits/stream", octets, 40, 16, seconds),
        bad(),
    )
    return wrong


def _other(folder: str) -> Path:
    """Return a copy of the model, under another name."""
    return Path(shutil.copyfile(DIGITS, Path(folder) / "other.onnx"))


def _server(folder: str) -> list[str]:
    """Serve both models; nobody is refused, since a busy machine is not a fault."""
    return ours(DIGITS, str(_other(folder)), "--max-wait-ms", "60000")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    chosen = parser.parse_args()
    step = max(1.0, chosen.seconds / 20)
    sizes: list[float] = []
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, started(_server(folder)) as server:
        for i in range(20):
            wrong += uvloop.run(mixed(server.port, step))
            sizes.append(server.resident_bytes() / 2**20)
            print(f"{(i + 1) * step:6.0f} s: {sizes[-1]:.1f} MiB, {wrong} wrong answers", file=sys.stderr)
    drift = statistics.median(sizes[-4:]) / statistics.median(sizes[4:8]) - 1
    print(f"drift {drift:+.2%} (<= {_MOST_DRIFT:.0%}), {wrong} wrong answers")
    sys.exit(drift > _MOST_DRIFT or wrong > 0)


if __name__ == "__main__":
    main()
