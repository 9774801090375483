"""`edge-infer bench` of a model that generates text: tokens of each second."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_infer.cli import output
from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant


def bench_generation(
    bundle: Bundle,
    variants: Sequence[Variant],
    refused: Sequence[str],
    *,
    rounds: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure variants and print what came out.

    Args:
        bundle: The bundle.
        variants: Those to measure.
        refused: Options that were given and do not apply.
        rounds: How often each figure is measured.
        seconds: How long tokens are written in each round, at most.
        as_json: Whether to print JSON.

    Raises:
        InputError: There are such options.
        EdgeInferError: A variant does not run here.
    """
    if refused:
        raise InputError(
            f"{' and '.join(refused)} are for engines, and `{bundle.manifest.name}` generates text",
            hint=f"edge-infer bench {bundle.location}",
            options=list(refused),
        )
    from edge_infer.runtime.measurements import machine
    from edge_infer.tools.bench.generation import measure_generation

    with output.progress("Measuring", len(variants) * rounds) as advance:
        rows = measure_generation(bundle, variants, rounds=rounds, seconds=seconds, progress=partial(advance, 1))
    if as_json:
        document = {"bundle": bundle.label, "machine": machine(), "generation": [row._asdict() for row in rows]}
        output.data_json(document)
        return
    lines = [
        (row.variant, output.size(row.size_bytes), row.what, row.position, f"{row.per_s:.1f}", f"{row.spread:.1%}")
        for row in rows
    ]
    columns = ["variant", "size", "what", "prompt", "tokens/s", "spread"]
    output.table(columns, lines, right=["size", "prompt", "tokens/s", "spread"])
