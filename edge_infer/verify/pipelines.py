"""Runs the vectors of a bundle's pipeline: the steps once, the answers on each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError
from edge_infer.runtime.load import load
from edge_infer.tasks.pipeline import Pipeline
from edge_infer.tasks.vectors import check_answers, check_steps

if TYPE_CHECKING:
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.manifest import Variant
    from edge_infer.tasks.vectors import Vectors

#: What stands for the variant in the row of the steps, which no variant changes.
STEPS = "steps"


class PipelineRow(NamedTuple):
    """One line of the verdict.

    Attributes:
        variant: The variant; `steps` for the steps before the model, which run without an engine.
        backend: The engine; empty for the steps.
        verdict: `ok`, `warn` or `fail`.
        reason: What differs.
    """

    variant: str
    backend: str
    verdict: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Describe this for machines."""
        return self._asdict()


def steps_row(bundle: Bundle, vectors: Vectors) -> PipelineRow:
    """Compare the tensors that the steps make, the labels and the steps themselves."""
    return _row(STEPS, "", check_steps(bundle, vectors))


def answers_row(bundle: Bundle, vectors: Vectors, variant: Variant, backend: str, device: str) -> PipelineRow:
    """Compare the answers of one variant on one engine.

    A variant that answered otherwise than the source when it was converted is compared with itself, and warned of.
    """
    try:
        session = load(bundle, backend=backend, variant=variant.id, device=device, strict=True, arrays="tensor")
        with Pipeline(session) as pipeline:
            found = check_answers(pipeline, vectors, variant.id)
    except EdgeInferError as error:
        found = [error.message]
    row = _row(variant.id, backend, found)
    if row.verdict == "ok" and variant.id in vectors.own:
        return row._replace(verdict="warn", reason="answers as it was converted, and not as the source does")
    return row


def _row(variant: str, backend: str, found: list[str]) -> PipelineRow:
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return PipelineRow(variant, backend, "fail" if found else "ok", f"{found[0]}{more}" if found else "")
