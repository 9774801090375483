"""What runs on the other machine, beside a slim folder; it is copied, never imported.

python3 -I -S program.py outputs          the outputs for examples.safetensors, in the same format
python3 -I -S program.py measure JSON     how fast it is, in processes of their own, as JSON
python3 -I -S program.py once JSON        one such process: its first line is written at the first result
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE / "examples.safetensors"


def opened(threads: int | None) -> Any:
    """Load the model of this folder."""
    import edge_infer

    return edge_infer.load(next(HERE.glob("model.*")), arrays="tensor", threads=threads, device="cpu")


def outputs() -> None:
    """Run all examples."""
    from edge_infer.formats.safetensors import read_examples, write_examples

    with opened(None) as session:
        found: list[Any] = [({}, dict(session.run(feeds))) for feeds, _ in read_examples(EXAMPLES.read_bytes())]
    sys.stdout.buffer.write(write_examples(found))


def once(seconds: float, threads: int | None) -> None:
    """Load, run, warm up, and call for some seconds."""
    session = opened(threads)
    from edge_infer.formats.safetensors import read_examples
    from edge_infer.platform.posix import resident_bytes
    from edge_infer.tensors.dummy_inputs import dummy_inputs

    given = read_examples(EXAMPLES.read_bytes()) if EXAMPLES.exists() else []
    feeds = [dict(inputs) for inputs, _ in given] or [dummy_inputs(session.inputs)]
    session.run(feeds[0])
    print("first", flush=True)
    until, count = perf_counter() + seconds / 5, 0
    while count < 3 or perf_counter() < until:
        session.run(feeds[0])
        count += 1
    times: list[float] = []
    started = perf_counter()
    while not times or perf_counter() < started + seconds:
        start = perf_counter()
        session.run(feeds[len(times) % len(feeds)])
        times.append((perf_counter() - start) * 1000)
    report = session.report()
    answer = {
        "times_ms": times,
        "seconds": perf_counter() - started,
        "version": report.engine_version,
        "device": report.device,
        "threads": report.threads,
        "rss_bytes": resident_bytes(),
        "energy_uj": None,
    }
    print(json.dumps(answer), flush=True)


def measure(rounds: int, seconds: float, threads: int | None) -> None:
    """Start the processes, one after another."""
    import platform  # not on the way of `once`, whose start is timed

    from edge_infer.platform.cpu import is_emulated
    from edge_infer.runtime.measurements import machine

    measured = []
    for _ in range(rounds):
        wishes = json.dumps({"seconds": seconds, "threads": threads})
        with tempfile.TemporaryFile() as said, tempfile.TemporaryDirectory() as empty:
            start = perf_counter()
            with subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, "once", wishes],
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, "EDGE_INFER_CACHE": empty},
                text=True,
            ) as process:
                assert process.stdout is not None
                end = Timer(300 + 2 * seconds, process.kill)
                end.start()
                first = process.stdout.readline()
                cold_ms = (perf_counter() - start) * 1000
                rest = process.stdout.read()
                end.cancel()
            if first != "first\n" or process.returncode:
                said.seek(0)
                sys.exit(said.read().decode("utf-8", "replace") or f"its process ended with {process.returncode}")
        measured.append({"cold_ms": cold_ms, **json.loads(rest)})
    place = {**machine(), "is_emulated": is_emulated(platform.machine())}
    print(json.dumps({"machine": place, "rounds": measured}))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    from edge_infer.errors import EdgeInferError

    try:
        work: dict[str, Any] = {"outputs": outputs, "measure": measure, "once": once}
        work[sys.argv[1]](**json.loads("".join(sys.argv[2:]) or "{}"))
    except EdgeInferError as error:
        sys.exit(error.message)
