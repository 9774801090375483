"""The search: the order of moves, the smallest choice within a budget, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from edge_infer import Bundle
from edge_infer.errors import AccuracyError, InputError
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.measure.budget import parse_share, parse_size
from edge_infer_converters.measure.judge import clear_answers_kept
from edge_infer_converters.passes.weight import ENCODINGS, Weight
from edge_infer_converters.passes.weight_only import prepare, weights_of
from edge_infer_converters.search.bit_allocation import Trial, choice_after, moves_of, search, start_of
from edge_infer_converters.search.layers import layers_of
from edge_infer_converters.search.sensitivity import Sensitivity, WeightSession, rank
from tests.support import zoo
from tests.support.converters.conversions import files_of, mlp_data, without_times
from tests.support.converters.reporter import Told
from tests.support.converters.search import data, net

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.model_files import WriteModel

MIXED = Recipe(formats=("onnx",), precisions=("fp32", "mixed"))


def weight(name: str, rows: int = 64) -> Weight:
    return Weight(name, name, "matrix", (rows, 64), 1, False, ENCODINGS)


def additive(noises: Mapping[tuple[str, str], float], limit: float) -> Callable[[Mapping[str, str]], Trial]:
    """A model whose errors add up exactly."""

    def evaluate(choice: Mapping[str, str]) -> Trial:
        total = sum(noises.get(pair, 0.0) for pair in choice.items())
        size = sum(weight(name).nbytes(encoding) for name, encoding in choice.items())
        return Trial(dict(choice), size, -total, 0.0, total <= limit)

    return evaluate


def test_moves_are_ordered_by_noise_for_each_byte_saved() -> None:
    quiet, loud = weight("quiet"), weight("loud")
    measured = [
        Sensitivity(loud, "int8", 0.1),
        Sensitivity(loud, "int4", 0.9),
        Sensitivity(quiet, "int8", 0.001),
        Sensitivity(quiet, "int4", 0.01),
    ]

    moves = moves_of(measured)

    assert [(move.weight.name, move.encoding) for move in moves] == [
        ("quiet", "int8"),
        ("quiet", "int4"),
        ("loud", "int8"),
        ("loud", "int4"),
    ]


def test_a_choice_above_the_hull_is_skipped() -> None:
    """Four bits that cost hardly more than eight: eight are never worth it."""
    one = weight("w")

    moves = moves_of([Sensitivity(one, "int8", 0.1), Sensitivity(one, "int4", 0.11)])

    assert [move.encoding for move in moves] == ["int4"]


def test_the_search_finds_the_smallest_that_fits() -> None:
    """Against all 27 choices of three weights."""
    names = ("a", "b", "c")
    noises = {("a", "int8"): 1.0, ("a", "int4"): 4.0, ("b", "int8"): 2.0, ("b", "int4"): 9.0}
    noises |= {("c", "int8"): 0.5, ("c", "int4"): 30.0}
    weights = [weight(name) for name in names]
    measured = [Sensitivity(weight(name), encoding, value) for (name, encoding), value in noises.items()]
    evaluate = additive(noises, 7.0)
    every = [
        evaluate({"a": a, "b": b, "c": c})
        for a in ("fp16", "int8", "int4")
        for b in ("fp16", "int8", "int4")
        for c in ("fp16", "int8", "int4")
    ]

    found = search(weights, moves_of(measured), evaluate)

    assert found.best is not None
    assert found.best.nbytes == min(trial.nbytes for trial in every if trial.is_within)
    assert found.best.choice == {"a": "int4", "b": "int8", "c": "int8"}
    assert len(found.trials) <= 10


def test_a_guilty_weight_does_not_stop_those_behind_it() -> None:
    """One whose noise was measured far too small when it was alone."""
    weights = [weight(name) for name in "abcdef"]
    measured = [Sensitivity(one, "int8", i / 10) for i, one in enumerate(weights)]

    found = search(weights, moves_of(measured), additive({("b", "int8"): 100.0}, 1.0))

    assert found.best is not None
    assert [name for name, encoding in found.best.choice.items() if encoding == "fp16"] == ["b"]


def test_a_metric_that_falls_and_rises_again_is_followed_to_its_end() -> None:
    """Half way along, a trial fails by chance; the steps behind it fit."""
    weights = [weight(name) for name in "abcdef"]
    measured = [Sensitivity(one, "int8", i / 10) for i, one in enumerate(weights)]

    def evaluate(choice: Mapping[str, str]) -> Trial:
        taken = sum(encoding == "int8" for encoding in choice.values())
        return Trial(dict(choice), 100 - taken, 0.0, 0.0, taken in (0, 1, 2, 4, 5))

    found = search(weights, moves_of(measured), evaluate)

    assert found.best is not None
    assert found.best.nbytes == 95


def test_many_moves_are_bisected() -> None:
    weights = [weight(f"w{i:02}") for i in range(60)]
    measured = [Sensitivity(one, "int8", 1.0) for one in weights]

    found = search(weights, moves_of(measured), additive({(one.name, "int8"): 1.0 for one in weights}, 41.0))

    assert found.best is not None
    assert sum(encoding == "int8" for encoding in found.best.choice.values()) == 41
    assert len(found.trials) < 30


def test_an_interrupt_keeps_the_best_so_far() -> None:
    weights = [weight(name) for name in "abcd"]
    measured = [Sensitivity(one, "int8", 1.0) for one in weights]
    evaluate = additive({(one.name, "int8"): 1.0 for one in weights}, 2.0)
    seen: list[Trial] = []

    def interrupted(choice: Mapping[str, str]) -> Trial:
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(evaluate(choice))
        return seen[-1]

    found = search(weights, moves_of(measured), interrupted)

    assert found.is_interrupted
    assert found.best == min((trial for trial in seen if trial.is_within), key=lambda trial: trial.nbytes)


def test_nothing_within_the_budget_is_told_after_one_trial() -> None:
    found = search([weight("a")], moves_of([Sensitivity(weight("a"), "int8", 1.0)]), additive({}, -1.0))

    assert (found.best, len(found.trials)) == (None, 1)


def test_weights_are_ranked_by_what_they_do_to_the_outputs() -> None:
    model = prepare(onnx.load_from_string(net((0.1, 10.0, 1.0))))
    weights = weights_of(model)
    calls = [{"x": np.random.default_rng(seed).normal(0, 1, (4, 64)).astype(np.float32)} for seed in range(3)]

    measured = rank(WeightSession(model, weights), weights, calls)

    in_int4 = {one.weight.name: one.sqnr_db for one in measured if one.encoding == "int4"}
    assert sorted(in_int4, key=lambda name: in_int4[name]) == ["w1", "w2", "w0"]
    assert in_int4["w0"] - in_int4["w1"] == pytest.approx(40, abs=4)


def test_a_changed_weight_changes_back() -> None:
    model = prepare(onnx.load_from_string(net()))
    weights = weights_of(model)
    session = WeightSession(model, weights)
    calls = [{"x": np.ones((1, 64), np.float32)}]
    before = session.run(calls, {})[0]["y"]

    changed = session.run(calls, choice_after(start_of(weights), moves_of(rank(session, weights, calls))))[0]["y"]

    np.testing.assert_array_equal(session.run(calls, {})[0]["y"], before)
    assert not np.array_equal(changed, before)


def test_the_loud_layer_stays_float_and_is_named(write_model: WriteModel, tmp_path: Path) -> None:
    """A first layer so loud that even its 8 bits drown what 45 dB ask for."""
    model = net((100.0, 0.1, 0.1))
    told = Told()
    recipe = Recipe(formats=("onnx",), precisions=("fp32", "mixed"), budget=Budget(min_sqnr_db=45))

    result = convert(
        write_model(model),
        tmp_path / "m.bundle",
        evaluation=data(tmp_path / "d.npz", model),
        recipe=recipe,
        reporter=told,
    )

    assert result.kept_float == ("layer_w0",)
    assert any(line.startswith("Kept") and line.endswith("layer_w0") for line in told.steps)
    search = json.loads((tmp_path / "m.bundle/quality.json").read_text())["search"]
    stored = {layer["name"]: layer["stored"] for layer in search["layers"]}
    assert stored == {"layer_w0": "fp16", "layer_w1": "int4", "layer_w2": "int4"}
    assert search["kept_float"] == ["layer_w0"]
    assert search["layers"][0]["sqnr_db"]["int8"] < 45
    layers = {layer.name: layer for layer in result.layers["onnx/mixed"]}
    assert layers["layer_w0"][1:4] == ("fp16", None, 0.0)
    assert layers["layer_w0"].reason.startswith("int8 would exceed the budget: alone it gives")
    assert layers["layer_w1"].reason == "the fewest bits that there are for it"
    mixed = result.variants[1]
    assert (mixed.variant.id, mixed.variant.file) == ("onnx/mixed", "onnx/model_mixed.onnx")
    assert mixed.quality.parity.sqnr_db >= 45
    assert "Ranking 3 weights" in told.jobs


@pytest.mark.parametrize("format_", ["onnx", "tflite"])
def test_the_layers_of_a_searched_file_are_told_with_the_worst_first(
    write_model: WriteModel, tmp_path: Path, format_: str
) -> None:
    recipe = Recipe(formats=(format_,), precisions=("fp32", "mixed"), budget=Budget(min_sqnr_db=20))
    file, page = write_model(zoo.mlp()), tmp_path / "report.html"

    result = convert(file, tmp_path / "m.bundle", evaluation=mlp_data(tmp_path / "d.npz"), recipe=recipe, report=page)

    (layers,) = result.layers.values()
    shares = [layer.share for layer in layers]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert all(layer.sqnr_db is not None for layer in layers if layer.encoding in ("int8", "int4"))
    assert result.to_json()["layers"] == {f"{format_}/mixed": [layer.to_json() for layer in layers]}
    assert f"Layers of {format_}/mixed" in page.read_text()


@pytest.mark.long
def test_a_larger_loss_gives_a_smaller_file(write_model: WriteModel, tmp_path: Path) -> None:
    model = write_model(net((1.0, 2.0, 4.0)))
    evaluation = data(tmp_path / "d.npz", net((1.0, 2.0, 4.0)))
    sizes = []
    for limit in (50.0, 40.0, 30.0, 20.0):
        recipe = Recipe(formats=("onnx",), precisions=("fp32", "mixed"), budget=Budget(min_sqnr_db=limit))
        result = convert(model, tmp_path / "m.bundle", evaluation=evaluation, recipe=recipe, force=True)
        assert result.variants[1].quality.parity.sqnr_db >= limit
        sizes.append(result.variants[1].nbytes)

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.7 * sizes[0]


@pytest.mark.long
def test_the_same_search_gives_the_same_bytes(write_model: WriteModel, tmp_path: Path) -> None:
    model, evaluation = write_model(zoo.mlp()), mlp_data(tmp_path / "d.npz")
    recipe = Recipe(precisions=("auto",), budget=Budget(max_loss=0.01))

    one, two = (
        convert(model, tmp_path / f"{name}.bundle", evaluation=evaluation, recipe=recipe, name="m") for name in "ab"
    )

    files, others = files_of(one.path), files_of(two.path)
    assert without_times(files.pop("quality.json")) == without_times(others.pop("quality.json"))
    assert files == others
    assert "onnx/mixed" in [made.variant.id for made in one.variants if made.is_kept]


def test_matrices_in_int4_are_given_up_where_they_are_too_slow(write_model: WriteModel, tmp_path: Path) -> None:
    model, evaluation = write_model(zoo.mlp()), mlp_data(tmp_path / "d.npz")

    def stored(ratio: float | None) -> set[str]:
        recipe = Recipe(("onnx",), ("mixed",), True, Budget(min_sqnr_db=10, max_latency_ratio=ratio))
        convert(model, tmp_path / "m.bundle", evaluation=evaluation, recipe=recipe, force=True)
        quality = json.loads((tmp_path / "m.bundle/quality.json").read_text())
        return {layer["stored"] for layer in quality["search"]["layers"]}

    assert "int4" in stored(None)
    assert "int4" not in stored(1e-3)


def test_a_variant_beyond_the_loss_is_left_out(write_model: WriteModel, tmp_path: Path) -> None:
    """Ranges from inputs far too small make static int8 wrong; the search needs none."""
    evaluation = mlp_data(tmp_path / "d.npz")
    small = np.load(evaluation)["x"] / 50
    np.savez(tmp_path / "small.npz", x=small)
    told = Told()

    result = convert(
        write_model(zoo.mlp()),
        tmp_path / "m.bundle",
        calibration=tmp_path / "small.npz",
        evaluation=evaluation,
        recipe=Recipe(formats=("onnx",), precisions=("auto",), budget=Budget(max_loss=0.0)),
        reporter=told,
    )

    kept = {one.variant.id: one.is_kept for one in result.variants}
    assert kept == {"onnx/fp32": True, "onnx/fp16": True, "onnx/int8": False, "onnx/mixed": True}
    assert all(one.quality.loss <= 0 for one in result.variants if one.is_kept)


def test_a_size_takes_bits_until_the_file_fits(write_model: WriteModel, tmp_path: Path) -> None:
    model = net((1.0, 2.0, 4.0))
    limit = len(model) // 3
    recipe = Recipe(formats=("onnx",), precisions=("fp32", "mixed"), budget=Budget(max_size=limit))

    result = convert(
        write_model(model), tmp_path / "m.bundle", evaluation=data(tmp_path / "d.npz", model), recipe=recipe
    )

    mixed = next(one for one in result.variants if one.variant.id == "onnx/mixed")
    assert 0.6 * limit < mixed.nbytes <= limit


def test_a_size_that_nothing_has_keeps_and_names_the_best(write_model: WriteModel, tmp_path: Path) -> None:
    model = net()
    recipe = Recipe(
        formats=("onnx",), precisions=("auto",), budget=Budget(max_loss=0.01, min_sqnr_db=35, max_size=1000)
    )

    with pytest.raises(AccuracyError, match=r"at most 1.0 kB: the best found is onnx/mixed with \d+\.\d kB") as caught:
        convert(write_model(model), tmp_path / "m.bundle", evaluation=data(tmp_path / "d.npz", model), recipe=recipe)

    assert str(tmp_path / "m.bundle") in caught.value.message
    kept = [variant.id for variant in Bundle.open(tmp_path / "m.bundle").manifest.variants]
    assert kept == ["onnx/fp32", "onnx/mixed"]


def test_a_budget_that_only_float_keeps_says_what_was_found(write_model: WriteModel, tmp_path: Path) -> None:
    recipe = Recipe(formats=("onnx",), precisions=("fp32", "mixed"), budget=Budget(min_sqnr_db=120))

    result = convert(
        write_model(net()), tmp_path / "m.bundle", evaluation=data(tmp_path / "d.npz", net()), recipe=recipe
    )

    said = result.not_made["onnx/mixed"]
    assert said.startswith("Nothing smaller keeps the budget (SQNR >= 120 dB): the best found of 1 loses 0.00%")
    assert [one.variant.id for one in result.variants] == ["onnx/fp32"]


def test_a_loss_without_data_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--max-loss needs data to measure on") as caught:
        convert(write_model(net()), tmp_path / "m.bundle", recipe=Recipe(budget=Budget(max_loss=0.01)))

    assert caught.value.hint.startswith("--eval")
    assert not (tmp_path / "m.bundle").exists()


def test_one_sample_measures_no_loss(write_model: WriteModel, tmp_path: Path) -> None:
    evaluation = data(tmp_path / "d.npz", net(), samples=1)

    with pytest.raises(InputError, match="holds one sample"):
        convert(
            write_model(net()),
            tmp_path / "m.bundle",
            evaluation=evaluation,
            recipe=Recipe(budget=Budget(max_loss=0.01)),
        )


def test_few_samples_are_warned_of(write_model: WriteModel, tmp_path: Path) -> None:
    told = Told()
    recipe = Recipe(formats=("onnx",), precisions=("fp32", "mixed"), budget=Budget(max_loss=0.01))

    convert(
        write_model(net()),
        tmp_path / "m.bundle",
        evaluation=data(tmp_path / "d.npz", net(), samples=20),
        recipe=recipe,
        reporter=told,
    )

    assert told.warnings[0].startswith("One wrong answer of 20 is a loss of 5.00%")


def test_answers_that_lead_by_less_than_the_error_may_change() -> None:
    clear = {"y": np.array([[0.0, 1.0]], np.float32)}
    close = {"y": np.array([[0.50, 0.51]], np.float32)}

    assert clear_answers_kept([clear, close], [{"y": clear["y"] + 0.1}, {"y": np.array([[0.52, 0.51]], np.float32)}])
    assert not clear_answers_kept([clear], [{"y": np.array([[0.6, 0.59]], np.float32)}])


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("0%", 0), ("2.5 %", 0.025), (".5", 0.5)])
def test_a_share_is_read(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "%", "101%", "-1%", "1.5", "a%", "nan"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a share"):
        parse_share(text)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("5MB", 5_000_000), ("900 kB", 900_000), ("12", 12), ("1.5mb", 1_500_000)]
)
def test_a_size_is_read(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "0", "MB", "5 TBs", "-1MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not known"):
        parse_size(text)


def test_two_weights_of_one_layer_are_told_apart() -> None:
    labels = {"w": "lstm", "r": "lstm", "v": "head"}
    weights = [dataclasses.replace(weight(name), label=label) for name, label in labels.items()]
    measured = [Sensitivity(one, "int8", 0.1) for one in weights]
    found = layers_of(weights, measured, {"w": "int8", "r": "fp32", "v": "int8"})
    assert {one.name: one.encoding for one in found} == {"lstm: w": "int8", "lstm: r": "fp32", "head": "int8"}
