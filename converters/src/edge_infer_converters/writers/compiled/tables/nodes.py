"""How each operator of a model over tables is written: those of ONNX-ML here, the others in `plain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.rows import Pairs, Points
from edge_infer_converters.writers.compiled.tables.ensembles import forest_of
from edge_infer_converters.writers.compiled.tables.plain import RULES as PLAIN
from edge_infer_converters.writers.compiled.tables.plain import pick
from edge_infer_converters.writers.compiled.tables.reading import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.compiled.tables.reading import Node
    from edge_infer_converters.writers.tflite.graph import Tensor

_INT32, _INT64, _FLOAT = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32)
_NORMS = {"L1": 0, "L2": 1, "MAX": 2}


# -- labels and scores --


def classes_of(node: Node) -> tuple[np.ndarray, bool]:
    """Return the numbers of the classes, and whether they are the places of texts."""
    for name in ("classlabels_int64s", "classlabels_ints"):
        if node.attributes.get(name):
            return np.array(node.attributes[name], np.int64), False
    texts = node.attributes.get("classlabels_strings") or ()
    return np.arange(len(texts), dtype=np.int64), True


def label(node: Node, place: Tensor, classes: np.ndarray, *, is_text: bool) -> None:
    """Give out the class at a place."""
    made = node.made(1, _INT64, output=0, is_flat=True)
    if is_text:
        node.table.texts.add(node.outputs[0])
    pick(node, node.stored(classes), place, made)


def highest(node: Node, scores: Tensor) -> Tensor:
    """Return the place of the highest score."""
    return node.add("ARG_MAX", [scores], node.made(1, _INT32, is_flat=True))


def scores_of(node: Node, raw: Tensor, output: int) -> None:
    """Turn sums into scores as the node's `post_transform` says, and give them out."""
    transform = node.text("post_transform", "NONE")
    if transform == "NONE":
        node.share(raw, output)
        return
    made = node.made(raw.shape[-1], output=output)
    if transform == "LOGISTIC":
        node.add("LOGISTIC", [raw], made)
    elif transform == "SOFTMAX":
        options: Any = schema.SoftmaxOptionsT()
        options.beta = 1.0
        node.add("SOFTMAX", [raw], made, options)
    else:
        raise UnsupportedModel(f"post_transform {transform}")


def of_both(node: Node, score: Tensor, classes: np.ndarray, *, is_share: bool, is_text: bool) -> None:
    """Give out the class and the scores of two classes by the score of the second.

    Args:
        node: The classifier.
        score: A number for each row.
        classes: Both.
        is_share: Whether the score lies between 0 and 1, and its middle decides, else 0.
        is_text: Whether the classes are places of texts.
    """
    sides = np.array([[-1.0], [1.0]], np.float32)
    raw = node.linear(score, sides, np.array([1.0, 0.0], np.float32) if is_share else None)
    # At the middle the first class wins: it stands first.
    middle = np.array([0.5, 0.5], np.float32) if is_share else np.zeros(2, np.float32)
    shifted = node.linear(score, sides, np.array([middle[0], -middle[1]], np.float32))
    label(node, highest(node, shifted), classes, is_text=is_text)
    if is_share:
        node.share(raw, 1)
    else:
        scores_of(node, raw, 1)


# -- ONNX-ML --


def tree_classifier(node: Node) -> None:
    """TreeEnsembleClassifier."""
    classes, is_text = classes_of(node)
    columns = node.given().shape[-1]
    ids = [*dict.fromkeys(node.attributes["class_ids"])]
    base = node.array("base_values")
    if len(classes) == 2 and len(ids) == 1:  # the votes are for one class, the other one has the rest
        weights = np.array(node.attributes["class_weights"], np.float32)
        votes = {**node.attributes, "class_ids": [0] * len(weights)}
        start = base[-1:] if len(base) else np.zeros(1, np.float32)
        forest = forest_of(votes, "class", columns, 1, start)
        score = node.add("TREES", [node.given()], node.made(1), forest)
        of_both(node, score, classes, is_share=bool((weights >= 0).all()), is_text=is_text)
        return
    start = base if len(base) == len(classes) else np.zeros(len(classes), np.float32)
    forest = forest_of(node.attributes, "class", columns, len(classes), start)
    sums = node.add("TREES", [node.given()], node.made(len(classes)), forest)
    label(node, highest(node, sums), classes, is_text=is_text)
    scores_of(node, sums, 1)


def tree_regressor(node: Node) -> None:
    """TreeEnsembleRegressor."""
    targets = node.integer("n_targets", 1)
    how = node.text("aggregate_function", "SUM")
    if how not in ("SUM", "AVERAGE"):
        raise UnsupportedModel(f"aggregate_function {how}")
    base = node.array("base_values")
    attributes = dict(node.attributes)
    if how == "AVERAGE":
        count = len({*attributes["nodes_treeids"]})
        attributes["target_weights"] = [weight / count for weight in attributes["target_weights"]]
    start = base if len(base) == targets else np.zeros(targets, np.float32)
    forest = forest_of(attributes, "target", node.given().shape[-1], targets, start)
    sums = node.add("TREES", [node.given()], node.made(targets), forest)
    scores_of(node, sums, 0)


def linear_classifier(node: Node) -> None:
    """LinearClassifier."""
    classes, is_text = classes_of(node)
    given = node.given()
    bias = node.array("intercepts")
    weights = _rows(node, len(bias) or -1)
    sums = node.linear(given, weights, bias if len(bias) else None)
    if len(weights) == 1 and len(classes) == 2:
        of_both(node, sums, classes, is_share=False, is_text=is_text)
        return
    label(node, highest(node, sums), classes, is_text=is_text)
    scores_of(node, sums, 1)


def linear_regressor(node: Node) -> None:
    """LinearRegressor."""
    given = node.given()
    bias = node.array("intercepts")
    weights = _rows(node, node.integer("targets", 1))
    scores_of(node, node.linear(given, weights, bias if len(bias) else None), 0)


def _rows(node: Node, count: int) -> np.ndarray:
    """Return the coefficients, [count, columns]; -1 for as many rows as there are."""
    weights, columns = node.array("coefficients"), node.given().shape[-1]
    if len(weights) % columns or count not in (-1, len(weights) // columns):
        raise UnsupportedModel(
            f"{len(weights)} coefficients for {max(count, 1)} sums of {columns} columns: the input has another number "
            "of columns than the model was fitted on"
        )
    return weights.reshape(-1, columns)


def scaler(node: Node) -> None:
    """Scaler: less the offset, times the scale."""
    given = node.given()
    less = node.binary("SUB", given, node.array("offset"))
    node.binary("MUL", less, node.array("scale"), node.made(given.shape[-1], output=0))


def normalizer(node: Node) -> None:
    """Normalizer: by the sum of sizes, the length, or the largest size."""
    given = node.given()
    node.add("NORMALIZE_ROWS", [given], node.made(given.shape[-1], output=0), _NORMS[node.text("norm", "MAX")])


def extractor(node: Node) -> None:
    """ArrayFeatureExtractor: columns by their numbers, or an entry of a constant row."""
    table, places = node.constant(0), node.constant(1)
    if table is not None:
        place = node.given(1)
        if table.dtype.kind in "OSU":
            table = np.arange(table.size)
            node.table.texts.add(node.outputs[0])
        # Classes may be int32 in the file, and become int64 behind it.
        kept = table.reshape(-1).astype(_INT64) if table.dtype == _INT32 else table.reshape(-1)
        made = node.made(1, kept.dtype, output=0)
        pick(node, node.stored(kept), _whole(place), made)
        return
    if places is None:
        raise UnsupportedModel("by computed numbers of a computed row")
    _columns(node, node.given(), places.reshape(-1))


def _columns(node: Node, given: Tensor, places: np.ndarray) -> None:
    options: Any = schema.GatherOptionsT()
    options.axis, options.batchDims = 1, 0
    made = node.made(len(places), given.dtype, output=0)
    node.add("GATHER", [given, node.stored(places.astype(np.int32))], made, options)


def _whole(place: Tensor) -> Tensor:
    if place.dtype != _INT32:
        raise UnsupportedModel(f"numbers of {place.dtype} that are computed")
    return place


def _kernel_values(node: Node) -> tuple[Tensor, int]:
    """Return what the kernel gives for each support vector, and their number."""
    given = node.given()
    vectors = node.array("support_vectors").reshape(-1, given.shape[-1])
    kind = node.text("kernel_type", "LINEAR")
    gamma, offset, degree = (float(value) for value in (*node.attributes.get("kernel_params", ()), 0.0, 0.0, 0.0)[:3])
    if kind == "RBF":
        squares = node.add("DISTANCES", [given], node.made(len(vectors)), Points(vectors))
        return node.add("EXP", [node.binary("MUL", squares, np.array([-gamma]))], node.made(len(vectors))), len(vectors)
    if kind == "LINEAR":
        return node.linear(given, vectors, None), len(vectors)
    values = node.linear(given, vectors * np.float32(gamma), np.array([offset]))
    if kind == "SIGMOID":
        return node.add("TANH", [values], node.made(len(vectors))), len(vectors)
    if kind != "POLY" or degree != int(degree) or not 1 <= degree <= 8:
        raise UnsupportedModel(f"kernel {kind} of degree {degree}")
    power = values
    for _ in range(int(degree) - 1):
        power = node.binary("MUL", power, values)
    return power, len(vectors)


def svm_regressor(node: Node) -> None:
    """SVMRegressor."""
    coefficients, rho = node.array("coefficients"), node.array("rho")
    if not len(node.attributes.get("support_vectors", ())):
        sums = node.linear(node.given(), coefficients.reshape(1, -1), rho[:1])
    else:
        values, _ = _kernel_values(node)
        sums = node.linear(values, coefficients.reshape(1, -1), rho[:1])
    if node.integer("one_class"):
        _sign(node, sums)
        return
    scores_of(node, sums, 0)


def _sign(node: Node, given: Tensor) -> None:
    """Give out 1 above 0, else -1."""
    both = node.linear(given, np.array([[-1.0], [1.0]], np.float32), None)
    made = node.made(given.shape[-1], output=0)
    pick(node, node.stored(np.array([-1.0, 1.0], np.float32)), highest(node, both), made)


def svm_classifier(node: Node) -> None:
    """SVMClassifier with support vectors: a decision for each pair of classes, then votes."""
    classes, is_text = classes_of(node)
    if not len(node.attributes.get("vectors_per_class", ())):
        raise UnsupportedModel("without support vectors")
    values, count = _kernel_values(node)
    table = node.array("coefficients").reshape(-1, count)
    ends = np.cumsum([0, *node.attributes["vectors_per_class"]])
    pairs = [(i, j) for i in range(len(classes)) for j in range(i + 1, len(classes))]
    weights = np.zeros((len(pairs), count), np.float32)
    for row, (i, j) in enumerate(pairs):
        weights[row, ends[i] : ends[i + 1]] = table[j - 1, ends[i] : ends[i + 1]]
        weights[row, ends[j] : ends[j + 1]] = table[i, ends[j] : ends[j + 1]]
    decisions = node.linear(values, weights, node.array("rho"))
    votes = node.add("PAIR_VOTES", [decisions], node.made(len(classes)), Pairs(None, len(classes)))
    label(node, highest(node, votes), classes, is_text=is_text)
    sigmoids = np.stack([node.array("prob_a"), node.array("prob_b")])
    if not sigmoids.size:
        if len(classes) == 2:
            raise UnsupportedModel("two classes without probabilities")
        scores_of(node, decisions, 1)
        return
    made = node.made(len(classes), output=1)
    node.add("PAIR_VOTES", [decisions], made, Pairs(sigmoids, len(classes)))


RULES: dict[str, Callable[[Node], None]] = {
    f"{DOMAIN}.TreeEnsembleClassifier": tree_classifier,
    f"{DOMAIN}.TreeEnsembleRegressor": tree_regressor,
    f"{DOMAIN}.LinearClassifier": linear_classifier,
    f"{DOMAIN}.LinearRegressor": linear_regressor,
    f"{DOMAIN}.Scaler": scaler,
    f"{DOMAIN}.Normalizer": normalizer,
    f"{DOMAIN}.ArrayFeatureExtractor": extractor,
    f"{DOMAIN}.SVMRegressor": svm_regressor,
    f"{DOMAIN}.SVMClassifier": svm_classifier,
    **PLAIN,
}
