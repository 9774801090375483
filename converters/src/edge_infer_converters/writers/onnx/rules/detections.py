"""TFLite_Detection_PostProcess, the custom operator behind SSD detectors, as NonMaxSuppression.

The order of the steps is that of tensorflow/lite/kernels/detection_postprocess.cc: boxes are decoded from anchors, and
suppressed either at once by each anchor's best class (fast), or class by class (regular).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

CODE = "CUSTOM TFLite_Detection_PostProcess"
_NEEDED = ("max_detections", "nms_iou_threshold", "nms_score_threshold", "num_classes")
_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
_MOST = 10_000


def detections(operator: Operator, graph: Graph) -> None:
    """Boxes [1, n, 4], classes [1, n], scores [1, n] and their count; what is not found is 0."""
    options = _options(operator)
    encodings, predictions, anchors = (tensor(operator, place) for place in range(3))
    if encodings.shape[:1] != (1,) or encodings.rank != 3 or predictions.rank != 3:
        raise UnsupportedModel(f"boxes of shape {list(encodings.shape)}")
    boxes = _decoded(graph, graph.real(encodings), graph.real(anchors), [options[name] for name in _SCALES])
    scores = graph.real(predictions)
    background = predictions.shape[2] - int(options["num_classes"])
    if background:
        scores = _cut(graph, scores, 2, background, predictions.shape[2])
    if options.get("use_regular_nms"):
        found = _by_class(graph, boxes, scores, options)
    elif options.get("max_classes_per_detection", 1) == 1:
        found = _at_once(graph, boxes, scores, options)
    else:
        raise UnsupportedModel(f"{options['max_classes_per_detection']} classes for a box")
    _give(operator, graph, found, int(options["max_detections"]))


def _options(operator: Operator) -> dict[str, Any]:
    given = operator.options
    if not isinstance(given, dict) or any(
        not isinstance(given.get(name), (int, float)) for name in (*_NEEDED, *_SCALES)
    ):
        raise UnsupportedModel(f"its options lack one of {', '.join((*_NEEDED, *_SCALES))}")
    if not 0 < given["max_detections"] <= _MOST or len(operator.inputs) < 3 or len(operator.outputs) != 4:
        raise UnsupportedModel(f"{given['max_detections']} detections")
    return given


def _decoded(graph: Graph, encodings: str, anchors: str, scales: list[float]) -> str:
    """Return [1, n, 4] of y and x of two corners; anchors are centre and size."""
    scaled = graph.node("Div", [encodings, graph.constant(np.array(scales, np.float32))])
    centres = graph.node("Mul", [_cut(graph, scaled, 2, 0, 2), _cut(graph, anchors, 1, 2, 4)])
    centres = graph.node("Add", [centres, _cut(graph, anchors, 1, 0, 2)])
    halves = graph.node("Mul", [graph.node("Exp", [_cut(graph, scaled, 2, 2, 4)]), _cut(graph, anchors, 1, 2, 4)])
    halves = graph.node("Mul", [halves, graph.constant(np.array(0.5, np.float32))])
    corners = [graph.node(kind, [centres, halves]) for kind in ("Sub", "Add")]
    return str(graph.node("Concat", corners, axis=2))


def _at_once(graph: Graph, boxes: str, scores: str, options: dict[str, Any]) -> tuple[str, str, str]:
    """Each anchor has its best class only; return boxes [k, 4], classes [k] and scores [k], the best first."""
    best = graph.node("ReduceMax", [scores, graph.integers(2)], keepdims=0)
    chosen = _suppressed(graph, boxes, graph.node("Unsqueeze", [best, graph.integers(1)]), options, "max_detections")
    places = graph.node("Squeeze", [_cut(graph, chosen, 1, 2, 3), graph.integers(1)])
    classes = graph.node("Squeeze", [graph.node("ArgMax", [scores], axis=2, keepdims=0), graph.integers(0)])
    flat = [graph.node("Squeeze", [one, graph.integers(0)]) for one in (boxes, best)]
    found = [graph.node("Gather", [one, places]) for one in (flat[0], classes, flat[1])]
    return found[0], found[1], found[2]


def _by_class(graph: Graph, boxes: str, scores: str, options: dict[str, Any]) -> tuple[str, str, str]:
    """Each class has its boxes; the best of all are kept."""
    by_class = graph.node("Transpose", [scores], perm=(0, 2, 1))
    chosen = _suppressed(graph, boxes, by_class, options, "detections_per_class")
    values = graph.node("GatherND", [by_class, chosen])
    count = graph.node("Min", [graph.node("Shape", [values]), graph.integers(int(options["max_detections"]))])
    best, order = graph.node("TopK", [values, count], count=2)
    rows = graph.node("Gather", [chosen, order])
    places, classes = (graph.node("Squeeze", [_cut(graph, rows, 1, at, at + 1), graph.integers(1)]) for at in (2, 1))
    flat = graph.node("Squeeze", [boxes, graph.integers(0)])
    return graph.node("Gather", [flat, places]), classes, best


def _suppressed(graph: Graph, boxes: str, scores: str, options: dict[str, Any], most: str) -> str:
    """Return [k, 3] of batch, class and box. TFLite takes scores from the threshold on, ONNX those above it."""
    least = np.nextafter(np.float32(options["nms_score_threshold"]), np.float32(-np.inf))
    limits = [
        graph.integers(int(options.get(most, 100))),
        graph.constant(np.array(options["nms_iou_threshold"], np.float32)),
        graph.constant(np.array(least, np.float32)),
    ]
    return str(graph.node("NonMaxSuppression", [boxes, scores, *limits]))


def _give(operator: Operator, graph: Graph, found: tuple[str, str, str], most: int) -> None:
    """Fill each output with zeros, and say how many count."""
    count = graph.node("Slice", [graph.node("Shape", [found[2]]), graph.integers(0), graph.integers(1)])
    left = graph.node("Sub", [graph.integers(most), count])
    none = graph.integers(0)
    values = (found[0], graph.node("Cast", [found[1]], to=1), found[2])
    for output, value, rank in zip(operator.outputs, values, (2, 1, 1), strict=False):
        widths = graph.node("Concat", [*[none] * rank, left, *[none] * (rank - 1)], axis=0)
        filled = graph.node("Unsqueeze", [graph.node("Pad", [value, widths]), graph.integers(0)])
        output.shape = output.signature = (1, most, 4)[: rank + 1]
        graph.give_raw(output, graph.node("Reshape", [filled, graph.integers(*output.shape)]))
    operator.outputs[3].shape = operator.outputs[3].signature = (1,)
    graph.give_raw(operator.outputs[3], graph.node("Cast", [count], to=1))


def _cut(graph: Graph, value: str, axis: int, start: int, end: int) -> str:
    lists = (graph.integers(one) for one in (start, end, axis))
    return str(graph.node("Slice", [value, *lists]))


RULES = {CODE: detections}
