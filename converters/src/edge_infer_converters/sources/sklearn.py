"""Export a fitted scikit-learn estimator by skl2onnx: one float32 input `x`, plain tensors out.

Columns of texts are numbered before the model, see `raw_columns`.

Probabilities come as an array and not as a list of dicts (ZipMap), which no engine of the page or of a device takes.
"""

from __future__ import annotations

import copy
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.engine import first_line
from edge_infer_converters.sources.estimator_mends import mend
from edge_infer_converters.sources.estimator_refusals import instead_of, refusal, refuse
from edge_infer_converters.sources.estimator_steps import every_estimator, named_steps
from edge_infer_converters.sources.framework import Framework, is_near
from edge_infer_converters.sources.histogram_trees import categories_of
from edge_infer_converters.sources.late_quantiles import exact_scalers
from edge_infer_converters.sources.made import first_of
from edge_infer_converters.sources.own_converters import own_converters
from edge_infer_converters.sources.raw_columns import read_columns
from edge_infer_converters.sources.table import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edge_infer_converters.sources.table_columns import RawColumns

_OPSET = 20
_ROWS = 64
#: Options of VotingClassifier, KBinsDiscretizer and RandomTreesEmbedding, and those that give the same numbers.
_SAME_NUMBERS = (
    ("flatten_transform", True, False),
    ("encode", "onehot", "onehot-dense"),
    ("sparse_output", True, False),
)
#: The share of values that are missing in the rows on which exports are compared, where the estimator takes such.
_MISSING = 0.1
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
    refuse(estimator, where)
    read = read_columns(estimator, int(estimator.n_features_in_))
    made, columns = (estimator, None) if read is None else read
    made = _plainly(made, is_copy=read is not None)
    width = int(estimator.n_features_in_) if columns is None else len(columns.used)
    inputs = [("x", types.FloatTensorType([None, width]))]
    functions, shapes = own_converters(types)
    made = getattr(made, "best_estimator_", made)  # a search answers as the best that it found
    arguments: dict[str, Any] = {
        "initial_types": inputs,
        "target_opset": {"": opset or _OPSET, "ai.onnx.ml": 3},
        "custom_conversion_functions": functions,
        "custom_shape_calculators": shapes,
    }
    try:
        exact = exact_scalers(made)
        try:
            options = exact | ({id(made): {"zipmap": False}} if hasattr(made, "classes_") else {})
            model = skl2onnx.convert_sklearn(made, options=options or None, **arguments)
        except (NameError, ValueError) as error:
            if "Option 'zipmap' not in" not in str(error):
                raise
            model = skl2onnx.convert_sklearn(made, options=exact or None, **arguments)  # it gives no list of maps
    except ConversionError:
        raise
    except Exception as error:  # skl2onnx has many classes of its own
        raise refusal(estimator, where, error, skl2onnx.__version__) from error
    mend(model.graph, made)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    describe(model, estimator, "scikit-learn", width, () if columns is None else columns.document())
    path.write_bytes(model.SerializeToString())
    return of_estimator("scikit-learn", estimator, width, path, columns)


def _plainly(estimator: Any, *, is_copy: bool) -> Any:
    """Return an estimator with the options that skl2onnx takes where others give the same numbers."""
    others: list[tuple[Any, str, Any]] = [
        (one, name, plain)
        for _, one in named_steps(estimator)
        for name, given, plain in _SAME_NUMBERS
        if getattr(one, name, None) == given
    ]
    others += [
        (one, "_y", one._y.astype(np.float64))
        for one in every_estimator(estimator)
        if type(one).__name__ == "KNeighborsRegressor" and one._y.dtype.kind == "b"
    ]
    others += [
        (one, "classes_", one.classes_.astype(np.int64))
        for one in every_estimator(estimator)
        if getattr(vars(one).get("classes_"), "dtype", np.dtype(float)).kind in "bu"
    ]
    if others and not is_copy:
        return _plainly(copy.deepcopy(estimator), is_copy=True)
    for one, name, plain in others:
        setattr(one, name, plain)
    return estimator


def of_estimator(
    library: str, estimator: Any, features: int, path: Path, columns: RawColumns | None = None
) -> Framework | None:
    """Return an estimator as a framework: for each output of its export, the method that gives it.

    Args:
        library: The library's name.
        estimator: The fitted estimator.
        features: How many numbers a row has.
        path: The export.
        columns: What makes the estimator's rows of the export's; None where they are the same.

    Returns:
        None where no method gives what an output holds.

    Raises:
        ConversionError: The export does not run.
    """
    import onnxruntime

    rows = _drawn(estimator, features) if columns is None else columns.drawn(_ROWS)
    raw = (lambda given: given) if columns is None else columns.rows
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        outputs = session.run(None, {"x": rows})
    except Exception as error:  # onnxruntime has many classes of its own
        raise ConversionError(
            f"The export of {type(estimator).__name__} does not run: {first_line(error)}",
            hint=instead_of(estimator),
        ) from error
    chosen = []
    for found in outputs:
        if not isinstance(found, np.ndarray):  # a list, which becomes several outputs
            return None
        if len(found) != len(rows):
            raise ConversionError(
                f"The export of {type(estimator).__name__} gives {len(found)} answers to {len(rows)} rows",
                hint=instead_of(estimator),
            )
        answers = {name: one for name in _METHODS if (one := _answer(estimator, name, raw(rows), found)) is not None}
        if not answers:
            return None
        # One that gives other numbers is refused when the export is compared.
        near = (name for name, one in answers.items() if is_near(found, one))
        chosen.append((next(near, next(iter(answers))), found.shape[1:]))

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        given = raw(feeds["x"])
        return [_shaped(_called(estimator, method, given), (len(given), *shape)) for method, shape in chosen]

    notes: tuple[str, ...] = ()
    if columns is None:
        missing = np.where(np.random.default_rng(1).random(rows.shape) < _MISSING, np.float32("nan"), rows)
        is_same = _answers_alike(run, session, missing)
        rows = missing if is_same else rows
        if is_same is False:
            kind = type(estimator).__name__
            notes = (
                f"{kind} takes missing values (NaN), and its export answers them otherwise: fill them in before it",
            )
    draws = columns is not None or bool(categories_of(estimator))
    return Framework(library, run, {"x": rows}, {"x": [0]}, notes=notes, draws=draws, advice=instead_of(estimator))


def _answers_alike(run: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]], session: Any, rows: Any) -> bool | None:
    """Tell whether an export answers rows as its estimator does; None where the estimator takes none of them."""
    try:
        wanted = run({"x": rows})
    except (AttributeError, TypeError, ValueError):
        return None
    try:
        found = session.run(None, {"x": rows})
    except Exception:  # onnxruntime has many classes of its own
        return False
    return all(is_near(np.asarray(one), other) for one, other in zip(found, wanted, strict=True))


def _drawn(estimator: Any, features: int) -> np.ndarray:
    """Draw rows of normal numbers; a column with categories of numbers gets these, and neighbours what they know."""
    chance = np.random.default_rng(0)
    counts = getattr(estimator, "n_categories_", None)
    if counts is not None:  # of CategoricalNB, which takes no other numbers
        return chance.integers(0, counts, (_ROWS, features)).astype(np.float32)
    rows = chance.normal(size=(_ROWS, features)).astype(np.float32)
    fitted = getattr(estimator, "_fit_X", None)
    if isinstance(fitted, np.ndarray):  # neighbours at the same distance are found among the rows it was fitted on
        return fitted[:: max(len(fitted) // _ROWS, 1)].astype(np.float32)
    if type(estimator).__name__.startswith("HistGradientBoosting"):
        for place, known in categories_of(estimator).items():
            rows[:, place] = chance.choice(np.array(known, np.float32), _ROWS)
        rows[chance.random(rows.shape) < 0.1] = np.nan
    return rows


def _answer(estimator: Any, method: str, rows: Any, found: np.ndarray) -> np.ndarray | None:
    """Return a method's answer in the shape of an output; None where its kind or its number of values is another."""
    if not hasattr(estimator, method):
        return None
    try:
        given = _called(estimator, method, rows)
    except (AttributeError, TypeError, ValueError):
        return None
    if method == "predict" and found.dtype.kind in "iu" and hasattr(estimator, "classes_"):
        given = given.astype(found.dtype)  # classes may be whole numbers that are stored as floats
    is_same_kind = (given.dtype.kind == "f") == (found.dtype.kind == "f")
    is_score_of_two = method == "decision_function" and 2 * given.size == found.size
    return _shaped(given, found.shape) if is_same_kind and (given.size == found.size or is_score_of_two) else None


def _shaped(given: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a method's answer in the shape of an output, where the score between two classes has a column for each."""
    return (given if given.size == np.prod(shape) else np.stack((-given, given), -1)).reshape(shape)


def _called(estimator: Any, method: str, rows: Any) -> np.ndarray:
    """Return what a method gives for rows of numbers; columns have their order, so that names need not be there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.filterwarnings("ignore", message="Found unknown categories")
        called = getattr(estimator, method)
        try:
            found = called(rows)
        except ValueError:
            if getattr(rows, "dtype", None) != np.float32:
                raise
            found = called(rows.astype(np.float64))  # some take numbers only as they were fitted on them
        if isinstance(found, list):  # an array for each target; the export fills up what has fewer classes
            width = max(one.shape[1] for one in found)
            found = np.stack([np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in found], 1)
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found)
