"""`edge-infer verify` of a chain: the proofs of its steps, then its own answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_infer.cli import output
from edge_infer.errors import InputError
from edge_infer.verify.chains import chain_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.bundle import Bundle


def verify_chain(bundle: Bundle, device: str, backends: Sequence[str], refused: Sequence[str], *, as_json: bool) -> int:
    """Run what proves a chain and print what came out.

    Args:
        bundle: The bundle.
        device: What models run on.
        backends: Their engine, at most one; none to choose.
        refused: Options that were given and do not apply.
        as_json: Whether to print JSON.

    Returns:
        The exit status: 1 where something differs, or nothing could be compared.

    Raises:
        InputError: There are such options.
        ManifestError: The chain is wrong.
    """
    if refused or len(backends) > 1:
        said = " and ".join(refused) or "several --backend"
        raise InputError(
            f"{said} compare one model, and `{bundle.manifest.name}` is a chain",
            hint=f"edge-infer verify {bundle.location}",
            options=list(refused),
        )
    count = len((bundle.manifest.chain or {}).get("steps", ())) + 1
    with output.progress(f"{count - 1} steps", count) as advance:
        rows = chain_rows(bundle, device, backends[0] if backends else None, partial(advance, 1))
    failed = [row for row in rows if row.verdict == "fail"]
    passed = [row for row in rows if row.verdict == "ok"]
    if as_json:
        output.data_json(
            {
                "bundle": f"{bundle.manifest.name}@{bundle.revision}",
                "passed": bool(passed) and not failed,
                "chain": [row.to_json() for row in rows],
            }
        )
    else:
        output.table(
            ["step", "proof", "verdict"],
            [(row.step, row.proof, f"{row.verdict}: {row.reason}" if row.reason else row.verdict) for row in rows],
        )
    output.talk(f"{len(passed)} of {len(rows)} proofs pass")
    return 0 if passed and not failed else 1
