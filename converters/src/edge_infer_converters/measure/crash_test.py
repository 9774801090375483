"""Run each variant once in a process of its own, so that a crash of its engine costs that variant only.

ONNX Runtime and LiteRT are C++; a model that they cannot stand may end the process without an exception.
`python -m edge_infer_converters.measure.crash_test BUNDLE ID...` runs these variants in turn and prints the id of each
that did not end the process.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError
from edge_infer.runtime.selection import exact_engine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def crashing(bundle: Path, ids: Sequence[str]) -> list[str]:
    """Find the variants of a bundle on which their engine crashes.

    Args:
        bundle: The bundle's folder, with golden examples.
        ids: The variants to try.
    """
    found: list[str] = []
    waiting = list(ids)
    while waiting:
        command = [sys.executable, "-m", "edge_infer_converters.measure.crash_test", str(bundle), *waiting]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        survived = [id_ for id_ in waiting if id_ in done.stdout.split()]
        if len(survived) == len(waiting):
            break
        found.append(waiting[len(survived)])
        waiting = waiting[len(survived) + 1 :]
    return found


def main(bundle: str, *ids: str) -> None:
    """Run the first golden example on these variants, and print the id of each afterwards."""
    import numpy  # noqa: F401  with it the engine takes the same path as where variants are measured

    import edge_infer

    inputs, _ = edge_infer.Bundle.open(bundle).examples()[0]
    for id_ in ids:
        backend = exact_engine(id_.partition("/")[0])
        try:
            with edge_infer.load(bundle, variant=id_, backend=backend, device="cpu", arrays="numpy") as session:
                session.run(inputs)
        except EdgeInferError:
            pass  # it will come again, and be told, when the variant is measured
        sys.stdout.write(f"{id_}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
