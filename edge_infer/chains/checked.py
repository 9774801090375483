"""A chain with the bundles of its steps, checked by name and kind; nothing is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.chains.definition import read_chain
from edge_infer.chains.kinds import WORKS, Kind
from edge_infer.chains.steps.described import kind_of
from edge_infer.errors import ManifestError, UnsupportedError, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainDefinition, ChainStep, Reference
    from edge_infer.chains.steps.described import Described


#: What does each word of `WORKS`: its `describe(step, bundle)`.
_MODULES = {
    "crop": "edge_infer.chains.steps.crop",
    "cut": "edge_infer.chains.steps.cut",
    "generate": "edge_infer.chains.steps.generate",
    "model": "edge_infer.chains.steps.model",
    "prompt": "edge_infer.chains.steps.prompt",
    "rank": "edge_infer.chains.steps.rank",
    "search": "edge_infer.chains.steps.search",
    "tensors": "edge_infer.chains.steps.tensors",
}


class CheckedChain(NamedTuple):
    """A chain that fits together.

    Attributes:
        bundle: Its bundle.
        definition: What its manifest says.
        steps: The steps in the order in which they run.
        kinds: The kinds of the inputs and of what each step makes.
        depths: By step, how deep the lists are that it reads.
    """

    bundle: Bundle
    definition: ChainDefinition
    steps: Sequence[Described]
    kinds: dict[str, Kind]
    depths: dict[str, dict[str, int]]


def check_chain(bundle: Bundle) -> CheckedChain:
    """Check the chain of a bundle.

    Raises:
        UnsupportedError: It is not a chain.
        ManifestError: Its definition is wrong, a step's bundle is not what the step needs, or a step reads what it does
            not take.
        BundleError: An index or a manifest inside is wrong.
    """
    if bundle.manifest.chain is None:
        raise UnsupportedError(
            f"`{bundle.manifest.name}` is not a chain", hint="edge_infer.load(...), edge_infer.pipeline(...)"
        )
    definition = read_chain(bundle.manifest.chain)
    kinds = {name: Kind(kind) for name, kind in definition.inputs.items()}
    steps: dict[str, Described] = {}
    depths: dict[str, dict[str, int]] = {}
    for step in definition.steps:
        described = _describe(step, bundle)
        kinds[step.name], depths[step.name] = kind_of(described, kinds)
        steps[step.name] = described
        if step.do == "search":
            _check_vectors(step, bundle, steps)
        for reference in step.reads.values():
            _check_field(reference, steps, f"step `{step.name}` reads")
    for reference in definition.answers.values():
        if reference.field and kinds[reference.name].name != "tensors":
            raise ManifestError(
                f"chain: it answers with `{reference}`, and `{reference.name}` gives {kinds[reference.name]}",
                hint=f"answer with `{reference.name}`",
                field=reference.name,
            )
        _check_field(reference, steps, "the chain answers with")
    return CheckedChain(bundle, definition, [*steps.values()], kinds, depths)


def _describe(step: ChainStep, bundle: Bundle) -> Described:
    inside = bundle
    if WORKS[step.do].holds == "bundle":
        if f"{step.folder}/manifest.json" not in bundle.manifest.files:
            raise ManifestError(
                f"chain: step `{step.name}`: there is no bundle `{step.folder}` in the chain",
                hint="build the chain again: edge-infer chain",
                field=step.name,
            )
        inside = bundle.inner(step.folder)
        if inside.manifest.chain is not None:
            raise ManifestError(
                f"chain: step `{step.name}`: `{step.folder}` is a chain itself",
                hint="write its steps into this chain",
                field=step.name,
            )
    elif step.folder and f"{step.folder}/index.json" not in bundle.manifest.files:
        raise ManifestError(
            f"chain: step `{step.name}`: there is no index `{step.folder}` in the chain",
            hint="build the chain again: edge-infer chain",
            field=step.name,
        )
    described: Described = import_module(_MODULES[step.do]).describe(step, inside)
    return described


def _check_field(reference: Reference, steps: dict[str, Described], said: str) -> None:
    """Check that a model has an output that is asked for, where its manifest tells."""
    described = steps.get(reference.name)
    if not reference.field or described is None or described.bundle is None:
        return
    known = [spec.name for spec in described.bundle.manifest.outputs]
    if known and reference.field not in known:
        raise ManifestError(
            f"chain: {said} `{reference}`, and the model of `{reference.name}` gives {listed(known)}",
            field=reference.name,
        )


def _check_vectors(step: ChainStep, bundle: Bundle, steps: dict[str, Described]) -> None:
    """Check that the vector of a search is made by the model that the index was built by, and as it was."""
    from edge_infer.chains.steps.search import catalogue_of

    reference, embedding = step.reads.get("vector"), catalogue_of(step, bundle).embedding
    maker = steps.get(reference.name) if reference is not None else None
    if maker is None or maker.bundle is None or embedding is None:
        return
    if maker.bundle.revision != embedding.revision:
        raise ManifestError(
            f"chain: step `{step.name}`: the index was built by revision {embedding.revision[:12]} of "
            f"`{embedding.name}`, and `{maker.step.name}` is {maker.bundle.revision[:12]}",
            hint="use the bundle that the index was built by, or build the index again",
            field=step.name,
            expected=embedding.revision,
            got=maker.bundle.revision,
        )
    prefix = embedding.query_prefix
    readers = [steps.get(one.name) for one in maker.step.reads.values()]
    if prefix and not any(
        one is not None and one.step.do == "prompt" and one.step.parameters["template"].startswith(prefix)
        for one in readers
    ):
        raise ManifestError(
            f"chain: step `{step.name}`: queries of the index begin with {prefix!r}, and not those here",
            hint=f'a step {{"do": "prompt", "with": {{"template": "{prefix}{{text}}"}}}} before it',
            field=step.name,
        )
