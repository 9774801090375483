"""The vectors of a bundle's pipeline: each variant answers made-up raw inputs on its exact engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import edge_infer
from edge_infer.errors import InputError
from edge_infer.runtime.selection import exact_engine
from edge_infer.tasks import vector_making, vectors
from edge_infer.tasks.definition import definition_of
from edge_infer.tasks.pipeline import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.bundle.variant import Variant


def make(folder: Path, source: str) -> bytes:
    """Write the vectors of a bundle.

    Args:
        folder: The bundle's folder, with a manifest that has a definition.
        source: The id of the variant that says what is right; the first one does where it was not asked for.

    Raises:
        EdgeInferError: The steps, or the model, take none of the made-up inputs; the message says why.
    """
    bundle = edge_infer.Bundle.open(folder)
    definition = definition_of(bundle.manifest)
    cases, failure = [], None
    right = next((one for one in bundle.manifest.variants if one.id == source), bundle.manifest.variants[0])
    with _pipeline(folder, right) as pipeline:
        for case in vector_making.cases_for(definition):
            try:
                vectors.ask(pipeline, case)
            except InputError as error:  # such as a sound that is too short for a model's frames
                failure = error
                continue
            cases.append(vector_making.with_something_found(definition, case, partial(vectors.ask, pipeline)))
    if not cases:
        raise failure or InputError("nothing makes raw inputs for this task")
    answers = {}
    for variant in bundle.manifest.variants:
        with _pipeline(folder, variant) as pipeline:
            answers[variant.id] = [vectors.ask(pipeline, case) for case in cases]
    return vector_making.write(bundle, cases, answers, right.id)


def _pipeline(folder: Path, variant: Variant) -> Pipeline:
    backend = exact_engine(variant.format)
    options: Any = {"device": "cpu", "strict": True, "arrays": "tensor"}
    if variant.format != "compiled":  # its kernels have one thread, and take no number
        options["threads"] = 1
    return Pipeline(edge_infer.load(folder, variant=variant.id, backend=backend, **options))
