"""Measure the ways to run a bundle natively: fresh processes that take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import EdgeInferError, ExecutionError, error_from_json
from edge_infer.formats.safetensors import write_examples
from edge_infer.tools.bench.rows import Round, make_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.formats.safetensors import Example
    from edge_infer.runtime.selection import Choice
    from edge_infer.tools.bench.rows import Row

#: Beyond this a process hangs: the slowest engine takes seconds for its first result.
_TIMEOUT_S = 600


class Failure(NamedTuple):
    """A way that does not work here."""

    variant: str
    backend: str
    reason: str


def measure_native(
    bundle: Bundle,
    ways: Sequence[Choice],
    *,
    rounds: int,
    seconds: float,
    pin: Sequence[int] = (),
    given: Sequence[Example] = (),
    progress: Callable[[], None] = lambda: None,
) -> tuple[list[Row], list[Failure]]:
    """Measure each way in as many fresh processes as there are rounds; the ways take turns.

    Args:
        bundle: What to run.
        ways: The variants, engines, devices and threads.
        rounds: How many processes for each way.
        seconds: How long each process calls, after its warm-up.
        pin: The numbers of the CPUs that the processes are bound to; none for all.
        given: The inputs to call with; none for the bundle's golden examples, or zeros.
        progress: Told after each process.
    """
    measured: list[list[Round]] = [[] for _ in ways]
    failed: dict[int, Failure] = {}
    for _ in range(rounds):
        for place, way in enumerate(ways):
            if place not in failed:
                try:
                    measured[place].append(_run(bundle, way, seconds, pin, given))
                except EdgeInferError as error:
                    failed[place] = Failure(way.variant.id, way.backend, error.message)
            progress()
    return rows_of(bundle, ways, measured, failed)


def rows_of(
    bundle: Bundle, ways: Sequence[Choice], measured: Sequence[Sequence[Round]], failed: Mapping[int, Failure]
) -> tuple[list[Row], list[Failure]]:
    """Put the rounds of each way together, but for the ways that failed."""
    rows = [
        make_row(way.variant.id, way.backend, bundle.manifest.size_of(way.variant), measured[place])
        for place, way in enumerate(ways)
        if place not in failed
    ]
    return rows, list(failed.values())


def _run(bundle: Bundle, way: Choice, seconds: float, pin: Sequence[int], given: Sequence[Example]) -> Round:
    wishes = {
        "source": bundle.location,
        "backend": way.backend,
        "variant": way.variant.id,
        "device": way.device,
        "threads": way.threads,
        "seconds": seconds,
        "pin": list(pin),
        "inputs": None,
    }
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as said:
        if given:
            inputs = Path(empty, "inputs.safetensors")
            inputs.write_bytes(write_examples(list(given)))
            wishes["inputs"] = str(inputs)
        # Nothing that was measured before may decide on threads here.
        environment = {**os.environ, "EDGE_INFER_CACHE": empty}
        command = [sys.executable, "-m", "edge_infer.tools.bench.probe", json.dumps(wishes)]
        start = perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment, text=True) as process:
            assert process.stdout is not None
            end = Timer(_TIMEOUT_S + seconds, process.kill)
            end.start()
            try:
                first = process.stdout.readline()
                cold_ms = (perf_counter() - start) * 1000
                rest = process.stdout.read()
            finally:
                end.cancel()
        if first.startswith("{"):
            raise error_from_json(json.loads(first))
        if process.returncode != 0 or first != "first\n":
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
            raise ExecutionError(f"Its process ended with {process.returncode}{': ' + lines[-1] if lines else ''}")
    answer = json.loads(rest)
    return Round(
        cold_ms,
        tuple(answer["times_ms"]),
        answer["seconds"],
        answer["version"],
        answer["device"],
        answer["threads"],
        answer["rss_bytes"],
        answer["energy_uj"],
    )
