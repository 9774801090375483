"""The cost model and the device's times decide whether a variant is too slow, and never this machine's clock."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from edge_infer.errors import InputError
from edge_infer_converters import convert, run_inputs
from edge_infer_converters.measure import latency
from edge_infer_converters.measure.cost_model import cost_of, multiplies_of
from edge_infer_converters.measure.latency import Latency
from edge_infer_converters.measure.speed import read_device_times
from tests.support import zoo
from tests.support.converters.conversions import files_of, mlp_data, without_times
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edge_infer.bundle.variant import Variant
    from tests.support.model_files import WriteModel


def convolution(channels: int, *more: str) -> bytes:
    """One convolution of 3 x 3 over 16 x 16 places, and operators of one value behind it."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y0"], pads=[1, 1, 1, 1])]
    nodes += [helper.make_node(kind, [f"y{i}"], [f"y{i + 1}"]) for i, kind in enumerate(more)]
    shape = [1, channels, 16, 16]
    weights = {"w": rng.normal(size=(channels, channels, 3, 3)).astype(np.float32)}
    return zoo.model(nodes, [zoo.value("x", shape)], [zoo.value(f"y{len(more)}", shape)], weights)


def test_the_cost_is_that_of_the_multiplications_and_of_what_is_moved() -> None:
    small, large = (cost_of(convolution(channels), "onnx", {"x": (1, channels, 16, 16)}) for channels in (8, 32))
    longer = cost_of(convolution(32, "Exp"), "onnx", {"x": (1, 32, 16, 16)})

    assert small is not None and large is not None and longer is not None
    assert large == pytest.approx(256 * 32 * 32 * 9 + 2 * 256 * 32 + 2000, rel=0.01)
    assert 10 < large / small < 16
    assert longer - large == pytest.approx(2 * 256 * 32 + 1000)


def test_a_free_batch_costs_what_the_call_has() -> None:
    costs = [cost_of(zoo.mlp(), "onnx", {"x": (batch, 64)}) or 0.0 for batch in (1, 10, 19)]

    assert costs[1] - costs[0] > 9 * 64
    assert costs[2] - costs[1] == pytest.approx(costs[1] - costs[0])


def test_integers_are_cheaper_where_the_engine_computes_in_them(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(convolution(32, "Relu"))

    made = convert(tmp_path / "net.onnx", tmp_path / "net.bundle", precision="fp32,int8", keep_all=True)

    ratios = {one.variant.id: one.speed.ratio for one in made.variants if one.speed is not None}
    assert set(ratios) == {"onnx/int8", "tflite/int8"}
    assert all(0.3 < ratio < 0.7 for ratio in ratios.values())


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
@pytest.mark.parametrize(("budget", "count"), [(5.5, 5), (1.0, run_inputs.LEAST_MADE_UP_CALLS), (1e9, 32)])
def test_a_model_of_many_multiplications_is_measured_on_fewer_made_up_inputs(
    suffix: str, budget: float, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNSMOS takes 19 thousand millions a run; 32 runs of it on plain kernels took minutes."""
    source = tmp_path / "net.onnx"
    source.write_bytes(convolution(32, "Relu"))
    if suffix == "tflite":
        made = convert(source, tmp_path / "as.bundle", precision="fp32", format="tflite")
        source = made.path / made.variants[-1].variant.file
    shape = (1, 16, 16, 32) if suffix == "tflite" else (1, 32, 16, 16)
    once = multiplies_of(source.read_bytes(), suffix, {"x": shape})
    monkeypatch.setattr(run_inputs, "MAX_MULTIPLIES", int(budget * once))

    made = convert(source, tmp_path / "net.bundle", precision="fp32,int8")

    assert once >= 256 * 32 * 32 * 9
    assert made.data == f"{count} random samples"


@pytest.mark.parametrize(
    ("budget", "given", "ranges", "measured"),
    [
        (40, (), 40, 40),
        (1, (), run_inputs.LEAST_CALIBRATION_CALLS, run_inputs.LEAST_CALIBRATION_CALLS),
        (64, (), 64, 64),
        (40, ("labels",), 40, 64),
    ],
)
def test_a_model_of_many_multiplications_takes_some_of_the_samples_given(
    budget: int,
    given: tuple[str, ...],
    ranges: int,
    measured: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "net.onnx").write_bytes(convolution(32, "Relu"))
    samples = np.random.default_rng(0).normal(size=(64, 1, 32, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "data.npz", allow_pickle=False, x=samples, **dict.fromkeys(given, np.zeros(64, np.int64)))
    once = multiplies_of(convolution(32, "Relu"), "onnx", {"x": (1, 32, 16, 16)})
    monkeypatch.setattr(run_inputs, "MAX_MULTIPLIES", budget * once)
    told = Told()

    made = convert(
        *(tmp_path / "net.onnx", tmp_path / "net.bundle"),
        precision="fp32,int8",
        calibration=tmp_path / "data.npz",
        reporter=told,
    )

    quality = json.loads((made.path / "quality.json").read_text())
    assert quality["calibration"]["calls"] == ranges
    assert made.data == f"{measured} samples of data.npz"
    said = [line for line in told.steps if line.startswith("Took")]
    assert len(said) == (ranges < 64)
    assert all(f"{ranges} of 64, evenly spread" in line for line in said)


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_the_same_input_gives_the_same_bundle_whatever_the_machine_does(
    suffix: str, write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once on a quiet machine that calls int8 fast, once on a busy one that calls it slow."""
    data = mlp_data(tmp_path / "data.npz")
    source = write_model(zoo.mlp(), "mlp.onnx")
    if suffix == "tflite":
        made = convert(source, tmp_path / "mlp.bundle", calibration=data, precision="fp32", format="tflite")
        source = made.path / made.variants[-1].variant.file

    def bundle(name: str, ratio: float) -> Path:
        found = Latency("fp32", ratio, ratio, ratio, 5.0, 31)

        def measured(folder: Path, variants: Sequence[Variant], call: Mapping[str, object]) -> dict[str, Latency]:
            return {variant.id: found for variant in variants if variant.precision != "fp32"}

        monkeypatch.setattr(latency, "measure", measured)
        return convert(source, tmp_path / name, name="m", calibration=data, evaluation=data).path

    quiet = bundle("quiet.bundle", 0.5)
    stop = threading.Event()
    busy = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(stop.is_set, True)])
    busy.start()
    try:
        loaded = bundle("loaded.bundle", 5.0)
    finally:
        stop.set()
        busy.join()

    files, others = files_of(quiet), files_of(loaded)
    assert without_times(files.pop("quality.json")) == without_times(others.pop("quality.json"))
    assert files == others
    assert any("int8" in name for name in files)


def times_file(folder: Path, ratio: float) -> Path:
    """What `tune --json` prints on a device: int8 takes `ratio` times as long as fp32."""
    way = {"backend": "onnxruntime", "version": "1", "device": "cpu", "threads": 1, "spread": 0.01}
    rows = [{**way, "variant": "onnx/fp32", "ms": 2.0}, {**way, "variant": "onnx/int8", "ms": 2.0 * ratio}]
    path = folder / "measured.json"
    path.write_text(json.dumps({"model": "m@0", "rows": rows, "failed": []}))
    return path


@pytest.mark.parametrize(("ratio", "is_kept"), [(0.7, True), (1.05, True), (1.4, False)])
def test_times_of_the_device_decide(ratio: float, is_kept: bool, write_model: WriteModel, tmp_path: Path) -> None:
    data, times = mlp_data(tmp_path / "data.npz"), times_file(tmp_path, ratio)

    made = convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", calibration=data, format="onnx", measured=times,
        precision="fp32,int8",
    )  # fmt: skip

    quality = json.loads((made.path / "quality.json").read_text())
    (int8,) = [one for one in made.variants if one.variant.id == "onnx/int8"]
    assert int8.is_kept == is_kept
    assert quality["variants"]["onnx/int8"]["speed"]["origin"] == "onnxruntime on cpu, measured.json"
    assert quality["measured"]["sha256"] == read_device_times(times).digest


def test_a_limit_on_latency_is_held_to_times_of_the_device(write_model: WriteModel, tmp_path: Path) -> None:
    made = convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", format="onnx", precision="fp32,int8", max_latency_ratio=0.5,
        calibration=mlp_data(tmp_path / "data.npz"), measured=times_file(tmp_path, 0.7),
    )  # fmt: skip

    (int8,) = [one for one in made.variants if one.variant.id == "onnx/int8"]
    assert not int8.is_kept
    assert "it takes 0.70x of onnx/fp32" in int8.quality.verdict.reason


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b'{"rows": []}', b'{"rows": [{}]}', b"[" * 100_000, b"\xff\xfe", b" " * (2**20 + 1),
        b'{"rows": [{"variant": "a", "backend": "b", "device": "cpu", "ms": 0, "spread": 0}]}',
        b'{"rows": [{"variant": "a", "backend": "b", "device": "cpu", "ms": "1", "spread": 0}]}',
        b'{"rows": [{"variant": "a", "backend": "b", "device": "cpu", "ms": 1e999, "spread": 0}]}',
    ],
    ids=["empty", "list", "object", "no rows", "no fields", "deep", "bytes", "large", "zero", "text", "infinite"],
)  # fmt: skip
def test_a_file_that_tune_did_not_write_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_bytes(content)

    with pytest.raises(InputError) as caught:
        read_device_times(tmp_path / "measured.json")

    assert "tune" in (caught.value.hint or "")
    with pytest.raises(InputError, match="cannot be read"):
        read_device_times(tmp_path / "none.json")


def test_times_of_another_model_are_told_and_not_taken(write_model: WriteModel, tmp_path: Path) -> None:
    times = times_file(tmp_path, 5.0)
    times.write_text(times.read_text().replace("onnx/", "other/"))
    told = Told()

    made = convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", format="onnx", precision="fp32,int8", measured=times,
        calibration=mlp_data(tmp_path / "data.npz"), reporter=told,
    )  # fmt: skip

    assert any("`measured.json` has times of none of these variants" in line for line in told.warnings)
    assert all(one.is_kept for one in made.variants)


def test_a_limit_on_latency_says_where_the_time_is_not_known(write_model: WriteModel, tmp_path: Path) -> None:
    made = convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", format="onnx", precision="fp32,fp16", max_latency_ratio=1.0
    )

    (half,) = [one for one in made.variants if one.variant.id == "onnx/fp16"]
    assert half.quality.verdict.word == "warn"
    assert "its time is not known" in half.quality.verdict.reason
