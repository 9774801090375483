"""The estimators inside a fitted one: the steps of a chain, the parts of a table, what a search found best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


def last_of(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself; of a search, that of the best that it found."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return last_of(estimator.steps[-1][1]) if getattr(estimator, "steps", None) else estimator


def named_steps(made: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Give the estimators inside one with their names, those of the inside joined by points; itself first, unnamed."""
    yield where, made
    inner = [*getattr(made, "steps", ()), *(one[:2] for one in getattr(made, "transformers_", ()))]
    inner += list(getattr(made, "transformer_list", ()))
    inner += [("", getattr(made, name)) for name in ("best_estimator_", "estimator") if hasattr(made, name)]
    for name, one in inner:
        if not isinstance(one, (str, type(None))):
            yield from named_steps(one, ".".join(part for part in (where, name) if part))


def every_estimator(made: Any) -> Iterator[Any]:
    """Give an estimator and all that it holds, those of ensembles and of calibration too."""
    for _, one in named_steps(made):
        yield one
        for name in ("estimators_", "calibrated_classifiers_", "estimator_"):
            held = vars(one).get(name, ())
            for inner in np.ravel(np.array(held, object)) if isinstance(held, (list, np.ndarray)) else [held]:
                if hasattr(inner, "__dict__"):
                    yield from every_estimator(inner)
