"""Export the trees of scikit-learn's HistGradientBoosting, with missing values and categories, for skl2onnx.

skl2onnx 1.20 fails on those of scikit-learn 1.9, and knows no categories. There is no public way to these trees, so
that this one file reads two private attributes; each export is compared with the estimator's own answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
#: How the sums become answers, by the loss.
_LINKS = {"poisson": "Exp", "gamma": "Exp"}


def categories_of(made: Any) -> dict[int, list[Any]]:
    """Return the categories of each column that has some, by its number; a missing one is left out."""
    flags = getattr(made, "is_categorical_", None)
    if flags is None:
        return {}
    encoder = _private(made, "_preprocessor").named_transformers_["encoder"]
    places = np.nonzero(flags)[0]
    return {
        int(place): [one for one in known if one is not None and one == one]
        for place, known in zip(places, encoder.categories_, strict=True)
    }


def _private(made: Any, name: str) -> Any:
    found = getattr(made, name, None)
    if found is None:
        other = type(made).__name__.removeprefix("HistGradientBoosting")
        raise ConversionError(
            f"the trees of {type(made).__name__} of the installed scikit-learn cannot be read: it has no `{name}`",
            hint=f"fit lightgbm.LGBM{other} instead, or install scikit-learn 1.5 to 1.9",
        )
    return found


#: Four steps of float32.
_ROUNDINGS = 2.0**-21
#: Equal to no value of a column.
_NEVER = -3.4028234663852886e38


class _Trees:
    """The attributes of a TreeEnsembleRegressor, filled tree by tree."""

    def __init__(self, made: Any, *, is_computed: bool) -> None:
        self._is_computed = is_computed
        names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
        self._names = (*names, "missing_value_tracks_true")
        self.nodes: dict[str, list[Any]] = {name: [] for name in self._names}
        self.votes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
        known = categories_of(made)
        count = int(made.n_features_in_)
        # The trees number the columns with categories first.
        self._order = [*known, *(i for i in range(count) if i not in known)]
        has_texts = any(isinstance(one, str) for all_ in known.values() for one in all_)
        self._known = {
            # Of texts the bundle gives the numbers; numbers stand for themselves.
            place: [float(i) if has_texts else float(one) for i, one in enumerate(all_)]
            for place, all_ in known.items()
        }

    def add(self, tree: Any, number: int, target: int) -> None:
        """Add a tree of scikit-learn."""
        start = len(self.nodes["nodeids"])
        waiting: list[tuple[int, int | None, str]] = [(0, None, "")]
        while waiting:
            place, parent, side = waiting.pop()
            node = tree.nodes[place]
            own = len(self.nodes["nodeids"]) - start
            if parent is not None:
                self._link(start, parent, side, own)
            if node["is_leaf"]:
                self._put(number, own, 0, 0.0, "LEAF", 0)
                for name, one in zip(self.votes, (number, own, target, float(node["value"])), strict=True):
                    self.votes[name].append(one)
                continue
            column = self._order[int(node["feature_idx"])]
            goes_left = int(node["missing_go_to_left"])
            left, right = int(node["left"]), int(node["right"])
            if not node["is_categorical"]:
                self._put(
                    number,
                    own,
                    column,
                    _near(float(node["num_threshold"]), is_computed=self._is_computed),
                    "BRANCH_LEQ",
                    goes_left,
                )
                waiting += [(right, own, "falsenodeids"), (left, own, "truenodeids")]
                continue
            bits = tree.raw_left_cat_bitsets[int(node["bitset_idx"])]
            values = self._known[column]
            is_left = [bool(int(bits[i // 32]) >> (i % 32) & 1) for i in range(len(values))]
            # A missing or unknown value equals no category: the side it goes to is that of the end of the chain.
            tested = [value for value, is_one in zip(values, is_left, strict=True) if is_one != bool(goes_left)]
            same, other = (right, left) if goes_left else (left, right)
            if not tested:
                tested = [_NEVER]  # every category goes one way, and an unknown one with them
            for i, value in enumerate(tested):
                self._put(number, own + i, column, value, "BRANCH_EQ", 0)
                if i:
                    self._link(start, own + i - 1, "falsenodeids", own + i)
            waiting.append((other, own + len(tested) - 1, "falsenodeids"))
            waiting.append((same, own, f"{len(tested)}"))

    def _link(self, start: int, parent: int, side: str, own: int) -> None:
        if side.isdigit():  # all comparisons of a chain lead to one node
            for i in range(int(side)):
                self.nodes["truenodeids"][start + parent + i] = own
        elif side:
            self.nodes[side][start + parent] = own

    def _put(self, tree: int, own: int, column: int, value: float, mode: str, missing: int) -> None:
        for name, one in zip(self._names, (tree, own, column, value, mode, 0, 0, missing), strict=True):
            self.nodes[name].append(one)

    def attributes(self, targets: int, base: Sequence[float]) -> dict[str, Any]:
        """Return the attributes of the node."""
        made: dict[str, Any] = {f"nodes_{name}": values for name, values in self.nodes.items()}
        made |= {f"target_{name}": values for name, values in self.votes.items()}
        for name in ("nodes_values", "target_weights"):
            made[name] = np.array(made[name], np.float32)
        return {**made, "n_targets": targets, "base_values": np.array(base, np.float32), "post_transform": "NONE"}


def _near(threshold: float, *, is_computed: bool) -> float:
    """Return the nearest float32: thresholds are values of the data, and equal ones must stay equal.

    What steps before computed in float32 may be a few roundings above a threshold that it equals in float64.
    """
    if not np.isfinite(threshold):
        return float(np.clip(threshold, _NEVER, -_NEVER))
    return float(np.float32(threshold + (_ROUNDINGS * abs(threshold) if is_computed else 0.0)))


def attributes_of(made: Any, *, is_computed: bool = False) -> dict[str, Any]:
    """Return the attributes of the TreeEnsembleRegressor that gives the sums of an estimator.

    Args:
        made: The estimator.
        is_computed: Whether steps before it compute what it is given.

    Raises:
        ConversionError: The installed scikit-learn keeps its trees elsewhere.
    """
    trees = _Trees(made, is_computed=is_computed)
    number = 0
    for group in _private(made, "_predictors"):
        for target, tree in enumerate(group):
            trees.add(tree, number, target)
            number += 1
    base = np.asarray(_private(made, "_baseline_prediction"), np.float64).reshape(-1)
    return trees.attributes(int(made.n_trees_per_iteration_), base.tolist())


def convert(scope: Any, operator: Any, container: Any) -> None:
    """Write the operators of an estimator; skl2onnx calls this."""
    made = operator.raw_operator

    def put(kind: str, given: list[str], name: str, **more: Any) -> None:
        domain, version = ("ai.onnx.ml", 3) if "Ensemble" in kind else ("", container.target_opset)
        own = scope.get_unique_operator_name(kind)
        container.add_node(kind, given, name, op_domain=domain, op_version=version, name=own, **more)

    def fresh(name: str) -> str:
        return str(scope.get_unique_variable_name(name))

    given = operator.inputs[0].full_name
    out = [one.full_name for one in operator.outputs]
    sums = fresh("sums")
    put("TreeEnsembleRegressor", [given], sums, **attributes_of(made, is_computed=given != "x"))
    if type(made).__name__ == _KINDS[1]:
        link = _LINKS.get(str(made.loss))
        put(link or "Identity", [sums], out[0])
        return
    if int(made.n_trees_per_iteration_) == 1:
        one, share, rest = fresh("one"), fresh("share"), fresh("rest")
        container.add_initializer(one, 1, [1], [1.0])
        put("Sigmoid", [sums], share)
        put("Sub", [one, share], rest)
        put("Concat", [rest, share], out[1], axis=1)
    else:
        put("Softmax", [sums], out[1], axis=1)
    classes = np.asarray(made.classes_)
    is_text = classes.dtype.kind in "OUS"
    best, known, picked = fresh("best"), fresh("classes"), fresh("picked")
    container.add_initializer(
        known,
        8 if is_text else 7,
        [len(classes)],
        [str(one).encode() for one in classes] if is_text else [int(one) for one in classes],
    )
    put("ArgMax", [out[1]], best, axis=1, keepdims=0)
    container.add_node(
        "ArrayFeatureExtractor", [known, best], picked, op_domain="ai.onnx.ml", name=scope.get_unique_operator_name("P")
    )
    shape = fresh("shape")
    container.add_initializer(shape, 7, [1], [-1])
    put("Reshape", [picked, shape], out[0])
