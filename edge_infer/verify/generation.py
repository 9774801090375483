"""Run the vectors of a bundle that generates text: the same tokens must come out here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError
from edge_infer.generation.encoder_decoder import SequenceModel
from edge_infer.generation.generate import generate
from edge_infer.generation.sequence_vectors import has_sequences, sequence_difference
from edge_infer.generation.vectors import difference, read_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
    from edge_infer.generation.vectors import GenerationVector

# A prompt and its answer need few positions; the cache takes memory for all of them.
_SPARE_POSITIONS = 8


class GenerationRow(NamedTuple):
    """What came out of one variant.

    Attributes:
        variant: Its id.
        vectors: How many prompts it was asked.
        tokens: How many new tokens were compared.
        verdict: `ok`, `fail`, or `skip` where nothing can be compared.
        reason: What differs, or why it cannot run.
        backend: The engine; empty for the kernels, or where none was asked for.
    """

    variant: str
    vectors: int
    tokens: int
    verdict: str
    reason: str = ""
    backend: str = ""

    def to_json(self) -> dict[str, Any]:
        """Describe this for machines."""
        return self._asdict()


def generation_rows(
    bundle: Bundle, variants: Sequence[Variant], done: Callable[[], None] = lambda: None
) -> list[GenerationRow]:
    """Run the vectors of some variants.

    Args:
        bundle: The bundle.
        variants: Those of format `decoder`; of models with an encoder and a decoder those of the decoder.
        done: Told when a variant is done.

    Raises:
        BundleError: The file of vectors is damaged.
    """
    if has_sequences(bundle.manifest):
        return sequence_rows(bundle, [one.id for one in variants], done)
    vectors = read_vectors(bundle)
    rows = []
    for variant in variants:
        rows.append(_row(bundle, variant, [one for one in vectors if one.variant == variant.id]))
        done()
    return rows


def sequence_rows(
    bundle: Bundle,
    variants: Sequence[str],
    done: Callable[[], None] = lambda: None,
    *,
    backend: str | None = None,
    device: str = "auto",
    ask: Callable[[str], str] | None = None,
) -> list[GenerationRow]:
    """Run the vectors of a model with an encoder and a decoder.

    Args:
        bundle: The bundle.
        variants: Ids of variants of the decoder.
        done: Told when a variant is done.
        backend: The engine; None for the one that `load` takes.
        device: What it runs on.
        ask: Runs the vectors of a variant elsewhere and returns what differs; None to run them here.

    Raises:
        BundleError: The file of vectors is damaged.
    """
    vectors = read_vectors(bundle)

    def differs(variant: str) -> str:
        with SequenceModel(bundle, variant, backend=backend, device=device, strict=True) as model:
            mine = (one for one in vectors if one.variant == variant)
            return next(filter(None, (sequence_difference(bundle, model, one) for one in mine)), "")

    rows = []
    for variant in variants:
        mine = [one for one in vectors if one.variant == variant]
        row = GenerationRow(variant, len(mine), sum(len(one.tokens) for one in mine), "ok", backend=backend or "")
        if not mine:
            row = row._replace(verdict="skip", reason="the bundle has no vectors of it")
        else:
            try:
                found = (ask or differs)(variant)
            except EdgeInferError as error:
                found = error.message
            row = row._replace(verdict="fail", reason=found) if found else row
        rows.append(row)
        done()
    return rows


def context_of(vectors: Sequence[GenerationVector], most: int) -> int:
    """Return how many positions some vectors need, at most those of the model."""
    needed = max((len(one.ids) + int(one.options.get("max_tokens", len(one.tokens))) for one in vectors), default=1)
    return min(needed + _SPARE_POSITIONS, most)


def _row(bundle: Bundle, variant: Variant, vectors: Sequence[GenerationVector]) -> GenerationRow:
    count, tokens = len(vectors), sum(len(one.tokens) for one in vectors)
    if not vectors:
        return GenerationRow(variant.id, 0, 0, "skip", "the bundle has no vectors of it")
    most = int((bundle.manifest.generate or {}).get("context", 1))
    try:
        with generate(bundle, variant=variant.id, context=context_of(vectors, most)) as generator:
            for vector in vectors:
                if found := difference(generator, vector):
                    return GenerationRow(variant.id, count, tokens, "fail", found)
    except EdgeInferError as error:
        return GenerationRow(variant.id, count, tokens, "fail", error.message)
    return GenerationRow(variant.id, count, tokens, "ok")
