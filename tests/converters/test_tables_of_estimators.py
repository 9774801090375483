"""Estimators become bundles for rows: names and types of columns and classes are kept, and the answers are theirs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import ConversionError, InputError
from edge_infer_converters import convert

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import numpy as np
import pandas as pd

CHANCE = np.random.default_rng(3)
X = pd.DataFrame(CHANCE.normal(size=(400, 3)), columns=["age", "income", "debt"])
Y = np.where(X["age"] + X["income"] > 0, "good", "bad")


def logistic():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)


def machine():
    from sklearn.svm import LinearSVC

    return LinearSVC().fit(X, Y)


def curved():
    from sklearn.svm import SVC

    return SVC().fit(X, Y)


def ridge():
    from sklearn.linear_model import Ridge

    return Ridge().fit(X, 3 * X["debt"] + 1)


def dense():
    from sklearn.cluster import DBSCAN

    return DBSCAN().fit(X)


def clusters():
    from sklearn.cluster import KMeans

    return KMeans(5, random_state=0, n_init=1).fit(CHANCE.normal(size=(100, 10)))


def light():
    import lightgbm

    return lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, Y)


def extreme():
    import xgboost

    return xgboost.XGBRegressor(n_estimators=5).fit(X, X["debt"])
"""
_OF_SKL2ONNX = "ignore:Attribute `prob[AB]_` was deprecated:FutureWarning"
ROW = {"income": 0.5, "age": 1.25, "debt": -2}
ORDER = [1.25, 0.5, -2]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "estimators_of_tables.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    return importlib.import_module("estimators_of_tables")


def bundle(tmp_path: Path, name: str) -> edge_infer.Pipeline:
    convert(f"estimators_of_tables:{name}", tmp_path / f"{name}.bundle", precision="fp32", format="onnx", goldens=1)
    return edge_infer.pipeline(tmp_path / f"{name}.bundle", self_test=True)


@pytest.mark.parametrize("name", ["logistic", "light"])
def test_a_classifier_answers_a_row_by_its_names(tmp_path: Path, made: Any, name: str) -> None:
    expected = getattr(made, name)().predict_proba(made.X.iloc[:3])

    with bundle(tmp_path, name) as pipeline:
        assert pipeline.task == "tabular-classification"
        assert pipeline.labels == ["bad", "good"]
        answers = pipeline(made.X.iloc[:3].to_dict("list"))
        one = pipeline(made.X.iloc[0].to_dict())
        assert {best["label"] for best in one} == {"bad", "good"}
        with pytest.raises(InputError, match="the column `age` is missing"):
            pipeline({"income": 1, "debt": 2})
        if name == "light":
            assert math.isfinite(pipeline({**ROW, "age": None})[0]["score"])
        else:
            with pytest.raises(InputError, match="`age` is missing"):
                pipeline({**ROW, "age": math.nan})

    assert [best["label"] for best in answers[0]] == [best["label"] for best in one]
    found = [[{one["label"]: one["score"] for one in answer}[label] for label in ("bad", "good")] for answer in answers]
    assert np.allclose(found, expected, atol=1e-6)


def test_a_csv_of_rows_measures_the_model(tmp_path: Path, made: Any) -> None:
    rows = made.X.iloc[:60].assign(note="ignored")
    rows.to_csv(tmp_path / "rows.csv", index=False)

    done = convert(
        "estimators_of_tables:logistic",
        tmp_path / "risk.bundle",
        precision="fp32",
        format="onnx",
        evaluation=tmp_path / "rows.csv",
    )

    assert done.data.startswith("60 samples of rows.csv")
    rows = rows.astype({"age": object})
    rows.loc[3, "age"] = "old"
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(InputError, match=r"line 5 of `rows\.csv`: `age` is 'old'"):
        convert(
            "estimators_of_tables:logistic", tmp_path / "b.bundle", precision="fp32", evaluation=tmp_path / "rows.csv"
        )


def test_accuracy_is_that_of_the_estimator(tmp_path: Path, made: Any) -> None:
    rows = made.X.iloc[:50].assign(label=np.where(made.X["debt"] > 1, "good", made.Y)[:50])
    rows.to_csv(tmp_path / "rows.csv", index=False)

    done = convert(
        "estimators_of_tables:logistic",
        tmp_path / "risk.bundle",
        precision="fp32",
        format="onnx",
        evaluation=tmp_path / "rows.csv",
        metric="accuracy",
    )

    expected = made.logistic().score(made.X.iloc[:50], rows["label"])
    assert 0 < expected < 1
    assert done.variants[0].quality.score == done.variants[0].quality.accuracy == expected


@pytest.mark.parametrize("name", ["ridge", "extreme"])
def test_a_regression_answers_with_a_number(tmp_path: Path, made: Any, name: str) -> None:
    expected = getattr(made, name)().predict(made.X.iloc[:4])

    with bundle(tmp_path, name) as pipeline:
        assert pipeline.task == "tabular-regression"
        assert np.allclose(pipeline(made.X.iloc[:4].to_dict("records")), expected, atol=1e-5)


def test_clusters_are_named_and_the_nearest_comes_first(tmp_path: Path, made: Any) -> None:
    row = made.CHANCE.normal(size=10)
    with bundle(tmp_path, "clusters") as pipeline:
        answer = pipeline({f"x{i}": number for i, number in enumerate(row)}, top_k=1)

    assert answer[0]["score"] < 0
    assert answer[0]["label"].startswith("cluster ")


@pytest.mark.filterwarnings(_OF_SKL2ONNX)
@pytest.mark.parametrize("name", ["machine", "curved"])
def test_a_machine_of_support_vectors_names_its_class(tmp_path: Path, made: Any, name: str) -> None:
    with bundle(tmp_path, name) as pipeline:
        answers = pipeline(made.X.iloc[:20].to_dict("list"))

    assert [answer[0]["label"] for answer in answers] == getattr(made, name)().predict(made.X.iloc[:20]).tolist()


@pytest.mark.filterwarnings(_OF_SKL2ONNX)
def test_the_scores_of_two_classes_stand_in_the_order_of_the_classes(tmp_path: Path, made: Any) -> None:
    """skl2onnx gives those of SVC the other way round: their largest was at the class that the label is not."""
    rows = made.X.iloc[:20]

    with bundle(tmp_path, "curved"), edge_infer.load(tmp_path / "curved.bundle") as session:
        scores = np.asarray(session.run({"x": rows.to_numpy(np.float32)})["probabilities"])

    expected = made.curved().decision_function(rows)
    np.testing.assert_allclose(scores, np.stack((-expected, expected), 1), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("dense", r"\(DBSCAN\): Unable to find a shape calculator", "estimators.md"),
    ],
)
@pytest.mark.usefixtures("made")
def test_an_estimator_that_is_not_exported_is_named(tmp_path: Path, name: str, said: str, hint: str) -> None:
    with pytest.raises(ConversionError, match=said) as caught:
        bundle(tmp_path, name)

    assert hint in (caught.value.hint or "")
    assert len(caught.value.message) < 400
    assert not (tmp_path / f"{name}.bundle").exists()
