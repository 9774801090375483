"""Resize and Upsample: by TFLite's own operators where these mean the same, else exactly, axis by axis.

Each mode of ONNX is a matrix along each axis (interpolation is separable), which an implementation of ONNX gives. Where
TFLite's operator has the same one it is written; otherwise the matrix is: as a GATHER where each row chooses one
element, as a FULLY_CONNECTED where it mixes some.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from edge_infer_converters.engine import make_session
from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Layout, Tensor, to_channels_last
from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.rules.elementwise import layout_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer_converters.writers.tflite.node import Node, Rule

# TFLite's two settings, in the order in which they are tried: (align_corners, half_pixel_centers).
_SETTINGS = ((False, True), (True, False), (False, False))
_SAME = 1e-6
_DEFAULTS = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
}


def resized(node: Node) -> None:
    """Along each axis whose size changes, or that is read at other places."""
    if node.dtype() != np.float32:
        raise Unsupported(f"elements of {node.dtype()}")
    if node.text("coordinate_transformation_mode", "") == "tf_crop_and_resize" and node.number(
        "extrapolation_value", 0
    ):
        raise Unsupported("an extrapolation_value")
    matrices = _matrices(node)
    layout = Layout.CHANNELS_LAST if node.rank() == 4 and set(matrices) <= {2, 3} else layout_of(node)
    value = node.input(0, layout)
    if not matrices:
        node.alias(value, layout)
    elif layout is Layout.CHANNELS_LAST and set(matrices) <= {2, 3} and _builtin(node, value, matrices):
        return
    else:
        f, rank = Formula(node), value.rank
        for axis, matrix in matrices.items():
            place = to_channels_last(rank).index(axis) if layout is Layout.CHANNELS_LAST else axis
            value = _along(f, value, place, matrix)
        node.give(value, layout)


def _matrices(node: Node) -> dict[int, np.ndarray]:
    """Return [out, in] for each axis that is resized."""
    source, target = node.signature(), node.output_signature()
    # Corners are aligned over whole sizes, whatever fraction a scale leaves: ONNX Runtime and PyTorch agree on that.
    is_aligned = node.text("coordinate_transformation_mode", "") == "align_corners"
    scales = None if is_aligned else _scales(node)
    found = {}
    for axis, (size, wanted) in enumerate(zip(source, target, strict=True)):
        scale = scales[axis] if scales else None
        if -1 in (size, wanted):
            continue
        matrix = _matrix(node, axis, size, wanted, scale)
        if size != wanted or not np.array_equal(matrix, np.eye(size)):
            found[axis] = matrix
    return found


def _scales(node: Node) -> list[float] | None:
    """Return the factor of each axis where factors are given, and not sizes."""
    index = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    if not node.has_input(index):
        given = list(node.floats("scales"))
    else:
        given = [float(scale) for scale in node.needed_constant(index).reshape(-1)]
    rank = node.rank()
    axes = [axis % rank for axis in node.integers("axes", range(rank))]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if not given and policy != "stretch":
        sizes = node.needed_constant(3).reshape(-1)
        scale = (min if policy == "not_larger" else max)(
            int(wanted) / node.size(axis) for axis, wanted in zip(axes, sizes, strict=True)
        )
        given = [scale] * len(axes)
    if not given:
        return None
    scales = [1.0] * rank
    for axis, scale in zip(axes, given, strict=True):
        scales[axis] = scale
    return scales


def _matrix(node: Node, axis: int, size: int, wanted: int, scale: float | None) -> np.ndarray:
    """Resize the rows of an identity matrix, the nearest mode by ONNX Runtime, others by ONNX's reference."""
    from onnx.reference import ReferenceEvaluator

    attributes = {name: node.text(name, default) for name, default in _DEFAULTS.items()}
    if node.op_type == "Upsample" or node.opset < 11:
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    numbers: dict[str, Any] = {
        "cubic_coeff_a": node.number("cubic_coeff_a", -0.75),
        "exclude_outside": node.integer("exclude_outside", 0),
    }
    if node.integer("antialias", 0):
        numbers["antialias"] = 1
    region = np.array([0, 0, 1, 1], np.float32)
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        region = _region(node, axis)
    by_scale = scale is not None
    names = ["x", "roi", "scales" if by_scale else "", "" if by_scale else "sizes"]
    length = size
    if scale is not None and int(size * float(np.float32(scale))) < wanted and _is_local(attributes, numbers):
        length += ceil(1 / scale) + 1  # a policy rounds sizes up, scales round them down
    feeds: dict[str, Any] = {"x": np.eye(length, dtype=np.float32), "roi": region}
    if scale is not None:
        feeds["scales"] = np.array([1, scale], np.float32)
    else:
        feeds["sizes"] = np.array([size, wanted], np.int64)
    settings: dict[str, Any] = attributes | numbers
    one = helper.make_node("Resize", names, ["y"], **settings)
    inputs = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(feed.dtype), None)
        for key, feed in feeds.items()
    ]
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), None)
    model = helper.make_model(
        helper.make_graph([one], "axis", inputs, [output]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    results: Any
    if attributes["mode"] == "nearest":  # which pixel is nearest hangs on the last bit: the engine is the truth
        results = make_session(model.SerializeToString(), "axis").run(None, feeds)
    else:
        results = ReferenceEvaluator(model).run(None, feeds)
    matrix: np.ndarray = np.asarray(results[0]).T
    if length > size:  # what lies behind the last cell is the last cell
        matrix = np.column_stack([matrix[:wanted, : size - 1], matrix[:wanted, size - 1 :].sum(axis=1)])
    if matrix.shape != (wanted, size):
        raise Unsupported(f"sizes that do not follow from its scales: {wanted}")
    return matrix.astype(np.float32)


def _is_local(attributes: Mapping[str, str], numbers: Mapping[str, float]) -> bool:
    """Tell whether a place depends on the scale alone, and cells outside are those at the edge."""
    if numbers["exclude_outside"] or "antialias" in numbers:
        return False
    return attributes["coordinate_transformation_mode"] in ("half_pixel", "pytorch_half_pixel", "asymmetric")


def _region(node: Node, axis: int) -> np.ndarray:
    """Return the part of one axis that tf_crop_and_resize reads, after the whole of another."""
    given = node.needed_constant(1).reshape(-1)
    rank = node.rank()
    axes = [one % rank for one in node.integers("axes", range(rank))]
    if axis not in axes:
        return np.array([0, 0, 1, 1], np.float32)
    place = axes.index(axis)
    return np.array([0, given[place], 1, given[place + len(axes)]], np.float32)


def _builtin(node: Node, value: Tensor, matrices: dict[int, np.ndarray]) -> bool:
    """Write TFLite's operator, if it has these matrices."""
    mode = node.text("mode", "nearest")
    make = {"nearest": _nearest, "linear": _linear}.get(mode)
    if make is None:
        return False
    shape, wanted = node.signature(), node.output_signature()
    for corners, centers in _SETTINGS:
        if all(
            np.abs(matrices.get(axis, np.eye(shape[axis])) - make(shape[axis], wanted[axis], corners, centers)).max()
            < _SAME
            for axis in (2, 3)
        ):
            code = "RESIZE_NEAREST_NEIGHBOR" if mode == "nearest" else "RESIZE_BILINEAR"
            options = schema.ResizeNearestNeighborOptionsT() if mode == "nearest" else schema.ResizeBilinearOptionsT()
            options.alignCorners, options.halfPixelCenters = corners, centers
            size = node.stored("size", np.array(wanted[2:], np.int32))
            layout = Layout.CHANNELS_LAST
            node.graph.add(code, [value, size], [node.output(0, layout)], options, 3 if centers else 1)
            return True
    return False


def _places(size: int, wanted: int, corners: bool) -> tuple[np.ndarray, float]:
    scale = (size - 1) / (wanted - 1) if corners and wanted > 1 else size / wanted
    return np.arange(wanted, dtype=np.float64), scale


def nearest_places(size: int, wanted: int, corners: bool, centers: bool) -> np.ndarray:
    """Return the pixel that TFLite takes for each one of the result, int64 [wanted].

    The kernel is tensorflow/lite/kernels/internal/reference/resize_nearest_neighbor.h, in single precision.
    """
    places, scale = _places(size, wanted, corners)
    at = (places.astype(np.float32) + np.float32(0.5 if centers else 0)) * np.float32(scale)
    chosen = np.floor(at.astype(np.float64) + 0.5) if corners else np.floor(at)
    found: np.ndarray = np.clip(chosen, 0, size - 1).astype(np.int64)
    return found


def _nearest(size: int, wanted: int, corners: bool, centers: bool) -> np.ndarray:
    rows: np.ndarray = np.eye(size)[nearest_places(size, wanted, corners, centers)]
    return rows


def _linear(size: int, wanted: int, corners: bool, centers: bool) -> np.ndarray:
    """TFLite's kernel: tensorflow/lite/kernels/internal/reference/resize_bilinear.h."""
    places, scale = _places(size, wanted, corners)
    at = (places + 0.5) * scale - 0.5 if centers else places * scale
    low = np.floor(at)
    part = (at - np.maximum(low, 0))[:, None]
    before, after = np.clip(low, 0, size - 1).astype(int), np.clip(np.ceil(at), 0, size - 1).astype(int)
    eye = np.eye(size)
    mixed: np.ndarray = eye[before] * (1 - part) + eye[after] * part
    return mixed


def _along(f: Formula, value: Tensor, axis: int, matrix: np.ndarray) -> Tensor:
    """Multiply by a matrix along one axis."""
    if np.array_equal(matrix.max(axis=1), np.ones(len(matrix))) and np.count_nonzero(matrix) == len(matrix):
        return f.gather(value, f.constant(matrix.argmax(axis=1).astype(np.int32)), axis)
    order = [i for i in range(value.rank) if i != axis] + [axis]
    turned = f.dense(f.transpose(value, order), f.constant(matrix))
    return f.transpose(turned, [int(i) for i in np.argsort(order)])


RULES: dict[str, Rule] = {"Resize": resized, "Upsample": resized}
