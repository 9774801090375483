"""Activations and softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer_converters.writers.from_tflite.builder import FIRST, PLAIN

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule


def _plain(kind: str, **attributes: Any) -> Rule:
    def rule(node: Node) -> None:
        layout = node.layout(0)
        node.give_real(node.add(kind, [node.real(0, layout)], **attributes), layout)

    rule.__doc__ = f"{kind}."
    return rule


def _clip(low: float, high: float) -> Rule:
    def rule(node: Node) -> None:
        layout = node.layout(0)
        bounds = [node.builder.constant(np.asarray(one, np.float32), "bound") for one in (low, high)]
        node.give_real(node.add("Clip", [node.real(0, layout), *bounds]), layout)

    rule.__doc__ = f"Clip between {low:g} and {high:g}."
    return rule


def leaky_relu(node: Node) -> None:
    """LeakyRelu."""
    layout = node.layout(0)
    node.give_real(node.add("LeakyRelu", [node.real(0, layout)], alpha=float(node.option("alpha", 0.0))), layout)


def gelu(node: Node) -> None:
    """Gelu, by the error function or by tanh."""
    layout = node.layout(0)
    how = "tanh" if node.option("approximate") else "none"
    node.give_real(node.add("Gelu", [node.real(0, layout)], approximate=how), layout)


def prelu(node: Node) -> None:
    """PRelu, with a slope for each channel or element."""
    layout = node.layout(0)
    slope = node.tensor(1)
    if layout == FIRST and slope.data is None:
        layout = PLAIN
    node.give_real(node.add("PRelu", [node.real(0, layout), node.real(1, layout)]), layout)


def softmax(node: Node) -> None:
    """Softmax over the last axis, its input times beta."""
    real = node.real(0)
    beta = float(node.option("beta", 1.0))
    if beta != 1:
        real = node.add("Mul", [real, node.builder.constant(np.asarray(beta, np.float32), "beta")])
    node.give_real(node.add("Softmax", [real], axis=-1))


def log_softmax(node: Node) -> None:
    """LogSoftmax over the last axis."""
    node.give_real(node.add("LogSoftmax", [node.real(0)], axis=-1))


def l2_normalization(node: Node) -> None:
    """LpNormalization over the last axis."""
    node.give_real(node.add("LpNormalization", [node.real(0)], axis=-1, p=2))


RULES: dict[str, Rule] = {
    "ELU": _plain("Elu"),
    "GELU": gelu,
    "HARD_SWISH": _plain("HardSwish"),
    "L2_NORMALIZATION": l2_normalization,
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": _plain("Sigmoid"),
    "LOG_SOFTMAX": log_softmax,
    "PRELU": prelu,
    "RELU": _plain("Relu"),
    "RELU6": _clip(0, 6),
    "RELU_0_TO_1": _clip(0, 1),
    "RELU_N1_TO_1": _clip(-1, 1),
    "SOFTMAX": softmax,
    "TANH": _plain("Tanh"),
}
