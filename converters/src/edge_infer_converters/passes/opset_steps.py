"""Bring each node of a model to another operator set, where ONNX's own adapters stop.

Five kinds of differences are bridged (github.com/onnx/onnx/blob/main/docs/Changelog.md): what a version has more and a
node does not use; attributes that became inputs; Upsample, which became Resize; modes and axes that have another word,
or another value where they are left out; and Softmax, which was over all axes from one on before it was over one. For
the last ONNX 1.23 has an adapter, whose models give other numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, names_in, opset_of, subgraphs_of, without_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Operators whose meaning changed in a version though their form did not.
_CHANGED = {"Resize": 11, "GroupNormalization": 21}
#: The first operator set whose Split may cut into a last part that is smaller.
SPLIT_SINCE = 18
#: Operators that are over one axis from a version on.
_SOFT, _SOFT_SINCE = ("Softmax", "LogSoftmax", "Hardmax"), 13
#: What two versions take where an attribute is left out: its name, the first version of the later, and both.
_UNSTATED: dict[str, tuple[str, int, bytes | int, bytes | int]] = {
    "RoiAlign": ("coordinate_transformation_mode", 16, b"output_half_pixel", b"half_pixel"),
    "DFT": ("axis", 20, 1, -2),
}
#: Where an axis of DFT lies since it is an input.
_AXIS_PLACE = 2
#: The words for modes of GridSample since a version.
_GRID_SINCE, _GRID_MODES = 20, {b"bilinear": b"linear", b"bicubic": b"cubic"}
#: An operator whose inputs have other names.
_RENAMED = "BatchNormalization"


class _Moved(NamedTuple):
    """An attribute that is an input from a version on, at a place."""

    since: int
    place: int
    dtype: type[np.generic]
    is_scalar: bool = False


_REDUCING = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_MOVED = {
    **{f"Reduce{name}": {"axes": _Moved(18, 1, np.int64)} for name in _REDUCING},
    **{name: {"axes": _Moved(13, 1, np.int64)} for name in ("ReduceSum", "Squeeze", "Unsqueeze")},
    "Split": {"split": _Moved(13, 1, np.int64)},
    "Pad": {"pads": _Moved(11, 1, np.int64), "value": _Moved(11, 2, np.float32, is_scalar=True)},
    "Clip": {name: _Moved(11, 1 + place, np.float32, is_scalar=True) for place, name in enumerate(("min", "max"))},
    "Dropout": {"ratio": _Moved(12, 1, np.float32, is_scalar=True)},
    "TopK": {"k": _Moved(10, 1, np.int64, is_scalar=True)},
    "DFT": {"axis": _Moved(20, _AXIS_PLACE, np.int64, is_scalar=True)},
    "Slice": {name: _Moved(10, 1 + place, np.int64) for place, name in enumerate(("starts", "ends", "axes"))},
}


def bring_to(model: onnx.ModelProto, opset: int) -> list[str]:
    """Change a model in place for another operator set; return the operators that could not be brought there."""
    own, fresh = opset_of(model), FreshNames(names_in(model.graph))
    shapes = _shapes(model)
    ranks = {name: len(shape) for name, shape in shapes.items()}
    left = []
    for node, stored in _with_stored(model.graph, {}):
        if node.domain not in ("", "ai.onnx"):
            continue
        _spell(node, own, opset)
        has_sizes = _name_sizes(node, own, opset, model.graph, stored, fresh, shapes)
        _move(node, own, opset, model.graph, stored, fresh)
        _resize(node, own, opset, model.graph, fresh)
        is_soft = node.op_type in _SOFT and min(own, opset) < _SOFT_SINCE <= max(own, opset)
        if not has_sizes or (is_soft and not _soften(node, own, ranks)) or not _fits(node, own, opset):
            left.append(node.op_type)
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = opset
    return list(dict.fromkeys(left))


def _with_stored(
    graph: onnx.GraphProto, outer: dict[str, onnx.TensorProto]
) -> Iterable[tuple[onnx.NodeProto, dict[str, onnx.TensorProto]]]:
    """Yield each node with the tensors that are stored where it lies: two branches may store others by one name."""
    stored = outer | {tensor.name: tensor for tensor in graph.initializer}
    stored |= {
        node.output[0]: node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value"
    }
    for node in graph.node:
        yield node, stored
        for inner in subgraphs_of(node):
            yield from _with_stored(inner, stored)


def _spell(node: onnx.NodeProto, own: int, opset: int) -> None:
    """Write out what a version takes where an attribute is left out, and the words that it has for modes."""
    given = {one.name: one for one in node.attribute}
    if node.op_type in _UNSTATED:
        name, since, before, after = _UNSTATED[node.op_type]
        if name not in given and min(own, opset) < since <= max(own, opset):
            if own < since:
                node.attribute.append(helper.make_attribute(name, before))
            elif node.op_type != "DFT" or len(node.input) < _AXIS_PLACE + 1:
                node.attribute.append(helper.make_attribute(name, after))
        elif own >= since > opset and node.op_type == "RoiAlign" and given[name].s == before:
            node.attribute.remove(given[name])
    if node.op_type == "GridSample" and min(own, opset) < _GRID_SINCE <= max(own, opset):
        mode = given["mode"].s if "mode" in given else b"bilinear" if own < _GRID_SINCE else b"linear"
        words = _GRID_MODES if own < _GRID_SINCE else {new: old for old, new in _GRID_MODES.items()}
        for one in [one for one in node.attribute if one.name == "mode"]:
            node.attribute.remove(one)
        node.attribute.append(helper.make_attribute("mode", words.get(mode, mode)))


def _move(
    node: onnx.NodeProto,
    own: int,
    opset: int,
    graph: onnx.GraphProto,
    stored: dict[str, onnx.TensorProto],
    fresh: FreshNames,
) -> None:
    """Make inputs of attributes, or attributes of inputs that are stored."""
    for name, moved in _MOVED.get(node.op_type, {}).items():
        given = next((one for one in node.attribute if one.name == name), None)
        if own < moved.since <= opset and given is not None:
            value = np.asarray(helper.get_attribute_value(given), moved.dtype)
            value = value.reshape(1) if node.op_type == "TopK" else value
            tensor = numpy_helper.from_array(value, fresh(f"{node.output[0]}/{name}"))
            graph.initializer.append(tensor)
            node.input.extend([""] * (moved.place + 1 - len(node.input)))
            node.input[moved.place] = tensor.name
            node.attribute.remove(given)
        elif opset < moved.since <= own and moved.place < len(node.input):
            found = stored.get(node.input[moved.place])
            values = [] if found is None else numpy_helper.to_array(found).reshape(-1).tolist()
            if found is not None and not values and node.op_type.startswith("Reduce"):
                node.input[moved.place] = ""  # no axes: all of them
            if values:
                node.attribute.append(helper.make_attribute(name, values[0] if moved.is_scalar else values))
                node.input[moved.place] = ""
            while node.input and not node.input[-1]:
                node.input.pop()
    if node.op_type == "Split" and own < SPLIT_SINCE <= opset and len(node.input) < 2:
        node.attribute.append(helper.make_attribute("num_outputs", len(node.output)))


def _name_sizes(
    node: onnx.NodeProto,
    own: int,
    opset: int,
    graph: onnx.GraphProto,
    stored: dict[str, onnx.TensorProto],
    fresh: FreshNames,
    shapes: dict[str, list[int]],
) -> bool:
    """Write the sizes of a Split whose last part is smaller, as sets before 18 want them; tell whether that is done.

    Sets before 18 cut into parts of one size where no sizes are given.
    """
    if node.op_type != "Split" or not opset < SPLIT_SINCE <= own:
        return True
    count = next((one.i for one in node.attribute if one.name == "num_outputs"), 0)
    for one in [one for one in node.attribute if one.name == "num_outputs"]:
        node.attribute.remove(one)
    if not count:
        return True
    axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
    shape = shapes.get(node.input[0])
    if shape is None or shape[axis] < 1:
        return False
    part = -(-shape[axis] // count)
    sizes = [part] * (count - 1) + [shape[axis] - part * (count - 1)]
    if sizes[-1] != part:
        tensor = numpy_helper.from_array(np.array(sizes, np.int64), fresh(f"{node.output[0]}/split"))
        graph.initializer.append(tensor)
        stored[tensor.name] = tensor
        node.input.append(tensor.name)
    return True


def _soften(node: onnx.NodeProto, own: int, ranks: dict[str, int]) -> bool:
    """Name the axis of a softmax over the last one, which means the same in each version; tell whether it is that."""
    rank = ranks.get(node.input[0])
    given = next((one for one in node.attribute if one.name == "axis"), None)
    axis = given.i if given is not None else -1 if own >= _SOFT_SINCE else 1
    if rank is None or axis % rank != rank - 1:
        return False
    if given is not None:
        node.attribute.remove(given)
    node.attribute.append(helper.make_attribute("axis", rank - 1))
    return True


def _shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Return the shape of each value of the outer graph, as far as inference finds it; a free size is 0."""
    if not any(node.op_type in (*_SOFT, "Split") for node in model.graph.node):
        return {}
    light, _ = without_weights(model)
    try:
        graph = onnx.shape_inference.infer_shapes(light).graph
    except Exception:  # then such a softmax is left to ONNX's own adapters
        return {}
    values = [one for one in (*graph.input, *graph.value_info, *graph.output) if one.type.tensor_type.HasField("shape")]
    return {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in values}


def _resize(node: onnx.NodeProto, own: int, opset: int, graph: onnx.GraphProto, fresh: FreshNames) -> None:
    """Write Upsample as the Resize that it became, and the empty region and scales that two versions want."""
    if node.op_type == "Upsample" and own == 9 and opset >= 11:
        node.op_type = "Resize"
        node.input.insert(1, "")
        for name, value in (("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")):
            node.attribute.append(helper.make_attribute(name, value))
    if node.op_type == "Resize" and opset in (11, 12) and len(node.input) > 2:
        for place, name in ((1, "region"), (2, "scales")):
            if not node.input[place]:
                nothing = numpy_helper.from_array(np.zeros(0, np.float32), fresh(f"{node.output[0]}/{name}"))
                graph.initializer.append(nothing)
                node.input[place] = nothing.name


def _fits(node: onnx.NodeProto, own: int, opset: int) -> bool:
    """Tell whether a node means the same in another operator set: it uses only what both have, or was changed."""
    low, high = sorted((own, opset))
    is_new = node.op_type == "Resize" and not _has("Resize", own)  # an Upsample that was written so
    if not _has(node.op_type, opset) or (low < _CHANGED.get(node.op_type, 0) <= high and not is_new):
        return False
    there = onnx.defs.get_schema(node.op_type, opset, "")
    for one in [one for one in node.attribute if one.name == "training_mode" and not one.i]:
        node.attribute.remove(one)
    used = {one.name: one.type for one in node.attribute}
    known = {name: int(one.type) for name, one in there.attributes.items()}  # type: ignore[call-overload]
    if any(known.get(name) != kind for name, kind in used.items()):
        return False
    if any(one.required and name not in used for name, one in there.attributes.items()):
        return False
    if not there.min_input <= len(node.input) <= there.max_input or len(node.output) > there.max_output:
        return False
    if is_new or node.op_type in _SOFT or (node.op_type == _RENAMED and len(node.output) == 1):
        return True
    here = onnx.defs.get_schema(node.op_type, own, "")
    both = (here.attributes.keys() & known.keys()) - used.keys()
    if any(here.attributes[name].default_value != there.attributes[name].default_value for name in both):
        return False
    moved = {one.place for one in _MOVED.get(node.op_type, {}).values() if low < one.since <= high}
    return all(
        not name or place in moved or _name(here.inputs, place) == _name(there.inputs, place)
        for place, name in enumerate(node.input)
    ) and all(_name(here.outputs, place) == _name(there.outputs, place) for place in range(len(node.output)))


def _has(name: str, opset: int) -> bool:
    return onnx.defs.has(name, opset, "") and not onnx.defs.get_schema(name, opset, "").deprecated


def _name(values: Sequence[onnx.defs.OpSchema.FormalParameter], place: int) -> str:
    """Return the name of an input or output; the last may stand for many."""
    return str(values[min(place, len(values) - 1)].name) if values else ""
