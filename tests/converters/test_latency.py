"""Timing against the float parent, and what follows from it; and what saturation costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as engine

from edge_infer.bundle.variant import Variant
from edge_infer.errors import InputError
from edge_infer.parity.comparison import Parity, Verdict
from edge_infer.platform.cpu import Processor
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.engine import fast_session
from edge_infer_converters.measure import saturation
from edge_infer_converters.measure.budget import DeviceLatency, parse_latency
from edge_infer_converters.measure.latency import Latency, compare
from edge_infer_converters.measure.saturation import Saturation
from edge_infer_converters.measure.speed import DeviceTimes, Speed, estimated, read_device_times
from edge_infer_converters.measure.variant_quality import Quality
from edge_infer_converters.measure.variants import ConvertedVariant
from edge_infer_converters.search.selection import choose
from tests.support import zoo
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel


def work(times: int) -> float:
    """Compute for a while: as long as `times` says."""
    return sum(float(np.sin(np.full(2000, 0.1)).sum()) for _ in range(times))


def measured(id_: str, precision: str, speed: Speed | None, targets: tuple[str, ...] = ("any",)) -> ConvertedVariant:
    quality = Quality(Parity(0.01, 40.0, 1.0, 1.0, 100), Verdict("ok", ""), None, "onnxruntime", 32, "cosine", 1.0, 0.0)
    return ConvertedVariant(Variant(id_, "onnx", precision, f"{id_}.onnx", targets=targets), 100, quality, True, speed)


SLOW = Speed("onnx/fp32", 1.57, True, "cost model")
FAST = Speed("onnx/fp32", 0.8, False, "cost model")


def test_the_ratio_is_that_of_the_work() -> None:
    latency = compare("float", lambda: work(20), lambda: work(60))

    assert 1.8 < latency.ratio < 5
    assert latency.low <= latency.ratio <= latency.high
    assert latency.ms > 0
    assert latency.is_slow


def test_equal_work_is_not_called_slow() -> None:
    assert not compare("float", lambda: work(20), lambda: work(20)).is_slow


def test_microseconds_are_nothing_to_lose() -> None:
    slow = Latency("onnx/fp32", 1.57, 1.5, 1.6, 0.2, 31)

    assert slow.is_slow
    assert not slow._replace(ms=0.1).is_slow
    assert estimated("onnx/fp32", 1e7, 2e7).is_slow
    assert not estimated("onnx/fp32", 1e5, 2e5).is_slow


@pytest.mark.parametrize(
    ("precision", "speed", "targets", "word", "is_kept"),
    [
        ("int8", SLOW, ("any",), "fail", False),
        ("int8", FAST, ("any",), "ok", True),
        ("mixed", SLOW, ("any",), "warn", True),
        ("fp16", SLOW, ("cuda", "web"), "ok", True),
        ("int8", None, ("any",), "ok", True),
    ],
)
def test_int8_that_is_slower_is_refused_and_of_smaller_files_it_is_said(
    precision: str, speed: Speed | None, targets: tuple[str, ...], word: str, is_kept: bool
) -> None:
    (one,), _ = choose([measured("onnx/one", precision, speed, targets)], "onnx/fp32", Recipe())

    assert (one.quality.verdict.word, one.is_kept) == (word, is_kept)
    assert ("1.57x of onnx/fp32 (cost model)" in one.quality.verdict.reason) == (word != "ok")


def test_keep_all_keeps_what_is_slow() -> None:
    (one,), _ = choose([measured("onnx/int8", "int8", SLOW)], "onnx/fp32", Recipe(keep_all=True))

    assert one.is_kept


def test_a_limit_on_time_is_for_every_variant_but_the_source() -> None:
    recipe = Recipe(budget=Budget(max_latency_ratio=0.75))
    everything = [measured("onnx/fp32", "fp32", None), measured("onnx/fp16", "fp16", FAST, ("web",))]

    source, half = choose(everything, "onnx/fp32", recipe)[0]

    assert source.is_kept
    assert not half.is_kept
    assert "at most 0.75x is asked for" in half.quality.verdict.reason


DEVICE = [
    {"variant": id_, "backend": "onnxruntime", "device": "cpu", "p50_ms": ms, "spread": 0.1, "rss_bytes": nbytes}
    for id_, ms, nbytes in (("onnx/fp32", 40.0, 90_000_000), ("onnx/int8", 20.0, 60_000_000))
]


def device_times(folder: Path) -> DeviceTimes:
    (folder / "pi.json").write_text(json.dumps({"rows": DEVICE}))
    return read_device_times(folder / "pi.json")


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(max_latency=DeviceLatency(30, "pi")), "it takes 40 ms by pi.json, at most 30 are asked for"),
        (Budget(max_ram=70_000_000), "it takes 90 MB by pi.json, at most 70 are asked for"),
    ],
)
def test_what_a_device_measured_decides_where_a_limit_is_asked_for(tmp_path: Path, budget: Budget, reason: str) -> None:
    everything = [measured("onnx/fp32", "fp32", None, ("any",)), measured("onnx/int8", "int8", None, ("pi",))]
    everything += [measured("onnx/fp16", "fp16", None, ("pi",))]

    (plain, int8, half), missed = choose(everything, "tflite/fp32", Recipe(budget=budget), device_times(tmp_path))

    assert (plain.is_kept, plain.quality.verdict.reason) == (False, reason)
    assert (int8.is_kept, int8.quality.verdict.word) == (True, "ok")
    assert (half.is_kept, half.quality.verdict.word) == (True, "warn")
    assert not missed


def test_a_limit_that_nothing_on_the_device_keeps_is_told_with_the_nearest(tmp_path: Path) -> None:
    everything = [measured("onnx/fp32", "fp32", None), measured("onnx/int8", "int8", None)]
    recipe = Recipe(budget=Budget(max_latency=DeviceLatency(5)))

    assert choose(everything, "onnx/fp32", recipe, device_times(tmp_path))[1] == (
        "Nothing takes at most 5 ms: the best is onnx/int8 with 20 ms"
    )


def test_limits_that_no_variant_keeps_together_are_told(tmp_path: Path) -> None:
    everything = [measured("onnx/fp32", "fp32", None), measured("onnx/fp16", "fp16", None)]
    fast = [{**DEVICE[0], "rss_bytes": 20_000_000}, {**DEVICE[0], "variant": "onnx/fp16", "p50_ms": 10.0}]
    (tmp_path / "pi.json").write_text(json.dumps({"rows": fast}))
    recipe = Recipe(budget=Budget(max_latency=DeviceLatency(20), max_ram=30_000_000))

    missed = choose(everything, "onnx/fp32", recipe, read_device_times(tmp_path / "pi.json"))[1]

    assert missed == "Nothing that is good enough takes at most 20 ms and 30 MB"


def test_a_limit_of_the_device_needs_its_measurements() -> None:
    with pytest.raises(InputError, match="--max-latency needs measurements") as caught:
        Budget(max_latency=DeviceLatency(30)).check(has_evaluation=True, has_measured=False)

    assert "bench model.bundle --host" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["30", "pi=", "phone=30ms", "-1ms", "0ms", "pi=30 miles"])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="Latency"):
        parse_latency(text, ["pi", "web"])


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ratio_that_nothing_can_have_is_refused(ratio: float) -> None:
    with pytest.raises(InputError, match="Latency ratio"):
        Budget(max_latency_ratio=ratio)


def test_figures_of_time_and_of_both_kernels_are_in_the_quality(write_model: WriteModel, tmp_path: Path) -> None:
    convert(write_model(zoo.mlp()), tmp_path / "m.bundle", recipe=Recipe(("onnx",), keep_all=True))

    quality = json.loads((tmp_path / "m.bundle/quality.json").read_text())["variants"]

    assert quality["onnx/fp32"]["latency"] is None
    assert quality["onnx/int8"]["latency"].keys() == {"parent", "ratio", "low", "high", "ms", "rounds", "threads"}
    assert quality["onnx/int8"]["latency"]["parent"] == "onnx/fp32"
    assert quality["onnx/int8"]["saturation"]["precise_sqnr_db"] > 30
    assert quality["onnx/fp16"]["saturation"] is None


@pytest.mark.parametrize(
    ("features", "can_be_seen"), [(("avx2",), True), (("avx2", "avx_vnni"), False), (("asimd",), False)]
)
def test_saturation_can_only_be_seen_on_x86_without_vnni(
    features: tuple[str, ...], can_be_seen: bool, write_model: WriteModel
) -> None:
    file = write_model(zoo.mlp())
    calls = [{"x": np.ones((1, 64), np.float32)}]
    session = fast_session(str(file))
    references = [dict(zip(["logits"], session.run(["logits"], calls[0]), strict=True))]

    found = saturation.measure(file, calls, references, Processor("", features, 1))

    assert found.can_be_seen is can_be_seen
    assert found.to_json()["precise_sqnr_db"] is None, "float is exact in both"


def test_a_conversion_goes_on_where_the_engine_cannot_tell_the_saturation(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime fails on the int8 of piper's nakdimon.onnx when it is loaded a second time."""

    def fails(model: str, *, precise: bool) -> None:
        raise engine.Fail(f"[ONNXRuntimeError] : 1 : FAIL : no kernel for {Path(model).name}, {precise}")

    monkeypatch.setattr(saturation, "fast_session", fails)
    told = Told()

    convert(write_model(zoo.mlp()), tmp_path / "m.bundle", recipe=Recipe(("onnx",), keep_all=True), reporter=told)

    quality = json.loads((tmp_path / "m.bundle/quality.json").read_text())["variants"]
    assert quality["onnx/int8"]["saturation"] is None
    assert any("not measured: ONNX Runtime does not run it: no kernel for" in one for one in told.warnings)


def test_a_fault_of_our_own_is_not_taken_for_one_of_the_engine(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> float:
        raise ValueError("ours")

    monkeypatch.setattr(saturation, "noise", fails)

    with pytest.raises(ValueError, match="ours"):
        convert(write_model(zoo.mlp()), tmp_path / "m.bundle", recipe=Recipe(("onnx",), keep_all=True))


def test_the_gap_is_what_precise_mode_keeps() -> None:
    found = Saturation(38.5, 20.5, True)

    assert found.gap_db == pytest.approx(18)


def test_values_of_16_bits_are_slow_on_cpus_and_stay() -> None:
    slow = Speed("tflite/fp32", 16.0, True, "cost model")

    (one,), _ = choose([measured("tflite/int8x16", "int8", slow, ("pi",))], "onnx/fp32", Recipe())

    assert one.is_kept
    assert one.quality.verdict.word == "warn"
