"""Operators that work on each element: activations, and arithmetic between two tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula, broadcast
from edge_infer_converters.writers.tflite.graph import Layout, to_channels_last
from edge_infer_converters.writers.tflite.node import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule

_UNARY = {
    "Abs": ("ABS", schema.AbsOptionsT),
    "Ceil": ("CEIL", None),
    "Cos": ("COS", schema.CosOptionsT),
    "Exp": ("EXP", schema.ExpOptionsT),
    "Floor": ("FLOOR", None),
    "HardSwish": ("HARD_SWISH", schema.HardSwishOptionsT),
    "Log": ("LOG", None),
    "Neg": ("NEG", schema.NegOptionsT),
    "Relu": ("RELU", None),
    "Round": ("ROUND", None),
    "Sigmoid": ("LOGISTIC", None),
    "Sign": ("SIGN", schema.SignOptionsT),
    "Sin": ("SIN", None),
    "Sqrt": ("SQRT", None),
    "Tanh": ("TANH", None),
}
_BINARY = {
    "Add": ("ADD", schema.AddOptionsT),
    "Div": ("DIV", schema.DivOptionsT),
    "Max": ("MAXIMUM", schema.MaximumMinimumOptionsT),
    "Min": ("MINIMUM", schema.MaximumMinimumOptionsT),
    "Mul": ("MUL", schema.MulOptionsT),
    "Pow": ("POW", schema.PowOptionsT),
    "Sub": ("SUB", schema.SubOptionsT),
}
# Clips that TFLite has as an activation.
_CLIPS = {(0.0, 6.0): "RELU6", (0.0, np.inf): "RELU", (-1.0, 1.0): "RELU_N1_TO_1"}


def absolute(f: Formula, x: Tensor) -> Tensor:
    """|x|: ABS has no kernel for int64."""
    return f.binary("MAXIMUM", x, f.unary("NEG", x)) if x.dtype == np.int64 else f.unary("ABS", x)


def _not_negative(f: Formula, x: Tensor) -> Tensor:
    return f.binary("MAXIMUM", x, 0)


def _sign(f: Formula, x: Tensor) -> Tensor:
    above, below = (f.cast(f.binary(code, x, 0), x.dtype) for code in ("GREATER", "LESS"))
    return f.subtract(above, below)


# RELU has kernels for floats only, SIGN none for int64.
_OF_INTEGERS: dict[tuple[str, str], Callable[[Formula, Tensor], Tensor]] = {
    ("Abs", "int64"): absolute,
    ("Relu", "int32"): _not_negative,
    ("Relu", "int64"): _not_negative,
    ("Sign", "int64"): _sign,
}


def layout_of(node: Node) -> Layout:
    """Return the layout in which the first input is at hand."""
    return Layout.CHANNELS_LAST if node.is_channels_last() else Layout.PLAIN


def unary(node: Node) -> None:
    """One input, one output of its shape."""
    code, options = _UNARY[node.op_type]
    layout = layout_of(node)
    written = _OF_INTEGERS.get((node.op_type, str(node.dtype())))
    if written:
        node.give(written(Formula(node), node.input(0, layout)), layout)
        return
    node.graph.add(code, [node.input(0, layout)], [node.output(0, layout)], options() if options else None)


def binary(node: Node) -> None:
    """Two inputs, broadcast as numpy does; a chain where Max or Min has more."""
    code, options = _BINARY[node.op_type]
    if code == "DIV" and node.dtype() not in (np.float32, np.int32):
        raise Unsupported(f"elements of {node.dtype()}")
    layout = common_layout(node)
    values = [operand(node, i, layout) for i in range(len(node.inputs))]
    if len(values) == 1:
        node.alias(values[0], layout)
        return
    for i, value in enumerate(values[1:], start=1):
        is_last = i == len(values) - 1
        signature = broadcast(values[0].signature, value.signature)
        target = node.output(0, layout) if is_last else node.scratch(f"part{i}", signature)
        node.graph.add(code, [values[0], value], [target], options())
        values[0] = target


def power(node: Node) -> None:
    """A constant exponent takes the type of the base; other pairs of types are refused."""
    exponent, dtype = node.constant(1), node.dtype()
    if dtype not in (np.float32, np.int32):
        raise Unsupported(f"a base of {dtype}")
    if node.dtype(1) == dtype:
        binary(node)
        return
    if exponent is None or (exponent != exponent.astype(dtype)).any():
        raise Unsupported(f"an exponent of {node.dtype(1)} to a base of {dtype}")
    stored = node.stored("exponent", exponent.astype(dtype))
    node.graph.add("POW", [node.input(), stored], [node.output()], schema.PowOptionsT())


def clip(node: Node) -> None:
    """An activation where TFLite has one, else MAXIMUM and MINIMUM."""
    low = _limit(node, 1, "min", -np.inf)
    high = _limit(node, 2, "max", np.inf)
    layout = layout_of(node)
    value = node.input(0, layout)
    if (low, high) in _CLIPS and value.dtype == np.float32:
        node.graph.add(_CLIPS[low, high], [value], [node.output(0, layout)])
        return
    steps = [("MAXIMUM", low)] if np.isfinite(low) else []
    steps += [("MINIMUM", high)] if np.isfinite(high) else []
    if not steps:
        node.alias(value, layout)
    for i, (code, limit) in enumerate(steps):
        is_last = i == len(steps) - 1
        target = node.output(0, layout) if is_last else node.scratch("clipped", value.signature)
        stored = node.stored(code.lower(), np.array(limit, value.dtype))
        node.graph.add(code, [value, stored], [target], schema.MaximumMinimumOptionsT())
        value = target


def leaky_relu(node: Node) -> None:
    """Keep x where positive, else give alpha * x."""
    options = schema.LeakyReluOptionsT()
    options.alpha = node.number("alpha", 0.01)
    layout = layout_of(node)
    node.graph.add("LEAKY_RELU", [node.input(0, layout)], [node.output(0, layout)], options)


def hard_sigmoid(node: Node) -> None:
    """Give max(0, min(1, alpha * x + beta))."""
    layout = layout_of(node)
    value = node.input(0, layout)
    for code, factor, options in (
        ("MUL", node.number("alpha", 0.2), schema.MulOptionsT()),
        ("ADD", node.number("beta", 0.5), schema.AddOptionsT()),
        ("MAXIMUM", 0.0, schema.MaximumMinimumOptionsT()),
        ("MINIMUM", 1.0, schema.MaximumMinimumOptionsT()),
    ):
        target = node.output(0, layout) if code == "MINIMUM" else node.scratch(code.lower(), value.signature)
        stored = node.stored(f"{code.lower()}/by", np.array(factor, value.dtype))
        node.graph.add(code, [value, stored], [target], options)
        value = target


def prelu(node: Node) -> None:
    """Keep x where positive, else give slope * x; the slope is constant, one for each channel or one for all."""
    layout = common_layout(node)
    node.graph.add("PRELU", [node.input(0, layout), operand(node, 1, layout)], [node.output(0, layout)])


def gelu(node: Node) -> None:
    """ONNX's two forms are TFLite's two forms."""
    options = schema.GeluOptionsT()
    options.approximate = node.text("approximate", "none") == "tanh"
    layout = layout_of(node)
    node.graph.add("GELU", [node.input(0, layout)], [node.output(0, layout)], options)


def cast(node: Node) -> None:
    """From the input's type to the output's."""
    layout = layout_of(node)
    options = schema.CastOptionsT()
    node.graph.add("CAST", [node.input(0, layout)], [node.output(0, layout)], options)


def dropout(node: Node) -> None:
    """Nothing, unless it is in training."""
    if node.has_input(2) and node.needed_constant(2).any():
        raise Unsupported("training mode")
    if node.gives(1):
        raise Unsupported("a second output, the mask")
    alias(node)


def alias(node: Node) -> None:
    """An operator that does nothing at run time."""
    layout = layout_of(node)
    node.alias(node.input(0, layout), layout)


def common_layout(node: Node) -> Layout:
    """Return the layout to compute in: channels last where an operand is so and none would have to be turned."""
    rank = len(node.output_signature())
    computed = [i for i in range(len(node.inputs)) if node.broadcast_constant(i) is None]
    turned = [i for i in computed if node.is_channels_last(i)]
    plain = [i for i in computed if i not in turned]
    if turned and all(node.rank(i) == rank for i in computed) and len(turned) >= len(plain):
        return Layout.CHANNELS_LAST
    return Layout.PLAIN


def operand(node: Node, index: int, layout: Layout) -> Tensor:
    """Return an operand that broadcasts in this layout: a constant gets the axes that it lacks, then is turned."""
    value = node.broadcast_constant(index)
    if value is None:
        return node.input(index, layout)
    if layout is Layout.PLAIN:
        return node.graph.constant(node.inputs[index], value)
    rank = len(node.output_signature())
    full = value.reshape((1,) * (rank - value.ndim) + value.shape)
    turned = full.transpose(to_channels_last(rank))
    # Leading axes of 1 say nothing, and kernels for few axes are faster.
    while turned.ndim > 1 and turned.shape[0] == 1:
        turned = turned[0]
    return node.graph.constant(f"{node.inputs[index]}/channels_last", turned)


def _limit(node: Node, index: int, name: str, default: float) -> float:
    """Read a limit of Clip: an attribute before operator set 11, an input since."""
    if node.has_input(index):
        limit: float = node.needed_constant(index).reshape(()).item()  # an integer stays one: 2**63 - 1 is not a float
        return limit
    return node.number(name, default)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_UNARY, unary),
    **dict.fromkeys(_BINARY, binary),
    "Cast": cast,
    "Clip": clip,
    "Dropout": dropout,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "Identity": alias,
    "LeakyRelu": leaky_relu,
    "PRelu": prelu,
    "Pow": power,
}
