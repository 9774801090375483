"""`model`: a bundle with a pipeline, from raw data to an answer; here or, past its first steps, on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.chains.definition import ONLY
from edge_infer.chains.kinds import Kind, given_by
from edge_infer.chains.steps.described import Described, Opening
from edge_infer.chains.steps.sessions import open_session
from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.definition import check_arguments, definition_of
from edge_infer.tasks.pipeline import Pipeline
from edge_infer.tasks.registry import get_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared

#: Tasks whose input has parts, and what these are.
_PARTS = {
    "question-answering": {"question": "text", "context": "text"},
    "text-ranking": {"query": "text", "documents": "answer"},
}


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step.

    Raises:
        ManifestError: The bundle has no pipeline, one that a chain cannot feed, or one that does not take what `with`
            says.
    """
    where = f"chain: step `{step.name}`"
    if bundle.manifest.pipeline is None:
        raise ManifestError(
            f"{where}: `{bundle.manifest.name}` does not say what stands before and after the model",
            hint='"do": "tensors", or convert it with --task',
        )
    definition = definition_of(bundle.manifest)
    task = get_task(definition.task)
    if task.takes not in ("image", "sound", "text"):
        raise ManifestError(f"{where}: a chain cannot feed {definition.task}, which takes a {task.takes}")
    try:
        check_arguments(definition, step.parameters)
    except InputError as error:
        raise ManifestError(f"{where}: {error.message}", hint=error.hint, field=step.name) from error
    takes = _PARTS.get(definition.task, {ONLY: task.takes})
    identity = ["model", bundle.revision, step.parameters]
    return Described(
        step, takes, (), Kind(given_by(definition)), identity, lambda opening: _Model(step, bundle, opening), bundle
    )


class _Model:
    def __init__(self, step: ChainStep, bundle: Bundle, opening: Opening) -> None:
        self._arguments = step.parameters
        key = (bundle.revision, f"pipeline {step.server}")
        if key not in opening.opened:
            opening.opened[key] = Pipeline(open_session(step, bundle, opening.options))
        self.pipeline: Pipeline = opening.opened[key]
        self.beginnings: Sequence[Beginning] = self.pipeline.steps.beginnings

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:
        raw = [one[ONLY] if ONLY in one else dict(one) for one in values]
        return self.pipeline.answer(raw, dict(self._arguments), shared)

    def close(self) -> None:
        """Give back nothing: the chain closes what its steps share."""
