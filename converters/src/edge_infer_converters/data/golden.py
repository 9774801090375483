"""Choose the golden examples of a bundle: inputs and outputs of the source that prove an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tensors.drawn import DrawnTensor, draw
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.picked import pick, shape_of_part
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer.formats import safetensors
    from edge_infer_converters.data.calibration import CalibrationSet

#: How many of them there are at most, unless a number is asked for.
EXAMPLES = 32
#: How many bytes they take together: so many, or this share of the variants.
_MAX_BYTES, _MAX_SHARE = 64_000, 0.15
#: What the outputs of all may take even where the inputs, which no part stands for, leave less.
_MIN_OUTPUT_BYTES = 16_000
#: What bundles hold at least of the source's bytes, by the precision of the smallest variant.
_SHARES = {"fp32": 1.0, "fp16": 0.5, "int8": 0.25, "mixed": 0.15, "int4": 0.15}


def least_bytes(source_bytes: int, precision: str, precisions: Sequence[str]) -> float:
    """Return how many bytes the variants have at least.

    Args:
        source_bytes: The size of the source.
        precision: Its precision; a variant of it is always kept.
        precisions: Those of the variants to make.
    """
    if precision in precisions:
        return source_bytes
    return source_bytes * min(_SHARES[one] for one in precisions) / _SHARES[precision]


def count(
    calls: Sequence[Mapping[str, np.ndarray]],
    outputs: Sequence[Mapping[str, np.ndarray]],
    variant_bytes: float,
    asked: int = 0,
) -> int:
    """Return how many of the first calls are golden examples: at least one.

    Inputs count as they are, drawn or not: each example is run in every proof.

    Args:
        calls: The inputs of each call.
        outputs: The source's outputs of each call.
        variant_bytes: The size of the variants.
        asked: So many, whatever their size; 0 for as many as are small beside the model.
    """
    if asked:
        return min(asked, len(calls))
    left = _most(variant_bytes)
    for number, (inputs, results) in enumerate(zip(calls, outputs, strict=True)):
        left -= sum(array.nbytes for array in (*inputs.values(), *results.values()))
        if number == EXAMPLES or (number and left < 0):
            return number
    return len(calls)


def examples(
    data: CalibrationSet, outputs: Sequence[Mapping[str, np.ndarray]], variant_bytes: float
) -> list[safetensors.Example]:
    """Return calls with the source's outputs, as a bundle keeps them.

    Of drawn inputs it keeps where they start, of outputs that are large beside the model evenly spread elements.

    Args:
        data: The calls.
        outputs: The source's outputs of each.
        variant_bytes: The size of the variants.
    """
    starts = data.starts or [dict.fromkeys(one, -1) for one in data.calls]
    inputs = [
        {name: _drawn(array, where[name]) for name, array in one.items()}
        for one, where in zip(data.calls, starts, strict=True)
    ]
    stored = sum(one.nbytes for named in inputs for one in named.values() if not isinstance(one, DrawnTensor))
    most = max(_most(variant_bytes) - stored, _MIN_OUTPUT_BYTES) / max(len(outputs), 1)
    return [(named, _parts(results, most)) for named, results in zip(inputs, outputs, strict=True)]


def _most(variant_bytes: float) -> float:
    return max(_MAX_BYTES, _MAX_SHARE * variant_bytes)


def _parts(results: Mapping[str, np.ndarray], most: float) -> dict[str, Tensor]:
    """Return outputs of at most so many bytes: small ones whole, of the others equal parts."""
    found: dict[str, Tensor] = {}
    waiting = sorted(results, key=lambda name: results[name].nbytes)
    for number, name in enumerate(waiting):
        array = results[name]
        share = most / (len(waiting) - number)
        whole = array.nbytes <= share or array.dtype.kind in "OU"
        part = None if whole else shape_of_part(array.shape, max(int(share) // array.dtype.itemsize, 1))
        found[name] = _tensor(array) if part is None else pick(array, part)
        most = max(most - found[name].nbytes, 0)
    return {name: found[name] for name in results}


def _drawn(array: np.ndarray, start: int) -> Tensor:
    return draw(DType.parse(array.dtype), array.shape, start) if start >= 0 else _tensor(array)


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind in "OU":
        return Tensor([str(text) for text in array.reshape(-1)], DType.STRING, array.shape)
    return Tensor(array.tobytes(), DType.parse(array.dtype), array.shape)
