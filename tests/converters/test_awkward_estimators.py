"""Estimators whose export needs a hand, or a refusal that says what to fit instead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.factory import open_source

if TYPE_CHECKING:
    from pathlib import Path

FITTED = """
import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import LinearSVC

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 4)).astype(np.float32)
y = np.digitize(x[:, 0], [-0.5, 0.5])
frame = pd.DataFrame({"a": x[:, 0], "c": pd.Categorical(np.where(x[:, 1] > 0, "red", "blue"))})
columns = ColumnTransformer([("one", OneHotEncoder(), ["c"]), ("scaled", StandardScaler(), ["a"])])

def quantiles():
    return make_pipeline(QuantileTransformer(n_quantiles=20), LogisticRegression()).fit(x, y)

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


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("calibrated_around", "cannot export .* .CalibratedClassifierCV.", "calibrate the last step alone"),
        ("calibrated_texts", "around columns of texts", "calibrate the last step alone"),
        ("lightgbm", r"was fitted on categories of pandas .`blue`", "from_dtype"),
        ("xgboost", "was fitted on categories of pandas in `c`", "from_dtype"),
    ],
)
def test_what_its_exporter_gets_wrong_is_refused_with_what_to_fit(fitted: str, name: str, says: str, hint: str) -> None:
    with pytest.raises(ConversionError, match=says) as caught:
        open_source(f"{fitted}:{name}")

    assert hint in str(caught.value.hint)
