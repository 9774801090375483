"""Vectors of models with an encoder and a decoder: one text or sound for each variant, and the most likely tokens.

Engines add in orders of their own. So the tokens end before the first that another order could change: one whose logit
leads by less than a share of the logits' spread.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.generation.encoder_decoder import KIND, SequenceModel
from edge_infer.generation.speech import Recognizer
from edge_infer.generation.vectors import GenerationVector
from edge_infer.tasks.vectors import Case, made
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.manifest import Manifest

_PROMPT = "The quick brown fox jumps over 13 lazy dogs."
_SOUND = {"rate": 16_000, "samples": 16_001}
_TOKENS = 12
#: By precision the share of the spread that logits may be off by.
_SHARES = {"fp32": 1e-3, "fp16": 3e-2, "int8": 0.1}
_KEPT_LOGITS = 4


class _Asked(NamedTuple):
    """What the decoder is given.

    Attributes:
        ids: The tokens of the text, or those that the decoder begins with at a sound.
        crossed: What the encoder gives.
        prompt: The tokens that the decoder begins with.
        rules: Change logits before a token is taken.
        text: Makes a text of tokens.
    """

    ids: list[int]
    crossed: dict[str, Any]
    prompt: list[int]
    rules: Callable[[list[float], list[int]], None]
    text: Callable[[list[int]], str]


def has_sequences(manifest: Manifest) -> bool:
    """Tell whether a bundle has an encoder and a decoder."""
    return (manifest.generate or {}).get("kind") == KIND


def make_vector(bundle: Bundle, variant: str) -> GenerationVector:
    """Let a variant answer a made-up input.

    Args:
        bundle: The bundle.
        variant: The id of a decoder's variant.

    Raises:
        EdgeInferError: No engine runs it here, or its logits are not numbers.
    """
    with SequenceModel(bundle, variant) as model:
        sound = _SOUND if model.definition.speech else None
        asked = _ask(model, None if sound else _PROMPT, sound)
        leads: list[tuple[float, float]] = []
        try:
            tokens = list(model.tokens(asked.crossed, asked.prompt, _room(model, asked), _noting(asked, leads)))
            logits = model.first_logits(asked.crossed, asked.prompt)
        finally:
            model.forget(asked.crossed)
    share = _share(bundle, variant)
    sure = next((at for at, (lead, spread) in enumerate(leads) if lead <= 2 * share * spread), None)
    # An answer that is not cut has ended by itself, or has all the tokens that it may have.
    options = {"max_tokens": _room(model, asked) if sure is None else sure}
    kept = tokens[:sure]
    best = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:_KEPT_LOGITS]
    return GenerationVector(
        *(variant, None if sound else _PROMPT, None, None, asked.ids, options, kept, asked.text(kept)),
        sound=sound,
        logits=[(token, float(f"{logits[token]:.7g}")) for token in best],
    )


def sequence_difference(bundle: Bundle, model: SequenceModel, vector: GenerationVector) -> str:
    """Return what differs from a vector in a few words; an empty text where all is equal.

    Raises:
        EdgeInferError: The input is not what the model takes, or the engine failed.
    """
    asked = _ask(model, vector.prompt, vector.sound)
    try:
        if asked.ids != list(vector.ids):
            return f"the {'sound' if vector.prompt is None else 'prompt'} has other tokens"
        logits = model.first_logits(asked.crossed, asked.prompt)
        most = min(int(vector.options.get("max_tokens", _TOKENS)), _room(model, asked))
        tokens = list(model.tokens(asked.crossed, asked.prompt, most, asked.rules))
    finally:
        model.forget(asked.crossed)
    allowed = _share(bundle, vector.variant) * _spread(logits)
    for token, expected in vector.logits or ():
        if not 0 <= token < len(logits) or abs(logits[token] - expected) > allowed:
            got = logits[token] if 0 <= token < len(logits) else None
            return f"the first logit of token {token} is {got}, expected {expected} +- {allowed:.2g}"
    for place, (got, expected) in enumerate(zip(tokens, vector.tokens, strict=False)):
        if got != expected:
            return f"greedy token {place} is {got}, expected {expected}"
    if len(tokens) != len(vector.tokens):
        return f"there are {len(tokens)} greedy tokens, expected {len(vector.tokens)}"
    return "" if asked.text(tokens) == vector.text else "the greedy text differs"


def _ask(model: SequenceModel, prompt: str | None, sound: Mapping[str, int] | None) -> _Asked:
    if sound is not None:
        recognizer = Recognizer(model)
        crossed, begin = recognizer.first_window(made(Case({"sound": dict(sound)}, {})))
        return _Asked(begin, crossed, begin, recognizer.plain_rules, recognizer.text)
    ids = model.tokenize(prompt or "")
    crossed = model.encode({"input_ids": Tensor.from_list([ids], DType.INT64)})
    return _Asked(ids, crossed, [model.definition.start], lambda _logits, _tokens: None, model.tokenizer.decode)


def _room(model: SequenceModel, asked: _Asked) -> int:
    context = model.definition.context
    return min(_TOKENS, context - len(asked.prompt)) if context else _TOKENS


def _noting(asked: _Asked, leads: list[tuple[float, float]]) -> Callable[[list[float], list[int]], None]:
    """Return the rules, which note for each token how far its logit leads, and the spread of all."""

    def rules(logits: list[float], tokens: list[int]) -> None:
        spread = _spread(logits)
        asked.rules(logits, tokens)
        first = max(logits)
        at = logits.index(first)
        second = max((one for token, one in enumerate(logits) if token != at), default=float("-inf"))
        leads.append((first - second, spread))

    return rules


def _spread(logits: list[float]) -> float:
    mean = fsum(logits) / len(logits)
    return sqrt(fsum((one - mean) ** 2 for one in logits) / len(logits))


def _share(bundle: Bundle, variant: str) -> float:
    return _SHARES.get(bundle.manifest.variant(variant).precision, _SHARES["int8"])
