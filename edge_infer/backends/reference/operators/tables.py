"""Operators of classic models: the domain ai.onnx.ml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.elementwise import sigmoid
from edge_infer.backends.reference.operators.normalization import softmax_of

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def posted(scores: Array, transform: str) -> Array:
    """Make chances of scores, as `post_transform` says."""
    if transform == "LOGISTIC":
        return sigmoid(scores)
    if transform == "SOFTMAX":
        return softmax_of(scores, -1)
    if transform == "SOFTMAX_ZERO":
        lives = scores != 0
        top = np.max(scores, -1, keepdims=True)
        powers = np.where(lives, np.exp(scores - top), 0)
        total = powers.sum(-1, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1, total))
    if transform == "PROBIT":
        raise ValueError("PROBIT is not computed here")
    return scores


def label_encoder(call: Call, x: Array) -> Array:
    """Compute LabelEncoder."""
    keys, values = _pair(call, "keys"), _pair(call, "values")
    kind = next(name for name in ("strings", "int64s", "floats", "tensor") if f"values_{name}" in call.attributes)
    default = {"strings": "_Unused", "int64s": -1, "floats": -0.0}.get(kind)
    name = {"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}.get(
        kind, "default_tensor"
    )
    default = call.get(name, default)
    dtype: Any = {"strings": object, "int64s": np.int64, "floats": np.float32}.get(kind, np.asarray(values).dtype)
    if kind == "tensor":
        default = np.asarray(default).reshape(-1)[0]
    known = dict(zip(np.asarray(keys).tolist(), np.asarray(values).tolist(), strict=True))
    nan = next((value for key, value in known.items() if key != key), default)  # NaN is a key too
    found = [nan if one != one else known.get(one, default) for one in x.reshape(-1).tolist()]
    result = np.empty(x.shape, dtype)
    result.reshape(-1)[:] = found
    return result


def _pair(call: Call, kind: str) -> Any:
    for name in ("strings", "int64s", "floats", "tensor"):
        if f"{kind}_{name}" in call.attributes:
            return call.get(f"{kind}_{name}", [])
    raise ValueError(f"there is no attribute {kind}_*")


def one_hot_encoder(call: Call, x: Array) -> Array:
    """Compute OneHotEncoder."""
    known = call.get("cats_int64s", None) or call.get("cats_strings", [])
    found = np.asarray(x)[..., None] == np.array(known, object if isinstance(known[0], str) else None)
    if not call.get("zeros", 1) and not found.any(-1).all():
        raise ValueError("a value is in no category")
    return found.astype(np.float32)


def imputer(call: Call, x: Array) -> Array:
    """Compute Imputer."""
    is_float = x.dtype.kind == "f"
    values = np.array(call.get("imputed_value_floats" if is_float else "imputed_value_int64s", []), x.dtype)
    missing = call.get("replaced_value_float" if is_float else "replaced_value_int64", 0)
    lost = np.isnan(x) if missing != missing else x == missing
    return np.where(lost, values, x).astype(x.dtype)


def normalizer(call: Call, x: Array) -> Array:
    """Compute Normalizer."""
    kind = call.get("norm", "MAX")
    if kind == "MAX":
        size = np.max(x, -1, keepdims=True)
    elif kind == "L1":
        size = np.sum(np.abs(x), -1, keepdims=True)
    else:
        size = np.sqrt(np.sum(np.square(x), -1, keepdims=True))
    return np.asarray(x / np.where(size == 0, 1, size)).astype(np.float32)


def scaler(call: Call, x: Array) -> Array:
    """Compute Scaler."""
    moved = x - np.array(call.get("offset", [0.0]), np.float32)
    return np.asarray(moved * np.array(call.get("scale", [1.0]), np.float32)).astype(np.float32)


def linear_regressor(call: Call, x: Array) -> Array:
    """Compute LinearRegressor."""
    targets = call.get("targets", 1)
    weights = np.array(call.get("coefficients", []), np.float32).reshape(targets, -1)
    scores = x.astype(np.float32) @ weights.T + np.array(call.get("intercepts", None) or [0.0], np.float32)
    return posted(scores, call.get("post_transform", "NONE")).astype(np.float32)


def labels_of(call: Call) -> Any:
    """Return the classes of a classifier, texts or integers."""
    texts = call.get("classlabels_strings", None)
    if texts:
        return np.array(texts, object)
    return np.array(call.get("classlabels_ints", None) or call.get("classlabels_int64s", [0, 1]), np.int64)


def linear_classifier(call: Call, x: Array) -> tuple[Array, Array]:
    """Compute LinearClassifier."""
    bias = np.array(call.get("intercepts", None) or [0.0], np.float32)
    weights = np.array(call.get("coefficients", []), np.float32)
    rows = len(bias) if call.get("intercepts", None) else weights.size // x.shape[-1]
    scores = x.astype(np.float32) @ weights.reshape(rows, -1).T + bias
    labels, transform = labels_of(call), call.get("post_transform", "NONE")
    if scores.shape[1] == 1 and len(labels) == 2:
        if transform == "LOGISTIC":
            second = sigmoid(scores)
            scores = np.concatenate([1 - second, second], 1)
            return labels[(scores[:, 1] > 0.5).astype(int)], scores.astype(np.float32)
        # ONNX Runtime transforms no other pair that it makes of one row.
        return labels[(scores[:, 0] > 0).astype(int)], np.concatenate([1 - scores, scores], 1).astype(np.float32)
    return labels[scores.argmax(1)], posted(scores, transform).astype(np.float32)


def _leaves(call: Call, x: Array) -> list[Array]:
    """Walk every tree of an ensemble with every row at once; return the leaf of each row, by tree."""
    trees, numbers = call.get("nodes_treeids", []), call.get("nodes_nodeids", [])
    place = {pair: i for i, pair in enumerate(zip(trees, numbers, strict=True))}
    modes = call.get("nodes_modes", [])
    features = np.array(call.get("nodes_featureids", []))
    raw = call.get("nodes_values_as_tensor", None)
    values = np.array(call.get("nodes_values", []), np.float32) if raw is None else raw
    track = np.array(call.get("nodes_missing_value_tracks_true", None) or [0] * len(modes), bool)
    yes = np.array([place.get(pair, 0) for pair in zip(trees, call.get("nodes_truenodeids", []), strict=True)])
    no = np.array([place.get(pair, 0) for pair in zip(trees, call.get("nodes_falsenodeids", []), strict=True)])
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    compare = np.array([_MODES.index(mode) if mode in _MODES else 0 for mode in modes])
    first: dict[int, int] = {}
    for i, tree in enumerate(trees):
        first.setdefault(tree, i)
    found = []
    rows = np.arange(x.shape[0])
    for root in first.values():
        at = np.full(x.shape[0], root)
        while not is_leaf[at].all():
            seen = x[rows, features[at]]
            goes = _compared(compare[at], seen, values[at]) | (np.isnan(seen) & track[at])
            at = np.where(is_leaf[at], at, np.where(goes, yes[at], no[at]))
        found.append(at)
    return found


_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _compared(modes: Array, x: Array, values: Array) -> Array:
    return np.select(
        [modes == i for i in range(6)], [x <= values, x < values, x >= values, x > values, x == values, x != values]
    )


def _votes(call: Call, x: Array, kind: str, count: int) -> tuple[Array, int]:
    """Sum what the leaves of an ensemble vote for."""
    trees, numbers = call.get("nodes_treeids", []), call.get("nodes_nodeids", [])
    place = {pair: i for i, pair in enumerate(zip(trees, numbers, strict=True))}
    votes = np.zeros((len(trees), count))
    has = np.zeros((len(trees), count), bool)
    raw = call.get(f"{kind}_weights_as_tensor", None)
    weights = call.get(f"{kind}_weights", []) if raw is None else raw
    for tree, node, target, weight in zip(
        call.get(f"{kind}_treeids", []),
        call.get(f"{kind}_nodeids", []),
        call.get(f"{kind}_ids", []),
        weights,
        strict=True,
    ):
        votes[place[tree, node], target] += weight
        has[place[tree, node], target] = True
    leaves = _leaves(call, x)
    how = call.get("aggregate_function", "SUM")
    if how in ("MIN", "MAX"):
        edge = np.inf if how == "MIN" else -np.inf
        stacked = np.stack([np.where(has[leaf], votes[leaf], edge) for leaf in leaves])
        total = stacked.min(0) if how == "MIN" else stacked.max(0)
        total = np.where(np.isinf(total), 0, total)
    else:
        total = sum(votes[leaf] for leaf in leaves) / (len(leaves) if how == "AVERAGE" else 1)
    base = call.get("base_values", None)
    return (total + np.array(base) if base else np.asarray(total)), len(leaves)


def tree_regressor(call: Call, x: Array) -> Array:
    """Compute TreeEnsembleRegressor."""
    scores, _ = _votes(call, x, "target", call.get("n_targets", 1))
    return posted(scores, call.get("post_transform", "NONE")).astype(np.float32)


def tree_classifier(call: Call, x: Array) -> tuple[Array, Array]:
    """Compute TreeEnsembleClassifier; of two classes the votes may be for one only."""
    labels, transform = labels_of(call), call.get("post_transform", "NONE")
    ids = {*call.get("class_ids", [])}
    if len(labels) == 2 and len(ids) == 1:
        base = call.get("base_values", None)
        scores, _ = (
            _votes(call, x, "class", max(ids) + 1) if not base or len(base) == max(ids) + 1 else _based(call, x, base)
        )
        second = scores[:, -1:]
        weights = call.get("class_weights", None)
        weights = call.get("class_weights_as_tensor", []) if weights is None else weights
        if np.all(np.asarray(weights) >= 0) and transform == "NONE":
            both = np.concatenate([1 - second, second], 1)
            return labels[(second[:, 0] > 0.5).astype(int)], both.astype(np.float32)
        if transform == "LOGISTIC":
            chance = sigmoid(second)
            return labels[(second[:, 0] > 0).astype(int)], np.concatenate([1 - chance, chance], 1).astype(np.float32)
        both = np.concatenate([-second, second], 1)
        return labels[(second[:, 0] > 0).astype(int)], posted(both, transform).astype(np.float32)
    scores, _ = _votes(call, x, "class", len(labels))
    return labels[scores.argmax(1)], posted(scores, transform).astype(np.float32)


def _based(call: Call, x: Array, base: list[float]) -> tuple[Array, int]:
    plain = type(call)(call.node, {**call.attributes, "base_values": None}, {}, call.opset)
    scores, count = _votes(plain, x, "class", max(call.get("class_ids", [0])) + 1)
    return scores + base[-1], count


def tree_ensemble(call: Call, x: Array) -> Array:
    """Compute TreeEnsemble."""
    splits = np.asarray(call.get("nodes_splits", []))
    modes = np.asarray(call.get("nodes_modes", []))
    features = call.get("nodes_featureids", [])
    yes, no = call.get("nodes_truenodeids", []), call.get("nodes_falsenodeids", [])
    yes_leaf, no_leaf = call.get("nodes_trueleafs", []), call.get("nodes_falseleafs", [])
    track = call.get("nodes_missing_value_tracks_true", None) or [0] * len(modes)
    members = _members(modes, np.asarray(call.get("membership_values", [])))
    targets, weights = call.get("leaf_targetids", []), np.asarray(call.get("leaf_weights", []))
    how = call.get("aggregate_function", 1)
    start = {2: np.inf, 3: -np.inf}.get(how, 0.0)
    result = np.full((x.shape[0], call.get("n_targets", 1)), start, np.float64)
    roots = call.get("tree_roots", [])
    for row, total in zip(x, result, strict=True):
        for root in roots:
            at, is_leaf = root, False
            while not is_leaf:
                value = row[features[at]]
                goes = (
                    value in members[at]
                    if modes[at] == 6
                    else bool(_compared(modes[at : at + 1], value[None], splits[at : at + 1])[0])
                )
                goes = goes or (bool(track[at]) and bool(np.isnan(value)))
                at, is_leaf = (yes[at], yes_leaf[at]) if goes else (no[at], no_leaf[at])
            target, weight = targets[at], weights[at]
            if how == 2:
                total[target] = min(total[target], weight)
            elif how == 3:
                total[target] = max(total[target], weight)
            else:
                total[target] += weight / (len(roots) if how == 0 else 1)
    names = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    return posted(result, names[call.get("post_transform", 0)]).astype(x.dtype)


def _members(modes: Array, values: Array) -> dict[int, set[float]]:
    """Return the set of each node that asks for membership: they lie one after the other, each ended by NaN."""
    groups: list[set[float]] = [set()]
    for value in values.tolist():
        if value != value:
            groups.append(set())
        else:
            groups[-1].add(value)
    return dict(zip(np.flatnonzero(modes == 6).tolist(), groups, strict=False))


def svm_scores(call: Call, x: Array) -> Array:
    """Return the kernels between rows and support vectors, or between rows and weights of a linear model."""
    vectors = np.array(call.get("support_vectors", []), np.float64).reshape(-1, x.shape[1])
    gamma, coefficient, degree = (call.get("kernel_params", None) or [0.0, 0.0, 0.0])[:3]
    x = x.astype(np.float64)
    kind = call.get("kernel_type", "LINEAR")
    if kind == "RBF":
        return np.exp(-gamma * np.sum(np.square(x[:, None] - vectors), 2))
    products = x @ vectors.T
    if kind == "POLY":
        return (gamma * products + coefficient) ** degree
    return np.tanh(gamma * products + coefficient) if kind == "SIGMOID" else products


def svm_regressor(call: Call, x: Array) -> Array:
    """Compute SVMRegressor."""
    weights = np.array(call.get("coefficients", []), np.float64)
    rho = np.array(call.get("rho", [0.0]), np.float64)
    total = (svm_scores(call, x) if call.get("n_supports", 0) else x) @ weights + rho[0]
    if call.get("one_class", 0):
        total = np.where(total > 0, 1, -1)
    return posted(np.asarray(total).reshape(-1, 1), call.get("post_transform", "NONE")).astype(np.float32)


OPERATORS: dict[str, Operator] = {
    "ArrayFeatureExtractor": lambda call, x, places: np.take(x, places.reshape(-1), -1).reshape(
        *(x.shape[:-1] or (1,)), -1
    ),
    "Binarizer": lambda call, x: (x > call.get("threshold", 0.0)).astype(x.dtype),
    "FeatureVectorizer": lambda call, *inputs: np.concatenate(
        [np.atleast_2d(one).astype(np.float32) for one in inputs], 1
    ),
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot_encoder,
    "SVMRegressor": svm_regressor,
    "Scaler": scaler,
    "TreeEnsemble": tree_ensemble,
    "TreeEnsembleClassifier": tree_classifier,
    "TreeEnsembleRegressor": tree_regressor,
}
