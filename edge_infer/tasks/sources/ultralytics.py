"""Read the metadata that Ultralytics writes into its ONNX files: names, sizes and the task.

The keys are those of `ultralytics/engine/exporter.py`. Each value is the text that Python writes for it; it is read by
`ast.literal_eval`, which runs no code.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError, UnsupportedError
from edge_infer.tasks.sources.fields import numbered
from edge_infer.tasks.sources.found import made
from edge_infer.tasks.sources.images import ImageInput

if TYPE_CHECKING:
    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.found import Found
    from edge_infer.tensors.tensor import TensorSpec

SOURCE = "ultralytics"
_TASKS = {"detect": "object-detection", "classify": "image-classification", "pose": "keypoint-detection"}
_KEYS = ("names", "task", "stride")
#: The longest text that is read: names of 10,000 classes are some 200 kB.
_MAX_TEXT = 2**20
# What `predict` of Ultralytics uses (ultralytics/cfg/default.yaml).
_CONFIDENCE, _IOU, _LIMIT = 0.25, 0.7, 300


def find(facts: Facts) -> Found | None:
    """Return the definition of a model that Ultralytics exported; None for another model.

    Raises:
        BundleError: A value is not what Python writes for a number, a list or a dict.
        UnsupportedError: It is for a task that no steps are for.
    """
    metadata = facts.metadata
    if not all(key in metadata for key in _KEYS):
        return None
    kind = metadata["task"]
    if kind not in _TASKS:
        known = ", ".join(_TASKS)
        raise UnsupportedError(
            f"Ultralytics' task `{kind}` is not supported; supported are {known}", hint="--preprocess FILE.json"
        )
    names = _value(metadata, "names")
    if isinstance(names, (list, tuple)):
        names = dict(enumerate(names))
    if not isinstance(names, dict):
        raise BundleError("the metadata `names` are not the names of classes", hint="export the model again")
    labels = numbered(names, "the metadata `names`")
    if len(facts.inputs) != 1:
        raise UnsupportedError(
            f"the model of Ultralytics has {len(facts.inputs)} inputs, expected one",
            hint="say what the steps are: --preprocess FILE.json",
        )
    image = ImageInput(facts.inputs[0])
    height, width = _size(metadata, image)
    if kind == "classify":
        before = [
            image.decode(),
            {"step": "image.resize", "shortest": min(height, width)},
            {"step": "image.center_crop", "width": width, "height": height, "rule": "torchvision"},
        ]
        after: list[dict[str, Any]] = [{"step": "post.top_k"}]
        output = facts.outputs[0].name
        if not facts.has_probabilities(output):
            after.insert(0, {"step": "post.softmax"})
    else:
        before = [image.decode(), {"step": "image.letterbox", "width": width, "height": height}]
        after = _detections(facts.outputs, metadata, len(labels), kind)
    before.append(image.tensor(1 / 255, [0.0], [1.0]))
    return made(_TASKS[kind], SOURCE, {image.name: before}, after, labels)


def _detections(outputs: tuple[TensorSpec, ...], metadata: dict[str, str], classes: int, kind: str) -> list[Any]:
    """Return the steps after a detector; its output's shape says which generation it is of."""
    points = _points(metadata) if kind == "pose" else 0
    spec = outputs[0]
    rows, columns = spec.shape[-2:] if len(spec.shape) == 3 else (None, None)
    ends = metadata.get("end2end", "False") == "True"
    if columns == 6 and not points and (ends or rows != 4 + classes):
        return [_boxes("yolov10", len(outputs) > 1, spec.name), {"step": "post.detections"}]
    if rows == 4 + classes + 3 * points:
        format_ = "yolov8"
    elif columns == 5 + classes and not points:
        format_ = "yolov5"
    else:
        raise UnsupportedError(
            f"output `{spec}` is not that of a YOLO of {classes} classes, expected [batch, {4 + classes + 3 * points}, "
            f"boxes], [batch, boxes, {5 + classes}] or [batch, boxes, 6]",
            hint="say what the steps are: --preprocess FILE.json",
        )
    boxes = _boxes(format_, len(outputs) > 1, spec.name)
    if points:
        boxes["points"] = points
    return [boxes, {"step": "post.nms", "iou": _IOU, "limit": _LIMIT}, {"step": "post.detections"}]


def _boxes(format_: str, names_it: bool, output: str) -> dict[str, Any]:
    tensors = {"out": output} if names_it else None
    return {"step": "post.boxes", "format": format_, "tensors": tensors, "threshold": _CONFIDENCE}


def _points(metadata: dict[str, str]) -> int:
    shape = _value(metadata, "kpt_shape") if "kpt_shape" in metadata else None
    fits = isinstance(shape, (list, tuple)) and len(shape) == 2 and all(type(one) is int for one in shape)
    if not fits or shape is None or not 1 <= shape[0] <= 1000 or shape[1] != 3:
        raise UnsupportedError(
            f"`kpt_shape` {str(shape)[:40]} is not supported, expected [points, 3]",
            hint="say what the steps are: --preprocess FILE.json",
        )
    return int(shape[0])


def _size(metadata: dict[str, str], image: ImageInput) -> tuple[int, int]:
    """Return height and width: the model's, else those of `imgsz`."""
    if image.height is not None and image.width is not None:
        return image.height, image.width
    size = _value(metadata, "imgsz") if "imgsz" in metadata else 640
    if isinstance(size, int):
        size = [size, size]
    if not isinstance(size, (list, tuple)) or len(size) != 2 or not all(type(one) is int for one in size):
        raise BundleError(
            f"the metadata `imgsz` are {str(size)[:40]}, expected [height, width]",
            hint="export the model again: yolo export format=onnx imgsz=640",
        )
    return size[0], size[1]


def _value(metadata: dict[str, str], key: str) -> Any:
    text = metadata[key]
    if len(text) > _MAX_TEXT:
        raise BundleError(
            f"the metadata `{key}` have {len(text)} characters, expected at most {_MAX_TEXT}",
            hint="export the model again",
        )
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise BundleError(
            f"the metadata `{key}` cannot be read, expected a dict, list or number as Python writes it",
            hint="export the model again",
        ) from error
