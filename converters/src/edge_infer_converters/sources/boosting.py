"""Export a fitted XGBoost or LightGBM model by onnxmltools: one float32 input `x`, plain tensors out."""

from __future__ import annotations

import copy
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError, listed
from edge_infer_converters.sources.made import first_of, libraries_of
from edge_infer_converters.sources.sklearn import of_estimator
from edge_infer_converters.sources.table import describe

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.sources.framework import Framework

_OPSETS = {"ai.onnx.ml": 3, "": 15}


def takes(made: object) -> bool:
    """Tell whether an object is a model of XGBoost or LightGBM."""
    return bool(libraries_of(made) & {"xgboost", "lightgbm"})


def export(made: object, path: Path, where: str, opset: int | None = None) -> Framework | None:
    """Export an estimator or a booster.

    Args:
        made: A model of `xgboost` or `lightgbm` fitted over numbers, with scikit-learn's interface or a `Booster`.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits; newer ones are made by `passes.opset`.

    Returns:
        The estimator, to be compared with its export; None where its answers have another form.

    Raises:
        ConversionError: onnxmltools is not installed, or does not know the estimator.
    """
    estimator: Any = first_of(made)
    refuse_categories(estimator, where)
    unnamed = estimator
    library = "xgboost" if type(estimator).__module__.startswith("xgboost") else "lightgbm"
    try:
        tools = import_module("onnxmltools")
        types = import_module("onnxmltools.convert.common.data_types")
    except ImportError as error:
        raise ConversionError(
            f"Exporting from {library} needs {error.name}, which is not installed",
            hint=f'pip install "edge-infer-converters[{library}]"',
        ) from error
    try:
        arguments: dict[str, Any] = {
            "initial_types": [("x", types.FloatTensorType([None, _features(estimator)]))],
            "target_opset": min(opset or _OPSETS[""], _OPSETS[""]),
        }
        if library == "lightgbm":
            model = tools.convert_lightgbm(estimator, zipmap=False, **arguments)
            _round_down(model, getattr(estimator, "booster_", estimator))
        else:
            unnamed = _unnamed(estimator)
            model = tools.convert_xgboost(unnamed, **arguments)
            _right_classes(model, _booster(estimator))
    except Exception as error:  # onnxmltools raises what its parts raise
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConversionError(
            f"onnxmltools cannot export `{where}` ({type(estimator).__name__}): {said}",
            hint="fit it on a float32 array, with the classes 0, 1, 2 ... as integers",
        ) from error
    for value in (*model.graph.input, *model.graph.output):
        # It says {1} for the labels of any number of rows.
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    if not any(entry.domain == "" for entry in model.opset_import):
        model.opset_import.add(domain="", version=_OPSETS[""])
    describe(model, answering(estimator), library, _features(estimator))
    path.write_bytes(model.SerializeToString())
    return of_estimator(library, answering(unnamed), _features(estimator), path)


def refuse_categories(estimator: Any, where: str) -> None:
    """Refuse a booster that was fitted on categories of pandas: its export would take their numbers for amounts.

    Raises:
        ConversionError: It was.
    """
    booster = (
        estimator.get_booster() if hasattr(estimator, "get_booster") else getattr(estimator, "booster_", estimator)
    )
    names = getattr(booster, "feature_name", None) or getattr(booster, "feature_names", None)
    names = list(names() if callable(names) else names or ())
    kinds = getattr(booster, "feature_types", None) or ()
    found = [names[i] if i < len(names) else str(i) for i, kind in enumerate(kinds) if kind == "c"]
    known = getattr(booster, "pandas_categorical", None)
    if found or known:
        values = f" ({listed([str(one) for one in known[0]][:4])} ...)" if known else ""
        raise ConversionError(
            f"`{where}` was fitted on categories of pandas{f' in {listed(found)}' if found else ''}{values}, which its "
            "export does not know",
            hint="HistGradientBoostingClassifier(categorical_features='from_dtype').fit(frame, y) keeps the categories",
        )


class LightBooster:
    """A `Booster` of LightGBM with the interface of an estimator: a regressor."""

    def __init__(self, booster: Any) -> None:
        self.booster_ = booster

    def predict(self, rows: Any) -> Any:
        """Return the values of rows."""
        return self.booster_.predict(rows)


class LightClasses(LightBooster):
    """A `Booster` of LightGBM that tells classes."""

    def __init__(self, booster: Any, count: int) -> None:
        super().__init__(booster)
        self.classes_ = np.arange(count)

    def predict_proba(self, rows: Any) -> Any:
        """Return the probability of each class."""
        found = self.booster_.predict(rows)
        return found if found.ndim == 2 else np.stack([1 - found, found], 1)

    def predict(self, rows: Any) -> Any:
        """Return the likelier class."""
        return self.classes_[self.predict_proba(rows).argmax(1)]


def answering(estimator: Any) -> Any:
    """Give LightGBM's `Booster` the methods of an estimator; return any other model unchanged."""
    if type(estimator).__name__ != "Booster" or not hasattr(estimator, "num_model_per_iteration"):
        return estimator  # XGBoost has a `Booster` too
    kind = str(estimator.dump_model(num_iteration=1).get("objective", "")).partition(" ")[0]
    if kind in ("binary", "multiclass", "multiclassova"):
        return LightClasses(estimator, max(int(estimator.num_model_per_iteration()), 2))
    return LightBooster(estimator)


def _round_down(model: Any, booster: Any) -> None:
    """Replace, in place, the thresholds that were rounded up by the next lower float32.

    LightGBM compares a float32 with a float64 threshold; the same side is taken by every float32 only where the
    threshold is rounded toward minus infinity. onnxmltools rounds to the nearest.
    """
    exact: dict[tuple[int, int, float], float] = {}
    for tree in booster.dump_model()["tree_info"]:
        waiting = [tree["tree_structure"]]
        while waiting:
            node = waiting.pop()
            if "left_child" in node:
                waiting += [node["left_child"], node["right_child"]]
                if node["decision_type"] == "<=":
                    threshold = float(node["threshold"])
                    exact[tree["tree_index"], node["split_feature"], float(np.float32(threshold))] = threshold
    for node in model.graph.node:
        if not node.op_type.startswith("TreeEnsemble"):
            continue
        attributes = {attribute.name: attribute for attribute in node.attribute}
        values = attributes["nodes_values"].floats
        keys = zip(attributes["nodes_treeids"].ints, attributes["nodes_featureids"].ints, values, strict=True)
        for place, key in enumerate(list(keys)):
            if exact.get(key, key[2]) < key[2]:
                values[place] = float(np.nextafter(np.float32(key[2]), np.float32(-np.inf)))


def _right_classes(model: Any, booster: Any) -> None:
    """Give the trees of a forest their classes, in place: onnxmltools takes them in turn, XGBoost says them."""
    trees = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"].get("model", {}).get("tree_info", [])
    for node in model.graph.node:
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type != "TreeEnsembleClassifier" or not any(trees):
            continue
        for place, tree in enumerate(list(attributes["class_treeids"].ints)):
            attributes["class_ids"].ints[place] = trees[tree]


def _booster(estimator: Any) -> Any:
    return estimator.get_booster() if hasattr(estimator, "get_booster") else getattr(estimator, "booster_", estimator)


def _unnamed(estimator: Any) -> Any:
    """Return a copy of a model of XGBoost without names of columns, which onnxmltools does not take."""
    made = copy.deepcopy(estimator)
    booster = made.get_booster() if hasattr(made, "get_booster") else made
    booster.feature_names = None
    booster.feature_types = None
    return made


def _features(estimator: Any) -> int:
    for name in ("n_features_in_", "num_feature"):
        found = getattr(estimator, name, None)
        if found is not None:
            return int(found() if callable(found) else found)
    return int(estimator.num_features())
