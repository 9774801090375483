"""Tell of each layer what a search stored it as, what that costs, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer_converters.data.reference_outputs import decibels
from edge_infer_converters.passes.weight import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.passes.weight import Weight
    from edge_infer_converters.search.sensitivity import Sensitivity


class Layer(NamedTuple):
    """One weight of a searched file.

    Attributes:
        name: What people call the layer; with the weight's name behind it where the layer has several.
        encoding: What it is stored as.
        sqnr_db: The SQNR of the outputs when it alone is stored so; None in float, which is not measured alone.
        share: Its share of the error that all layers bring into the outputs, by these figures.
        reason: Why it is not stored in more or fewer bits.
    """

    name: str
    encoding: str
    sqnr_db: float | None
    share: float
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Describe this for `--json`."""
        rounded = None if self.sqnr_db is None else round(self.sqnr_db, 3)
        return {**self._asdict(), "sqnr_db": rounded, "share": round(self.share, 6)}


def layers_of(
    weights: Sequence[Weight], sensitivities: Sequence[Sensitivity], choice: Mapping[str, str]
) -> tuple[Layer, ...]:
    """Return the layers of a choice, those that bring most error first.

    Errors of different layers are independent, and small: their energies add up.

    Args:
        weights: The weights that could be made smaller.
        sensitivities: What each does to the outputs in each integer encoding, alone.
        choice: The encoding of each weight by name; weights that are not named are fp32.
    """
    alone = {(one.weight.name, one.encoding): one.noise for one in sensitivities}
    chosen = [(weight, choice.get(weight.name, "fp32")) for weight in weights]
    labels = Counter(weight.label for weight in weights)
    total = sum(alone.get((weight.name, encoding), 0.0) for weight, encoding in chosen)
    found: list[tuple[float, Layer]] = []
    for weight, encoding in chosen:
        noise = alone.get((weight.name, encoding))
        layer = Layer(
            weight.label if labels[weight.label] == 1 else f"{weight.label}: {weight.name}",
            encoding,
            None if noise is None else decibels(noise),
            (noise or 0.0) / total if total else 0.0,
            _reason(weight, encoding, alone),
        )
        found.append((noise or 0.0, layer))
    return tuple(layer for _, layer in sorted(found, key=lambda one: -one[0]))


def _reason(weight: Weight, encoding: str, alone: Mapping[tuple[str, str], float]) -> str:
    """Say what the next smaller encoding would have cost."""
    smaller = weight.encodings[weight.encodings.index(encoding) + 1 :]
    integers = [one for one in smaller if one in INTEGERS]
    if not smaller:
        return "the fewest bits that there are for it" if encoding in INTEGERS else "there are no integers for it"
    if not integers:
        return f"{smaller[0]} saves too little"
    cost = alone.get((weight.name, integers[0]))
    said = "" if cost is None else f": alone it gives {decibels(cost):.1f} dB"
    return f"{integers[0]} would exceed the budget{said}"
