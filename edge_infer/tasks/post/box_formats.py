"""The forms in which detectors give their boxes.

Each function takes a `Detector` and returns the detections above its threshold, in pixels of the model's input. The
scores are compared as the model gives them; numpy, where it is installed, only finds the candidates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ExecutionError
from edge_infer.tasks.post.detection import Detection, corners
from edge_infer.tasks.post.sigmoid import sigmoid
from edge_infer.tasks.values import flat, float32
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from edge_infer.tensors.tensor import Tensor

# MediaPipe's decoders clip logits here, so that `exp` cannot overflow.
_MOST_LOGIT = 100.0
_MOST_EXPONENT = 80.0


class Detector(NamedTuple):
    """The input of a decoder.

    Attributes:
        outputs: The model's outputs of one image by what they are.
        parameters: Those of the step `post.boxes`.
        size: Width and height of the model's input, in pixels.
        threshold: Detections must score above it.
    """

    outputs: dict[str, Tensor]
    parameters: dict[str, Any]
    size: tuple[int, int]
    threshold: float

    def shaped(self, what: str, rank: int) -> tuple[Sequence[float], tuple[int, ...]]:
        """Return the numbers of an output, and its shape.

        Raises:
            ExecutionError: It has another rank than the format says.
        """
        tensor = self.outputs[what]
        if len(tensor.shape) != rank:
            raise ExecutionError(
                f"an output of the detector has shape {list(tensor.shape)}, expected {rank} dimensions",
                hint="choose another `format` for the step post.boxes",
            )
        return flat(tensor), tensor.shape

    def box(self, numbers: Sequence[float]) -> tuple[float, float, float, float]:
        """Return a box that the model gave in the step's `order` and `unit`."""
        order = self.parameters["order"]
        a, b, c, d = numbers
        left, top, right, bottom = (
            (b, a, d, c) if order == "yxyx" else corners(a, b, c, d) if order == "cxcywh" else (a, b, c, d)
        )
        if self.parameters["unit"] == "ratio":
            width, height = self.size
            return left * width, top * height, right * width, bottom * height
        return left, top, right, bottom

    def best(self, scores: Sequence[float]) -> tuple[float, int]:
        """Return the highest score of an object's classes, and the class's number, after `activation`.

        The background counts for softmax; it cannot be the best.
        """
        kind, background = self.parameters["activation"], self.parameters["background"]
        first, last = int(background == "first"), len(scores) - int(background == "last")
        label = max(range(first, last), key=scores.__getitem__, default=first)
        if first >= last:
            return -math.inf, 0
        score = scores[label]
        if kind == "sigmoid":
            score = sigmoid(max(min(score, _MOST_LOGIT), -_MOST_LOGIT))  # in this order NaN stays NaN
        elif kind == "softmax":
            highest, total = max(scores), 0.0
            for one in scores:
                total += math.exp(one - highest)
            score = math.exp(score - highest) / total
        return score, label - first


def classes_of(parameters: Mapping[str, Any], outputs: Mapping[str, Tensor]) -> int | None:
    """Return how many classes a detector has, the background apart; None where its outputs' shapes do not show it."""
    kind = parameters["format"]
    found = outputs.get("scores" if kind in ("decoded", "ssd") else "out")
    if found is None or len(found.shape) != 2:
        return None
    if kind in ("decoded", "ssd"):
        return found.shape[1] - int(parameters["background"] != "none")
    if kind == "yolov5":
        return found.shape[1] - 5
    return found.shape[0] - 4 - 3 * int(parameters["points"]) if kind == "yolov8" else None


def _decoded(detector: Detector) -> list[Detection]:
    """Boxes [n, 4] that the graph decoded already, beside scores [n, classes]: UltraFace, DETR."""
    boxes, _ = detector.shaped("boxes", 2)
    scores, (count, classes) = detector.shaped("scores", 2)
    found = []
    for i in _candidates(detector, scores, count, classes):
        score, label = detector.best(scores[i * classes : (i + 1) * classes])
        if score > detector.threshold:
            found.append(Detection(score, label, detector.box(boxes[4 * i : 4 * i + 4])))
    return found


def _candidates(detector: Detector, scores: Sequence[float], count: int, classes: int) -> Iterable[int]:
    """Return the rows that may be above the threshold: for plain scores by numpy, where it is installed."""
    if detector.parameters["activation"] != "none" or not has_numpy():
        return range(count)
    import numpy as np

    return [int(i) for i in np.flatnonzero((np.asarray(scores).reshape(count, classes) > detector.threshold).any(1))]


def _tflite(detector: Detector) -> list[Detection]:
    """The outputs of TFLite_Detection_PostProcess: boxes [n, 4], classes [n], scores [n], and how many count."""
    boxes, _ = detector.shaped("boxes", 2)
    classes, scores = (flat(detector.outputs[what]) for what in ("classes", "scores"))
    count = int(flat(detector.outputs["count"])[0])
    return [
        Detection(float(scores[i]), int(classes[i]), detector.box(boxes[4 * i : 4 * i + 4]))
        for i in range(min(count, len(scores)))
        if scores[i] > detector.threshold
    ]


def _yolov5(detector: Detector) -> list[Detection]:
    """[n, 5 + classes]: centre, size, objectness, and a score for each class; the product counts (Ultralytics)."""
    numbers, (count, width) = detector.shaped("out", 2)
    found = []
    rows: Iterable[int] = range(count)
    if has_numpy():
        import numpy as np

        rows = map(int, np.flatnonzero(np.asarray(numbers).reshape(count, width)[:, 4] > detector.threshold))
    for i in rows:
        row = numbers[i * width : (i + 1) * width]
        if not row[4] > detector.threshold:
            continue
        label = max(range(width - 5), key=row[5:].__getitem__)
        score = float32(row[4] * row[5 + label])
        if score > detector.threshold:
            found.append(Detection(score, label, corners(*row[:4])))
    return found


def _yolov8(detector: Detector) -> list[Detection]:
    """[4 + classes (+ 3 for each point), n], channels first: centre, size, then probabilities (YOLOv8, 9 and 11)."""
    numbers, (channels, count) = detector.shaped("out", 2)
    points = detector.parameters["points"]
    classes = channels - 4 - 3 * points
    found = []
    columns: Iterable[int] = range(count)
    if has_numpy():
        import numpy as np

        scores = np.asarray(numbers).reshape(channels, count)[4 : 4 + classes]
        columns = map(int, np.flatnonzero((scores > detector.threshold).any(0)))
    for i in columns:
        score, label = -1.0, 0
        for c in range(classes):
            if numbers[(4 + c) * count + i] > score:
                score, label = numbers[(4 + c) * count + i], c
        if score > detector.threshold:
            x, y, w, h = (numbers[k * count + i] for k in range(4))
            at = 4 + classes
            marks = tuple(
                (numbers[(at + 3 * k) * count + i], numbers[(at + 3 * k + 1) * count + i]) for k in range(points)
            )
            found.append(Detection(score, label, corners(x, y, w, h), marks))
    return found


def _yolov10(detector: Detector) -> list[Detection]:
    """[n, 6]: left, top, right, bottom, score, class; nothing is left to thin out (YOLOv10, exports with `end2end`)."""
    numbers, (count, width) = detector.shaped("out", 2)
    rows = [numbers[i * width : i * width + 6] for i in range(count)]
    return [
        Detection(row[4], int(row[5]), (row[0], row[1], row[2], row[3])) for row in rows if row[4] > detector.threshold
    ]


def _ssd(detector: Detector) -> list[Detection]:
    """Offsets from anchors: boxes [n, 4 + 2 * points] and scores [n, classes] (TensorFlow's SSD, BlazeFace)."""
    numbers, (_, width) = detector.shaped("boxes", 2)
    scores, (count, classes) = detector.shaped("scores", 2)
    p = detector.parameters
    anchors = p["anchors"] or []
    if len(anchors) != 4 * count:
        raise ExecutionError(
            f"the detector gives {count} boxes, and the definition has {len(anchors) // 4} anchors",
            hint='"anchors": four numbers for each box',
        )
    by_y, by_x, by_height, by_width = p["variances"]
    swap = p["order"] == "yxyx"
    found = []
    for i in range(count):
        score, label = detector.best(scores[i * classes : (i + 1) * classes])
        if not score > detector.threshold:
            continue
        row = numbers[i * width : (i + 1) * width]
        anchor_x, anchor_y, anchor_width, anchor_height = anchors[4 * i : 4 * i + 4]
        y, x, h, w = row[:4] if swap else (row[1], row[0], row[3], row[2])
        x, y = x / by_x * anchor_width + anchor_x, y / by_y * anchor_height + anchor_y
        w, h = w / by_width, h / by_height
        if p["exponential"]:
            w, h = exponential(w), exponential(h)
        across, down = detector.size
        box = corners(x * across, y * down, w * anchor_width * across, h * anchor_height * down)
        points = tuple(
            (
                (row[4 + 2 * k] / by_x * anchor_width + anchor_x) * across,
                (row[5 + 2 * k] / by_y * anchor_height + anchor_y) * down,
            )
            for k in range(p["points"])
        )
        found.append(Detection(score, label, box, points))
    return found


def _yunet(detector: Detector) -> list[Detection]:
    """For each stride classes, objectness, boxes and five points; offsets count from the cell's corner (YuNet)."""
    found = []
    for stride in map(int, detector.parameters["strides"]):
        classes, objects, boxes, points = (
            flat(detector.outputs[f"{what}_{stride}"]) for what in ("cls", "obj", "bbox", "kps")
        )
        columns = detector.size[0] // stride
        for i in range(columns * (detector.size[1] // stride)):
            score = math.sqrt(min(max(classes[i], 0.0), 1.0) * min(max(objects[i], 0.0), 1.0))
            if not score > detector.threshold:
                continue
            row, column = divmod(i, columns)
            x, y = (column + boxes[4 * i]) * stride, (row + boxes[4 * i + 1]) * stride
            w, h = exponential(boxes[4 * i + 2]) * stride, exponential(boxes[4 * i + 3]) * stride
            marks = tuple(
                ((points[10 * i + 2 * k] + column) * stride, (points[10 * i + 2 * k + 1] + row) * stride)
                for k in range(5)
            )
            found.append(Detection(score, 0, corners(x, y, w, h), marks))
    return found


def _fastestdet(detector: Detector) -> list[Detection]:
    """[5 + classes, rows, columns]: score `obj^0.6 * class^0.4`, centre by tanh, size by sigmoid (FastestDet)."""
    numbers, (channels, rows, columns) = detector.shaped("out", 3)
    width, height = detector.size
    cells, found = rows * columns, []
    for i in range(cells):
        label = max(range(channels - 5), key=lambda c: numbers[(5 + c) * cells + i])
        score = max(numbers[i], 0.0) ** 0.6 * max(numbers[(5 + label) * cells + i], 0.0) ** 0.4
        if not score > detector.threshold:
            continue
        row, column = divmod(i, columns)
        x = (column + math.tanh(numbers[cells + i])) / columns * width
        y = (row + math.tanh(numbers[2 * cells + i])) / rows * height
        w, h = sigmoid(numbers[3 * cells + i]) * width, sigmoid(numbers[4 * cells + i]) * height
        found.append(Detection(score, label, corners(x, y, w, h)))
    return found


def exponential(value: float) -> float:
    """Return `exp(value)`, of at most 80: no side of a box is longer, and `exp` of 710 is out of range."""
    return math.exp(min(value, _MOST_EXPONENT))


class Format(NamedTuple):
    """How one kind of detector is read.

    Attributes:
        decode: Returns the detections.
        needs: What its outputs are.
        by_stride: What there is of each stride, where it gives an output for each.
    """

    decode: Callable[[Detector], list[Detection]]
    needs: tuple[str, ...] = ("out",)
    by_stride: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "decoded": Format(_decoded, ("boxes", "scores")),
    "fastestdet": Format(_fastestdet),
    "ssd": Format(_ssd, ("boxes", "scores")),
    "tflite": Format(_tflite, ("boxes", "classes", "scores", "count")),
    "yolov5": Format(_yolov5),
    "yolov8": Format(_yolov8),
    "yolov10": Format(_yolov10),
    "yunet": Format(_yunet, (), ("cls", "obj", "bbox", "kps")),
}
