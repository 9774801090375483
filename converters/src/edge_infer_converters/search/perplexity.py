"""Perplexity of a decoder's weights on a text, by the kernels that will run them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import InputError
from edge_infer.generation.decoder import Decoder
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer_converters.sources.decoder.tokens import TOKENIZER_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edge_infer_converters.sources.decoder.tokens import Tokens

#: Of the text: windows, spread over it, of so many tokens. 4,096 tokens tell roundings apart, and take seconds.
_WINDOWS, _TOKENS = 16, 256
_MOST_BYTES = 64 * 2**20
_LEAST_TOKENS = 64
# Characters of a text that have at least one token among them, generously.
_CHARACTERS = 8
# Rows of logits at once: 64 of 150,000 tokens take 40 MB.
_ROWS = 64


def read_windows(path: Path, tokens: Tokens, context: int) -> list[list[int]]:
    """Cut windows of tokens out of a text, spread over all of it.

    Args:
        path: A file of text, UTF-8.
        tokens: The model's.
        context: The model's longest sequence.

    Raises:
        InputError: There is no such file, it is not text, or it is too short or too long.
    """
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise InputError(
                f"`{path}` has {size} bytes, expected at most {_MOST_BYTES}", hint="a part of it is enough"
            )
        text = path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}", hint="--calibration FILE.txt") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"`{path}` is no text: byte {error.start} is not UTF-8",
            hint="--calibration FILE.txt, a text of the kind that the model will see",
        ) from error
    tokenizer = Tokenizer.from_bytes(tokens.files[TOKENIZER_NAME])
    length = min(_TOKENS, context)
    start = _first(tokens.generate)
    body = length - len(start)

    def encoded(part: str) -> list[int]:
        return tokenizer.encode(part, add_special_tokens=False, truncation=None, padding=None).ids

    span = body * _CHARACTERS
    if len(text) > _WINDOWS * span:
        places = [number * (len(text) - span) // (_WINDOWS - 1) for number in range(_WINDOWS)]
        parts = [encoded(text[place : place + span])[:body] for place in places]
    else:
        whole = encoded(text)
        parts = [whole[place : place + body] for place in range(0, len(whole), body)]
        if len(parts) > _WINDOWS:
            parts = [parts[number * (len(parts) - 1) // (_WINDOWS - 1)] for number in range(_WINDOWS)]
    found = [[*start, *part] for part in parts if len(start) + len(part) > 1]
    count = sum(len(one) - 1 for one in found)
    if count < min(_LEAST_TOKENS, length - 1):
        raise InputError(
            f"`{path}` has {count} tokens to foretell, expected {_LEAST_TOKENS} or more",
            hint="take a text of some pages, of the kind that the model will see",
        )
    return found


def perplexity(file: Path, windows: Sequence[Sequence[int]]) -> float:
    """Return the perplexity of windows of tokens: e to the mean of -log of what each next token was given.

    Args:
        file: A weight file.
        windows: Each is read from an empty cache.

    Raises:
        BackendError: The kernels do not run here.
    """
    total, count = 0.0, 0
    with Decoder.open(file, context=max(map(len, windows)), threads=None) as decoder:
        for window in windows:
            for first in range(0, len(window) - 1, _ROWS):
                places = range(first, min(first + _ROWS, len(window) - 1))
                rows = range(len(places))
                decoder.run([window[place] for place in places], [0] * len(places), places, rows)
                for row, place in enumerate(places):
                    logits = np.array(decoder.logits(row), np.float64)
                    largest = float(logits.max())
                    total += (
                        math.log(float(np.exp(logits - largest).sum())) + largest - float(logits[window[place + 1]])
                    )
                    count += 1
    # A model that is broken enough gives infinities: no number is better.
    mean = total / count
    return math.exp(mean) if mean < 700 else math.inf


def _first(generate: dict[str, Any]) -> list[int]:
    """Return the token that begins a text, where the model wants one."""
    bos = generate.get("bos")
    return [bos] if generate.get("add_bos") and isinstance(bos, int) else []
