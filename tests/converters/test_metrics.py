"""Metrics: what they measure, and what is said when they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

from edge_infer.errors import InputError
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.data.calibration import CalibrationSet, read_set
from edge_infer_converters.data.reference_outputs import reference_outputs
from edge_infer_converters.measure.metrics import Metric, choose_metric, cosines
from edge_infer_converters.measure.own_error import own_error
from edge_infer_converters.measure.rank_correlation import spearman
from edge_infer_converters.measure.variant_quality import accuracy
from edge_infer_converters.sources import onnx as source
from tests.support import zoo
from tests.support.converters.conversions import edge_infer, mlp_data
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.model_files import WriteModel

SCORES = np.array([[9, 1, 2, 3, 4, 5], [1, 9, 2, 3, 4, 5], [0, 1, 2, 3, 4, 9]], np.float32)


def calls(classes: list[int] | None = None) -> CalibrationSet:
    labels = None if classes is None else np.array(classes)
    return CalibrationSet(tuple({"x": row[None]} for row in SCORES), labels, "data.npz", "0" * 64)


def outputs(scores: np.ndarray[Any, Any] = SCORES) -> list[dict[str, np.ndarray[Any, Any]]]:
    return [{"y": row[None]} for row in scores]


@pytest.mark.parametrize(
    ("name", "classes", "score"),
    [("accuracy", [0, 1, 4], 2 / 3), ("top5", [1, 0, 4], 1 / 3), (None, [0, 1, 5], 1.0), ("cosine", None, 1.0)],
)
def test_a_metric_of_the_source(name: str | None, classes: list[int] | None, score: float) -> None:
    assert Metric(name, calls(classes), outputs()).base == pytest.approx(score)


def test_the_order_of_samples_is_measured_as_scipy_does() -> None:
    stats = pytest.importorskip("scipy.stats")
    chance = np.random.default_rng(3)
    for ties in (1, 3, 40):
        one, other = np.round(chance.normal(size=50) * ties) / ties, np.round(chance.normal(size=50) * 2)
        assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)
    assert spearman(np.zeros(4), np.arange(4)) == 0

    numbers = outputs(np.array([[0.1], [0.9], [0.5]], np.float32))
    assert Metric("spearman", calls([0, 5, 1]), numbers).base == pytest.approx(1)
    assert Metric("spearman", calls([5, 0, 1]), numbers).base == pytest.approx(-1)
    without = Metric("spearman", calls(), numbers)
    assert without.score(outputs(np.array([[9], [1], [5]], np.float32))) == pytest.approx(-1)
    with pytest.raises(InputError, match="one number for each of two samples"):
        Metric("spearman", calls(), outputs())


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_scores_may_be_integers(dtype: type) -> None:
    scores: np.ndarray[Any, Any] = np.array([[0, 10, 100], [5, np.iinfo(dtype).min, 7]]).astype(dtype)

    assert Metric("accuracy", calls([2, 2]), outputs(scores)).base == 1


@pytest.mark.parametrize("predicted", [np.array([0]), np.array(["a"], object)])
def test_scores_behind_the_predicted_class_are_found(predicted: np.ndarray[Any, Any]) -> None:
    answers = [{"label": predicted, "probabilities": row[None]} for row in SCORES]

    for name in (None, "accuracy"):
        metric = Metric(name, calls([0, 1, 4]), answers)
        assert metric.name == "accuracy"
        assert metric.base == pytest.approx(2 / 3)
    assert accuracy(answers, calls([0, 1, 4])) == pytest.approx(2 / 3)


def test_one_number_for_each_label_is_not_a_row_of_scores() -> None:
    answers = [{"y": row[None, :1]} for row in SCORES]

    assert Metric(None, calls([0, 1, 1]), answers).name == "cosine"
    assert accuracy(answers, calls([0, 1, 1])) is None


def test_loss_is_the_relative_drop() -> None:
    metric = Metric("accuracy", calls([0, 1, 5]), outputs())

    worse = metric.score(outputs(SCORES[[0, 0, 2]]))

    assert worse == pytest.approx(2 / 3)
    assert metric.loss(worse) == pytest.approx(1 / 3)
    assert metric.loss(metric.base) == 0


def test_cosine_compares_rows_with_the_source() -> None:
    turned = [{"y": np.array([[0.0, 1.0], [0.0, 0.0]])}]

    np.testing.assert_allclose(cosines([{"y": np.array([[1.0, 1.0], [0.0, 0.0]])}], turned), [0.5**0.5, 1])


def test_without_floats_equal_elements_are_counted() -> None:
    words = [{"y": np.array(["a", "b"], object)}]

    metric = Metric(None, calls(), words)

    assert (metric.name, metric.base) == ("equal", 1.0)
    assert metric.score([{"y": np.array(["a", "c"], object)}]) == 0.5


def test_accuracy_without_labels_says_how_to_give_them() -> None:
    with pytest.raises(InputError, match=r"needs the right classes, `data\.npz` has no array `labels`") as caught:
        Metric("accuracy", calls(), outputs())

    assert "labels=classes" in caught.value.hint


def test_accuracy_of_what_is_no_classifier_is_refused() -> None:
    with pytest.raises(InputError, match="one row of class scores for each label"):
        Metric("accuracy", calls([0, 1, 2]), [{"y": np.zeros((1, 2, 2), np.float32)}] * 3)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(InputError, match="Metric `acuracy` is not known") as caught:
        Metric("acuracy", calls(), outputs())

    assert "accuracy" in caught.value.hint


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of the user's in the current folder."""
    name = f"metric_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(
        "def mean(outputs, labels): return sum(float(one['y'].max()) for one in outputs) / len(outputs)\n"
        "def raises(outputs, labels): raise KeyError('no z')\n"
        "def nan(outputs, labels): return float('nan')\n"
        "def text(outputs, labels): return 'good'\n"
    )
    monkeypatch.chdir(tmp_path)
    return name


def test_a_function_of_the_users_is_a_metric(module: str) -> None:
    metric = Metric(f"{module}:mean", calls(), outputs())

    assert metric.base == 9
    assert metric.loss(metric.score(outputs(SCORES / 2))) == 0.5


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "raised KeyError: 'no z'"),
        ("nan", "returned nan, expected a finite number"),
        ("text", "returned 'good', expected a number"),
        ("meen", "has no function `meen`"),
    ],
)
def test_what_goes_wrong_in_it_is_told(module: str, function: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Metric(f"{module}:{function}", calls(), outputs())


def test_a_module_that_is_missing_is_told() -> None:
    with pytest.raises(InputError, match="cannot be imported: ModuleNotFoundError"):
        Metric("no_such_module:f", calls(), outputs())


def test_values_that_are_not_finite_are_refused_with_their_place(write_model: WriteModel, tmp_path: Path) -> None:
    inputs = np.zeros((3, 64), np.float32)
    inputs[1, 7] = np.nan
    np.savez(tmp_path / "d.npz", x=inputs)

    with pytest.raises(InputError, match=r"holds 1 values that are NaN or infinite, the first at \[1, 7\]"):
        read_set(tmp_path / "d.npz", source.load(write_model(zoo.mlp())).inputs)


def test_weights_that_are_not_numbers_are_warned_of(write_model: WriteModel, tmp_path: Path) -> None:
    weights = {"w": np.full((8, 8), np.nan, np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = zoo.model([node], [zoo.value("x", ["n", 8])], [zoo.value("y", ["n", 8])], weights)
    told = Told()

    convert(write_model(model), tmp_path / "m.bundle", recipe=Recipe(("onnx",), ("fp32",)), reporter=told)

    assert told.warnings[0] == "Weights hold NaN: `w`; what depends on them is NaN too"


def test_the_metric_is_a_column_and_in_the_result(write_model: WriteModel, tmp_path: Path) -> None:
    recipe = Recipe(formats=("onnx",), precisions=("fp32",), budget=Budget(metric="top5"))

    result = convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", evaluation=mlp_data(tmp_path / "d.npz"), recipe=recipe
    )

    assert result.metric == "top5"
    assert result.to_json()["variants"][0]["metric"] == {"name": "top5", "score": 1.0, "loss": 0.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--max-loss", "1%"), "--max-loss needs data to measure on"),
        (("--max-loss", "2"), "Loss '2' is not a share"),
        (("--max-size", "big"), "Size 'big' is not known"),
        (("--metric", "accuracy"), "--metric needs data to measure on"),
        (("--precision", "int3"), "Precision `int3` is not known"),
    ],
)
def test_a_budget_that_makes_no_sense_is_wrong_usage(
    write_model: WriteModel, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", "-o", "m.bundle", *arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert said in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp.onnx"]


def test_a_budget_searches(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")
    mlp_data(tmp_path / "d.npz")

    done = edge_infer("mlp.onnx", "-o", "m.bundle", "--eval", "d.npz", "--max-loss", "1%", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "ACCURACY" in lines[0]
    precisions = ("fp32", "fp16", "int8", "mixed")
    wanted = [f"{format_}/{precision}" for format_ in ("onnx", "tflite") for precision in precisions]
    wanted += ["compiled/fp32", "compiled/int8"]
    end = lines.index("")
    assert [line.split()[0] for line in lines[1:end]] == wanted
    assert lines[end + 1].startswith("LAYER OF ONNX/MIXED")
    assert any(line.startswith("Searched   onnx/mixed") for line in done.stderr.splitlines())


def test_a_size_out_of_reach_exits_with_one_and_keeps_the_bundle(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", "-o", "m.bundle", "--max-size", "1kB", "--min-sqnr", "30", cwd=tmp_path)

    assert done.returncode == 1
    assert "error: Nothing that is good enough has at most 1.0 kB: the best found is onnx/" in done.stderr
    assert (tmp_path / "m.bundle/onnx/model_mixed.onnx").exists()


def test_labels_that_cannot_be_used_are_named() -> None:
    told, answers = Told(), [{"boxes": np.zeros((1, 2, 4), np.float32), "y": row[None]} for row in SCORES]

    metric = choose_metric(Budget(), calls([0, 1, 5]), answers, told)
    choose_metric(Budget(metric="cosine"), calls([0, 1, 5]), answers, Told())

    assert metric.name == "cosine"
    (warning,) = told.warnings
    assert "labels of `data.npz` are not used: the first output, `boxes`, has shape (1, 2, 4)" in warning


def test_as_many_answers_are_kept_as_memory_is_there_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_infer_converters.data.reference_outputs.MAX_BYTES", 2 * SCORES[0].nbytes)
    told = Told()

    data, found = reference_outputs(calls([0, 1, 5]), lambda call: {"y": call["x"]}, told)

    assert (len(data.calls), len(found)) == (2, 2)
    assert data.classes is not None
    assert data.classes.tolist() == [0, 1]
    assert told.warnings[0].startswith("Measured on the first 2 of 3 samples of data.npz")


def test_the_sources_own_error_is_that_of_any_sample_that_variants_are_judged_by() -> None:
    """One golden example says little: of the others one may be where the engine's fast kernels differ most."""
    calls = [{"x": np.full((2, 3), i, np.float32)} for i in range(8)]
    outputs = [{"y": call["x"] + 1} for call in calls]
    slow: list[int] = []

    def run(call: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        slow.append(1)
        return {"y": call["x"] + 1}

    def load_optimised() -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
        return lambda call: {"y": call["x"] + np.float32(1.5 if call["x"][0, 0] == 5 else 1)}

    found = own_error(run, load_optimised, calls, outputs, count=1)

    assert found["y"].max_err > 0.05
    assert len(slow) == 1
