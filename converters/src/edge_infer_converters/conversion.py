"""The result of a conversion: its variants with their quality, and the reasons for those not made."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isinf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_infer.bundle.variant import Variant
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.search.layers import Layer


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of `convert`.

    Attributes:
        path: The bundle's folder.
        name: The model's name.
        revision: The sha256 of the manifest.
        nbytes: The size of all files that the manifest names.
        variants: What was made, in the order of the manifest, those that were left out too.
        not_made: Why a variant could not be made, by its id.
        data: Where the inputs come from that it was measured on.
        metric: What the scores are of, or empty where only the outputs were compared.
        kept_float: The layers that the search could not store as integers within the budget.
        missed: What of the budget nothing could meet, and what came nearest; empty where all is met.
        layers: Of each variant that was searched, or whose layers were measured, these; those with most error first.
    """

    path: Path
    name: str
    revision: str
    nbytes: int
    variants: tuple[ConvertedVariant, ...]
    not_made: dict[str, str]
    data: str
    metric: str = ""
    kept_float: tuple[str, ...] = ()
    missed: str = ""
    layers: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Describe this for `--json`: the variants of the bundle, and why others are not in it."""
        made = [
            {"id": one.variant.id, "file": one.variant.file, **one.to_json()} for one in self.variants if one.is_kept
        ]
        not_good = {one.variant.id: one.quality.verdict.reason for one in self.variants if not one.is_kept}
        return {
            "bundle": str(self.path),
            "name": self.name,
            "revision": self.revision,
            "size": self.nbytes,
            "data": self.data,
            "metric": self.metric or None,
            "kept_float": list(self.kept_float),
            "variants": made,
            "left_out": not_good | self.not_made,
            "layers": {id_: [one.to_json() for one in layers] for id_, layers in self.layers.items()},
        }


@dataclass(frozen=True, slots=True)
class DecoderVariant:
    """A variant of a model that generates text.

    Attributes:
        variant: What the manifest says of it.
        nbytes: The size of its file.
        sqnr_db: How near its weights are to those of the source, in dB; infinite where they are equal.
        perplexity: On the text of `--calibration`; None without one.
        loss: How much more that is than the perplexity of the source in fp32, 0.01 being 1 %; None without a text.
        divergence: The mean Kullback-Leibler divergence from what the source in fp32 foretells, in nats: the loss to be
            expected on other texts of the kind; None without a text.
    """

    variant: Variant
    nbytes: int
    sqnr_db: float
    perplexity: float | None = None
    loss: float | None = None
    divergence: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Describe this as `quality.json` does."""
        sqnr_db = None if isinf(self.sqnr_db) else round(self.sqnr_db, 3)
        found: dict[str, Any] = {"size": self.nbytes, "weights_sqnr_db": sqnr_db}
        if self.perplexity is not None and self.loss is not None:
            found |= {"perplexity": _finite(self.perplexity), "loss": _finite(self.loss)}
        if self.divergence is not None:
            found["divergence"] = _finite(self.divergence)
        return found


def _finite(value: float) -> float | None:
    """Round for JSON, which has no infinity."""
    return None if isinf(value) else round(value, 6)


@dataclass(frozen=True, slots=True)
class DecoderConversion(Conversion):
    """What `convert` made of a model that generates text.

    Attributes:
        decoders: The variants. `variants` is empty: what stands there was run on inputs, and compared.
        architecture: The family, such as `llama`.
        parameters: How many weights the model has.
        has_chat: Whether it takes messages: it has a chat template.
    """

    decoders: tuple[DecoderVariant, ...] = ()
    architecture: str = ""
    parameters: int = 0
    has_chat: bool = False

    def to_json(self) -> dict[str, Any]:
        """Describe this for `--json`."""
        return {
            "bundle": str(self.path),
            "name": self.name,
            "revision": self.revision,
            "size": self.nbytes,
            "architecture": self.architecture,
            "parameters": self.parameters,
            "variants": [{"id": one.variant.id, "file": one.variant.file, **one.to_json()} for one in self.decoders],
        }
