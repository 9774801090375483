"""`rank`: what an index found, in the order in which a model for text-ranking puts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, Opening, of_work
from edge_infer.chains.steps.sessions import open_session
from edge_infer.errors import ManifestError
from edge_infer.tasks.definition import definition_of
from edge_infer.tasks.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step.

    Raises:
        ManifestError: The bundle is for another task.
    """
    if bundle.manifest.pipeline is None or definition_of(bundle.manifest).task != "text-ranking":
        raise ManifestError(
            f"chain: step `{step.name}` ranks, and `{bundle.manifest.name}` is for {bundle.manifest.task}",
            hint="take a cross-encoder, converted with --task text-ranking",
        )
    identity = [bundle.revision, step.parameters]
    return of_work(step, identity, lambda opening: _Rank(step, bundle, opening), bundle)


class _Rank:
    def __init__(self, step: ChainStep, bundle: Bundle, opening: Opening) -> None:
        self._most: int = step.parameters["most"]
        key = (bundle.revision, "pipeline ")
        if key not in opening.opened:
            opening.opened[key] = Pipeline(open_session(step, bundle, opening.options))
        self.pipeline: Pipeline = opening.opened[key]
        self.beginnings: Sequence[Beginning] = self.pipeline.steps.beginnings

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:
        asked = [one for one in values if one["hits"]]
        raw = [{"query": one["query"], "documents": [hit["text"] or "" for hit in one["hits"]]} for one in asked]
        answers = iter(self.pipeline.answer(raw, {}, shared))
        found = []
        for one in values:
            ranked = next(answers)[: self._most] if one["hits"] else []
            found.append([{**one["hits"][row["corpus_id"]], "score": row["score"]} for row in ranked])
        return found

    def close(self) -> None:
        """Give back nothing: the chain closes what its steps share."""
