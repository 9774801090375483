"""Run what proves a chain: the vectors of each step's own bundle, then those of the chain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.bundle.bundle import Bundle
from edge_infer.chains.cache import StepCache
from edge_infer.chains.chain import Chain
from edge_infer.chains.checked import check_chain
from edge_infer.chains.kinds import WORKS
from edge_infer.chains.vectors import check_answers, read_vectors
from edge_infer.errors import EdgeInferError, ExecutionError
from edge_infer.runtime.load import load
from edge_infer.tasks.pipeline import Pipeline
from edge_infer.tasks.vectors import check_answers as check_pipeline
from edge_infer.tasks.vectors import check_steps
from edge_infer.tasks.vectors import read as read_pipeline_vectors
from edge_infer.vectors.index import Index
from edge_infer.verify.generation import generation_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from edge_infer.bundle.keys import KeySource
    from edge_infer.chains.definition import ChainStep

#: What stands for a step in the row of the whole chain.
WHOLE = "chain"


class ChainRow(NamedTuple):
    """One line of the verdict.

    Attributes:
        step: The step, or `chain`.
        proof: What was run: `examples`, `pipeline`, `generation`, `files` or `answers`.
        verdict: `ok`, `fail`, or `skip` where nothing proves it.
        reason: What differs.
    """

    step: str
    proof: str
    verdict: str
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Describe this for machines."""
        return self._asdict()


def chain_rows(
    bundle: Bundle, device: str = "auto", backend: str | None = None, done: Callable[[], None] = lambda: None
) -> list[ChainRow]:
    """Run all that proves a chain.

    Args:
        bundle: Its bundle.
        device: What models run on.
        backend: Their engine; None to choose.
        done: Told when a step is done, and when the chain is.

    Raises:
        ManifestError: The chain is wrong.
        BundleError: Something inside is damaged.
    """
    definition = check_chain(bundle).definition
    rows: list[ChainRow] = []
    proven: set[str] = set()
    for step in definition.steps:
        if step.folder and step.folder not in proven:
            proven.add(step.folder)
            rows += _of_step(step, bundle, device, backend)
        done()
    with Chain.open(bundle, device=device, backend=backend, cache=StepCache()) as chain:
        if definition.vectors is None:
            rows.append(ChainRow(WHOLE, "answers", "skip", "the chain has no vectors"))
        else:
            rows.append(_row(WHOLE, "answers", check_answers(chain, read_vectors(bundle, definition.vectors))))
    done()
    return rows


def chain_trial(path: str | os.PathLike[str], key: KeySource = None) -> None:
    """Let a chain give the answers of its bundle, before it takes the place of an older one.

    Args:
        path: Its folder.
        key: The key file of one that is encrypted.

    Raises:
        ExecutionError: It gives others.
        EdgeInferError: It is wrong, or a model cannot be run here.
    """
    with Chain.open(Bundle.open(path, key=key), cache=StepCache()) as chain:
        vectors = chain.definition.vectors
        said = check_answers(chain, read_vectors(chain.bundle, vectors)) if vectors is not None else []
    if said:
        raise ExecutionError(
            f"the chain `{chain.bundle.manifest.name}` does not give the answers of its bundle: {said[0]}",
            hint=f"edge-infer verify {path}",
        )


def _of_step(step: ChainStep, bundle: Bundle, device: str, backend: str | None) -> list[ChainRow]:
    if WORKS[step.do].holds == "index":
        return [_row(step.name, "files", _index_problem(bundle, step))]
    inside = bundle.inner(step.folder)
    if inside.manifest.generate is not None:
        found = generation_rows(inside, inside.manifest.variants)
        return [ChainRow(step.name, f"generation {one.variant}", one.verdict, one.reason) for one in found]
    rows: list[ChainRow] = []
    vectors = read_pipeline_vectors(inside)
    if vectors is not None:
        said = check_steps(inside, vectors)
        try:
            with Pipeline(load(inside, device=device, backend=backend, arrays="tensor")) as pipeline:
                said += check_pipeline(pipeline, vectors, pipeline.session.report().variant)
        except EdgeInferError as error:
            said.append(error.message)
        rows.append(_row(step.name, "pipeline", said))
    if inside.manifest.examples is not None:
        try:
            load(inside, device=device, backend=backend, self_test=True).close()
            rows.append(ChainRow(step.name, "examples", "ok"))
        except EdgeInferError as error:
            rows.append(ChainRow(step.name, "examples", "fail", error.message))
    return rows or [ChainRow(step.name, "examples", "skip", "the bundle has neither golden examples nor vectors")]


def _index_problem(bundle: Bundle, step: ChainStep) -> list[str]:
    """Read each file of an index, which compares its SHA-256 with the manifest's and the index's own."""
    try:
        for path in bundle.manifest.files:
            if path.startswith(f"{step.folder}/"):
                bundle.read(path)
        place = bundle.file_path(f"{step.folder}/index.json")
        if place is not None:
            Index.open(Path(place).parent)
    except EdgeInferError as error:
        return [error.message]
    return []


def _row(step: str, proof: str, said: list[str]) -> ChainRow:
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return ChainRow(step, proof, "fail" if said else "ok", f"{said[0]}{more}" if said else "")
