"""`verify --host` and `bench --host`: the same on another machine, which ssh reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.cli import output
from edge_infer.errors import EdgeInferError, InputError, UnsupportedError
from edge_infer.tools.bench.native import Failure
from edge_infer.tools.host.workplace import Workplace, engine_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
    from edge_infer.cli.judge import Judge, Row
    from edge_infer.formats.safetensors import Example
    from edge_infer.tools.bench.rows import Row as BenchRow


def verify_there(judge: Judge, host: str, wheel: Path | None, variants: Sequence[Variant]) -> list[Row]:
    """Run the variants on the other machine, and judge what comes back.

    Raises:
        BackendUnavailable, UnsupportedError: The machine cannot be reached, or used.
        InputError: There is no engine for it here.
    """
    rows = []
    refusals: list[EdgeInferError] = []
    with Workplace(host, wheel) as place, output.progress(f"{host}: {len(variants)} variants", len(variants)) as done:
        for variant in variants:
            try:
                judge.engine = f"{engine_of(variant)} at {host}"
                results = place.outputs(judge.bundle, variant, judge.examples)
                rows.append(judge.row(variant, place.place.platform, results))
            except (InputError, UnsupportedError) as error:
                # Without a wheel given, no other ONNX variant will do better.
                if variant.format == "onnx" and isinstance(error, InputError):
                    raise
                judge.engine = host
                refusals.append(error)
                rows.append(judge.failure(variant, error, "skip"))
            except EdgeInferError as error:
                rows.append(judge.failure(variant, error))
            done(1)
    if len(refusals) == len(rows):
        first = refusals[0]
        raise UnsupportedError(f"`{host}` can run none of the variants: {first.message}", hint=first.hint)
    return rows


def measure_there(
    bundle: Bundle,
    host: str,
    wheel: Path | None,
    variants: Sequence[Variant],
    given: Sequence[Example],
    *,
    rounds: int,
    seconds: float,
    threads: int | None,
) -> tuple[list[BenchRow], list[Failure], dict[str, Any]]:
    """Time the variants on the other machine.

    Returns:
        The rows, what does not work there, and what the machine is.

    Raises:
        BackendUnavailable, UnsupportedError: The machine cannot be reached, or used.
        InputError: There is no engine for it here.
    """
    rows: list[BenchRow] = []
    failed: list[Failure] = []
    machine: dict[str, Any] = {}
    examples = given or bundle.examples()
    with Workplace(host, wheel) as place, output.progress(f"Measuring on {host}", len(variants)) as done:
        for variant in variants:
            try:
                row, machine = place.measure(bundle, variant, examples, rounds=rounds, seconds=seconds, threads=threads)
                rows.append(row)
            except InputError:
                if variant.format == "onnx":
                    raise
            except EdgeInferError as error:
                failed.append(Failure(variant.id, variant.format, error.message))
            done(1)
    return rows, failed, machine
