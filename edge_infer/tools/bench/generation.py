"""How fast a model that generates text reads prompts and writes tokens here."""

from __future__ import annotations

import time
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.generation.generate import open_decoder
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
    from edge_infer.generation.decoder import Decoder

#: Tokens of the longer prompt, and of the short one.
_LONG, _SHORT = 512, 16


class GenerationSpeed(NamedTuple):
    """What one variant does.

    Attributes:
        variant: Its id.
        size_bytes: Of its file.
        what: `prefill`, which reads a prompt, or `decode`, which writes tokens one by one.
        position: Tokens of the prompt: decoding is slower behind a longer one.
        per_s: Tokens of each second, the median of the rounds.
        spread: Half the distance of the quartiles over the median.
    """

    variant: str
    size_bytes: int
    what: str
    position: int
    per_s: float
    spread: float


def measure_generation(
    bundle: Bundle, variants: Sequence[Variant], *, rounds: int, seconds: float, progress: Callable[[], None]
) -> list[GenerationSpeed]:
    """Measure variants, one prompt at a time and the most likely tokens being taken.

    Args:
        bundle: The bundle.
        variants: Those of format `decoder`.
        rounds: How often each figure is measured; variants take turns.
        seconds: How long tokens are written in each round, at most.
        progress: Told when a variant's round is over.

    Raises:
        EdgeInferError: A variant does not run here.
    """
    found: dict[tuple[str, str, int], list[float]] = {}
    context = int((bundle.manifest.generate or {}).get("context", 1))
    longest = min(2 * _LONG, context)
    for _ in range(rounds):
        for variant in variants:
            with open_decoder(bundle, variant, slots=1, context=longest) as decoder:
                for count in dict.fromkeys((min(_SHORT, longest // 2), min(_LONG, longest // 2))):
                    read, written = _once(decoder, count, seconds)
                    found.setdefault((variant.id, "prefill", count), []).append(read)
                    found.setdefault((variant.id, "decode", count), []).append(written)
            progress()
    sizes = {variant.id: bundle.manifest.files[variant.file].size for variant in variants}
    return [GenerationSpeed(key[0], sizes[key[0]], key[1], key[2], *_summary(values)) for key, values in found.items()]


def _once(decoder: Decoder, count: int, seconds: float) -> tuple[float, float]:
    """Return the tokens of each second: of the prompt until the first new token, and of the new ones after it."""
    slots = Slots(decoder)
    prompt = [7919 * at % decoder.config.vocab_size for at in range(count)]
    job = slots.submit(prompt, GenerationOptions(max_tokens=decoder.context - count, temperature=0.0))
    start = time.perf_counter()
    while not job.tokens:
        slots.step()
    first = end = time.perf_counter()
    while job.finish_reason is None and end - first < seconds:
        slots.step()
        end = time.perf_counter()
    return count / (first - start), (len(job.tokens) - 1) / max(end - first, 1e-9)


def _summary(values: Sequence[float]) -> tuple[float, float]:
    middle = median(values)
    if len(values) < 2 or not middle:
        return middle, 0.0
    low, _, high = quantiles(values, n=4, method="inclusive")
    return middle, (high - low) / 2 / middle
