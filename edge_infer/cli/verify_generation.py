"""`edge-infer verify` of a model that generates text: the tokens of its vectors must come out here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_infer.cli import output
from edge_infer.errors import InputError
from edge_infer.verify.generation import generation_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.manifest import Variant


def verify_generation(bundle: Bundle, variants: Sequence[Variant], refused: Sequence[str], *, as_json: bool) -> int:
    """Run the vectors of a bundle and print what came out.

    Args:
        bundle: The bundle.
        variants: Those to run.
        refused: Options that were given and do not apply.
        as_json: Whether to print JSON.

    Returns:
        The exit status: 1 where other tokens came out, or nothing could be compared.

    Raises:
        InputError: There are such options.
        BundleError: The file of vectors is damaged.
    """
    if refused:
        raise InputError(
            f"{' and '.join(refused)} compare tensors, and `{bundle.manifest.name}` generates text",
            hint=f"edge-infer verify {bundle.location}",
            options=list(refused),
        )
    with output.progress(f"{len(variants)} variants", len(variants)) as advance:
        rows = generation_rows(bundle, variants, partial(advance, 1))
    passed = [row for row in rows if row.verdict == "ok"]
    failed = [row for row in rows if row.verdict == "fail"]
    if as_json:
        output.data_json(
            {
                "bundle": f"{bundle.manifest.name}@{bundle.revision}",
                "passed": bool(passed) and not failed,
                "generation": [row.to_json() for row in rows],
            }
        )
    else:
        lines = [
            (row.variant, str(row.vectors), str(row.tokens), f"{row.verdict}: {row.reason}" if row.reason else "ok")
            for row in rows
        ]
        output.table(["variant", "prompts", "tokens", "verdict"], lines, right=["prompts", "tokens"])
    output.talk(f"{len(passed)} of {len(rows)} variants generate the tokens of their vectors")
    if not passed and not failed:
        output.warn("Nothing proves the generation: there are no vectors", "edge-infer convert FOLDER writes them")
    return 0 if passed and not failed else 1
