"""What the test of a model in C checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Golden(NamedTuple):
    """Inputs and the outputs that belong to them, in the order of the model."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
