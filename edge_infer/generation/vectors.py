"""Prompts with the tokens that must come out: a bundle carries them, and every place can prove itself by them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.generation.completion import Completion
    from edge_infer.generation.generator import Generator

#: The file's name inside a bundle.
NAME = "generation_vectors.json"
_MAX_BYTES = 2**22
_HINT = "convert the model again"


class GenerationVector(NamedTuple):
    """One prompt and what must come out.

    Attributes:
        variant: The id of the weights that answered; others may answer differently.
        prompt: A text to go on from; None for messages.
        messages: A conversation; None for a prompt.
        rendered: What the chat template makes of the messages; None for a prompt.
        ids: The tokens of the prompt.
        options: All options of the generation that are not left to the bundle's defaults.
        tokens: The new tokens.
        text: Their text, as the answer has it.
        sound: A made-up sound's `rate` and `samples` (`edge_infer/tasks/vectors.py`); None for texts.
        logits: Of models with an encoder and a decoder the best first tokens, each with its logit; else None.
    """

    variant: str
    prompt: str | None
    messages: Sequence[Mapping[str, Any]] | None
    rendered: str | None
    ids: Sequence[int]
    options: Mapping[str, Any]
    tokens: Sequence[int]
    text: str
    sound: Mapping[str, int] | None = None
    logits: Sequence[tuple[int, float]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Describe this as the file does; what is None is left out."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def write_vectors(vectors: Sequence[GenerationVector]) -> bytes:
    """Return the bytes of the file: JSON with a line for each vector."""
    lines = (json.dumps(one.to_json(), ensure_ascii=False) for one in vectors)
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode(errors="replace")


def read_vectors(bundle: Bundle) -> list[GenerationVector]:
    """Return the vectors of a bundle; none where it has no file of them.

    Raises:
        BundleError: The file is damaged, or an entry lacks a field or has another type in it.
    """
    path = (bundle.manifest.generate or {}).get("vectors")
    if not isinstance(path, str):
        return []
    data = bundle.read(path)
    if len(data) > _MAX_BYTES:
        raise BundleError(f"`{path}` has {len(data)} bytes, expected at most {_MAX_BYTES}", hint=_HINT)
    try:
        entries = json.loads(data)
        if not isinstance(entries, list):
            raise TypeError("it holds no list")
        return [_vector(entry) for entry in entries]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BundleError(f"`{path}` is not a file of vectors: {error}", hint=_HINT) from error


def _vector(entry: Any) -> GenerationVector:
    found = GenerationVector(
        entry["variant"],
        entry.get("prompt"),
        entry.get("messages"),
        entry.get("rendered"),
        entry["ids"],
        entry["options"],
        entry["tokens"],
        entry["text"],
        entry.get("sound"),
        entry.get("logits"),
    )
    for tokens in (found.ids, found.tokens):
        if not isinstance(tokens, list) or any(type(one) is not int for one in tokens):
            raise TypeError("`ids` and `tokens` are lists of whole numbers")
    texts = (found.variant, found.text, found.prompt or "", found.rendered or "")
    if not all(isinstance(one, str) for one in texts) or not isinstance(found.options, dict):
        raise TypeError("`variant`, `prompt`, `rendered` and `text` are texts, `options` an object")
    if [found.prompt, found.messages, found.sound].count(None) != 2:
        raise TypeError("an entry has a prompt, messages or a sound")
    if not isinstance(found.options.get("max_tokens", 0), int) or not isinstance(found.sound or {}, dict):
        raise TypeError("`max_tokens` is a whole number, `sound` an object")
    if any(type(token) is not int or not isinstance(value, (int, float)) for token, value in found.logits or ()):
        raise TypeError("`logits` are pairs of a token and a number")
    return found


def run_vector(generator: Generator, vector: GenerationVector) -> Completion:
    """Answer the prompt of a vector.

    Raises:
        The errors of `Generator.stream`.
    """
    if vector.prompt is not None:
        return generator.complete(vector.prompt, **vector.options)
    return generator.chat(vector.messages or (), **vector.options)


def difference(generator: Generator, vector: GenerationVector) -> str:
    """Return what differs from a vector in a few words; an empty text where all is equal.

    Raises:
        The errors of `Generator.stream`.
    """
    name = "prompt" if vector.prompt is not None else "messages"
    if vector.prompt is not None:
        ids = generator.tokenize(vector.prompt)
    else:
        rendered = generator.render(vector.messages or ())
        if rendered != vector.rendered:
            return "the chat template renders another text"
        ids = generator.tokenizer.encode(rendered, add_special_tokens=False, truncation=None, padding=None).ids
    if ids != list(vector.ids):
        return f"the {name} has other tokens"
    found = run_vector(generator, vector)
    kind = "greedy" if vector.options.get("temperature") == 0 else "sampled"
    for place, (got, expected) in enumerate(zip(found.tokens, vector.tokens, strict=False)):
        if got != expected:
            return f"{kind} token {place} is {got}, expected {expected}"
    if len(found.tokens) != len(vector.tokens):
        return f"there are {len(found.tokens)} {kind} tokens, expected {len(vector.tokens)}"
    return "" if found.text == vector.text else f"the {kind} text differs"
