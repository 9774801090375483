"""Operators of tables, which TFLite does not have: trees, the highest of a row, norms, distances, votes of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator


class Forest(NamedTuple):
    """The trees of an ensemble, as the kernel takes them.

    Attributes:
        nodes: Three words of each node, int32 [nodes, 3]: see `kernels/source/trees.c`.
        votes: Two words of each vote, int32 [votes, 2].
        roots: The first node of each tree, int32.
        base: What the sums start from, float32 [targets].
    """

    nodes: np.ndarray
    votes: np.ndarray
    roots: np.ndarray
    base: np.ndarray


class Points(NamedTuple):
    """Points that distances are measured to, float32 [points, columns]."""

    points: np.ndarray


class Pairs(NamedTuple):
    """The coefficients of pairs of classes, float32 [2, pairs]; None where votes are wanted."""

    sigmoids: np.ndarray | None
    classes: int


def trees(operator: Operator, calls: Calls) -> None:
    """TREES: the sums of what the leaves of all trees give to each target."""
    options: Any = operator.options
    forest: Forest = options
    columns = _columns(operator)
    sizes = {"rows": 1, "columns": columns, "targets": len(forest.base), "node_count": len(forest.nodes)}
    constants = {"nodes": forest.nodes, "votes": forest.votes, "roots": forest.roots, "base": forest.base}
    tensors: dict[str, Value | None] = {name: calls.constant(value) for name, value in constants.items()}
    counts = {"vote_count": len(forest.votes), "trees": len(forest.roots)}
    calls.add("trees", _ends(operator, calls) | tensors, sizes | counts)


def arg_max(operator: Operator, calls: Calls) -> None:
    """ARG_MAX and ARG_MIN along the last axis, to int32."""
    lowest = int(operator.code == "ARG_MIN")
    columns = _columns(operator)
    given = operator.inputs[0]
    if given is None or given.dtype.name != "float32" or operator.outputs[0].dtype.name != "int32":
        raise UnsupportedModel(f"{operator.code} of other values than floats, or to other integers than int32")
    rows = calls.of(given).nbytes // (4 * columns)
    if operator.outputs[0].shape not in (given.shape[:-1], (*given.shape[:-1], 1)):
        raise UnsupportedModel(f"{operator.code} along another axis than the last is not supported")
    calls.add("arg_max", _ends(operator, calls), {"rows": rows, "columns": columns, "is_lowest": lowest})


def normalize(operator: Operator, calls: Calls) -> None:
    """NORMALIZE_ROWS: each row divided by its norm; the option is its number."""
    kind: Any = operator.options
    calls.add("normalize_rows", _ends(operator, calls), {"rows": 1, "columns": _columns(operator), "kind": kind})


def distances(operator: Operator, calls: Calls) -> None:
    """DISTANCES: squared, to points."""
    options: Any = operator.options
    points: np.ndarray = options.points
    sizes = {"rows": 1, "columns": points.shape[1], "count": len(points)}
    calls.add("distances", _ends(operator, calls) | {"points": calls.constant(points)}, sizes)


def votes(operator: Operator, calls: Calls) -> None:
    """PAIR_VOTES: of the decisions of pairs of classes."""
    options: Any = operator.options
    pairs: Pairs = options
    sigmoids = None if pairs.sigmoids is None else calls.constant(pairs.sigmoids)
    sizes = {"rows": 1, "classes": pairs.classes, "has_probabilities": int(sigmoids is not None)}
    calls.add("pair_votes", _ends(operator, calls) | {"sigmoids": sigmoids}, sizes)


def _ends(operator: Operator, calls: Calls) -> dict[str, Value | None]:
    given = operator.inputs[0]
    if given is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    return {"input": calls.of(given), "output": calls.of(operator.outputs[0])}


def _columns(operator: Operator) -> int:
    given = operator.inputs[0]
    if given is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    return given.shape[-1] if given.rank else 1


RULES: dict[str, Callable[[Operator, Calls], None]] = {
    "TREES": trees,
    "ARG_MAX": arg_max,
    "ARG_MIN": arg_max,
    "NORMALIZE_ROWS": normalize,
    "DISTANCES": distances,
    "PAIR_VOTES": votes,
}
