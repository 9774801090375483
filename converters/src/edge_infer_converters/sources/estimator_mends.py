"""Mend the graphs that skl2onnx writes where they answer otherwise than scikit-learn does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import onnx

from edge_infer_converters.sources.estimator_steps import last_of
from edge_infer_converters.sources.file_trees import trees_in

#: How far a threshold as float32 may be from that of scikit-learn.
_ROUNDING = 1e-6


def mend(graph: onnx.GraphProto, estimator: Any) -> None:
    """Give an export the signs, shapes and labels of its estimator, and the side that its trees send missing values to.

    Args:
        graph: The export; it is changed in place.
        estimator: What was exported.
    """
    last = last_of(estimator)
    kind = type(last).__name__
    if _has_turned_scores(last):
        _turn(graph)
    if kind == "QuadraticDiscriminantAnalysis":
        _flatten(graph)
    if kind == "OneVsOneClassifier":
        _name_best(graph, last.classes_)
    if kind == "LinearDiscriminantAnalysis" and len(last.classes_) == 2:
        _logistic(graph)
    if kind == "SGDClassifier" and len(last.classes_) > 2:
        _label_by_scores(graph)
    if isinstance(getattr(last, "classes_", None), list) and len(graph.output) > 1:
        _rows_first(graph, last.classes_)
    _send_missing(graph, estimator)


def _has_turned_scores(last: Any) -> bool:
    """Tell whether skl2onnx gives the scores of an estimator with the other sign: a machine between two classes."""
    is_machine = type(last).__module__ == "sklearn.svm._classes" and type(last).__name__ in ("SVC", "NuSVC")
    return is_machine and len(last.classes_) == 2 and not hasattr(last, "predict_proba")


def _flatten(graph: onnx.GraphProto) -> None:
    """Give a graph's labels, its first output, one axis: those of discriminant analysis are [1, rows] in skl2onnx."""
    name = graph.output[0].name
    (maker,) = (node for node in graph.node if name in node.output)
    row, shape = f"{name}_row", f"{name}_shape"
    maker.output[list(maker.output).index(name)] = row
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1], np.int64), shape))
    graph.node.append(onnx.helper.make_node("Reshape", [row, shape], [name]))
    del graph.output[0].type.tensor_type.shape.dim[1:]


def _turn(graph: onnx.GraphProto) -> None:
    """Give a graph's scores, its second output, the other sign."""
    name = graph.output[1].name
    (maker,) = (node for node in graph.node if name in node.output)
    turned = f"{name}_turned"
    maker.output[list(maker.output).index(name)] = turned
    graph.node.append(onnx.helper.make_node("Neg", [turned], [name]))


def _logistic(graph: onnx.GraphProto) -> None:
    """Make the shares of two classes of a linear classifier's score: skl2onnx takes those of twice the score."""
    for node in graph.node:
        for one in node.attribute:
            if node.op_type == "LinearClassifier" and one.name == "post_transform" and one.s == b"SOFTMAX":
                one.s = b"LOGISTIC"


def _label_by_scores(graph: onnx.GraphProto) -> None:
    """Take a linear classifier's label from its scores: probabilities of several classes may all round to 1."""
    makers = {name: node for node in graph.node for name in node.output}
    best = next(node for node in reversed(graph.node) if node.op_type == "ArgMax")
    best.input[0] = next(
        node.output[0]
        for node in reversed(graph.node)
        if node.op_type == "Add" and node.input[0] in makers and makers[node.input[0]].op_type == "MatMul"
    )


def _rows_first(graph: onnx.GraphProto, classes: list[np.ndarray]) -> None:
    """Give probabilities of several targets as [rows, targets, classes]; skl2onnx begins with the targets."""
    value = graph.output[1]
    (maker,) = (node for node in graph.node if value.name in node.output)
    if not value.type.HasField("tensor_type"):
        return
    before = next((node for node in graph.node if node.output[0] == maker.input[0]), maker)
    if maker.op_type == before.op_type == "Cast" and before.attribute[0].i == onnx.TensorProto.BOOL:
        maker.input[0] = before.input[0]  # of a tree, whose shares would all become 0 or 1
        graph.node.remove(before)
    by_target = f"{value.name}_by_target"
    maker.output[list(maker.output).index(value.name)] = by_target
    for node in graph.node:  # the labels are taken from the probabilities
        node.input[:] = [by_target if one == value.name else one for one in node.input]
    graph.node.append(onnx.helper.make_node("Transpose", [by_target], [value.name], perm=[1, 0, 2]))
    dims: list[str | int | None] = ["batch", len(classes), max(map(len, classes))]
    value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, dims))


def _name_best(graph: onnx.GraphProto, classes: np.ndarray) -> None:
    """Give a graph the class of the best score as its first output: of one against one skl2onnx gives its number."""
    name, scores = (one.name for one in graph.output)
    (maker,) = (node for node in graph.node if name in node.output)
    graph.node.remove(maker)
    is_text = classes.dtype.kind in "OUS"
    known = np.array([str(one).encode() for one in classes], object) if is_text else classes.astype(np.int64)
    parts = {part: f"{name}_{part}" for part in ("best", "classes")}
    graph.initializer.append(onnx.numpy_helper.from_array(known, parts["classes"]))
    graph.node.append(onnx.helper.make_node("ArgMax", [scores], [parts["best"]], axis=1, keepdims=0))
    if len(classes) == 2:
        _score_of_second(graph, scores)
    graph.node.append(onnx.helper.make_node("Gather", [parts["classes"], parts["best"]], [name], axis=0))
    graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING if is_text else onnx.TensorProto.INT64
    del graph.output[0].type.tensor_type.shape.dim[1:]


def _score_of_second(graph: onnx.GraphProto, scores: str) -> None:
    """Give two classes the score of the second one, once with each sign: scikit-learn says no other."""
    both, second, first, column = (f"{scores}_{part}" for part in ("both", "second", "first", "column"))
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [both if one == scores else one for one in names]
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int64), column))
    graph.node.append(onnx.helper.make_node("Gather", [both, column], [second], axis=1))
    graph.node.append(onnx.helper.make_node("Neg", [second], [first]))
    graph.node.append(onnx.helper.make_node("Concat", [first, second], [scores], axis=1))


def _send_missing(graph: onnx.GraphProto, estimator: Any) -> None:
    """Let the trees of a graph send missing values as scikit-learn's do; skl2onnx sends all of them right."""
    known: dict[bytes, list[Any]] = defaultdict(list)
    for tree, _ in trees_in(estimator):
        if hasattr(tree, "missing_go_to_left"):
            known[_form(tree.children_left, tree.children_right, tree.feature)].append(tree)
    for node in (one for one in graph.node if one.op_type.startswith("TreeEnsemble")):
        found = {one.name.removeprefix("nodes_"): one for one in node.attribute if one.name.startswith("nodes_")}
        flags = found.get("missing_value_tracks_true")
        if flags is None or any(flags.ints):
            continue
        places: dict[int, list[int]] = defaultdict(list)
        for place, tree in enumerate(found["treeids"].ints):
            places[tree].append(place)
        made = np.array(flags.ints)
        for _, own in sorted(places.items()):
            ordered = sorted(own, key=found["nodeids"].ints.__getitem__)
            parts = [np.array(found[name].ints)[ordered] for name in ("truenodeids", "falsenodeids", "featureids")]
            values = np.array(found["values"].floats)[ordered]
            same = known.get(_form(*parts), [])
            for place, one in enumerate(same):
                branches = one.children_left > 0
                if np.allclose(values[branches], one.threshold[branches], _ROUNDING, _ROUNDING):
                    made[ordered] = np.where(branches, one.missing_go_to_left, 0)
                    same.append(same.pop(place))  # of equal trees, which come in their order, the next one is another
                    break
        flags.ints[:] = made.tolist()


def _form(left: np.ndarray, right: np.ndarray, columns: np.ndarray) -> bytes:
    """Return the form of a tree; what stands at leaves, where each side has other numbers, counts as 0."""
    return bytes(np.maximum(np.stack([left, right, columns]), 0).astype(np.int64).tobytes())
