"""Export a fitted scikit-learn estimator by skl2onnx: one float32 input `x`, plain tensors out.

Probabilities come as an array and not as a list of dicts (ZipMap), which no engine of the page or of a device takes.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.framework import Framework, is_near
from edge_infer_converters.sources.made import first_of
from edge_infer_converters.sources.table import describe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OPSET = 20
_MAX_SAID = 200
#: The methods that an output may be of, the likelier first.
_METHODS = ("predict_proba", "predict", "transform", "decision_function", "score_samples")


def takes(made: object) -> bool:
    """Tell whether an object is a fitted estimator with scikit-learn's interface."""
    first = first_of(made)
    return hasattr(first, "n_features_in_") and hasattr(first, "get_params")


def export(made: object, path: Path, where: str, opset: int | None = None) -> Framework | None:
    """Export an estimator.

    Args:
        made: A fitted scikit-learn estimator or pipeline over numbers.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits.

    Returns:
        The estimator, to be compared with its export; None where no method gives what an output holds.

    Raises:
        ConversionError: skl2onnx is not installed, or does not know the estimator.
    """
    estimator: Any = first_of(made)
    try:
        skl2onnx = import_module("skl2onnx")
        types = import_module("skl2onnx.common.data_types")
    except ImportError as error:
        raise ConversionError(
            "Exporting from scikit-learn needs skl2onnx, which is not installed",
            hint='pip install "edge-infer-converters[sklearn]"',
        ) from error
    inputs = [("x", types.FloatTensorType([None, int(estimator.n_features_in_)]))]
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
    try:
        opsets = {"": opset or _OPSET, "ai.onnx.ml": 3}
        model = skl2onnx.to_onnx(estimator, initial_types=inputs, options=options, target_opset=opsets)
    except Exception as error:  # skl2onnx has many classes of its own
        raise _refusal(estimator, where, error, skl2onnx.__version__) from error
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    describe(model, estimator, "scikit-learn", int(estimator.n_features_in_))
    path.write_bytes(model.SerializeToString())
    return of_estimator("scikit-learn", estimator, int(estimator.n_features_in_), path)


def _refusal(estimator: Any, where: str, error: Exception, version: str) -> ConversionError:
    """Return the error of an estimator that skl2onnx does not export."""
    kinds = [type(one).__name__ for _, one in getattr(estimator, "steps", [("", estimator)])]
    growing = next((kind for kind in kinds if kind.startswith("HistGradientBoosting")), None)
    if growing is not None:
        other = growing.removeprefix("HistGradientBoosting")
        return ConversionError(
            f"skl2onnx {version} cannot export `{where}`: it does not write the trees of {growing} of the installed "
            "scikit-learn",
            hint=f"fit lightgbm.LGBM{other} or xgboost.XGB{other} instead: they grow such trees, and are exported",
        )
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()
    said = said if len(said) <= _MAX_SAID else f"{said[:_MAX_SAID]}..."
    return ConversionError(
        f"skl2onnx {version} cannot export `{where}` ({type(estimator).__name__}): {said}",
        hint="skl2onnx.supported_converters() lists what it exports",
    )


def of_estimator(library: str, estimator: Any, features: int, path: Path) -> Framework | None:
    """Return an estimator as a framework: for each output of its export, the method that gives it.

    Args:
        library: The library's name.
        estimator: The fitted estimator.
        features: How many numbers a row has.
        path: The export.

    Returns:
        None where no method gives what an output holds.
    """
    import onnxruntime

    rows = np.random.default_rng(0).normal(size=(64, features)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    chosen = []
    for found in session.run(None, {"x": rows}):
        answers = {name: one for name in _METHODS if (one := _answer(estimator, name, rows, found)) is not None}
        if not answers:
            return None
        # One that gives other numbers is refused when the export is compared.
        near = (name for name, one in answers.items() if is_near(found, one))
        chosen.append((next(near, next(iter(answers))), found.shape[1:]))

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [_called(estimator, method, feeds["x"]).reshape(len(feeds["x"]), *shape) for method, shape in chosen]

    return Framework(library, run, {"x": rows}, {"x": [0]})


def _answer(estimator: Any, method: str, rows: np.ndarray, found: np.ndarray) -> np.ndarray | None:
    """Return a method's answer in the shape of an output; None where its kind or its number of values is another."""
    if not hasattr(estimator, method):
        return None
    try:
        given = _called(estimator, method, rows)
    except (AttributeError, TypeError, ValueError):
        return None
    is_same_kind = (given.dtype.kind == "f") == (found.dtype.kind == "f")
    return given.reshape(found.shape) if given.size == found.size and is_same_kind else None


def _called(estimator: Any, method: str, rows: np.ndarray) -> np.ndarray:
    """Return what a method gives for rows of numbers; columns have their order, so that names need not be there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(getattr(estimator, method)(rows))
