"""Models with an encoder and a decoder: two graphs of a bundle, run by an engine, token after token.

The encoder gives keys and values for each layer of the decoder, which stay in the engine; so do those of the decoder's
own tokens (`Session.stream`). The most likely token is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from edge_infer.errors import ExecutionError, InputError, ManifestError, UnsupportedError, listed
from edge_infer.runtime.load import load
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.manifest import Manifest
    from edge_infer.runtime.session import Session

KIND = "encoder-decoder/1"
_TOKENS = "input_ids"


def _nothing(logits: list[float], tokens: list[int]) -> None:
    """Change no logits."""


@dataclass(frozen=True, slots=True)
class SequenceDefinition:
    """The field `generate` of a bundle of this kind, checked (docs/concepts/bundle.md).

    Args:
        architecture: The family's name, for people.
        vocab_size: Tokens of the model.
        context: The longest sequence of the decoder; 0 for any.
        tokenizer: The path of `tokenizer.json` in the bundle.
        encoders: By variant of the decoder, the variant of the encoder.
        start: The token that the decoder begins with.
        eos: The tokens that end an answer.
        prefix: What stands before every text.
        speech: What Whisper's windows and tokens are; empty for models of text.
    """

    architecture: str
    vocab_size: int
    context: int
    tokenizer: str
    encoders: Mapping[str, str]
    start: int
    eos: tuple[int, ...]
    prefix: str
    speech: Mapping[str, Any]


def sequence_definition(manifest: Manifest) -> SequenceDefinition:
    """Read what a bundle says.

    Raises:
        UnsupportedError: It says nothing, or is of another kind.
        ManifestError: A field is missing or of another type.
    """
    entry = manifest.generate or {}
    if entry.get("kind") != KIND:
        raise UnsupportedError(
            f"`{manifest.name}` is not a model with an encoder and a decoder", hint='pipeline("text-generation", ...)'
        )
    found: dict[str, Any] = {
        name: _field(entry, name, kind)
        for name, kind in (
            *(("architecture", str), ("vocab_size", int), ("context", int), ("tokenizer", str)),
            *(("encoders", dict), ("start", int), ("eos", list), ("prefix", str), ("speech", dict)),
        )
    }
    ids = {variant.id for variant in manifest.variants}
    encoders: dict[str, Any] = found["encoders"]
    if not encoders or not all(isinstance(one, str) for one in encoders.values()):
        raise ManifestError("manifest: `generate.encoders` must name a variant for each variant of the decoder")
    if lost := sorted({*encoders, *encoders.values()} - ids):
        raise ManifestError(f"manifest: `generate.encoders` names {listed(lost)}, which are not variants")
    tokens = [found["start"], *found["eos"]]
    if any(type(one) is not int or not 0 <= one < found["vocab_size"] for one in tokens):
        raise ManifestError("manifest: `generate.start` and `generate.eos` must be tokens of the vocabulary")
    return SequenceDefinition(**{**found, "eos": tuple(found["eos"])})


def _field(entry: Mapping[str, Any], name: str, kind: type) -> Any:
    value = entry.get(name)
    if value is None and name in ("prefix", "speech"):
        return kind()
    is_negative = isinstance(value, int) and value < 0
    if not isinstance(value, kind) or isinstance(value, bool) or is_negative:
        raise ManifestError(f"manifest: `generate.{name}` is {value!r}, expected {kind.__name__}")
    return value


class SequenceModel:
    """An encoder and a decoder, loaded; use it in a `with` statement, or close it.

    Args:
        bundle: The bundle.
        variant: The id of the decoder's variant; None for the preferred one.
        options: What `load` takes: `device`, `backend`, `threads`, ...

    Attributes:
        definition: What the bundle says.
        tokenizer: Its tokenizer.

    Raises:
        UnsupportedError: The bundle is of another kind.
        InputError: There is no such variant.
        EdgeInferError: What `load` raises.
    """

    def __init__(self, bundle: Bundle, variant: str | None = None, **options: Any) -> None:
        self.definition = sequence_definition(bundle.manifest)
        encoders = self.definition.encoders
        if variant is not None and variant not in encoders:
            raise InputError(
                f"`{variant}` is not a variant of a decoder here; choose from {listed(list(encoders))}",
                allowed=list(encoders),
            )
        chosen = variant or next(iter(encoders))
        self.tokenizer = Tokenizer.from_bytes(bundle.read(self.definition.tokenizer))
        given = {**options, "arrays": "tensor"}
        self.encoder = load(bundle, variant=encoders[chosen], **given)
        try:
            self.decoder: Session = load(bundle, variant=chosen, **given)
        except BaseException:
            self.encoder.close()
            raise
        self.variant = chosen

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text, behind what the bundle puts before every text.

        Raises:
            InputError: There are none, or the model lacks one.
        """
        ids = self.tokenizer.encode(self.definition.prefix + text, truncation=None, padding=None).ids
        if not ids:
            raise InputError("the text has no tokens", hint="give a text of at least one character")
        wrong = next((one for one in ids if one >= self.definition.vocab_size), None)
        if wrong is not None:
            raise InputError(f"the text has the token {wrong}, the model has {self.definition.vocab_size} tokens")
        return ids

    def encode(self, feeds: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the keys and values that the decoder attends to; they stay in the engine."""
        names = [spec.name for spec in self.encoder.outputs]
        return self.encoder.run(feeds, names, keep=names)

    def tokens(
        self,
        crossed: Mapping[str, Any],
        prompt: Sequence[int],
        most: int,
        change: Callable[[list[float], list[int]], None] = _nothing,
    ) -> Iterator[int]:
        """Give the tokens of an answer, the one that ends it left out.

        Args:
            crossed: What `encode` returned.
            prompt: The tokens that the decoder is given first.
            most: How many tokens are given at most.
            change: Told the logits of a step and the tokens of the answer so far; what it sets to minus infinity is
                not taken.

        Raises:
            ExecutionError: The engine failed, or a logit is not a number.
            ManifestError: The decoder gives fewer logits than the bundle has tokens.
        """
        given: list[int] = list(prompt)
        found: list[int] = []
        with self.decoder.stream(initial=self._empty()) as stream:
            while len(found) < most:
                feeds = {_TOKENS: Tensor.from_list([given], DType.INT64), **crossed}
                token = best_token(self._whole(stream.step(feeds)["logits"]), found, change)
                if token in self.definition.eos:
                    return
                found.append(token)
                given = [token]
                yield token

    def first_logits(self, crossed: Mapping[str, Any], prompt: Sequence[int]) -> list[float]:
        """Return the logits of the token behind a prompt."""
        with self.decoder.stream(initial=self._empty()) as stream:
            feeds = {_TOKENS: Tensor.from_list([list(prompt)], DType.INT64), **crossed}
            return _checked(self._whole(stream.step(feeds)["logits"]))

    def forget(self, crossed: Mapping[str, Any]) -> None:
        """Give the memory of what `encode` returned back."""
        for one in crossed.values():
            if isinstance(one, Tensor):
                one.close()

    def close(self) -> None:
        """Give the memory back."""
        self.encoder.close()
        self.decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _whole(self, logits: Any) -> Any:
        """Return logits; the rules of tokens read and change any token of the vocabulary."""
        count, size = logits.shape[-1], self.definition.vocab_size
        if count < size:
            raise ManifestError(
                f"manifest: `generate.vocab_size` is {size}, the decoder `{self.variant}` gives {count} logits",
                hint="convert the model again",
            )
        return logits

    def _empty(self) -> dict[str, Tensor]:
        """Return keys and values of no position."""
        pasts = set(self.decoder.state_pairs.values())
        shapes = {
            spec.name: tuple(dim if isinstance(dim, int) else 0 for dim in spec.shape)
            for spec in self.decoder.inputs
            if spec.name in pasts
        }
        return {name: Tensor(b"", DType.FLOAT32, shape) for name, shape in shapes.items()}


def best_token(logits: Any, tokens: list[int], change: Callable[[list[float], list[int]], None] = _nothing) -> int:
    """Return the most likely token, the first of equals.

    Raises:
        ExecutionError: A logit is not a number, or none is left.
    """
    values = _checked(logits)
    change(values, tokens)
    best = max(values)
    if best == float("-inf"):
        raise ExecutionError("no token is allowed after those before", hint="is the bundle's `generate` right?")
    return values.index(best)


def _checked(logits: Any) -> list[float]:
    values: list[float] = logits.tolist()[0]
    total = sum(values)
    if total != total:
        raise ExecutionError("the model's logits are not numbers", hint="try the variant onnx/fp32")
    return values
