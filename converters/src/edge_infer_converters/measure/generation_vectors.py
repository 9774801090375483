"""The vectors of a model that generates text: each variant answers two prompts, greedily and with drawn tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.generation.encoder_decoder import sequence_definition
from edge_infer.generation.generate import generate
from edge_infer.generation.sequence_vectors import make_vector
from edge_infer.generation.vectors import GenerationVector, run_vector, write_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.generation.generator import Generator

_PROMPT = "The quick brown fox"
_MESSAGES = [{"role": "user", "content": "Say hello, 3 times."}]
# Short, so that a conversion and a check in a page take little; a wrong sum shows in a few tokens.
_TOKENS = 12
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.1, "seed": 20261124},
)
# A template that writes today's date renders another text tomorrow.
_CLOCK = b"strftime_now"


def make(folder: Path) -> bytes:
    """Write the vectors of a bundle.

    Args:
        folder: The bundle's folder, with its manifest.

    Raises:
        EdgeInferError: The kernels do not run here, or the model's numbers are not numbers.
    """
    bundle = Bundle.open(folder)
    described = bundle.manifest.generate or {}
    template = described.get("chat_template")
    has_chat = isinstance(template, str) and _CLOCK not in bundle.read(template)
    context = min(int(described["context"]), 512)
    found: list[GenerationVector] = []
    for variant in bundle.manifest.variants:
        with generate(bundle, variant=variant.id, context=context) as generator:
            found += _of_variant(generator, variant.id, has_chat=has_chat)
    if not found:
        raise InputError(f"no prompt has room in the model's context of {context} tokens")
    return write_vectors(found)


def make_sequences(folder: Path) -> bytes:
    """Write the vectors of a bundle with an encoder and a decoder.

    Raises:
        EdgeInferError: No engine runs it here, or the model's numbers are not numbers.
    """
    bundle = Bundle.open(folder)
    encoders = sequence_definition(bundle.manifest).encoders
    return write_vectors([make_vector(bundle, variant) for variant in encoders])


def _of_variant(generator: Generator, variant: str, *, has_chat: bool) -> Iterator[GenerationVector]:
    rendered = _rendered(generator) if has_chat else None
    for options in _OPTIONS:
        more = {**options, "max_tokens": _TOKENS}
        yield _answered(
            generator, GenerationVector(variant, _PROMPT, None, None, generator.tokenize(_PROMPT), more, (), "")
        )
        if rendered is not None:
            encoding = generator.tokenizer.encode(rendered, add_special_tokens=False, truncation=None, padding=None)
            yield _answered(generator, GenerationVector(variant, None, _MESSAGES, rendered, encoding.ids, more, (), ""))


def _rendered(generator: Generator) -> str | None:
    """Render the messages; None where jinja2 is not installed, or the template takes other messages."""
    try:
        return generator.render(_MESSAGES)
    except (UnsupportedError, InputError):
        return None


def _answered(generator: Generator, asked: GenerationVector) -> GenerationVector:
    answer = run_vector(generator, asked)
    return asked._replace(tokens=list(answer.tokens), text=answer.text)
