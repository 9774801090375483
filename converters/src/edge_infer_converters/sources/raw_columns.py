"""The columns of a table as a fitted estimator of scikit-learn takes them, texts too, and as the one input of a model.

A bundle numbers the categories of a column before the model (`tabular.categories`). So the estimator is rewritten for
the export: its encoders become tables over these numbers, and columns have numbers in the place of names.
"""

from __future__ import annotations

import copy
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError, listed
from edge_infer_converters.sources.lookup import Lookup, Values, tabulated
from edge_infer_converters.sources.table_columns import RawColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The attributes of an estimator that hold others, which take the same columns.
_INNER = ("best_estimator_", "estimator_", "estimator", "estimators_", "calibrated_classifiers_")
_BY_CATEGORIES = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")


class _Part(NamedTuple):
    """A transformer at the start of an estimator, over raw columns.

    Attributes:
        where: Its name, for messages.
        made: The transformer.
        places: The raw columns that it takes.
    """

    where: str
    made: Any
    places: list[int]


def read_columns(estimator: Any, features: int) -> tuple[Any, RawColumns] | None:
    """Find the raw columns of an estimator, and rewrite it for the export.

    Args:
        estimator: The fitted estimator; it is not changed.
        features: How many columns it takes.

    Returns:
        The rewritten copy, and the columns; None where it takes one matrix of numbers as it is.

    Raises:
        ConversionError: Something other than an encoder of categories reads texts; the step is named.
    """
    parts = list(_parts(estimator, list(range(features)), ""))
    for part in parts:
        first = _steps(part.made)[0]
        if type(first).__module__.startswith("sklearn.feature_extraction"):
            raise ConversionError(
                f"the step `{part.where or type(first).__name__}` ({type(first).__name__}) reads whole texts, which no "
                "step of a bundle splits as scikit-learn does",
                hint="convert the estimator behind it, and give it numbers",
                step=part.where,
            )
    has_frame = any(type(part.made).__name__ == "ColumnTransformer" for part in _holders(estimator))
    categories: dict[int, list[list[Any]]] = {}
    for part in parts:
        for place, known in zip(part.places, _categories(part.made) or (), strict=False):
            if known is not None:
                categories.setdefault(place, []).append(known)
    texts = {
        place for place, found in categories.items() if any(isinstance(one, str) for all_ in found for one in all_)
    }
    if not texts and not has_frame and not any(map(_encoding, (part.made for part in parts))):
        return None
    columns = RawColumns(estimator, features)
    columns.used = sorted({place for part in parts for place in part.places})
    as_numbers = {place for part in parts if _encoding(part.made) == 0 for place in part.places}
    for place, found in categories.items():
        if place in texts or place not in as_numbers:
            columns.values[place] = _merged(found)
    made = _Rewriter(columns).rewritten(copy.deepcopy(estimator), list(range(features)), "")
    _find_missing(estimator, columns)
    return made, columns


def _holders(made: Any, where: str = "") -> Iterator[_Part]:
    """Give the estimator and those inside it that may split a table into columns."""
    yield _Part(where, made, [])
    for _, step in getattr(made, "steps", ())[:1]:
        yield from _holders(step, where)
    for name in _INNER:
        for one in _listed(getattr(made, name, None)):
            yield from _holders(one, where)


def _listed(found: Any) -> list[Any]:
    if found is None or isinstance(found, (str, type)):
        return []
    if isinstance(found, np.ndarray):
        return []  # trees of a booster of scikit-learn
    return [one for one in found if hasattr(one, "__dict__")] if isinstance(found, (list, tuple)) else [found]


def _inner(made: Any) -> list[str]:
    """Name the attributes that hold fitted estimators over the same columns."""
    fitted = [name for name in _INNER if name.endswith("_") and _listed(getattr(made, name, None))]
    return fitted or (["estimator"] if type(made).__name__ == "_CalibratedClassifier" else [])


def _parts(made: Any, places: list[int], where: str) -> Iterator[_Part]:
    kind = type(made).__name__
    if kind == "Pipeline":
        steps = [one for one in made.steps if one[1] not in (None, "passthrough")]
        length = _encoding(made)
        if length:
            yield _Part(f"{where}{steps[0][0]}", made, places)
        elif steps:
            yield from _parts(steps[0][1], places, f"{where}{steps[0][0]}.")
    elif kind == "ColumnTransformer":
        for name, inner, given in made.transformers_:
            chosen = [places[i] for i in _numbered(given, made)]
            if isinstance(inner, str) and inner == "drop":
                continue
            if isinstance(inner, str):
                yield _Part(f"{where}{name}", inner, chosen)
            else:
                yield from _parts(inner, chosen, f"{where}{name}.")
    elif kind == "FeatureUnion":
        for name, inner in made.transformer_list:
            if inner not in ("drop", "passthrough"):
                yield from _parts(inner, places, f"{where}{name}.")
    elif names := _inner(made):
        for name in names:
            for one in _listed(getattr(made, name)):
                yield from _parts(one, places, where)
    else:
        yield _Part(where.removesuffix("."), made, places)


def _numbered(given: Any, made: Any) -> list[int]:
    """Return the numbers of the columns of a part of a ColumnTransformer."""
    names = [str(name) for name in getattr(made, "feature_names_in_", ())]
    count = int(made.n_features_in_)
    if isinstance(given, slice):
        start, stop = (names.index(one) if isinstance(one, str) else one for one in (given.start, given.stop))
        # A slice of names holds its end.
        return list(range(count))[start : stop + 1 if isinstance(given.stop, str) else stop : given.step]
    listed_ = [given] if isinstance(given, (str, int)) else list(given)
    if listed_ and all(isinstance(one, (bool, np.bool_)) for one in listed_):
        return [i for i, one in enumerate(listed_) if one]
    return [names.index(one) if isinstance(one, str) else range(count)[int(one)] for one in listed_]


def _steps(made: Any) -> list[Any]:
    return [one for _, one in made.steps if one not in (None, "passthrough")] if hasattr(made, "steps") else [made]


def _encoding(made: Any) -> int:
    """Return how many steps at the start of a chain end with an encoder of categories; 0 where none does."""
    for place, step in enumerate(_steps(made)):
        if getattr(step, "categories_", None) is not None:
            return place + 1
        if type(step).__name__ != "SimpleImputer":
            return 0
    return 0


def _categories(made: Any) -> Sequence[list[Any] | None] | None:
    """Return the categories of each column that an encoder takes; None where it is none."""
    kind = type(made).__name__
    if kind in _BY_CATEGORIES:
        return _of_trees(made)
    steps = _steps(made)
    length = _encoding(made)
    if length:
        found = [list(one) for one in steps[length - 1].categories_]
        if length == 1:
            return found
        # What an imputer fills in is among the categories; for numbers it may be a mean, which is none.
        is_text = all(isinstance(one, str) or one is None or one != one for all_ in found for one in all_)
        return found if is_text and len(found) == int(made.n_features_in_) else None
    return None


def _of_trees(made: Any) -> list[list[Any] | None] | None:
    """Return the categories of the columns of histogram trees where one of them has texts."""
    from edge_infer_converters.sources.histogram_trees import categories_of

    found = categories_of(made)
    has_texts = any(isinstance(one, str) for all_ in found.values() for one in all_)
    return [found.get(i) for i in range(int(made.n_features_in_))] if has_texts else None


def _merged(found: list[list[Any]]) -> Values:
    known: dict[Any, None] = {}
    missing: Any = float("nan")
    for one in (one for all_ in found for one in all_):
        if one is None:
            missing = None
        elif one == one:
            known[float(one) if isinstance(one, (bool, np.bool_)) else one] = None
    return Values(list(known), missing)


def _find_missing(estimator: Any, columns: RawColumns) -> None:
    """Ask the estimator in which columns a value may be missing."""
    base = np.zeros((1, len(columns.used)), np.float32)
    call = next(getattr(estimator, name) for name in ("predict", "transform") if hasattr(estimator, name))
    for i, place in enumerate(columns.used):
        row = base.copy()
        row[0, i] = np.nan
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of unknown categories
                call(columns.rows(row))
        except (ValueError, TypeError, KeyError):
            continue
        columns.nullable.add(place)


class _Rewriter:
    """Changes a copy of an estimator so that skl2onnx exports it over one matrix of numbers."""

    def __init__(self, columns: RawColumns) -> None:
        self._columns = columns

    def rewritten(self, made: Any, places: list[int], where: str) -> Any:
        """Return what stands in for an estimator over raw columns."""
        kind = type(made).__name__
        if kind == "Pipeline":
            return self._chain(made, places, where)
        if kind == "ColumnTransformer":
            self._split(made, places, where)
            return made
        if kind == "FeatureUnion":
            made.transformer_list = [
                (name, self.rewritten(inner, places, f"{where}{name}.") if not isinstance(inner, str) else inner)
                for name, inner in made.transformer_list
            ]
            return made
        if names := _inner(made):
            for name in names:
                found = getattr(made, name)
                is_list = isinstance(found, list)
                new = [self.rewritten(one, places, where) for one in (found if is_list else [found])]
                setattr(made, name, new if is_list else new[0])
            return made
        if kind in _BY_CATEGORIES:
            for place, known in zip(places, _of_trees(made) or (), strict=False):
                if known is not None:
                    self._columns.unknown[place] = False
            return made
        coded = [place for place in places if place in self._columns.values]
        if not coded:
            return made
        if len(coded) == len(places):
            found = self._table(lambda rows: made.transform(self._frame(rows, made)), places)
            if found is not None:
                return found
        names_ = [f"`{self._columns.names[place]}`" for place in coded]
        raise ConversionError(
            f"the step `{where.removesuffix('.') or type(made).__name__}` ({type(made).__name__}) takes the texts of "
            f"{listed(names_)}, and is no encoder that treats its columns one by one",
            hint="put a OneHotEncoder, OrdinalEncoder or TargetEncoder before it, in a ColumnTransformer",
            step=where.removesuffix("."),
        )

    def _split(self, made: Any, places: list[int], where: str) -> None:
        new = []
        for name, inner, given in made.transformers_:
            chosen = _numbered(given, made)
            if isinstance(inner, str) and inner == "drop":
                continue
            raw = [places[i] for i in chosen]
            is_plain = isinstance(inner, str) or (type(inner).__name__ == "FunctionTransformer" and inner.func is None)
            if is_plain:
                texts = [place for place in raw if place in self._columns.values]
                if texts:
                    raise ConversionError(
                        f"the step `{where}{name}` passes the texts of `{self._columns.names[texts[0]]}` on",
                        hint="put a OneHotEncoder, OrdinalEncoder or TargetEncoder there",
                        step=f"{where}{name}",
                    )
                inner = "passthrough"
            else:
                inner = self.rewritten(inner, raw, f"{where}{name}.")
            new.append((name, inner, [self._columns.used.index(place) for place in raw]))
        made.transformers_ = new
        made.n_features_in_ = len(self._columns.used)

    def _chain(self, made: Any, places: list[int], where: str) -> Any:
        steps = [(name, one) for name, one in made.steps if one not in (None, "passthrough")]
        if any(place in self._columns.values for place in places):
            length = _encoding(made)
            # The longest start of the chain whose columns are independent becomes one table.
            for count in range(len(steps), 0, -1) if length else ():
                part = [one for _, one in steps[:count]]
                if count < length or not all(hasattr(one, "transform") for one in part):
                    continue
                found = self._table(partial(self._through, part), places)
                if found is not None:
                    made.steps = [(steps[count - 1][0], found), *steps[count:]]
                    return found if count == len(steps) else made
        first, rest = steps[0], steps[1:]
        made.steps = [(first[0], self.rewritten(first[1], places, f"{where}{first[0]}.")), *rest]
        return made

    def _through(self, part: Sequence[Any], rows: list[list[Any]]) -> Any:
        found = self._frame(rows, part[0])
        for one in part:
            found = one.transform(found)
        return found

    def _frame(self, rows: list[list[Any]], first: Any) -> Any:
        named = getattr(first, "feature_names_in_", None)
        if named is not None:
            import pandas as pd

            return pd.DataFrame(rows, columns=list(named), dtype=object)
        return np.array(rows, object)

    def _table(self, transform: Callable[[list[list[Any]]], Any], places: list[int]) -> Lookup | None:
        if not all(place in self._columns.values for place in places):
            return None
        found = tabulated(transform, [self._columns.values[place] for place in places])
        if found is not None:
            for place, (unknown, _) in zip(places, found.raises, strict=True):
                self._columns.unknown[place] = self._columns.unknown.get(place, False) or unknown
        return found
