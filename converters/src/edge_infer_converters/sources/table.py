"""What an estimator says of its table: names and types of columns, categories, classes, and what it answers.

It is written into the metadata of the export, where `edge_infer.tasks.sources.tables` reads it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.tasks.sources.tables import KEY
from edge_infer_converters.sources.estimator_steps import last_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

_DEFAULT_LIGHTGBM = "Column_"


def describe(
    model: onnx.ModelProto,
    estimator: Any,
    source: str,
    features: int,
    columns: Sequence[dict[str, Any]] = (),
    unknown: str = "error",
) -> None:
    """Write what is known of the table into the metadata of an export, where its answer is one of `tables`.

    Args:
        model: The export, changed in place.
        estimator: The fitted estimator.
        source: The library's name.
        features: How many columns it takes.
        columns: What is known of them already, as `tables` has it; of the estimator otherwise.
        unknown: What an unknown category becomes.
    """
    answer = _answer([value.name for value in model.graph.output], estimator)
    if answer is None and columns and [value.name for value in model.graph.output] == ["variable"]:
        answer = "values"  # of a transformer, whose input would be numbers of categories that nothing explains
    if answer is None or (answer == "classes" and isinstance(getattr(estimator, "classes_", None), list)):
        return  # of several targets at once there are several outputs of classes
    if answer == "value" and _width(model, "variable") > 1:
        answer = "values"
    document: dict[str, Any] = {"source": source, "answer": answer}
    document["columns"] = list(columns) or _columns(estimator, features)
    if any(one.get("categories") for one in document["columns"]):
        document["unknown"] = unknown
    if answer in ("classes", "nearest"):
        document["classes"] = _classes(model, estimator, answer)
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(document, ensure_ascii=False)


def _width(model: onnx.ModelProto, name: str) -> int:
    dims = next(value for value in model.graph.output if value.name == name).type.tensor_type.shape.dim
    return int(dims[-1].dim_value) if len(dims) > 1 else 1


def _answer(outputs: Sequence[str], estimator: Any) -> str | None:
    if "probabilities" in outputs:
        return "classes" if hasattr(estimator, "predict_proba") or type(estimator).__name__ == "Booster" else "label"
    if "variable" in outputs:
        return "value" if hasattr(estimator, "predict") else None
    if "scores" in outputs and hasattr(last_of(estimator), "cluster_centers_"):
        return "nearest"
    return "label" if "label" in outputs else None


def _classes(model: onnx.ModelProto, estimator: Any, answer: str) -> list[str]:
    if answer == "nearest":
        return [f"cluster {i}" for i in range(len(last_of(estimator).cluster_centers_))]
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, np.ndarray):
        return [_name(one) for one in classes.tolist()]
    output = next(value for value in model.graph.output if value.name == "probabilities")
    return [str(i) for i in range(output.type.tensor_type.shape.dim[-1].dim_value)]


def _name(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _columns(estimator: Any, features: int) -> list[dict[str, Any]]:
    nullable = _takes_missing(estimator)
    names = [str(name) for name in _names(estimator)]
    if len(names) != features or len(set(names)) != features:
        names = [f"x{i}" for i in range(features)]
    return [{"name": name, "dtype": "float64", **({"nullable": True} if nullable else {})} for name in names]


def _names(estimator: Any) -> list[Any]:
    found = getattr(estimator, "feature_names_in_", None)
    if found is not None and not _are_numbered(list(found)):
        return list(found)
    booster = getattr(estimator, "booster_", estimator)
    of_lightgbm = getattr(booster, "feature_name", None)
    if callable(of_lightgbm):
        names = list(of_lightgbm())
        return [] if _are_numbered(names) else names
    of_xgboost = getattr(booster, "feature_names", None)
    return list(of_xgboost) if isinstance(of_xgboost, list) else []


def _are_numbered(names: Sequence[Any]) -> bool:
    """Tell whether LightGBM made the names up, because the table had none."""
    return all(str(name) == f"{_DEFAULT_LIGHTGBM}{i}" for i, name in enumerate(names))


def _takes_missing(estimator: Any) -> bool:
    """Tell whether a value may be NaN: boosters of trees take it, and estimators that say so."""
    made = getattr(estimator, "booster_", estimator)
    if type(made).__module__.partition(".")[0] in ("lightgbm", "xgboost", "catboost"):
        return True
    try:
        from sklearn.utils import get_tags

        return bool(get_tags(estimator).input_tags.allow_nan)
    except (ImportError, AttributeError, TypeError):
        return False
