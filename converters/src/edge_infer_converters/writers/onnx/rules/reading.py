"""What the rules read of an operator: its tensors, constants and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    import numpy as np

    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


def tensor(operator: Operator, place: int) -> Tensor:
    """Return an input.

    Raises:
        UnsupportedModel: It is left out.
    """
    found = operator.inputs[place] if place < len(operator.inputs) else None
    if found is None:
        raise UnsupportedModel(f"input {place} is left out")
    return found


def optional(operator: Operator, place: int) -> Tensor | None:
    """Return an input, or None where it is left out."""
    return operator.inputs[place] if place < len(operator.inputs) else None


def constant(operator: Operator, place: int) -> np.ndarray:
    """Return the value of an input.

    Raises:
        UnsupportedModel: It is computed.
    """
    found = tensor(operator, place)
    if found.data is None:
        raise UnsupportedModel(f"input {place} is computed")
    return found.data


def option(operator: Operator, name: str, default: Any = 0) -> Any:
    """Return one of its options, or the schema's default."""
    return default if operator.options is None else getattr(operator.options, name, default)


def has_same_scale(*tensors: Tensor) -> bool:
    """Tell whether the integers of several tensors mean the same."""
    first = tensors[0].quantization
    if first is None:
        return all(one.quantization is None for one in tensors)
    return all(first.is_same(one.quantization) for one in tensors)
