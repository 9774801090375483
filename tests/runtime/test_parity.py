"""The measures of agreement, and the verdicts."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from edge_infer import Tensor
from edge_infer.parity.comparison import Parity, compare, compare_outputs, judge, judge_outputs
from edge_infer.parity.quantization_steps import steps_apart


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
