"""Trees of ONNX-ML (TreeEnsembleClassifier, TreeEnsembleRegressor) as the kernel takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.rows import Forest

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The comparisons, as the kernel numbers them.
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MISSING_IS_TRUE = 8
_MAX_COLUMNS = 2**27
#: No vote: what a leaf without one has.
_LEAF = -1


def forest_of(attributes: Mapping[str, Any], kind: str, columns: int, targets: int, base: np.ndarray) -> Forest:
    """Lay out the trees: each node before the one that follows where its comparison holds.

    Args:
        attributes: Of the ONNX node.
        kind: What the votes' attributes begin with: `class` or `target`.
        columns: How many numbers a row has.
        targets: How many sums there are.
        base: What they start from, [targets].

    Raises:
        UnsupportedModel: Nodes are missing, lead back, compare otherwise, or read a column that is not there.
    """
    modes = [_text(mode) for mode in attributes["nodes_modes"]]
    unknown = sorted({*modes} - {*_MODES, "LEAF"})
    if unknown:
        raise UnsupportedModel(f"trees that compare by {unknown[0]} are not supported")
    places = [*zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True)]
    index = {place: number for number, place in enumerate(places)}
    votes: dict[tuple[int, int], list[tuple[int, float]]] = {}
    ids = "class_ids" if kind == "class" else "target_ids"
    given = (
        attributes[f"{kind}_treeids"],
        attributes[f"{kind}_nodeids"],
        attributes[ids],
        attributes[f"{kind}_weights"],
    )
    for tree, node, target, weight in zip(*given, strict=True):
        votes.setdefault((tree, node), []).append((target, weight))
    missing = attributes.get("nodes_missing_value_tracks_true") or [0] * len(places)
    made: list[tuple[int, Any, int]] = []
    listed: list[tuple[int, float]] = []
    roots = []
    children = {
        (tree, child)
        for (tree, _), mode, *both in zip(
            places, modes, attributes["nodes_truenodeids"], attributes["nodes_falsenodeids"], strict=True
        )
        if mode != "LEAF"
        for child in both
    }
    starts = [*dict.fromkeys(place for place in places if place not in children)]
    if {tree for tree, _ in places} != {tree for tree, _ in starts}:
        raise UnsupportedModel("a tree has no first node: its nodes lead back")
    for root in starts:
        roots.append(len(made))
        waiting: list[tuple[tuple[int, int], int | None]] = [(root, None)]
        while waiting:
            place, parent = waiting.pop()
            number = index.get(place)
            if number is None or len(made) > len(places):
                raise UnsupportedModel("its trees lead to nodes that are not there, or back")
            if parent is not None:
                test, threshold, _ = made[parent]
                made[parent] = (test, threshold, len(made))
            if modes[number] == "LEAF":
                first = len(listed)
                listed += votes.get(place, [])
                made.append((_LEAF, first, len(listed)))
                continue
            column = attributes["nodes_featureids"][number]
            if not 0 <= column < min(columns, _MAX_COLUMNS):
                raise UnsupportedModel(f"its trees read column {column}, the input has {columns}")
            is_other = modes[number] == "BRANCH_NEQ"  # what is missing differs from every threshold
            is_true_of_missing = _MISSING_IS_TRUE if missing[number] or is_other else 0
            test = column << 4 | _MODES.index(modes[number]) | is_true_of_missing
            waiting.append(((place[0], attributes["nodes_falsenodeids"][number]), len(made)))
            waiting.append(((place[0], attributes["nodes_truenodeids"][number]), None))
            made.append((test, np.float32(attributes["nodes_values"][number]), 0))
    nodes = np.zeros((len(made), 3), np.int32)
    for row, (test, second, other) in enumerate(made):
        bits = second.view(np.int32) if isinstance(second, np.float32) else second
        nodes[row] = (test, bits, other)
    pairs = np.zeros((len(listed), 2), np.int32)
    pairs[:, 0] = [target for target, _ in listed]
    pairs[:, 1] = np.array([weight for _, weight in listed], np.float32).view(np.int32)
    if len(listed) and not 0 <= pairs[:, 0].min() <= pairs[:, 0].max() < targets:
        raise UnsupportedModel(f"its leaves vote for others than {targets} targets")
    return Forest(nodes, pairs, np.array(roots, np.int32), base.astype(np.float32))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
