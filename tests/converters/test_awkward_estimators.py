"""Estimators whose export needs a hand, or a refusal that says what to fit instead."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.onnx import SourceModel
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from pathlib import Path

FITTED = """
import warnings

import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import BaggingRegressor, ExtraTreesRegressor, IsolationForest, RandomForestClassifier
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.feature_selection import SelectFdr, SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsOneClassifier
from sklearn.naive_bayes import CategoricalNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MaxAbsScaler, OneHotEncoder, QuantileTransformer, RobustScaler
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.svm import LinearSVC

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 4)).astype(np.float32)
y = np.digitize(x[:, 0], [-0.5, 0.5])
frame = pd.DataFrame({"a": x[:, 0], "c": pd.Categorical(np.where(x[:, 1] > 0, "red", "blue"))})
columns = ColumnTransformer([("one", OneHotEncoder(), ["c"]), ("scaled", StandardScaler(), ["a"])])

def quantiles():
    return make_pipeline(QuantileTransformer(n_quantiles=20), LogisticRegression()).fit(x, y)

def normal_quantiles():
    return QuantileTransformer(n_quantiles=20, output_distribution="normal").fit(x)

def late_quantiles():
    tied = np.round(x * 3).astype(np.float64)
    return make_pipeline(StandardScaler(), QuantileTransformer(n_quantiles=50), LogisticRegression()).fit(tied, y)

def robust_quantiles():
    tied = np.round(x * 3)
    return make_pipeline(RobustScaler(), QuantileTransformer(n_quantiles=50), LogisticRegression()).fit(tied, y)

def met_quantiles():
    tied = np.round(x * 3)
    return make_pipeline(StandardScaler(), QuantileTransformer(n_quantiles=50)).fit(tied)

def met_largest():
    tied = np.round(x * 3)
    return make_pipeline(MaxAbsScaler(), QuantileTransformer(n_quantiles=50)).fit(tied)

def discriminant():
    return QuadraticDiscriminantAnalysis().fit(x, y)

def forest_of_boosters():
    from xgboost import XGBRFClassifier
    return XGBRFClassifier(n_estimators=4).fit(x, y)

def calibrated_last():
    return make_pipeline(columns, CalibratedClassifierCV(LinearSVC())).fit(frame, y)

def calibrated_around():
    return CalibratedClassifierCV(make_pipeline(StandardScaler(), LinearSVC())).fit(x, y)

def calibrated_texts():
    return CalibratedClassifierCV(make_pipeline(columns, LogisticRegression())).fit(frame, y)

gaps = np.where(rng.random(x.shape) < 0.2, np.nan, x)

def forest():
    return RandomForestClassifier(5, random_state=0).fit(gaps, y)

def full_forest():
    return ExtraTreesRegressor(5, random_state=0).fit(x, x[:, 0])

def bag():
    return BaggingRegressor(n_estimators=3, max_features=2, random_state=0).fit(gaps, x[:, 0])

def isolation():
    return IsolationForest(n_estimators=4, random_state=0).fit(gaps)

def powers():
    return PowerTransformer().fit(gaps)

def first_column():
    return SelectKBest(k=1).fit(x, y)

def bins():
    return KBinsDiscretizer(4).fit(x)

def embedding():
    return RandomTreesEmbedding(3, random_state=0).fit(x)

def categories():
    return CategoricalNB().fit(np.floor(np.abs(x)), y)

def texts_one_on_one():
    return OneVsOneClassifier(LogisticRegression()).fit(x, np.array(["low", "middle", "high"])[y])

def gaps_one_on_one():
    return OneVsOneClassifier(LogisticRegression()).fit(x, np.array([-3, 7, 1000])[y])

def three_targets():
    return RandomForestClassifier(5, random_state=0).fit(x, np.stack([y > 0, x[:, 1] > 0, x[:, 2] > 1], 1).astype(int))

def one_class():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPClassifier((3,), max_iter=5).fit(x, y * 0)

def nothing_selected():
    return SelectFdr(alpha=1e-9).fit(x, rng.integers(0, 2, 200))

def lightgbm():
    from lightgbm import LGBMClassifier
    return LGBMClassifier(n_estimators=3, verbose=-1).fit(frame, y)

def xgboost():
    from xgboost import XGBClassifier
    return XGBClassifier(n_estimators=3, enable_categorical=True).fit(frame, y)
"""


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "awkward_estimators.py").write_text(FITTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "awkward_estimators", raising=False)
    return "awkward_estimators"


@pytest.mark.parametrize("name", ["quantiles", "discriminant", "forest_of_boosters", "calibrated_last"])
def test_it_is_exported_and_gives_what_its_library_gives(fitted: str, name: str) -> None:
    source = open_source(f"{fitted}:{name}")

    label = next(spec for spec in source.outputs if spec.dtype == "int64")
    assert tuple(label.shape) == ("batch",)


@pytest.mark.parametrize("name", ["first_column", "bins", "embedding"])
def test_a_transformer_gives_the_numbers_of_scikit_learn(fitted: str, name: str) -> None:
    source = open_source(f"{fitted}:{name}")
    made = getattr(importlib.import_module(fitted), name)()
    rows = np.random.default_rng(1).normal(0, 2, (300, 4)).astype(np.float32)

    (found,) = source.reference().run({"x": rows}).values()

    wanted = made.transform(rows)
    np.testing.assert_array_equal(found, wanted.toarray() if hasattr(wanted, "toarray") else wanted)


@pytest.mark.parametrize("name", ["forest", "full_forest", "bag", "isolation", "powers"])
def test_missing_values_are_answered_as_scikit_learn_answers_them(fitted: str, name: str) -> None:
    source = open_source(f"{fitted}:{name}")
    made = getattr(importlib.import_module(fitted), name)()
    chance = np.random.default_rng(1)
    rows = np.where(chance.random((300, 4)) < 0.3, np.nan, chance.normal(0, 1, (300, 4))).astype(np.float32)

    assert isinstance(source, SourceModel)
    found = list(run_onnx(source.proto.SerializeToString(), {"x": rows}).values())

    wanted = made.transform(rows) if name == "powers" else made.predict(rows)
    np.testing.assert_allclose(np.reshape(found[0], wanted.shape), wanted, atol=1e-5)
    assert source.notes == ()


def test_the_probabilities_of_several_targets_begin_with_rows(fitted: str) -> None:
    source = open_source(f"{fitted}:three_targets")
    made = importlib.import_module(fitted).three_targets()
    rows = np.random.default_rng(1).normal(0, 1, (300, 4)).astype(np.float32)

    labels, shares = source.reference().run({"x": rows}).values()

    np.testing.assert_array_equal(labels, made.predict(rows))
    np.testing.assert_allclose(shares, np.stack(made.predict_proba(rows), 1), atol=1e-6)
    assert tuple(source.outputs[1].shape) == ("batch", 3, 2)
    assert isinstance(source, SourceModel)
    (_, exported) = run_onnx(source.proto.SerializeToString(), {"x": rows}).values()
    np.testing.assert_allclose(exported, shares, atol=1e-6)


@pytest.mark.parametrize("name", ["categories", "texts_one_on_one", "gaps_one_on_one"])
def test_a_classifier_gives_the_labels_of_scikit_learn(fitted: str, name: str) -> None:
    source = open_source(f"{fitted}:{name}")
    made = getattr(importlib.import_module(fitted), name)()
    rows = np.random.default_rng(1).integers(0, 3, (300, 4)).astype(np.float32)

    labels = next(iter(source.reference().run({"x": rows}).values()))

    np.testing.assert_array_equal(labels, made.predict(rows))


def test_normal_quantiles_keep_their_digits_in_both_tails(fitted: str) -> None:
    source = open_source(f"{fitted}:normal_quantiles")
    made = importlib.import_module(fitted).normal_quantiles()
    rows = np.random.default_rng(1).normal(0, 2, (500, 4)).astype(np.float32)
    rows[3, 1] = np.nan

    (found,) = source.reference().run({"x": rows}).values()

    wanted = made.transform(rows)
    assert np.abs(wanted[np.isfinite(wanted)]).max() > 5
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize("name", ["met_quantiles", "met_largest"])
def test_quantiles_that_repeat_behind_a_scaler_are_met(fitted: str, name: str) -> None:
    source = open_source(f"{fitted}:{name}")
    made = getattr(importlib.import_module(fitted), name)()
    rows = np.round(np.random.default_rng(1).normal(0, 3, (500, 4))).astype(np.float32)

    (found,) = source.reference().run({"x": rows}).values()

    quantiles = made.steps[-1][1].quantiles_
    assert (quantiles[1:] == quantiles[:-1]).any(axis=0).all()
    np.testing.assert_allclose(found, made.transform(rows), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("calibrated_around", "cannot export .* .CalibratedClassifierCV.", "calibrate the last step alone"),
        ("late_quantiles", "QuantileTransformer behind StandardScaler", "put the QuantileTransformer first"),
        ("robust_quantiles", "QuantileTransformer behind RobustScaler", "put the QuantileTransformer first"),
        ("calibrated_texts", "around columns of texts", "calibrate the last step alone"),
        ("one_class", "knows one class alone", "two classes or more"),
        ("nothing_selected", "SelectFdr selects none of its 4 columns", "SelectKBest"),
        ("lightgbm", r"was fitted on categories of pandas .`blue`", "from_dtype"),
        ("xgboost", "was fitted on categories of pandas in `c`", "from_dtype"),
    ],
)
def test_what_its_exporter_gets_wrong_is_refused_with_what_to_fit(fitted: str, name: str, says: str, hint: str) -> None:
    with pytest.raises(ConversionError, match=says) as caught:
        open_source(f"{fitted}:{name}")

    assert hint in str(caught.value.hint)
