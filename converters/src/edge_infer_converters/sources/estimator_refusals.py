"""Estimators that are not exported: why, and what to convert or to fit instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.estimator_steps import last_of, named_steps
from edge_infer_converters.sources.late_quantiles import refuse_late_quantiles

_MAX_SAID = 200
_LISTED = "docs/reference/estimators.md lists what is exported"
_CALIBRATE_LAST = "calibrate the last step alone: make_pipeline(columns, CalibratedClassifierCV(classifier)).fit(x, y)"
_ONE_BY_ONE = "wrap an estimator of one target: MultiOutput{0}({1}(...)).fit(x, y)"
_INNER = "convert what it holds: `{}`"
_THRESHOLD = "convert `model.estimator_`, and compare its probability with `model.best_threshold_`"
_CENTRES = "these classes are those of KNeighborsClassifier(1).fit(model.{0}, {1}): convert that"
_NOISE = "say how noisy the target is: GaussianProcessRegressor(alpha=0.01), or kernel + WhiteKernel()"
_TIES = (
    "of rows at the same distance, as whole numbers have, engines take others: fit RandomForest{0}, or KNeighbors{0} "
    "on columns of measurements"
)
#: What to do about estimators that no exporter takes, where something gives the same answers, or is near.
_INSTEAD = {
    "AffinityPropagation": _CENTRES.format("cluster_centers_", "range(len(model.cluster_centers_))"),
    "Birch": _CENTRES.format("subcluster_centers_", "model.subcluster_labels_"),
    "BisectingKMeans": "fit KMeans",
    "CCA": "fit PLSRegression",
    "ClassifierChain": "fit MultiOutputClassifier",
    "DictionaryLearning": "fit PCA or TruncatedSVD",
    "EllipticEnvelope": "fit IsolationForest or OneClassSVM",
    "FactorAnalysis": "fit PCA",
    "FastICA": "fit PCA",
    "FixedThresholdClassifier": "convert `model.estimator_`, and compare its probability with the threshold",
    "GaussianNB": "leave constant columns out: make_pipeline(VarianceThreshold(), GaussianNB())",
    "GaussianProcessClassifier": "fit CalibratedClassifierCV(SVC()), which has the same kernel",
    "GaussianProcessRegressor": _NOISE,
    "KNeighborsClassifier": _TIES.format("Classifier"),
    "KNeighborsRegressor": _TIES.format("Regressor"),
    "KernelRidge": "fit SVR, which has the same kernels",
    "MeanShift": _CENTRES.format("cluster_centers_", "range(len(model.cluster_centers_))"),
    "NearestCentroid": _CENTRES.format("centroids_", "model.classes_"),
    "Nystroem": "fit SVC or SVR with this kernel, in place of the linear model behind it",
    "OutputCodeClassifier": "fit OneVsRestClassifier",
    "PLSCanonical": "fit PLSRegression",
    "RBFSampler": "fit SVC or SVR with kernel='rbf', in place of the linear model behind it",
    "RadiusNeighborsClassifier": "fit KNeighborsClassifier",
    "RadiusNeighborsRegressor": "fit KNeighborsRegressor",
    "RegressorChain": "fit MultiOutputRegressor",
    "SelfTrainingClassifier": _INNER.format("model.estimator_"),
    "SparsePCA": "fit PCA",
    "TransformedTargetRegressor": "convert `model.regressor_`, and apply the inverse function to its answers",
    "TunedThresholdClassifierCV": _THRESHOLD,
}
#: Estimators whose export is not what they answer.
_NOT_TRUE = {
    "RadiusNeighborsClassifier": "skl2onnx's graph of it does not run",
    "RadiusNeighborsRegressor": "skl2onnx's graph of it does not run",
    "TunedThresholdClassifierCV": "skl2onnx leaves the tuned threshold out",
}
#: The answers of a Gaussian process may be off by so much of the size of what it was fitted on.
_TOLERANCE = 1e-3


def refuse(estimator: Any, where: str) -> None:
    """Refuse what is known to be exported wrongly, before anything is exported.

    Args:
        estimator: The fitted estimator.
        where: What the user calls it.

    Raises:
        ConversionError: The estimator cannot be exported; the hint says what to do.
    """
    _refuse_one_class(estimator, where)
    _refuse_inner_texts(estimator, where)
    refuse_late_quantiles(estimator, where)
    for name, one in named_steps(estimator):
        kind = type(one).__name__
        at = f" at the step `{name}`" if name else ""
        if kind in _NOT_TRUE:
            raise ConversionError(f"`{where}` is not exported{at}: {kind}: {_NOT_TRUE[kind]}", hint=_INSTEAD[kind])
        if _is_multilabel(one):
            raise ConversionError(
                f"`{where}` is not exported{at}: {kind} tells several labels apart", hint=instead_of(one)
            )
        if len(getattr(one, "support_vectors_", "any")) == 0:
            raise ConversionError(
                f"`{where}` is not exported{at}: {kind} has no support vector, and gives one number for all rows",
                hint="fit it with a smaller `epsilon`: the target varies by less",
            )
        if kind == "QuantileTransformer" and (one.quantiles_[0] == one.quantiles_[-1]).any():
            column = int((one.quantiles_[0] == one.quantiles_[-1]).argmax())
            raise ConversionError(
                f"`{where}` is not exported{at}: {kind} was fitted on column {column}, which is constant",
                hint="leave constant columns out: make_pipeline(VarianceThreshold(), QuantileTransformer())",
            )
        if kind == "GaussianProcessRegressor" and (lost := _lost_by_float32(one)) > _TOLERANCE:
            raise ConversionError(
                f"`{where}` is a GaussianProcessRegressor{at} whose weights reach {np.abs(one.alpha_).max():.0e} and "
                f"cancel one another: float32, in which engines compute, may be off by {lost:.0e} of its answers",
                hint=_NOISE,
            )


def refusal(estimator: Any, where: str, error: Exception, version: str) -> ConversionError:
    """Return the error of an estimator that skl2onnx does not export.

    Args:
        estimator: The fitted estimator.
        where: What the user calls it.
        error: What skl2onnx raised.
        version: Its version.
    """
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()
    said = said if len(said) <= _MAX_SAID else f"{said[:_MAX_SAID]}..."
    steps = [one for one in named_steps(estimator) if f".{type(one[1]).__name__}'" in said]
    inside = f" at the step `{steps[0][0]}` ({type(steps[0][1]).__name__})" if steps and steps[0][0] else ""
    is_around_pipeline = any(
        hasattr(one, "calibrated_classifiers_") and hasattr(one.estimator, "steps") for _, one in named_steps(estimator)
    )
    hint = _CALIBRATE_LAST if is_around_pipeline else instead_of(steps[0][1] if steps else estimator)
    return ConversionError(
        f"skl2onnx {version} cannot export `{where}` ({type(estimator).__name__}){inside}: {said}",
        hint=hint,
        **({"step": steps[0][0]} if inside else {}),
    )


def instead_of(estimator: Any) -> str:
    """Say what to convert or to fit in the place of an estimator that is not exported."""
    last = last_of(estimator)
    kind = type(last).__name__
    if _has_targets(last):
        return _ONE_BY_ONE.format("Classifier" if hasattr(last, "classes_") else "Regressor", kind)
    return _INSTEAD.get(kind, _LISTED)


def _has_targets(last: Any) -> bool:
    """Tell whether an estimator answers several targets at once by itself, not as a wrapper of others."""
    if type(last).__name__.startswith("MultiOutput"):
        return False
    held = getattr(last, "estimators_", None)
    return (
        isinstance(getattr(last, "classes_", None), list)
        or _is_multilabel(last)
        or int(getattr(last, "n_outputs_", 1)) > 1
        or (isinstance(held, list) and bool(held) and _has_targets(held[0]))
    )


def _is_multilabel(one: Any) -> bool:
    """Tell whether a linear or neural classifier was fitted on a column of 0 and 1 for each label."""
    return str(getattr(getattr(one, "_label_binarizer", None), "y_type_", "")).startswith("multilabel")


def _refuse_one_class(estimator: Any, where: str) -> None:
    """Refuse a classifier that knows one class: some exports are wrong, and others end the process of the engine."""
    known = getattr(last_of(estimator), "classes_", None)
    for classes in known if isinstance(known, list) else [known]:
        if isinstance(classes, np.ndarray) and len(classes) == 1:
            said = " for one of its targets" if isinstance(known, list) else ""
            raise ConversionError(
                f"`{where}` ({type(estimator).__name__}) knows one class alone{said}, `{classes[0]}`, "
                "and has nothing to tell apart",
                hint="fit it on rows of two classes or more",
            )


def _refuse_inner_texts(estimator: Any, where: str) -> None:
    """Refuse columns of texts inside an estimator that is calibrated: nothing numbers them there."""
    for _, one in named_steps(estimator):
        inner = getattr(one, "calibrated_classifiers_", None)
        steps = [step for _, step in named_steps(inner[0].estimator)] if inner else []
        if any(known.dtype.kind in "OUS" for step in steps for known in getattr(step, "categories_", ())):
            raise ConversionError(
                f"`{where}` is a CalibratedClassifierCV around columns of texts, which have to stand before it",
                hint=_CALIBRATE_LAST,
            )


def _lost_by_float32(process: Any) -> float:
    """Estimate the error of a Gaussian process in float32, as a share of the size of its answers.

    An answer is the sum of kernel values, each rounded to 24 bits, times `alpha_`, in units of this spread.
    """
    weights = getattr(process, "alpha_", None)
    if weights is None:
        return 0.0
    kernel = process.kernel_.diag(process.X_train_[:1]).max()
    rounding = 2.0**-24 * float(kernel) * np.sqrt(np.sum(np.square(weights), axis=0).max())
    return float(rounding / max(float(np.sqrt(np.mean(np.square(process.y_train_)))), 1e-9))
