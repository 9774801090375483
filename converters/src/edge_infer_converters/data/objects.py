"""The objects of an image, and what a detector sees in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Truth(NamedTuple):
    """The objects of one image.

    Attributes:
        boxes: `[n, 4]`: left, top, right, bottom in pixels.
        classes: The class of each.
        ignored: Whether it is not counted: a crowd, or an object that is marked as difficult.
        crowds: Whether it stands for many, so that it takes any number of detections.
    """

    boxes: np.ndarray
    classes: np.ndarray
    ignored: np.ndarray
    crowds: np.ndarray


class Seen(NamedTuple):
    """The detections in one image: boxes as those of `Truth`, a score and a class for each."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
