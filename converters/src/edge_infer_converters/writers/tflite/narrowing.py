"""int64 as int32 where TFLite's kernels lack int64 and the numbers provably fit; elsewhere a reason why not.

Which kernels lack int64 was measured on LiteRT 2.3 and tflite-runtime 2.14. A node that needs one is narrowed when
`intervals` shows that everything it reads and gives in int64 fits int32: then both give the same numbers. Its
neighbours follow where they fit too, so that a chain is cast at its ends only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from edge_infer_converters.passes.graphs import FreshNames
from edge_infer_converters.writers.tflite.intervals import ANYTHING, intervals_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from edge_infer_converters.writers.tflite.intervals import Interval
    from edge_infer_converters.writers.tflite.specialise import Specialised

#: Operators whose kernels compute int32 and not int64: ARG_MAX, ARG_MIN, DIV, POW, SCATTER_ND. ABS and SIGN lack it
#: too, but their rules have an exact formula of what does not.
LACKING = frozenset({"ArgMax", "ArgMin", "Div", "Pow", "Scatter", "ScatterElements", "ScatterND"})
# Inputs that may be of either type, whatever the others are.
_EITHER = {
    "Cast": (0,),
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "OneHot": (0,),
    "Scatter": (1,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
}
# Inputs that say where or how many; they are constant and stay as they are.
_SETTINGS = {
    "CumSum": (1,), "Expand": (1,), "OneHot": (1,), "Pad": (1, 3), "ReduceMax": (1,),
    "ReduceMin": (1,), "ReduceSum": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,),
    "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,),
}  # fmt: skip
# Operators that may follow a neighbour: their rules write either type.
_FOLLOWING = frozenset(
    (
        "Abs", "Add", "Cast", "Clip", "Concat", "CumSum", "Equal", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg",
        "OneHot", "Pad", "ReduceMax", "ReduceMin", "ReduceSum", "Reshape", "Sign", "Slice", "Split", "Squeeze", "Sub",
        "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where",
    )
)  # fmt: skip
_WIDE = np.dtype(np.int64)


def narrow(model: Specialised) -> Specialised:
    """Compute in int32 what TFLite does not compute in int64, where it provably gives the same numbers."""
    lacking = [node for node in model.nodes if node.op_type in LACKING and _wide(node, model)]
    if not lacking:
        return model
    bounds = intervals_of(model)
    chosen = {id(node) for node in lacking if not _too_wide(node, model, bounds)}
    _follow(model, bounds, chosen)
    return _rewritten(model, chosen)


def reason(node: onnx.NodeProto, model: Specialised) -> str:
    """Say why a node is not written in the int64 that it is left in; empty where it can be."""
    if node.op_type not in LACKING or not _wide(node, model):
        return ""
    found = _too_wide(node, model, intervals_of(model))
    if not found:
        return ""
    name, one = next(iter(found.items()))
    spread = "anything" if one == ANYTHING else f"from {one.low} to {one.high}"
    return (
        f"int64, which TFLite computes in int32 only, and `{name}` may be {spread}: bound it by a Clip or Mod, or cast "
        "it to int32 in the model"
    )


def _wide(node: onnx.NodeProto, model: Specialised) -> list[str]:
    """Return the values of a node in int64 that its kernel computes with."""
    aside = (*_SETTINGS.get(node.op_type, ()), *_EITHER.get(node.op_type, ()))
    read = [name for i, name in enumerate(node.input) if name and i not in aside]
    # Where an index is found, the kernel is asked for the type that it is found in.
    given = [] if node.op_type in ("ArgMax", "ArgMin") else [name for name in node.output if name]
    return [name for name in (*read, *given) if model.dtypes.get(name) == _WIDE]


def _all_wide(node: onnx.NodeProto, model: Specialised) -> list[str]:
    """Return the same, and the indices that it gives."""
    return list(dict.fromkeys((*_wide(node, model), *(n for n in node.output if model.dtypes.get(n) == _WIDE))))


def _too_wide(node: onnx.NodeProto, model: Specialised, bounds: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return the values that may not fit, with their bounds."""
    known = {name: bounds.get(name, ANYTHING) for name in _all_wide(node, model)}
    return {name: one for name, one in known.items() if not one.fits(np.int32)}


def _follow(model: Specialised, bounds: Mapping[str, Interval], chosen: set[int]) -> None:
    """Choose the neighbours of chosen nodes too, where that adds no cast."""
    makers = {name: node for node in model.nodes for name in node.output}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in model.nodes:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    candidates = [
        node
        for node in model.nodes
        if (node.op_type in _FOLLOWING or node.op_type in LACKING)
        and id(node) not in chosen
        and _all_wide(node, model)
        and not _too_wide(node, model, bounds)
    ]
    while True:
        before = len(chosen)
        for node in candidates:
            computed = {name for name in _wide(node, model) if name in node.input and name not in model.constants}
            narrowed = {name for name in computed if name in makers and id(makers[name]) in chosen}
            given = [name for name in node.output if model.dtypes.get(name) == _WIDE]
            is_wanted = bool(given) and all(
                name not in model.outputs
                and readers.get(name)
                and all(id(one) in chosen or place in _EITHER.get(one.op_type, ()) for one, place in readers[name])
                for name in given
            )
            if (computed and narrowed == computed) or (is_wanted and len(computed - narrowed) <= 1):
                chosen.add(id(node))
        if len(chosen) == before:
            return


def _rewritten(model: Specialised, chosen: set[int]) -> Specialised:
    dtypes, signatures, constants = dict(model.dtypes), dict(model.signatures), dict(model.constants)
    varying, repeated = set(model.varying), set(model.repeated)
    fresh = FreshNames(dtypes)
    narrowed: dict[str, str] = {}
    widened: set[str] = set(model.inputs)
    nodes: list[onnx.NodeProto] = []

    def short(name: str) -> str:
        """Return the name of a value in int32."""
        if name not in narrowed:
            narrowed[name] = _declare(name)
            if name in constants:
                constants[narrowed[name]] = constants[name].astype(np.int32)
                for group in (varying, repeated):
                    if name in group:
                        group.add(narrowed[name])
            else:
                cast = helper.make_node("Cast", [name], [narrowed[name]], name=narrowed[name], to=TensorProto.INT32)
                nodes.append(cast)
        return narrowed[name]

    def _declare(name: str) -> str:
        label = fresh(f"{name}/int32")
        dtypes[label], signatures[label] = np.dtype(np.int32), model.signatures[name]
        return label

    def widen(name: str) -> None:
        """Make a value that was computed in int32 one of int64 for those who read that."""
        if name in narrowed and name not in widened and name not in constants:
            widened.add(name)
            nodes.append(helper.make_node("Cast", [narrowed[name]], [name], name=name, to=TensorProto.INT64))

    made = {
        name for node in model.nodes if id(node) in chosen for name in _all_wide(node, model) if name in node.output
    }
    for node in model.nodes:
        either = _EITHER.get(node.op_type, ())
        wide = set(_wide(node, model)) if id(node) in chosen else set()
        inputs = []
        for place, name in enumerate(node.input):
            if name and ((name in wide and place not in either) or (name in narrowed and place in either)):
                inputs.append(short(name))
            else:
                if name in made:
                    widen(name)
                inputs.append(name)
        changed = type(node)()
        changed.CopyFrom(node)
        del changed.input[:], changed.output[:]
        changed.input.extend(inputs)
        for name in node.output:
            if id(node) in chosen and name in made:
                narrowed[name] = _declare(name)
                changed.output.append(narrowed[name])
            else:
                widened.add(name)
                changed.output.append(name)
        nodes.append(changed)
    for name in model.outputs:
        widen(name)
    return replace(
        model,
        nodes=tuple(nodes),
        constants=constants,
        varying=frozenset(varying),
        repeated=frozenset(repeated),
        dtypes=dtypes,
        signatures=signatures,
    )
