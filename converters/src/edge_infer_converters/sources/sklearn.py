"""Export a fitted scikit-learn estimator by skl2onnx: one float32 input `x`, plain tensors out.

Columns of texts are numbered before the model, see `raw_columns`.

Probabilities come as an array and not as a list of dicts (ZipMap), which no engine of the page or of a device takes.
"""

from __future__ import annotations

import copy
import warnings
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.engine import first_line
from edge_infer_converters.sources.estimator_mends import mend
from edge_infer_converters.sources.framework import Framework, is_near
from edge_infer_converters.sources.histogram_trees import categories_of
from edge_infer_converters.sources.made import first_of
from edge_infer_converters.sources.own_converters import own_converters
from edge_infer_converters.sources.raw_columns import RawColumns, read_columns
from edge_infer_converters.sources.table import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_OPSET = 20
_MAX_SAID = 200
_ROWS = 64
#: Transformers that hand numbers on as they are.
_EXACT = ("SimpleImputer", "OrdinalEncoder", "OneHotEncoder", "VarianceThreshold", "SelectKBest", "ColumnTransformer")
#: Scalers that skl2onnx can write with scikit-learn's own roundings, and the option of it that does.
_AS_ROUNDED = {"StandardScaler": "div", "MaxAbsScaler": "div_cast"}
#: Options of VotingClassifier, KBinsDiscretizer and RandomTreesEmbedding, and those that give the same numbers.
_SAME_NUMBERS = (
    ("flatten_transform", True, False),
    ("encode", "onehot", "onehot-dense"),
    ("sparse_output", True, False),
)
_LISTED = "docs/reference/estimators.md lists what is exported"
_ONE_CLASS = "it was fitted on one class alone, and has nothing to tell apart: fit it on rows of two classes or more"
_CALIBRATE_LAST = "calibrate the last step alone: make_pipeline(columns, CalibratedClassifierCV(classifier)).fit(x, y)"
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
    _refuse_inner_texts(estimator, where)
    _refuse_late_quantiles(estimator, where)
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
        exact: dict[int, dict[str, Any]] = {
            id(before): {"div": _AS_ROUNDED[type(before).__name__]}
            for before, step in _late_quantiles(made)
            if _is_met(before, step)
        }
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
        raise _refusal(estimator, where, error, skl2onnx.__version__) from error
    mend(model.graph, made)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    describe(model, estimator, "scikit-learn", width, () if columns is None else columns.document())
    path.write_bytes(model.SerializeToString())
    return of_estimator("scikit-learn", estimator, width, path, columns)


def _refuse_inner_texts(estimator: Any, where: str) -> None:
    """Refuse columns of texts inside an estimator that is calibrated: nothing numbers them there."""
    for _, one in _named_steps(estimator):
        inner = getattr(one, "calibrated_classifiers_", None)
        steps = [step for _, step in _named_steps(inner[0].estimator)] if inner else []
        if any(known.dtype.kind in "OUS" for step in steps for known in getattr(step, "categories_", ())):
            raise ConversionError(
                f"`{where}` is a CalibratedClassifierCV around columns of texts, which have to stand before it",
                hint=_CALIBRATE_LAST,
            )


def _refuse_late_quantiles(estimator: Any, where: str) -> None:
    """Refuse quantiles that repeat behind a step that computes: the answer jumps there, and float32 falls beside it."""
    for before, step in _late_quantiles(estimator):
        if not _is_met(before, step):
            repeated = _repeated(step.quantiles_).any(axis=0)
            raise ConversionError(
                f"`{where}` has a QuantileTransformer behind {type(before).__name__}, and its column "
                f"{int(repeated.argmax())} has a quantile twice: its answer jumps there, and float32 misses it",
                hint="put the QuantileTransformer first: a scaler before it changes none of its answers",
            )


def _late_quantiles(estimator: Any) -> Iterator[tuple[Any, Any]]:
    """Give each QuantileTransformer with a quantile twice that stands behind a step that computes, after that step."""
    for _, one in _named_steps(estimator):
        for before, step in pairwise(step for _, step in getattr(one, "steps", ())):
            quantiles = getattr(step, "quantiles_", None)
            computes = hasattr(before, "transform") and type(before).__name__ not in _EXACT
            if quantiles is not None and computes and _repeated(quantiles).any():
                yield before, step


def _repeated(quantiles: np.ndarray) -> np.ndarray:
    """Tell of each quantile but the first whether it is that before it, [quantiles - 1, columns]."""
    return np.asarray(quantiles[1:] == quantiles[:-1])


def _is_met(before: Any, step: Any) -> bool:
    """Tell whether the export meets the quantiles that repeat: float32, behind a scaler with the same roundings."""
    twice = step.quantiles_[1:][_repeated(step.quantiles_)]
    return type(before).__name__ in _AS_ROUNDED and bool((twice == twice.astype(np.float32)).all())


def _plainly(estimator: Any, *, is_copy: bool) -> Any:
    """Return an estimator with the options that skl2onnx takes where others give the same numbers."""
    others = [
        (one, name, plain)
        for _, one in _named_steps(estimator)
        for name, given, plain in _SAME_NUMBERS
        if getattr(one, name, None) == given
    ]
    if others and not is_copy:
        return _plainly(copy.deepcopy(estimator), is_copy=True)
    for one, name, plain in others:
        setattr(one, name, plain)
    return estimator


def _refusal(estimator: Any, where: str, error: Exception, version: str) -> ConversionError:
    """Return the error of an estimator that skl2onnx does not export."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()
    said = said if len(said) <= _MAX_SAID else f"{said[:_MAX_SAID]}..."
    steps = [one for one in _named_steps(estimator) if f".{type(one[1]).__name__}'" in said]
    is_around_pipeline = any(
        hasattr(one, "calibrated_classifiers_") and hasattr(one.estimator, "steps")
        for _, one in _named_steps(estimator)
    )
    inside = f" at the step `{steps[0][0]}` ({type(steps[0][1]).__name__})" if steps and steps[0][0] else ""
    return ConversionError(
        f"skl2onnx {version} cannot export `{where}` ({type(estimator).__name__}){inside}: {said}",
        hint=_CALIBRATE_LAST if is_around_pipeline else _ONE_CLASS if _has_one_class(estimator) else _LISTED,
        **({"step": steps[0][0]} if inside else {}),
    )


def _named_steps(made: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Give the estimators inside one with their names, those of the inside joined by points."""
    yield where, made
    inner = [*getattr(made, "steps", ()), *(one[:2] for one in getattr(made, "transformers_", ()))]
    inner += list(getattr(made, "transformer_list", ()))
    inner += [("", getattr(made, name)) for name in ("best_estimator_", "estimator") if hasattr(made, name)]
    for name, one in inner:
        if not isinstance(one, (str, type(None))):
            yield from _named_steps(one, ".".join(part for part in (where, name) if part))


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
            hint=_ONE_CLASS if _has_one_class(estimator) else f"fit another estimator: {_LISTED}",
        ) from error
    chosen = []
    for found in outputs:
        if not isinstance(found, np.ndarray):  # a list, which becomes several outputs
            return None
        answers = {name: one for name in _METHODS if (one := _answer(estimator, name, raw(rows), found)) is not None}
        if not answers and _has_one_class(estimator):
            raise ConversionError(
                f"The export of {type(estimator).__name__} has outputs of another form than scikit-learn's",
                hint=_ONE_CLASS,
            )
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
    return Framework(library, run, {"x": rows}, {"x": [0]}, notes=notes, draws=draws)


def _has_one_class(estimator: Any) -> bool:
    """Tell whether a classifier knows a single class; of several outputs each has classes of its own."""
    classes = getattr(_last(estimator), "classes_", None)
    return isinstance(classes, np.ndarray) and len(classes) == 1


def _last(estimator: Any) -> Any:
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


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
    """Draw rows of normal numbers; a column with categories of numbers gets these."""
    chance = np.random.default_rng(0)
    counts = getattr(estimator, "n_categories_", None)
    if counts is not None:  # of CategoricalNB, which takes no other numbers
        return chance.integers(0, counts, (_ROWS, features)).astype(np.float32)
    rows = chance.normal(size=(_ROWS, features)).astype(np.float32)
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
        found = getattr(estimator, method)(rows)
        if isinstance(found, list):  # an array for each target; the export fills up what has fewer classes
            width = max(one.shape[1] for one in found)
            found = np.stack([np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in found], 1)
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found)
