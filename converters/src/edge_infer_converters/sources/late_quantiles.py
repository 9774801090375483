"""Quantiles that repeat behind a step that computes: the answer jumps there, and float32 may fall beside the jump."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.estimator_steps import named_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Transformers that hand numbers on as they are.
_EXACT = ("SimpleImputer", "OrdinalEncoder", "OneHotEncoder", "VarianceThreshold", "SelectKBest", "ColumnTransformer")
#: Scalers that skl2onnx can write with scikit-learn's own roundings, and the option of it that does.
_AS_ROUNDED = {"StandardScaler": "div", "MaxAbsScaler": "div_cast"}


def refuse_late_quantiles(estimator: Any, where: str) -> None:
    """Refuse quantiles that the export would miss.

    Raises:
        ConversionError: There are some; the message names the step and the column.
    """
    for before, step in _late_quantiles(estimator):
        if not _is_met(before, step):
            repeated = _repeated(step.quantiles_).any(axis=0)
            raise ConversionError(
                f"`{where}` has a QuantileTransformer behind {type(before).__name__}, and its column "
                f"{int(repeated.argmax())} has a quantile twice: its answer jumps there, and float32 misses it",
                hint="put the QuantileTransformer first: a scaler before it changes none of its answers",
            )


def exact_scalers(estimator: Any) -> dict[int, dict[str, Any]]:
    """Return skl2onnx's options, by the scaler's id, with which the export meets quantiles that repeat."""
    return {
        id(before): {"div": _AS_ROUNDED[type(before).__name__]}
        for before, step in _late_quantiles(estimator)
        if _is_met(before, step)
    }


def _late_quantiles(estimator: Any) -> Iterator[tuple[Any, Any]]:
    """Give each QuantileTransformer with a quantile twice that stands behind a step that computes, after that step."""
    for _, one in named_steps(estimator):
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
