"""Mean average precision of detections, as COCO's own evaluation measures it.

The rules are those of pycocotools' `COCOeval` (github.com/ppwwyyxx/cocoapi, PythonAPI/pycocotools/cocoeval.py) for
boxes of all sizes: ten overlaps from .5 to .95, the best 100 detections of each class in an image, precision at 101
recalls. Crowds and difficult objects are not counted, and a box on one of them is not an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.data.objects import Seen, Truth

#: The overlaps that a detection must reach.
OVERLAPS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MOST = 100


def average_precision(truths: Sequence[Truth], seen: Sequence[Seen]) -> tuple[float, float]:
    """Return the mean average precision over all overlaps (COCO's AP), and at an overlap of .5 alone (AP50).

    Args:
        truths: The objects of each image.
        seen: The detections in the same images.

    Returns:
        Both from 0 to 1; 0 where the annotations have no object.
    """
    known = {int(one) for truth in truths for one in truth.classes[~truth.ignored]}
    found = [_of_class(truths, seen, label) for label in sorted(known)]
    if not found:
        return 0.0, 0.0
    precisions = np.mean(found, axis=0)
    return float(precisions.mean()), float(precisions[0])


def _of_class(truths: Sequence[Truth], seen: Sequence[Seen], label: int) -> np.ndarray:
    """Return the average precision of one class at each overlap."""
    scores, hits, ignored, count = [], [], [], 0
    for truth, one in zip(truths, seen, strict=True):
        of_class = truth.classes == label
        count += int((of_class & ~truth.ignored).sum())
        chosen = np.flatnonzero(one.classes == label)
        best = chosen[np.argsort(-one.scores[chosen], kind="stable")][:_MOST]
        if not len(best):
            continue
        is_hit, is_ignored = _matched(
            one.boxes[best], truth.boxes[of_class], truth.ignored[of_class], truth.crowds[of_class]
        )
        scores.append(one.scores[best])
        hits.append(is_hit & ~is_ignored)
        ignored.append(is_ignored)
    if not scores:
        return np.zeros(len(OVERLAPS))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    is_right, is_nothing = (np.concatenate(parts, axis=1)[:, order] for parts in (hits, ignored))
    rights = np.cumsum(is_right, axis=1, dtype=float)
    wrongs = np.cumsum(~is_right & ~is_nothing, axis=1, dtype=float)
    return np.array([_area(right, wrong, count) for right, wrong in zip(rights, wrongs, strict=True)])


def _matched(
    boxes: np.ndarray, objects: np.ndarray, ignored: np.ndarray, crowds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give each detection, the best first, the object that it overlaps most.

    Returns:
        By overlap and detection whether it has an object, and whether that one is not counted.
    """
    is_hit = np.zeros((len(OVERLAPS), len(boxes)), bool)
    is_ignored = np.zeros_like(is_hit)
    if not len(objects):
        return is_hit, is_ignored
    overlaps = _overlaps(boxes, objects, crowds)
    free = np.ones((len(OVERLAPS), len(objects)), bool)
    least = np.minimum(OVERLAPS, 1 - 1e-10)[:, None]
    for i, row in enumerate(overlaps):
        reached = (row >= least) & (free | crowds)
        for is_second, kind in enumerate((~ignored, ignored)):
            values = np.where(reached & kind, row, -1.0)
            # Of equal overlaps the last object is taken.
            place = len(objects) - 1 - np.argmax(values[:, ::-1], axis=1)
            new = (values.max(axis=1) >= 0) & ~is_hit[:, i]
            free[new, place[new]] = False
            is_hit[new, i] = True
            is_ignored[new, i] = bool(is_second)
    return is_hit, is_ignored


def _overlaps(boxes: np.ndarray, objects: np.ndarray, crowds: np.ndarray) -> np.ndarray:
    """Return the intersection over union of each pair; over the detection's own area where the object is a crowd."""
    starts, ends = np.maximum(boxes[:, None, :2], objects[None, :, :2]), np.minimum(boxes[:, None, 2:], objects[:, 2:])
    sides = np.maximum(ends - starts, 0)
    shared = sides[..., 0] * sides[..., 1]
    own, other = ((one[:, 2] - one[:, 0]) * (one[:, 3] - one[:, 1]) for one in (boxes, objects))
    whole = np.where(crowds[None, :], own[:, None], own[:, None] + other[None, :] - shared)
    found: np.ndarray = np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)
    return found


def _area(right: np.ndarray, wrong: np.ndarray, count: int) -> float:
    """Return the mean precision at 101 recalls, each the best at that recall or a higher one."""
    precision = right / (right + wrong + np.spacing(1))
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(right / count, _RECALLS, side="left")
    return float(np.where(places < len(precision), precision[np.minimum(places, len(precision) - 1)], 0.0).mean())
