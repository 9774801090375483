"""`post.detections`: boxes in the model's pixels to boxes in the image's, with the names of their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.post.detection import Detection
    from edge_infer.tasks.steps import Apply

#: `points` are the names of an object's points, such as the eyes: `{"0": "right eye"}`.
PARAMETERS = {"points": Parameter("names", {})}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: `[{"score", "label", "box": {"xmin", "ymin", "xmax", "ymax"}}]`, as transformers writes it.

    Boxes are clipped to the image. Where a detector gives points, each answer has `keypoints`, `[{"x", "y"}]`; they
    are not clipped.
    """
    names = parameters["points"]

    def apply(found: list[Detection], item: Item) -> list[dict[str, Any]]:
        answers = []
        for one in found:
            left, top = _back(one.box[0], one.box[1], item)
            right, bottom = _back(one.box[2], one.box[3], item)
            answer: dict[str, Any] = {
                "score": one.score,
                "label": place.label(one.label),
                "box": {
                    "xmin": _clipped(left, item.width),
                    "ymin": _clipped(top, item.height),
                    "xmax": _clipped(right, item.width),
                    "ymax": _clipped(bottom, item.height),
                },
            }
            if one.points:
                answer["keypoints"] = [
                    _point(names.get(str(k)), *_back(x, y, item)) for k, (x, y) in enumerate(one.points)
                ]
            answers.append(answer)
        return answers

    return apply


def _back(x: float, y: float, item: Item) -> tuple[float, float]:
    """Return where a point of the model's input lies in the image."""
    for step in reversed(item.geometry):
        x, y = (x - step.left) / step.scale_x, (y - step.top) / step.scale_y
    return x, y


def _clipped(value: float, size: int) -> float:
    return float(min(max(value, 0.0), size))


def _point(name: str | None, x: float, y: float) -> dict[str, Any]:
    return {"x": x, "y": y} if name is None else {"label": name, "x": x, "y": y}
