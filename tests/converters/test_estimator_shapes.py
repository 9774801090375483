"""Tables and targets as people have them: one column, constant columns, truth values, texts, several targets."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, BaggingRegressor, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.onnx import SourceModel
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from collections.abc import Callable

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(120, 4)).astype(np.float32)
CONSTANT = np.where(np.arange(4) == 2, np.float32(3), X)
TRUTHS = CHANCE.random((120, 4)) > 0.5
WHOLE = CHANCE.integers(0, 6, (120, 4))
SCORE = X[:, 0] + 0.5 * X[:, 3] + 0.1 * CHANCE.normal(size=120)
THREE = np.digitize(SCORE, [-0.4, 0.4])
TWO = THREE > 0
BOTH = np.stack([TWO, X[:, 1] > 0], 1)
#: skl2onnx warns of what scikit-learn is about to change.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], SourceModel]:
    """Return what exports a fitted estimator."""

    def export(estimator: Any) -> SourceModel:
        module = types.ModuleType("shapes_of_estimators")
        module.made = lambda: estimator  # type: ignore[attr-defined]  # a function of the user's
        monkeypatch.setitem(sys.modules, module.__name__, module)
        source = open_source("shapes_of_estimators:made")
        assert isinstance(source, SourceModel)
        return source

    return export


@pytest.mark.parametrize(
    ("estimator", "x", "y"),
    [
        (LogisticRegression(), X[:, :1], TWO),
        (LogisticRegression(), X, THREE.astype(float)),
        (LogisticRegression(), TRUTHS, np.array(["no", "yes"])[TWO.astype(int)]),
        (SGDClassifier(loss="log_loss", random_state=0), WHOLE, THREE),
        (SGDClassifier(random_state=0), X, THREE.astype(np.uint8)),
        (AdaBoostClassifier(n_estimators=3), X, TWO),
        (make_pipeline(StandardScaler(), SVC()), CONSTANT, np.array([-5, 2, 40])[THREE]),
        (DecisionTreeClassifier(max_depth=3), X, BOTH.astype(int)),
        (OneVsOneClassifier(LogisticRegression()), X, np.array(["no", "yes"])[TWO.astype(int)]),
        (OneVsOneClassifier(LinearSVC()), X, TWO),
        (OneVsOneClassifier(DecisionTreeClassifier(max_depth=2)), X, TWO),
    ],
)
def test_a_classifier_gives_the_labels_of_scikit_learn(
    exported: Callable[[Any], SourceModel], estimator: Any, x: np.ndarray, y: np.ndarray
) -> None:
    source = exported(estimator.fit(x, y))

    (labels, *_) = run_onnx(source.proto.SerializeToString(), {"x": x.astype(np.float32)}).values()

    assert (labels == estimator.predict(x)).all()
    assert source.notes == ()  # the outputs of the estimator were compared with


@pytest.mark.parametrize("y", [TWO, np.array(["no", "yes"])[TWO.astype(int)]])
def test_discriminant_analysis_of_two_classes_gives_the_probabilities(
    exported: Callable[[Any], SourceModel], y: np.ndarray
) -> None:
    estimator = LinearDiscriminantAnalysis().fit(X, y)

    (_, shares) = run_onnx(exported(estimator).proto.SerializeToString(), {"x": X}).values()

    np.testing.assert_allclose(shares, estimator.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "x", "y"),
    [
        (Ridge(), X[:, :1], SCORE),
        (Ridge(), np.full((120, 1), 2.0), SCORE),
        (KNeighborsRegressor(3), X, TWO),
        (GaussianProcessRegressor(alpha=0.1), X, np.stack([SCORE, X[:, 1]], 1)),
    ],
)
def test_a_regressor_gives_the_numbers_of_scikit_learn(
    exported: Callable[[Any], SourceModel], estimator: Any, x: np.ndarray, y: np.ndarray
) -> None:
    source = exported(estimator.fit(x, y))

    (found,) = run_onnx(source.proto.SerializeToString(), {"x": x.astype(np.float32)}).values()

    wanted = estimator.predict(x)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=2e-3)


def test_clusters_of_truth_values_are_compared_with_scikit_learn(exported: Callable[[Any], SourceModel]) -> None:
    """KMeans takes float32 only where it was fitted on it."""
    estimator = KMeans(3, n_init=1, random_state=0).fit(TRUTHS)

    source = exported(estimator)

    (labels, *_) = run_onnx(source.proto.SerializeToString(), {"x": TRUTHS.astype(np.float32)}).values()
    assert source.notes == ()
    assert (labels == estimator.predict(TRUTHS)).all()


def test_trees_over_truth_values_send_missing_ones_as_scikit_learn_does(
    exported: Callable[[Any], SourceModel],
) -> None:
    """Such trees have the same form and thresholds, and may send missing values to other sides."""
    source = exported(RandomForestClassifier(8, random_state=0).fit(TRUTHS, TRUTHS[:, 0] ^ TRUTHS[:, 1]))

    assert source.notes == ()


@pytest.mark.parametrize(
    ("estimator", "x", "y", "says", "hint"),
    [
        (RandomForestClassifier(3), X, np.array(["only"] * 120), "one class alone, `only`", "two classes or more"),
        (QuantileTransformer(n_quantiles=20), CONSTANT, TWO, "column 2, which is constant", "VarianceThreshold"),
        (KNeighborsClassifier(3), WHOLE, THREE, "differs from scikit-learn", "at the same distance"),
        (RadiusNeighborsClassifier(3.0), X, TWO, "does not run", "KNeighborsClassifier"),
        (GaussianProcessRegressor(), np.tile(X[:40], (3, 1)), SCORE, "cancel one another", "alpha=0.01"),
        (MLPClassifier((3,), tol=1.0), X, BOTH, "several labels", "MultiOutputClassifier(MLPClassifier"),
        (RidgeClassifier(), X, BOTH, "several labels", "MultiOutputClassifier(RidgeClassifier"),
        (SVR(), X, np.full(120, 7.0), "no support vector", "epsilon"),
        (BaggingRegressor(), X, BOTH.astype(float), "answers to 64 rows", "MultiOutputRegressor"),
    ],
)
def test_what_is_not_exported_is_refused_with_what_to_do(
    exported: Callable[[Any], SourceModel], estimator: Any, x: np.ndarray, y: np.ndarray, says: str, hint: str
) -> None:
    with pytest.raises(ConversionError, match=says) as caught:
        exported(estimator.fit(x, y))

    assert hint in str(caught.value.hint)
