"""Run the vectors of a bundle's pipeline: the steps once in each Python, the answers on each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError
from edge_infer.runtime.load import load
from edge_infer.tasks.pipeline import Pipeline
from edge_infer.tasks.vectors import check_answers, check_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
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
    return _of_answers(vectors, variant.id, backend, found)


def page_rows(
    vectors: Vectors, variants: Sequence[str], backend: str, run: Callable[[str], tuple[list[str], list[str]]]
) -> list[PipelineRow]:
    """Compare steps and answers in a page, whose Python and engine are others than those of here.

    Args:
        vectors: The bundle's vectors.
        variants: The variants that run there.
        backend: The engine of the page.
        run: Runs the vectors there with a variant, and returns what differs of the steps, and of the answers.
    """
    rows: list[PipelineRow] = []
    for variant in variants:
        try:
            steps, found = run(variant)
        except EdgeInferError as error:
            steps, found = [], [error.message]
        if not rows:
            rows.append(_row(STEPS, "pyodide", steps))
        rows.append(_of_answers(vectors, variant, backend, found))
    return rows


def _of_answers(vectors: Vectors, variant: str, backend: str, found: list[str]) -> PipelineRow:
    row = _row(variant, backend, found)
    if row.verdict == "ok" and variant in vectors.own:
        return row._replace(verdict="warn", reason="answers as it was converted, and not as the source does")
    return row


def _row(variant: str, backend: str, found: list[str]) -> PipelineRow:
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return PipelineRow(variant, backend, "fail" if found else "ok", f"{found[0]}{more}" if found else "")
