"""Files of boosters and of skops become bundles that answer as their libraries do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import ConversionError
from edge_infer_converters import convert

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(300, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
ROWS = {f"x{i}": CHANCE.normal(size=50).astype(np.float32) for i in range(4)}
MATRIX = np.stack([*ROWS.values()], 1)


def xgboost_json(path: Path) -> Any:
    import xgboost

    made = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, Y)
    made.save_model(path)
    return made.predict_proba(MATRIX)


def lightgbm_text(path: Path) -> Any:
    import lightgbm

    made = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(X, Y)
    made.booster_.save_model(path)
    share = np.asarray(made.booster_.predict(MATRIX))
    return np.stack([1 - share, share], 1)


def catboost_binary(path: Path) -> Any:
    catboost = pytest.importorskip("catboost")
    made = catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False, thread_count=1)
    made.fit(X, X[:, 0]).save_model(str(path))
    return made.predict(MATRIX)


def skops_zip(path: Path) -> Any:
    io = pytest.importorskip("skops.io")
    from sklearn.linear_model import LogisticRegression

    made = LogisticRegression().fit(X, np.where(Y, "yes", "no"))
    io.dump(made, path)
    return made.predict_proba(MATRIX)


def skops_forest(path: Path) -> Any:
    io = pytest.importorskip("skops.io")
    from sklearn.ensemble import RandomForestClassifier

    made = RandomForestClassifier(4, random_state=0).fit(X, Y)
    io.dump(made, path)
    return made.predict_proba(MATRIX)


def skops_histograms(path: Path) -> Any:
    io = pytest.importorskip("skops.io")
    from sklearn.ensemble import HistGradientBoostingRegressor

    made = HistGradientBoostingRegressor(max_iter=4, random_state=0).fit(X, X[:, 0])
    io.dump(made, path)
    return made.predict(MATRIX)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        pytest.param("model.json", xgboost_json, marks=pytest.mark.long),
        pytest.param("model.ubj", xgboost_json, marks=pytest.mark.long),
        ("model.txt", lightgbm_text),
        pytest.param("model.cbm", catboost_binary, marks=pytest.mark.long),
        pytest.param("model.skops", skops_zip, marks=pytest.mark.long),
        ("model.skops", skops_forest),
        pytest.param("model.skops", skops_histograms, marks=pytest.mark.long),
    ],
)
def test_a_file_answers_as_its_library(tmp_path: Path, name: str, write: Callable[[Path], Any]) -> None:
    expected = write(tmp_path / name)

    convert(tmp_path / name, tmp_path / "model.bundle", precision="fp32", format="onnx", goldens=1)

    with edge_infer.pipeline(tmp_path / "model.bundle", self_test=True) as pipeline:
        answers = pipeline.predict_table(ROWS, scores=expected.ndim == 2)
        columns = [f"score_{label}" for label in pipeline.labels] or ["prediction"]
        found = np.stack([np.asarray(answers[one]) for one in columns], 1)
    np.testing.assert_allclose(found, expected.reshape(found.shape), atol=1e-5)


@pytest.mark.long
def test_labels_that_catboost_does_not_export_are_refused_with_those_that_it_does(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    made = catboost.CatBoostClassifier(iterations=2, verbose=0, allow_writing_files=False, thread_count=1)
    made.fit(X, np.asarray(Y).astype(bool)).save_model(str(tmp_path / "model.cbm"))

    with pytest.raises(ConversionError, match="label type") as caught:
        convert(tmp_path / "model.cbm", tmp_path / "model.bundle")

    assert "y.astype(int)" in (caught.value.hint or "")
    assert not (tmp_path / "model.bundle").exists()


@pytest.mark.long
def test_categories_of_catboost_are_refused_with_its_reason(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    made = catboost.CatBoostClassifier(iterations=2, verbose=0, allow_writing_files=False, thread_count=1)
    made.fit(np.c_[np.array(list("abc"))[np.arange(300) % 3].astype(object), X], Y, cat_features=[0])
    made.save_model(str(tmp_path / "model.cbm"))

    with pytest.raises(ConversionError, match="categorical features") as caught:
        convert(tmp_path / "model.cbm", tmp_path / "model.bundle")

    assert "OrdinalEncoder" in (caught.value.hint or "")
    assert not (tmp_path / "model.bundle").exists()
