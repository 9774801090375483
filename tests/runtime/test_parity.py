"""The measures of agreement, and the verdicts."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from edge_infer import InputError, Tensor
from edge_infer.bundle.variant import Variant
from edge_infer.parity.comparison import Parity, compare, compare_outputs, judge
from edge_infer.parity.quantization_steps import steps_apart
from edge_infer.parity.verdict import Limits, changed_since, judge_outputs, judge_variant, to_manifest


def outputs(*rows: Any, dtype: str = "float32") -> list[dict[str, Tensor]]:
    return [{"y": Tensor.from_list(row, dtype)} for row in rows]


def test_equal_outputs_are_exact() -> None:
    parity = compare(outputs([[1.0, 2.0]]), outputs([[1.0, 2.0]]))

    assert parity == Parity(0.0, math.inf, 1.0, 1.0, 2)
    assert judge(parity, "fp32").word == "ok"


def test_the_measures_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    want = rng.normal(size=(4, 10)).astype(np.float32)
    got = want + rng.normal(scale=1e-3, size=want.shape).astype(np.float32)
    error = want.astype(float) - got.astype(float)

    parity = compare([{"y": want[:2]}, {"y": want[2:]}], [{"y": got[:2]}, {"y": got[2:]}])

    assert parity.max_err == pytest.approx(abs(error).max() / np.sqrt((want.astype(float) ** 2).mean()))
    assert parity.sqnr_db == pytest.approx(10 * np.log10((want.astype(float) ** 2).sum() / (error**2).sum()))
    assert parity.values == 40


def test_top_1_counts_only_rows_whose_lead_exceeds_the_error() -> None:
    clear, close = [[9.0, 0.0]], [[1.0, 1.05]]

    assert compare(outputs(clear, close), outputs([[8.8, 0.0]], [[1.1, 1.0]])).top1 == 1.0
    assert compare(outputs(clear, close), outputs([[4.0, 4.1]], [[1.0, 1.05]])).top1 == 0.0


@pytest.mark.parametrize(
    ("want", "got"),
    [([1.0, math.nan], [1.0, math.nan]), ([math.inf, -math.inf], [math.inf, -math.inf]), ([0.0, 0.0], [0.0, 0.0])],
    ids=["nan", "inf", "zeros"],
)
def test_equal_oddities_agree(want: list[float], got: list[float]) -> None:
    assert judge(compare(outputs(want), outputs(got)), "fp32").word == "ok"


@pytest.mark.parametrize(
    ("want", "got"),
    [
        ([1.0, 2.0], [1.0, math.nan]),
        ([1.0, math.inf], [1.0, -math.inf]),
        ([0.0, 0.0], [0.0, 0.1]),
        ([0.0, 2.0], [0.0, -2.0]),
        ([1.0], [1.0, 2.0]),
    ],
    ids=["nan", "inf", "zeros", "sign", "shape"],
)
def test_unequal_oddities_disagree(want: list[float], got: list[float]) -> None:
    for precision in ("fp32", "fp16", "int8"):
        assert judge(compare(outputs(want), outputs(got)), precision).word == "fail"


def test_a_missing_output_disagrees() -> None:
    assert judge(compare(outputs([1.0]), [{}]), "int8").word == "fail"


def test_nothing_compared_is_no_agreement() -> None:
    nothing: list[list[dict[str, Tensor]]] = [[], [{}], outputs([])]
    for references in nothing:
        assert judge(compare(references, references), "int8").word == "fail"


@pytest.mark.parametrize("shape", [(1, 0, 80), (1, 4, 80)], ids=["empty", "zeros"])
def test_an_output_that_shows_nothing_is_a_warning_though_others_agree(shape: tuple[int, ...]) -> None:
    runs = [{"features": np.zeros(shape, np.float32), "lengths": np.array([4])}]

    verdict = judge_outputs(compare_outputs(runs, runs), "fp16")

    assert verdict.word == "warn"
    assert verdict.reason.startswith("`features`: ")


def test_another_dtype_or_other_names_disagree() -> None:
    assert judge(compare(outputs([1.0]), outputs([1], dtype="int64")), "int8").word == "fail"
    assert judge(compare([{"y": Tensor.from_list([1.0], "float32")}, {}], outputs([1.0], [1.0])), "fp32").word == "fail"


def test_an_integer_model_with_another_argmax_fails() -> None:
    want, got = outputs([1, 2, 3, 4], dtype="int64"), outputs([4, 3, 2, 1], dtype="int64")

    for precision in ("fp32", "fp16", "int8", "mixed"):
        assert judge(compare(want, got), precision).word == "fail"
    nearly = outputs(list(range(40)), dtype="int64"), outputs([*range(39), 0], dtype="int64")
    assert judge(compare(*nearly), "int8").word == "warn"


def test_huge_values_do_not_overflow() -> None:
    parity = compare(outputs([1e200, -1e200], dtype="float64"), outputs([1e200, -0.9e200], dtype="float64"))

    assert parity.sqnr_db == pytest.approx(10 * math.log10(2 / 0.01))


def test_integer_outputs_must_be_equal_in_fp32() -> None:
    parity = compare(outputs([1, 2, 3, 4], dtype="int64"), outputs([1, 2, 3, 5], dtype="int64"))

    assert parity.equal == 0.75
    assert judge(parity, "fp32").word == "fail"


@pytest.mark.parametrize(
    ("precision", "max_err", "sqnr_db", "word"),
    [
        ("fp32", 9e-5, 101, "ok"),
        ("fp32", 2e-4, 101, "fail"),
        ("fp32", 9e-5, 99, "fail"),
        ("fp16", 1e-2, 51, "ok"),
        ("fp16", 1e-2, 49, "fail"),
        ("int8", 0.2, 31, "ok"),
        ("int8", 0.2, 29, "warn"),
        ("int8", 0.2, 19, "fail"),
        ("mixed", 0.2, 29, "warn"),
    ],
)
def test_each_precision_has_its_thresholds(precision: str, max_err: float, sqnr_db: float, word: str) -> None:
    verdict = judge(Parity(max_err, sqnr_db, 1.0, 1.0, 10), precision)

    assert verdict.word == word
    assert (verdict.reason == "") == (word == "ok")


def test_another_clear_answer_fails_every_precision() -> None:
    for precision in ("fp32", "fp16", "int8"):
        assert judge(Parity(0.0, 200.0, 0.9, 1.0, 10), precision).word == "fail"


def test_engines_are_apart_by_steps_of_the_output() -> None:
    grid = [[step * 0.1 for step in (0, 1, 2, 5, 255)]]
    moved = [[step * 0.1 for step in (0, 1, 3, 5, 255)]]
    far = [[step * 0.1 for step in (0, 1, 7, 5, 255)]]

    assert steps_apart(outputs(grid), outputs(grid)) == 0
    assert steps_apart(outputs(grid), outputs(moved)) == pytest.approx(1, rel=1e-3)
    assert steps_apart(outputs(grid), outputs(far)) == pytest.approx(5, rel=1e-3)
    assert steps_apart(outputs(grid), outputs([[math.nan] * 5])) == math.inf


@pytest.mark.parametrize("odd", [-math.inf, math.inf, math.nan])
def test_equal_oddities_are_no_steps_apart_and_what_is_finite_is_still_measured(odd: float) -> None:
    grid = [[odd, *(step * 0.1 for step in (0, 1, 2, 5, 255))]]
    moved = [[odd, *(step * 0.1 for step in (0, 1, 3, 5, 255))]]

    assert steps_apart(outputs(grid), outputs(grid)) == 0
    assert steps_apart(outputs(grid), outputs(moved)) == pytest.approx(1, rel=1e-3)
    assert steps_apart(outputs([[odd]]), outputs([[odd]])) == 0


@pytest.mark.parametrize("got", [[0.0, 1.0], [math.inf, 1.0], [math.nan, 1.0], [-math.inf, math.inf], [-math.inf]])
def test_what_is_finite_on_one_side_only_is_infinitely_far(got: list[float]) -> None:
    assert steps_apart(outputs([-math.inf, 1.0]), outputs(got)) == math.inf


def test_an_odd_output_does_not_hide_those_behind_it() -> None:
    masked = Tensor.from_list([-math.inf], "float32")
    want, got = ({"masked": masked, **outputs(row)[0]} for row in ([0.0, 1.0], [9.0, 1.0]))

    assert steps_apart([want], [got]) == 9


def test_texts_in_numpy_and_in_a_tensor_are_compared() -> None:
    numpy = pytest.importorskip("numpy")
    wanted = outputs(["cat", "dog"], dtype="string")
    texts = [{name: numpy.array(["cat", "cow"], object) for name in run} for run in wanted]

    assert compare(wanted, texts).equal == 0.5
    assert compare(texts, texts).equal == 1
    assert steps_apart(texts, wanted) == 0


def test_strings_have_no_steps() -> None:
    assert steps_apart(outputs(["cat", "dog"], dtype="string"), outputs(["cat", "dog"], dtype="string")) == 0


def detections(seed: int = 0) -> np.ndarray[Any, Any]:
    """What a detector gives for 500 places: four numbers of a box up to 640, and six scores up to 1."""
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((1, 6, 500)) < 0.05, rng.uniform(0.3, 0.95, (1, 6, 500)), 0.001)
    found: np.ndarray[Any, Any] = np.concatenate([rng.uniform(0, 640, (1, 4, 500)), scores], axis=1).astype(np.float32)
    return found


def rounded(array: np.ndarray[Any, Any], step: float) -> np.ndarray[Any, Any]:
    result: np.ndarray[Any, Any] = (np.rint(array / np.float32(step)) * np.float32(step)).astype(np.float32)
    return result


def verdict_of(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any], precision: str = "int8") -> str:
    return judge_outputs(compare_outputs([{"y": want}], [{"y": got}]), precision).word


@pytest.mark.parametrize("axis", [1, 2])
def test_a_detector_whose_scores_are_gone_fails_though_its_boxes_drown_them(axis: int) -> None:
    want = detections() if axis == 1 else detections().transpose(0, 2, 1)
    blind = rounded(want, 640 / 255)  # one step for all of it, as int8 has: no score is left

    parity = compare([{"y": want}], [{"y": blind}])
    verdict = judge(parity, "int8")

    assert parity.sqnr_db > 40
    assert verdict.word == "fail"
    assert verdict.reason.startswith("nothing is left of `y[:, ")


def test_a_detector_whose_parts_each_have_a_step_passes() -> None:
    want = detections()
    good = np.concatenate([rounded(want[:, :4], 640 / 255), rounded(want[:, 4:], 1 / 255)], axis=1)

    assert verdict_of(want, good) == "ok"


def test_a_class_whose_score_is_zeroed_and_outputs_that_are_swapped_fail() -> None:
    want = detections()
    zeroed = want.copy()
    zeroed[:, 7] = 0
    first, second = {"a": detections(1), "b": detections(2)}, {"a": detections(2), "b": detections(1)}

    for precision in ("fp32", "fp16", "int8"):
        assert verdict_of(want, zeroed, precision) == "fail"
        assert judge_outputs(compare_outputs([first], [second]), precision).word == "fail"


def test_probabilities_near_zero_are_compared_absolutely() -> None:
    want = np.random.default_rng(0).uniform(0, 1e-6, (1, 400, 1)).astype(np.float32)

    assert verdict_of(want, want * np.float32(1.05), "fp32") == "ok"
    assert verdict_of(want, want + np.float32(0.2), "fp32") == "fail"


def test_only_rows_of_classes_are_rankings() -> None:
    rng = np.random.default_rng(0)
    boxes = rng.uniform(0, 1, (1, 50, 4)).astype(np.float32)

    assert compare([{"y": boxes}], [{"y": rng.uniform(0, 1, boxes.shape).astype(np.float32)}]).top1 == 1.0


def test_outputs_of_eight_bits_are_judged_in_their_steps() -> None:
    want = np.arange(-100, 100, dtype=np.int8)[None]

    assert verdict_of(want, want + np.int8(1)) == "ok"
    assert verdict_of(want, want + np.int8(9)) == "warn"
    assert verdict_of(want, want + np.int8(27)) == "fail"
    assert verdict_of(want, want + np.int8(1), "fp32") == "fail"


def test_lists_and_arrays_have_the_same_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    want = rng.normal(size=(5, 7)).astype(np.float32)
    got = want + rng.normal(scale=0.1, size=want.shape).astype(np.float32)
    runs = [{"y": Tensor.from_list(one.tolist(), "float32")} for one in (want, got)]

    by_numpy = compare([runs[0]], [runs[1]])
    monkeypatch.delitem(sys.modules, "numpy")

    for one, other in zip(compare([runs[0]], [runs[1]]), by_numpy, strict=True):
        assert one == other or one == pytest.approx(other, rel=1e-9)


def test_places_are_no_slices() -> None:
    """One score of each of 900 anchors: that one of them is off says nothing about the others."""
    want = np.random.default_rng(0).normal(-5, 3, (1, 900, 1)).astype(np.float32)
    want[0, 7] = 0.1
    got = want.copy()
    got[0, 7] = -0.2

    assert verdict_of(want, got) == "ok"


def test_a_slice_of_zeros_beside_a_lost_one_has_no_ratio() -> None:
    """Whatever stands where the source has nothing: no division overflows, and the lost slice is named."""
    rng = np.random.default_rng(0)
    want = rng.normal(size=(1, 3, 50)).astype(np.float32) * np.array([[[1000.0], [1.0], [0.0]]], np.float32)
    got = want.copy()
    got[0, 1] *= -1
    got[0, 2] = 1e30

    found = compare_outputs([{"y": want}], [{"y": got}])["y"]

    assert found.lost_slices == 1
    assert found.lost == "y[:, 1]"


def noisy(want: np.ndarray[Any, Any], sqnr_db: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """Add noise of this energy."""
    noise = np.random.default_rng(seed).normal(size=want.shape)
    noise *= np.linalg.norm(want) / np.linalg.norm(noise) * 10 ** (-sqnr_db / 20)
    result: np.ndarray[Any, Any] = (want + noise).astype(np.float32)
    return result


def variant_of(precision: str, **figures: float) -> Variant:
    return Variant(f"onnx/{precision}", "onnx", precision, "onnx/model.onnx", parity={"y": figures})


VALUES = np.random.default_rng(1).normal(size=(4, 25, 10)).astype(np.float32)


@pytest.mark.parametrize(
    ("precision", "known", "sqnr_db", "word"),
    [
        ("int8", {"sqnr_db": 15.0}, 14.0, "warn"),  # converted to less than the limits
        ("int8", {"sqnr_db": 15.0}, 8.0, "fail"),
        ("int8", {"sqnr_db": 33.0}, 28.0, "warn"),  # the limits alone
        ("int8", {"sqnr_db": 33.0}, 25.0, "fail"),  # another engine may have twice the error, not more
        ("int8", {"sqnr_db": 60.0}, 32.0, "ok"),  # two engines may be a step apart
        ("int8", {}, 29.0, "fail"),  # it was equal
        ("fp32", {"sqnr_db": 60.0, "max_err": 5e-3}, 58.0, "warn"),  # the source's own error
        ("fp32", {"sqnr_db": 60.0, "max_err": 5e-3}, 50.0, "fail"),
        ("fp32", {"sqnr_db": 60.0, "max_err": 5e-3}, 130.0, "ok"),
        ("fp16", {"sqnr_db": 40.0}, 38.0, "warn"),
        ("fp16", {"sqnr_db": 40.0}, 30.0, "fail"),
        ("fp16", {"sqnr_db": 90.0}, 55.0, "ok"),  # a floor holds nothing to it
    ],
)
def test_a_variant_is_judged_by_what_its_manifest_knows(
    precision: str, known: dict[str, float], sqnr_db: float, word: str
) -> None:
    outputs = compare_outputs([{"y": VALUES}], [{"y": noisy(VALUES, sqnr_db)}])

    assert judge_variant(outputs, variant_of(precision, **known)).word == word


def test_what_a_manifest_keeps_of_an_output_is_read_again() -> None:
    found = compare_outputs([{"y": detections()}], [{"y": rounded(detections(), 640 / 255)}])
    known = to_manifest(found)

    assert set(known["y"]) == {"sqnr_db", "max_err", "lost_slices"}
    assert judge_outputs(found, "int8").word == "fail"
    assert judge_variant(found, Variant("onnx/int8", "onnx", "int8", "", parity=known)).word == "warn"


def test_one_more_lost_slice_fails_where_some_were_lost_at_the_conversion() -> None:
    want = detections()
    blind = want.copy()
    blind[:, 6] = 0
    known = to_manifest(compare_outputs([{"y": want}], [{"y": blind}]))
    worse = blind.copy()
    worse[:, 7] = 0

    for got, word in ((blind, "warn"), (worse, "fail")):
        outputs = compare_outputs([{"y": want}], [{"y": got}])
        assert judge_variant(outputs, Variant("onnx/int8", "onnx", "int8", "", parity=known)).word == word


def test_a_value_that_is_not_finite_fails_whatever_is_known() -> None:
    got = VALUES.copy()
    got[0, 0, 0] = np.nan
    outputs = compare_outputs([{"y": VALUES}], [{"y": got}])

    assert judge_variant(outputs, variant_of("int8", sqnr_db=-40.0)).word == "fail"
    assert (
        Limits(min_sqnr_db=-99).judge(outputs, [{"y": VALUES}], [{"y": got}], judge(outputs["y"], "int8")).word
        == "fail"
    )


def test_on_the_engine_that_measured_it_a_small_change_of_an_integer_variant_is_told() -> None:
    outputs = compare_outputs([{"y": VALUES}], [{"y": noisy(VALUES, 39.3)}])

    assert "39.8 dB when it was converted" in changed_since(outputs, variant_of("int8", sqnr_db=39.8))
    assert changed_since(outputs, variant_of("int8", sqnr_db=39.4)) == ""
    assert changed_since(outputs, variant_of("fp16", sqnr_db=50.0)) == ""


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Limits(atol=1.0), "warn"),
        (Limits(atol=1e-3), "fail"),
        (Limits(rtol=100.0), "fail"),  # a value near 0
        (Limits(atol=0.6, rtol=0.5), "warn"),
        (Limits(min_sqnr_db=14), "warn"),
        (Limits(min_sqnr_db=16), "fail"),
        (Limits(min_cosine=0.98), "warn"),
        (Limits(min_cosine=0.99), "fail"),
        (Limits(min_top1=0.5), "warn"),
    ],
)
def test_the_limits_of_the_user_outrank_the_usual_ones(limits: Limits, word: str) -> None:
    want = VALUES.copy()
    want[0, 0, 0] = 0
    got = noisy(want, 15)
    outputs = compare_outputs([{"y": want}], [{"y": got}])

    usual = judge_outputs(outputs, "int8")
    verdict = limits.judge(outputs, [{"y": want}], [{"y": got}], usual)

    assert usual.word == "fail"
    assert verdict.word == word


def test_a_share_of_rankings_is_a_limit() -> None:
    want = np.eye(4, dtype=np.float32)
    got = want[[1, 0, 2, 3]] * np.float32(0.9)
    outputs = {"y": Parity(0.1, 10.0, 0.5, 1.0, 16)}

    for least, word in ((0.4, "ok"), (0.6, "fail")):
        usual = judge(outputs["y"]._replace(top1=1.0, sqnr_db=40.0), "int8")
        assert Limits(min_top1=least).judge(outputs, [{"y": want}], [{"y": got}], usual).word == word


@pytest.mark.parametrize(
    "limits",
    [Limits(atol=-1), Limits(rtol=math.inf), Limits(min_cosine=1.5), Limits(min_top1=0), Limits(min_sqnr_db=math.nan)],
)
def test_limits_that_mean_nothing_are_refused(limits: Limits) -> None:
    with pytest.raises(InputError, match="expected"):
        limits.check()


def test_a_tolerance_counts_arrays_as_it_counts_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    want, got = {"y": VALUES}, {"y": noisy(VALUES, 15)}
    outputs = compare_outputs([want], [got])
    usual = judge_outputs(outputs, "int8")

    fast = Limits(atol=0.1).judge(outputs, [want], [got], usual)
    monkeypatch.delitem(sys.modules, "numpy")
    slow = Limits(atol=0.1).judge(outputs, [want], [got], usual)

    assert fast == slow
    assert "of 1000 values are off by more than" in fast.reason


def test_probabilities_that_are_noise_are_a_warning_however_small() -> None:
    source = [{"map": np.full((1, 1, 8, 8), 1e-6, np.float32)}]
    blind = [{"map": np.tile(np.array([0, 3e-6], np.float32), 32).reshape(1, 1, 8, 8)}]

    verdict = judge_outputs(compare_outputs(source, blind), "int8")

    assert verdict.word == "warn"
    assert "near 0" in verdict.reason
