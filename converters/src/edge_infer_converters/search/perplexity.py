"""What a decoder's weights lose on a text, by the kernels that will run them: perplexity, and divergence from fp32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import InputError
from edge_infer.generation.decoder import Decoder
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer_converters.sources.decoder.tokens import TOKENIZER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from edge_infer_converters.sources.decoder.tokens import Tokens

# Of the text: windows, spread over it, of so many tokens. Every other one measures: 4,096 tokens take seconds.
_WINDOWS, _TOKENS = 32, 256
_MOST_BYTES = 64 * 2**20
_LEAST_TOKENS = 64
# Characters of a text that have at least one token among them, generously.
_CHARACTERS = 8
# Rows of logits at once: 32 of 150,000 tokens take 20 MB, and the kernels are as fast as with more.
_ROWS = 32
# Tokens whose shares are kept for each place; all others count as one.
_KEPT = 256


class Measured(NamedTuple):
    """What weights lose on a text.

    Attributes:
        perplexity: e to the mean of -log of what each next token was given.
        loss: How much more that is than the perplexity of fp32, 0.01 being 1 %.
        divergence: The mean over all places of the Kullback-Leibler divergence from what fp32 foretells, in nats. It
            is the loss to be expected of texts like this one, and tells parts of a model apart where the tokens that
            happen to follow do not.
    """

    perplexity: float
    loss: float
    divergence: float

    @property
    def worst(self) -> float:
        """The larger one of the loss that was seen and of the loss to be expected."""
        return max(self.loss, math.expm1(min(self.divergence, 700.0)))


class _Window(NamedTuple):
    """What fp32 foretells of a window: of each place the likeliest tokens [places, kept] with log of their shares."""

    tokens: Sequence[int]
    ids: np.ndarray
    shares: np.ndarray
    total: float


class Judge:
    """Measures weights against those of fp32.

    Args:
        file: The weights in fp32.
        windows: Tokens; each window is read from an empty cache.
        done: Told how many windows were read.

    Raises:
        BackendError: The kernels do not run here.
    """

    def __init__(
        self, file: Path, windows: Sequence[Sequence[int]], done: Callable[[int], None] = lambda _count: None
    ) -> None:
        self._windows: list[_Window] = []
        with _opened(file, windows) as decoder:
            for tokens in windows:
                ids, shares, total = [], [], 0.0
                for place, found in _foretold(decoder, tokens):
                    kept = min(_KEPT, len(found))
                    ids.append(np.argpartition(found, -kept)[-kept:].astype(np.int32))
                    shares.append(found[ids[-1]])
                    total -= float(found[tokens[place + 1]])
                self._windows.append(_Window(tokens, np.stack(ids), np.stack(shares), total))
                done(1)
        #: The perplexity of fp32.
        self.base = _perplexity(self._windows, [one.total for one in self._windows])

    def measure(self, file: Path, *, every: int = 1, done: Callable[[int], None] = lambda _count: None) -> Measured:
        """Measure a weight file.

        Args:
            file: The file.
            every: Of so many windows one is read.
            done: Told how many windows were read.

        Raises:
            BackendError: The kernels do not run here.
        """
        windows, totals, apart = self._windows[::every], [], 0.0
        with _opened(file, [one.tokens for one in windows]) as decoder:
            for window in windows:
                total, shares = 0.0, np.empty_like(window.shares)
                for place, found in _foretold(decoder, window.tokens):
                    total -= float(found[window.tokens[place + 1]])
                    shares[place] = found[window.ids[place]]
                totals.append(total)
                apart += _divergence(window.shares, shares)
                done(1)
        count, base = sum(len(one.ids) for one in windows), _perplexity(windows, [one.total for one in windows])
        reached = _perplexity(windows, totals)
        return Measured(reached, reached / base - 1, apart / count if math.isfinite(apart) else math.inf)


class Windows(NamedTuple):
    """Windows of tokens, cut out of a text in turn for one and for the other.

    Attributes:
        measured: Those that measure weights.
        read: Those that weights are fitted to; none where the text has one window.
    """

    measured: list[list[int]]
    read: list[list[int]]


def read_windows(path: Path, tokens: Tokens, context: int) -> Windows:
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
    return Windows(found[::2], found[1::2])


def _opened(file: Path, windows: Sequence[Sequence[int]]) -> Decoder:
    return Decoder.open(file, context=max(map(len, windows)), threads=None)


def _foretold(decoder: Decoder, tokens: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Give the places of a window with the logs of the shares of all next tokens, float32 [tokens of the vocabulary].

    Of a whole window they would be 50 MB for 49,000 tokens.
    """
    for first in range(0, len(tokens) - 1, _ROWS):
        places = range(first, min(first + _ROWS, len(tokens) - 1))
        decoder.run([tokens[place] for place in places], [0] * len(places), places, range(len(places)))
        for row, place in enumerate(places):
            logits = np.array(decoder.logits(row), np.float64)
            logits -= logits.max()
            yield place, (logits - math.log(float(np.exp(logits).sum()))).astype(np.float32)


def _perplexity(windows: Sequence[_Window], totals: Sequence[float]) -> float:
    # A model that is broken enough gives infinities: no number is better.
    mean = sum(totals) / sum(len(one.ids) for one in windows)
    return math.exp(mean) if mean < 700 else math.inf


def _divergence(exact: np.ndarray, found: np.ndarray) -> float:
    """Return the divergence summed over places; all tokens that are not kept count as one."""
    p, q = np.exp(exact, dtype=np.float64), np.exp(found, dtype=np.float64)
    rest_p, rest_q = np.maximum(1 - p.sum(1), 1e-12), np.maximum(1 - q.sum(1), 1e-12)
    return float((p * (exact - found)).sum() + (rest_p * np.log(rest_p / rest_q)).sum())


def _first(generate: dict[str, Any]) -> list[int]:
    """Return the token that begins a text, where the model wants one."""
    bos = generate.get("bos")
    return [bos] if generate.get("add_bos") and isinstance(bos, int) else []
