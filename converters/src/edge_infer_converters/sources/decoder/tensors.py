"""The tensors of a decoder, put together from those of a folder: rows one below the other, read a few at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edge_infer.errors import ConversionError, UnsupportedModel, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edge_infer.generation.weight_file import Encoding
    from edge_infer_converters.sources.decoder.describe import Described

# Old checkpoints hold constants that are computed anew, and models of images hold more than the text model.
_IGNORED = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")
_IGNORED_ROOTS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


class StoredTensor(Protocol):
    """A tensor of a file."""

    @property
    def dtype(self) -> object:
        """What the file says the values are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""

    @property
    def is_float(self) -> bool:
        """Whether the values can be read."""

    @property
    def native(self) -> Encoding | None:
        """The encoding that holds exactly these values in as few bytes; None for numbers without blocks."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return some rows as float32."""

    def blocks(self, start: int, stop: int, encoding: Encoding) -> tuple[bytes, bytes] | None:
        """Return values and scales of some rows; None where the encoding does not hold the blocks as they are."""

    def transposed(self) -> StoredTensor:
        """Return the transpose, where the file may have a column for each output."""


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """One tensor of the decoder.

    Attributes:
        name: By `edge_infer.generation.config`.
        shape: [rows, columns], or [size] of a vector.
        parts: What stands below one another in it.
        plus: What is added to every value.
        factors: What each row is multiplied by; None for 1.
    """

    name: str
    shape: tuple[int, ...]
    parts: tuple[StoredTensor, ...]
    plus: float = 0.0
    factors: np.ndarray | None = None

    @property
    def native(self) -> Encoding | None:
        """The encoding that holds exactly the values of the file in as few bytes."""
        kinds = {one.native for one in self.parts}
        return kinds.pop() if len(kinds) == 1 and not self.plus and self.factors is None else None

    def blocks(self, start: int, stop: int, encoding: Encoding) -> tuple[bytes, bytes] | None:
        """Return values and scales of some rows; None where the encoding does not hold the file's blocks."""
        if self.plus or self.factors is not None:
            return None
        found = [part.blocks(first, last, encoding) for part, first, last in self._between(start, stop)]
        if any(one is None for one in found):
            return None
        return b"".join(one[0] for one in found if one), b"".join(one[1] for one in found if one)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return some rows, float32.

        Raises:
            ConversionError: A value is NaN or infinite.
        """
        found = [part.rows(first, last) for part, first, last in self._between(start, stop)]
        values = found[0] if len(found) == 1 else np.concatenate(found)
        if not math.isfinite(float(np.dot(values.reshape(-1), values.reshape(-1)))) and not np.isfinite(values).all():
            raise ConversionError(
                f"The tensor `{self.name}` holds NaN or infinite values", hint="train it again, or download it again"
            )
        if self.plus:
            values = values + np.float32(self.plus)
        if self.factors is not None:
            values = values * self.factors[start:stop].reshape(-1, *[1] * (len(self.shape) - 1))
        return values

    def _between(self, start: int, stop: int) -> Iterator[tuple[StoredTensor, int, int]]:
        """Give the parts with some rows, and which of theirs these are."""
        first = 0
        for part in self.parts:
            last = first + part.shape[0]
            if start < last and stop > first:
                yield part, max(start - first, 0), min(stop, last) - first
            first = last


def source_tensors(described: Described, stored: Mapping[str, StoredTensor]) -> list[SourceTensor]:
    """Put all tensors of a decoder together; nothing is read yet.

    Raises:
        ConversionError: A tensor is missing or has another shape than the configuration says.
        UnsupportedModel: There are tensors that the family does not have.
    """
    return list(_Assembly(described, stored).run())


class _Assembly:
    def __init__(self, described: Described, stored: Mapping[str, StoredTensor]) -> None:
        self._described = described
        self._config = described.config
        self._family = described.family
        self._stored = stored
        embedding = f"{self._family.embedding}.weight"
        self._root = next((root for root in self._family.roots if f"{root}{embedding}" in stored), None)
        if self._root is None:
            raise ConversionError(
                f"The weights have no `{self._family.roots[0]}{embedding}`",
                hint=did_you_mean(f"{self._family.roots[0]}{embedding}", list(stored)) or "is it another model's file?",
            )
        self._used: set[str] = set()

    def run(self) -> Iterator[SourceTensor]:
        config, family, root = self._config, self._family, self._root
        hidden, plus = config.hidden_size, self._family.norm_plus
        yield self._one("embedding", f"{root}{family.embedding}.weight", (config.vocab_size, hidden))
        if config.positions == "learned":
            rows = config.context + config.position_offset
            yield self._one("positions", f"{root}{family.position_table}.weight", (rows, hidden))
        logits = _factors(self._described.logits_factor, hidden)
        yield from self._both("final_norm", (f"{root}{family.final_norm}",), (hidden,), plus, logits)
        if not self._described.is_tied:
            head = next((name for name in self._heads() if f"{name}.weight" in self._stored), family.head)
            yield self._one("head", f"{head}.weight", (config.vocab_size, hidden))
            if f"{head}.bias" in self._stored:
                yield self._one("head.bias", f"{head}.bias", (config.vocab_size,))
        for layer in range(config.layers):
            yield from self._layer(layer)
        self._refuse_others()

    def _layer(self, layer: int) -> Iterator[SourceTensor]:
        config, plus = self._config, self._family.norm_plus
        hidden, attended = config.hidden_size, config.heads * config.head_size
        gates = 2 if config.gated else 1
        shapes: dict[str, tuple[int, ...]] = {
            "attention_norm": (hidden,),
            "attention_post_norm": (hidden,),
            "qkv": (attended + 2 * config.kv_heads * config.head_size, hidden),
            "q_norm": (config.head_size,),
            "k_norm": (config.head_size,),
            "attention_output": (hidden, attended),
            "mlp_norm": (hidden,),
            "mlp_post_norm": (hidden,),
            "up": (gates * config.mlp_size, hidden),
            "down": (hidden, config.mlp_size),
        }
        prefix = f"{self._root}{self._family.layer}{layer}."
        for part, names in self._family.names.items():
            full = tuple(f"{prefix}{name}" for name in names)
            is_norm = part.endswith("norm")
            factors = self._rotation_factors() if part == "qkv" else None
            if part in ("attention_output", "down"):
                factors = _factors(self._described.branch_factor, hidden)
            yield from self._both(f"layers.{layer}.{part}", full, shapes[part], plus if is_norm else 0.0, factors)

    def _heads(self) -> tuple[str, ...]:
        """Return where the head may stand: models of images and text put it inside the text model."""
        outer = (self._root or "").removesuffix("model.")
        return (self._family.head, f"{outer}{self._family.head}")

    def _rotation_factors(self) -> np.ndarray | None:
        """Return what each row of queries, keys and values is multiplied by, where rotations stretch."""
        config, factor = self._config, self._described.rotation_factor
        if factor == 1.0:
            return None
        head = np.ones(config.head_size, np.float32)
        head[: config.rotary_size] = factor
        return np.concatenate(
            [np.tile(head, config.heads + config.kv_heads), np.ones(config.kv_heads * config.head_size, np.float32)]
        )

    def _both(
        self,
        name: str,
        sources: tuple[str, ...],
        shape: tuple[int, ...],
        plus: float = 0.0,
        factors: np.ndarray | None = None,
    ) -> Iterator[SourceTensor]:
        """Give a weight, and the bias where the folder has one.

        Raises:
            ConversionError: Some of its parts have a bias and others not.
        """
        turns = self._family.transposed and len(shape) == 2
        yield self._joined(f"{name}.weight", [f"{one}.weight" for one in sources], shape, plus, factors, turns=turns)
        biases = [f"{one}.bias" for one in sources]
        lost = [one for one in biases if one not in self._stored]
        if lost and len(lost) < len(biases):
            raise ConversionError(f"The weights have no `{lost[0]}`, but `{name}` has other biases", tensor=lost[0])
        if not lost:
            yield self._joined(f"{name}.bias", biases, shape[:1], 0.0, factors)

    def _one(self, name: str, source: str, shape: tuple[int, ...]) -> SourceTensor:
        return self._joined(name, [source], shape)

    def _joined(
        self,
        name: str,
        sources: list[str],
        shape: tuple[int, ...],
        plus: float = 0.0,
        factors: np.ndarray | None = None,
        *,
        turns: bool = False,
    ) -> SourceTensor:
        parts = []
        for source in sources:
            if source not in self._stored:
                raise ConversionError(
                    f"The weights have no `{source}`",
                    hint="download the folder again, with all its files",
                    tensor=source,
                )
            self._used.add(source)
            found = self._stored[source]
            if not found.is_float:
                raise UnsupportedModel(
                    f"`{source}` is of {found.dtype}, expected float32, float16 or bfloat16",
                    hint="convert the model that it was made from: edge-infer quantizes it",
                    tensor=source,
                )
            parts.append(found.transposed() if turns and len(found.shape) == 2 else found)
        shapes = [one.shape for one in parts]
        fits = all(len(one) == len(shape) and one[1:] == shape[1:] for one in shapes)
        if not fits or sum(one[0] for one in shapes) != shape[0]:
            got = " and ".join(str(list(self._stored[source].shape)) for source in sources)
            wanted = list(reversed(shape)) if turns else list(shape)
            raise ConversionError(
                f"{listed(sources)}: {got}, expected {wanted}" + (" together" if len(sources) > 1 else ""),
                hint="config.json and the weights are of different models, or one of them is damaged",
                tensor=sources[0],
                expected=wanted,
            )
        return SourceTensor(name, shape, tuple(parts), plus, factors)

    def _refuse_others(self) -> None:
        heads = {f"{name}.{part}" for name in self._heads() for part in ("weight", "bias")}
        left = [
            name
            for name in self._stored
            if name not in self._used
            and not name.endswith(_IGNORED)
            and not name.startswith(_IGNORED_ROOTS)
            and not (self._described.is_tied and name in heads)
        ]
        if left:
            raise UnsupportedModel(
                f"The weights have `{left[0]}` and {len(left) - 1} more tensors that the family "
                f"`{self._config.architecture}` does not have",
                hint="the model computes something that is not supported: take another one of the family",
                tensors=left[:20],
            )


def _factors(factor: float, rows: int) -> np.ndarray | None:
    return None if factor == 1.0 else np.full(rows, factor, np.float32)
