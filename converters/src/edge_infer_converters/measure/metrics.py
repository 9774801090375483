"""The metrics of a model's outputs: one number each, larger is better."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer_converters.data.folders import LABELS
from edge_infer_converters.data.functions import import_function
from edge_infer_converters.measure.average_precision import average_precision
from edge_infer_converters.measure.rank_correlation import spearman

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.budget import Budget
    from edge_infer_converters.report.reporter import Reporter

    #: The outputs of one call, by name.
    Outputs = Mapping[str, np.ndarray]

NAMES = ("accuracy", "top5", "map", "map50", "spearman", "cosine", "equal")


class Metric:
    """A metric over one data set.

    Args:
        name: `accuracy`, `top5`, `map` (of detections the mean average precision over overlaps from .5 to .95, as
            COCO measures it), `map50` (at an overlap of .5), `spearman` (the rank correlation of one number for each
            sample with the labels, or with the source's numbers where there are none), `cosine` (of each row of the
            first float output with the source's), `equal` (the share of equal elements of the first output), or
            `module:function`: it is called with the outputs of all calls (a list of dicts by output name) and the
            labels (or None), and returns a number. None for the first of map, accuracy, cosine and equal that the
            data and outputs allow.
        data: The inputs whose outputs it will see, with their right classes.
        references: The source's outputs for them.

    Raises:
        InputError: The metric is not known, cannot be imported, needs labels that are not there, or gives no number
            for the source itself.

    >>> metric = Metric("cosine", data, references)  # doctest: +SKIP
    >>> metric.loss(metric.score(references))  # doctest: +SKIP
    0.0
    """

    def __init__(self, name: str | None, data: CalibrationSet, references: Sequence[Outputs]) -> None:
        self._data = data
        self._references = references
        self.name = name or _usual(data, references)
        self._function = self._find()
        self.base = self.score(references)

    def score(self, results: Sequence[Outputs]) -> float:
        """Measure results of the same calls.

        Raises:
            InputError: The user's function raised, or returned no finite number.
        """
        return self._function(results)

    def loss(self, score: float) -> float:
        """Return the relative drop of a score against the source's; negative where it is better."""
        if self.base == score:
            return 0.0
        return (self.base - score) / abs(self.base) if self.base else float("inf")

    def _find(self) -> Callable[[Sequence[Outputs]], float]:
        if self.name == "cosine":
            return lambda results: float(np.mean(cosines(self._references, results)))
        if self.name == "equal":
            return lambda results: _equal_share(self._references, results)
        if self.name == "spearman":
            wanted = _one_each(self._references, self._data)
            right = wanted if self._data.classes is None else np.asarray(self._data.classes)
            return lambda results: spearman(_one_each(results, self._data), right)
        if self.name in ("map", "map50"):
            detections = self._data.detections
            if detections is None:
                raise InputError(
                    f"Metric `{self.name}` needs images with their objects, and `{self._data.origin}` has none",
                    hint="--eval FOLDER of images with annotations of COCO or Pascal VOC, for a detector",
                )
            place = ("map", "map50").index(self.name)
            return lambda results: average_precision(detections.truths, detections.seen(results))[place]
        if self.name in ("accuracy", "top5"):
            if self._data.classes is None:
                raise InputError(
                    f"Metric `{self.name}` needs the right classes, `{self._data.origin}` has no array `{LABELS}`",
                    hint=f"save them with it: np.savez(FILE, ..., {LABELS}=classes), or take --metric cosine",
                )
            output = scores_of(self._data, self._references)
            if output is None:
                shape = next(iter(self._references[0].values())).shape
                raise InputError(
                    f"Metric `{self.name}` needs one row of class scores for each label; the first output has shape "
                    f"{shape} for each call, and there are {len(self._data.classes)} labels",
                    hint="--metric module:function, with a function of your own",
                )
            count = 1 if self.name == "accuracy" else 5
            return lambda results: self._share(results, output, count)
        if ":" in self.name:
            return self._checked(import_function(self.name))
        raise InputError(
            f"Metric `{self.name}` is not known; choose from {listed([*NAMES, 'module:function'])}",
            hint=did_you_mean(self.name, list(NAMES)),
            allowed=[*NAMES, "module:function"],
        )

    def _share(self, results: Sequence[Outputs], output: str, count: int) -> float:
        """Return the share of rows whose right class is among the best `count`."""
        scores = np.concatenate([np.asarray(result[output]) for result in results])
        best = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :count]
        classes = np.asarray(self._data.classes)
        return float((best == classes[:, None]).any(axis=1).mean())

    def _checked(self, function: Callable[..., Any]) -> Callable[[Sequence[Outputs]], float]:
        def measured(results: Sequence[Outputs]) -> float:
            try:
                value = function([dict(result) for result in results], self._data.classes)
            except Exception as error:  # the user's code raises what it likes
                raise InputError(
                    f"Metric `{self.name}` raised {type(error).__name__}: {error}",
                    hint="it is called with a list of outputs by name, one for each call, and the labels or None",
                ) from error
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise InputError(
                    f"Metric `{self.name}` returned {value!r}, expected a number",
                    hint="return one float, larger is better",
                ) from None
            if not isfinite(number):
                raise InputError(
                    f"Metric `{self.name}` returned {number}, expected a finite number",
                    hint="return one float, larger is better",
                    got=str(number),
                )
            return number

        return measured


def choose_metric(budget: Budget, data: CalibrationSet, outputs: Sequence[Outputs], reporter: Reporter) -> Metric:
    """Return what the user cares about, and say where the data do not fit, or are too few to tell.

    Raises:
        InputError: The metric cannot be measured on these data.
    """
    metric = Metric(budget.metric, data, outputs)
    if data.classes is not None and budget.metric is None and metric.name != "accuracy":
        name, first = next(iter(outputs[0].items()))
        reporter.warn(
            f"The labels of `{data.origin}` are not used: the first output, `{name}`, has shape {first.shape} for "
            "each call, and not a row of class scores for each label",
            "--metric module:function, with a function of your own, or give the scores out first",
        )
    if budget.max_loss is None:
        return metric
    if len(data.calls) < 2:
        raise InputError(
            f"`{data.origin}` holds one sample, on which no loss can be measured", hint="give a hundred or more"
        )
    if metric.name in ("accuracy", "top5") and data.classes is not None:
        step_size = 1 / max(len(data.classes) * metric.base, 1)
        if budget.max_loss < step_size:
            reporter.warn(
                f"One wrong answer of {len(data.classes)} is a loss of {step_size:.2%}: with --max-loss "
                f"{budget.max_loss:.4g} none may change for the worse",
                "--eval with more samples",
            )
    return metric


def cosines(references: Sequence[Outputs], results: Sequence[Outputs]) -> np.ndarray:
    """Return the cosine of each row of the first float output with the source's; 1 for two rows of zeros."""
    found: list[np.ndarray] = []
    for reference, result in zip(references, results, strict=True):
        names = [name for name, value in reference.items() if value.dtype.kind == "f"]
        if not names:
            raise InputError("Metric `cosine` needs a float output, this model has none", hint="--metric accuracy")
        want, got = (_rows(side[names[0]]) for side in (reference, result))
        sizes = np.linalg.norm(want, axis=1) * np.linalg.norm(got, axis=1)
        products = (want * got).sum(axis=1)
        both_zero = ~want.any(axis=1) & ~got.any(axis=1)
        with np.errstate(all="ignore"):
            found.append(np.where(both_zero, 1.0, np.where(sizes > 0, products / sizes, 0.0)))
    return np.concatenate(found)


def _usual(data: CalibrationSet, references: Sequence[Outputs]) -> str:
    if data.detections is not None:
        return "map"
    if scores_of(data, references) is not None:
        return "accuracy"
    return "cosine" if any(value.dtype.kind == "f" for value in references[0].values()) else "equal"


def _one_each(results: Sequence[Outputs], data: CalibrationSet) -> np.ndarray:
    """Return the first output, one number for each sample.

    Raises:
        InputError: It has another shape, or there are fewer than two samples.
    """
    answers = [np.asarray(next(iter(result.values()))) for result in results]
    found = np.concatenate([answer.reshape(-1) for answer in answers])
    count = len(found) if data.classes is None else len(data.classes)
    is_one = all(answer.size == (answer.shape[0] if answer.ndim else 1) for answer in answers)
    if not is_one or len(found) != count or count < 2 or found.dtype.kind not in "fiu":
        raise InputError(
            f"Metric `spearman` needs one number for each of two samples or more; the first output has shape "
            f"{answers[0].shape} for each call, in {len(answers)} calls",
            hint="--metric cosine, or module:function with a function of your own",
        )
    return found


def _equal_share(references: Sequence[Outputs], results: Sequence[Outputs]) -> float:
    pairs = [
        (next(iter(want.values())), next(iter(got.values()))) for want, got in zip(references, results, strict=True)
    ]
    total = sum(want.size for want, _ in pairs)
    same = sum(int((want == got).sum()) for want, got in pairs if want.shape == got.shape)
    return same / total if total else 1.0


def scores_of(data: CalibrationSet, references: Sequence[Outputs]) -> str | None:
    """Return the output that has a row of class scores for each label; None where there is none.

    It is the first output. Where that is the predicted class itself, as classifiers of scikit-learn, XGBoost and
    LightGBM have it, it is the second.
    """
    if data.classes is None or not references:
        return None
    names = list(references[0])
    if len(names) > 1 and _is_class(references, names[0], len(data.classes)):
        names = names[1:]
    answers = [np.asarray(reference[names[0]]) for reference in references]
    are_rows = all(answer.ndim == 2 and answer.shape[1] > 1 for answer in answers)
    return names[0] if are_rows and sum(map(len, answers)) == len(data.classes) else None


def _is_class(references: Sequence[Outputs], name: str, count: int) -> bool:
    """Tell whether an output is one whole number or text for each label."""
    answers = [np.asarray(reference[name]) for reference in references]
    return all(one.ndim == 1 and one.dtype.kind in "iuOUST" for one in answers) and sum(map(len, answers)) == count


def _rows(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    return flat.astype(np.float64)
