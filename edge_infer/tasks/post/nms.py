"""`post.nms`: of boxes that overlap, only the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.detection import Detection
from edge_infer.tasks.values import float32

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "iou": Parameter("real", 0.45, low=0, high=1, is_argument=True),
    "by_class": Parameter("flag", True),
    "limit": Parameter("whole", 300, low=1, high=100_000),
    "method": Parameter("choice", "greedy", choices=("greedy", "weighted")),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that thins out detections, the best first.

    `greedy` is the rule of torchvision's `ops.nms`: in float32, a stable order by score, and a box goes where its
    intersection over union with a better one is above the threshold. `weighted` is MediaPipe's: a box is the mean, by
    score, of those it stands for.
    """

    def apply(found: list[Detection], item: Item) -> list[Detection]:
        iou = item.argument("iou", parameters["iou"])
        if parameters["method"] == "weighted":
            return _weighted(found, iou)[: parameters["limit"]]
        return _greedy(found, iou, parameters["by_class"], parameters["limit"])

    return apply


def _greedy(found: list[Detection], threshold: float, by_class: bool, limit: int) -> list[Detection]:
    boxes = [tuple(map(float32, one.box)) for one in found]
    areas = [float32(float32(box[2] - box[0]) * float32(box[3] - box[1])) for box in boxes]
    order = sorted(range(len(found)), key=lambda index: -float32(found[index].score))
    is_gone, kept = [False] * len(found), list[Detection]()
    for place, i in enumerate(order):
        if is_gone[i]:
            continue
        kept.append(found[i])
        if len(kept) == limit:
            break
        left, top, right, bottom = boxes[i]
        for j in order[place + 1 :]:
            if is_gone[j] or (by_class and found[i].label != found[j].label):
                continue
            other = boxes[j]
            width = float32(min(right, other[2]) - max(left, other[0]))
            height = float32(min(bottom, other[3]) - max(top, other[1]))
            if width <= 0 or height <= 0:
                continue
            shared = float32(width * height)
            both = float32(float32(areas[i] + areas[j]) - shared)
            is_gone[j] = both > 0 and float32(shared / both) > threshold
    return kept


def _weighted(found: list[Detection], threshold: float) -> list[Detection]:
    left, made = sorted(found, key=lambda one: -one.score), list[Detection]()
    while left:
        best = left[0]
        near = [one for one in left if one is best or _overlap(best.box, one.box) > threshold]
        left = [one for one in left if not any(one is other for other in near)]
        total = _sum([one.score for one in near])
        box = tuple(_sum([one.score * one.box[side] for one in near]) / total for side in range(4))
        points = tuple(
            (
                _sum([one.score * one.points[k][0] for one in near]) / total,
                _sum([one.score * one.points[k][1] for one in near]) / total,
            )
            for k in range(len(best.points))
        )
        made.append(Detection(best.score, best.label, (box[0], box[1], box[2], box[3]), points))
    return made


def _sum(values: list[float]) -> float:
    """Add one by one: the built-in `sum` compensates its errors since Python 3.12, and JavaScript has no such thing."""
    total = 0.0
    for value in values:
        total += value
    return total


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> float:
    """Return the intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0) * max(height, 0)
    both = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - shared
    return shared / both if both > 0 else 0.0
