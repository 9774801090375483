"""Pipelines over texts and missing values become bundles that answer as scikit-learn does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import ConversionError, InputError
from edge_infer_converters import convert

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
from functools import cache

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

CHANCE = np.random.default_rng(3)
COUNT = 600
X = pd.DataFrame({
    "id": [f"p{i}" for i in range(COUNT)],
    "age": CHANCE.normal(size=COUNT).astype("f4"),
    "city": CHANCE.choice(["Bern", "Chur", "Genf", "Zug"], COUNT),
    "job": CHANCE.choice(["baker", "smith", None], COUNT),
    "rooms": CHANCE.integers(1, 6, COUNT),
})
X.loc[::7, "age"] = np.nan
Y = np.where(X.age.fillna(0.3) + (X.city == "Bern") + (X.job == "smith") * 0.5 > 0.5, "good", "bad")
V = (X.city == "Zug") * 3 + X.rooms


def columns(last=None):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    texts = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    return ColumnTransformer([
        ("numbers", numbers, ["age"]), ("texts", texts, ["city", "job"]), ("rooms", last or OrdinalEncoder(), ["rooms"])
    ])


@cache
def mixed():
    return make_pipeline(columns(), LogisticRegression()).fit(X, Y)


@cache
def rare():
    encoder = OneHotEncoder(drop="first", min_frequency=160, handle_unknown="infrequent_if_exist")
    return make_pipeline(encoder, LogisticRegression()).fit(X[["city", "job"]], Y)


@cache
def means():
    table = ColumnTransformer([("means", TargetEncoder(), ["city", "job"])], remainder="drop")
    return make_pipeline(table, LogisticRegression()).fit(X, Y)


@cache
def grown():
    table = X[["age", "city", "job"]].astype({"city": "category", "job": "category"})
    return HistGradientBoostingClassifier(max_iter=4, categorical_features="from_dtype").fit(table, Y)


@cache
def grown_behind():
    return make_pipeline(columns(), HistGradientBoostingRegressor(max_iter=4)).fit(X, V)


@cache
def grown_numbers():
    return HistGradientBoostingClassifier(max_iter=4, categorical_features=["rooms"]).fit(X[["age", "rooms"]], X.city)


@cache
def both():
    return make_pipeline(columns(), MultiOutputRegressor(Ridge())).fit(X, np.c_[V, X.rooms])


def words():
    table = ColumnTransformer([("count", CountVectorizer(), "city"), ("rooms", "passthrough", ["rooms"])])
    return make_pipeline(table, LogisticRegression()).fit(X, Y)


def leaking():
    one = ("one", OneHotEncoder(sparse_output=False), ["city"])
    return ColumnTransformer([one, ("again", "passthrough", ["city"])]).fit(X)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("columns")
    (folder / "columns_of_estimators.py").write_text(SOURCE, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("columns_of_estimators")


def bundle(tmp_path: Path, name: str) -> edge_infer.Pipeline:
    convert(f"columns_of_estimators:{name}", tmp_path / f"{name}.bundle", precision="fp32", format="onnx", goldens=1)
    return edge_infer.pipeline(tmp_path / f"{name}.bundle", self_test=True)


@pytest.mark.parametrize("name", ["mixed", "rare", "means", "grown", "grown_numbers"])
def test_a_classifier_gives_the_probabilities_of_scikit_learn(tmp_path: Path, made: Any, name: str) -> None:
    estimator = getattr(made, name)()
    known = made.X[list(estimator.feature_names_in_)]

    with bundle(tmp_path, name) as pipeline:
        answers = pipeline.predict_table(made.X.drop(columns="id"), scores=True)
        row = pipeline({"age": None, "city": "Bern", "job": None, "rooms": 2}) if name != "rare" else None

    scores = answers[[f"score_{one}" for one in estimator.classes_]].to_numpy()
    np.testing.assert_allclose(scores, estimator.predict_proba(known), atol=1e-6)
    assert answers.label.tolist() == estimator.predict(known).tolist()
    assert row is None or {one["label"] for one in row} == {*estimator.classes_}


@pytest.mark.parametrize("name", ["grown_behind", "both"])
def test_a_regressor_gives_the_values_of_scikit_learn(tmp_path: Path, made: Any, name: str) -> None:
    rows = made.X.iloc[:50]
    with bundle(tmp_path, name) as pipeline:
        found = [np.asarray(one) for one in pipeline(rows.drop(columns="id").to_dict("records"))]

    np.testing.assert_allclose(np.stack(found).squeeze(), getattr(made, name)().predict(rows), rtol=1e-4)


def test_unknown_categories_are_errors_where_the_encoder_says_so(tmp_path: Path, made: Any) -> None:
    row = {"age": 1, "city": "Basel", "job": "baker", "rooms": 3}

    with bundle(tmp_path, "mixed") as pipeline:
        answer = pipeline(row)
        with pytest.raises(InputError, match=r"`rooms` is 9.*not one of its 5 categories") as caught:
            pipeline({**row, "rooms": 9})
        with pytest.raises(InputError, match="`rooms` is missing"):
            pipeline({**row, "rooms": None})

    assert "choose from 1, 2, 3" in (caught.value.hint or "")
    expected = made.mixed().predict_proba(made.pd.DataFrame([{"id": "", **row}]))[0]
    found = {one["label"]: one["score"] for one in answer}
    np.testing.assert_allclose([found["bad"], found["good"]], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [("words", r"step `.*count` \(CountVectorizer\)"), ("leaking", "step `again` passes the texts of `city`")],
)
def test_a_step_that_reads_texts_is_named(tmp_path: Path, made: Any, name: str, said: str) -> None:
    with pytest.raises(ConversionError, match=said):
        bundle(tmp_path, name)

    assert [*tmp_path.iterdir()] == []
