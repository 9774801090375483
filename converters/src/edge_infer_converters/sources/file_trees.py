"""Check the trees of scikit-learn that a file holds, before anything walks through them.

scikit-learn's compiled code takes the numbers of nodes and columns as they are: a crafted file could make it read
beside its arrays, or go round for ever. That is why skops does not trust these types by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The types that hold trees, as skops names them.
TYPES = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)
_NO_LIMIT = 2**31
#: Numbers of 32 bits in a set of 256 categories.
_WORDS = 8
#: Attributes of estimators whose inner ones take other columns than they do.
_OTHER_COLUMNS = ("steps", "transformers_", "transformer_list", "estimators_features_")


def check_trees(made: object, where: str) -> None:
    """Check that the trees of an estimator hang together.

    Args:
        made: What the file held.
        where: The file's name.

    Raises:
        ConversionError: A tree names a node or a column that is not there, or leads back to a node before.
    """
    for tree, width in trees_in(made):
        said = _of_histograms(tree, width) if hasattr(tree, "nodes") else _of_tree(tree, width)
        if said:
            raise ConversionError(
                f"`{where}` holds a {type(tree).__name__} {said}",
                hint="the file is damaged: save it again with skops.io.dump(model, 'model.skops')",
            )


def trees_in(made: object) -> Iterator[tuple[Any, int]]:
    """Give each tree of scikit-learn inside an object, with the number of columns that its estimator is given."""
    return _trees(made, _NO_LIMIT, set())


def _trees(made: object, width: int, seen: set[int]) -> Iterator[tuple[Any, int]]:
    if isinstance(made, (str, bytes, int, float, type, type(None))) or id(made) in seen:
        return
    seen.add(id(made))
    if f"{type(made).__module__}.{type(made).__name__}" in TYPES:
        yield made, width
        return
    if isinstance(made, np.ndarray):
        inner = made.ravel().tolist() if made.dtype == object else []
    elif isinstance(made, dict):
        inner = [*made.values()]
    elif isinstance(made, (list, tuple, set, frozenset)):
        inner = [*made]
    else:
        own = getattr(made, "n_features_in_", None)
        width = min(width, int(own)) if isinstance(own, (int, np.integer)) else width
        width = _NO_LIMIT if any(hasattr(made, name) for name in _OTHER_COLUMNS) else width
        inner = [*getattr(made, "__dict__", {}).values()]
    for one in inner:
        yield from _trees(one, width, seen)


def _of_tree(tree: Any, width: int) -> str:
    count = int(tree.node_count)
    if not 0 < count <= int(tree.capacity):
        return f"of {count} nodes with room for {int(tree.capacity)}"
    is_leaf = tree.children_left == -1
    return _wrong(is_leaf, (tree.children_left, tree.children_right), tree.feature, min(int(tree.n_features), width))


def _of_histograms(tree: Any, width: int) -> str:
    nodes = tree.nodes
    names = ("is_leaf", "left", "right", "feature_idx", "is_categorical", "bitset_idx")
    if not isinstance(nodes, np.ndarray) or nodes.ndim != 1 or not {*names} <= {*(nodes.dtype.names or ())}:
        return "without a table of nodes"
    if not len(nodes):
        return "of no nodes"
    is_leaf = nodes["is_leaf"] != 0
    sets = getattr(tree, "raw_left_cat_bitsets", None)
    by_category = nodes["bitset_idx"][(nodes["is_categorical"] != 0) & ~is_leaf]
    if not isinstance(sets, np.ndarray) or sets.dtype != np.uint32 or sets.shape[1:] != (_WORDS,):
        return "without sets of categories"
    if (by_category >= len(sets)).any():
        return "whose sets of categories are not there"
    children = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
    return _wrong(is_leaf, children, nodes["feature_idx"], width)


def _wrong(is_leaf: np.ndarray, children: tuple[np.ndarray, np.ndarray], columns: np.ndarray, width: int) -> str:
    """Say what is wrong with the nodes that branch: children stand behind their parent and are there."""
    places = np.nonzero(~is_leaf)[0]
    for side in children:
        bad = (side[places] <= places) | (side[places] >= len(is_leaf))
        if bad.any():
            return f"whose node {places[bad.argmax()]} leads to node {side[places][bad.argmax()]} of {len(is_leaf)}"
    bad = (columns[places] < 0) | (columns[places] >= width)
    return f"that asks for column {columns[places][bad.argmax()]} of {width}" if bad.any() else ""
