"""`edge-infer bench`: the figures come from real processes, and a comparison fails where they are worse."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from edge_infer.cli import cli
from edge_infer.tools.bench.compare import compare_rows
from edge_infer.tools.bench.energy import read_energy_uj, used_uj
from edge_infer.tools.bench.rows import Round, Row, make_row
from tests.support import zoo

#: One that this process may use.
CPU = min(os.sched_getaffinity(0))

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.model_files import WriteBundle, WriteModel

QUICK = ("--rounds", "1", "--seconds", "0.05")


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bench", *arguments])


def rounds(*times: float, cold_ms: float = 100.0, energy_uj: int | None = None) -> Round:
    return Round(cold_ms, times, sum(times) / 1000, "1.0", "cpu", 1, 50_000_000, energy_uj)


def row(**changes: Any) -> Row:
    made = make_row("onnx/int8", "onnxruntime", 1000, [rounds(1.0, 1.0, 1.2), rounds(1.02, 1.0), rounds(0.98)])
    return made._replace(**changes)


# -- figures --


def test_the_rounds_of_a_way_become_medians_of_medians_and_a_percentile_of_all_calls() -> None:
    made = make_row(
        "onnx/int8",
        "onnxruntime",
        1000,
        [rounds(1.0, 1.0, 9.0, cold_ms=90), rounds(2.0, 2.0, 2.0, cold_ms=100), rounds(3.0, 3.0, 3.0, cold_ms=140)],
    )

    assert (made.p50_ms, made.p99_ms, made.cold_ms) == (2.0, 9.0, 100)
    assert made.spread == pytest.approx(0.25)
    assert made.per_s == pytest.approx(9 / 0.026)
    assert (made.calls, made.rounds) == (9, 3)
    assert made.energy_mj is None


def test_energy_is_shared_out_over_the_calls_where_every_round_has_it() -> None:
    made = make_row("v/x", "b", 1, [rounds(1.0, 1.0, energy_uj=6000), rounds(1.0, 1.0, energy_uj=2000)])

    assert made.energy_mj == 2.0


def test_a_counter_of_energy_that_wrapped_is_read_right(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    part = tmp_path / "sys/class/powercap/intel-rapl:0:0"
    for folder in (zone, part):
        folder.mkdir(parents=True)
        (folder / "max_energy_range_uj").write_text("999\n")
        (folder / "energy_uj").write_text("990\n")
    before = read_energy_uj(tmp_path)
    (zone / "energy_uj").write_text("15\n")

    assert used_uj(before, read_energy_uj(tmp_path)) == 25
    assert list(before) == ["intel-rapl:0"]
    assert used_uj({}, {}) is None


# -- comparing --


def test_a_figure_within_twice_both_spreads_is_the_same_and_beyond_it_worse() -> None:
    old, spread = row(spread=0.05), 0.05

    (same,) = [one for one in compare_rows([old], [row(p50_ms=1.19, spread=spread)]) if one.metric == "p50_ms"]
    (worse,) = [one for one in compare_rows([old], [row(p50_ms=1.21, spread=spread)]) if one.metric == "p50_ms"]

    assert (same.is_worse, worse.is_worse) == (False, True)
    assert worse.allowed == pytest.approx(1.2)


def test_a_share_that_may_be_lost_replaces_the_spread() -> None:
    changes = {one.metric: one for one in compare_rows([row()], [row(rss_bytes=54_000_000, cold_ms=115.0)], 0.1)}

    assert not changes["rss_bytes"].is_worse
    assert changes["cold_ms"].is_worse


def test_a_larger_file_is_always_worse() -> None:
    (change,) = [one for one in compare_rows([row()], [row(size_bytes=1010)]) if one.metric == "size_bytes"]

    assert change.is_worse


def test_only_the_same_ways_are_compared() -> None:
    assert compare_rows([row(threads=2)], [row()]) == []
    assert compare_rows([row(variant="onnx/fp32")], [row()]) == []


# -- the command --


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "mlp.onnx"
    path.write_bytes(zoo.mlp())
    return path


@pytest.fixture(scope="module")
def measured(model: Path) -> dict[str, Any]:
    done = bench(str(model), "--rounds", "2", "--seconds", "0.05", "--threads", "1", "--pin", str(CPU), "--json")
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_each_engine_is_measured_in_processes_of_its_own(measured: dict[str, Any]) -> None:
    (found,) = measured["rows"]

    assert (found["backend"], found["device"], found["threads"], found["rounds"]) == ("onnxruntime", "cpu", 1, 2)
    assert 0 < found["p50_ms"] <= found["p99_ms"] < found["cold_ms"]
    assert found["per_s"] > 10
    assert 10**7 < found["rss_bytes"] < 10**9
    assert found["size_bytes"] == len(zoo.mlp())
    assert measured["pinned_to"] == [CPU]
    assert measured["machine"]["cpus"] >= 1


def rewritten(tmp_path: Path, measured: dict[str, Any], **factors: float) -> Path:
    """Write an older benchmark whose figures were better by some factors."""
    (found,) = measured["rows"]
    older = {**found, **{field: found[field] / factor for field, factor in factors.items()}}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**measured, "rows": [older]}))
    return path


@pytest.mark.parametrize(("factor", "status"), [(100.0, 1), (0.01, 0)])
def test_comparing_exits_with_1_where_it_was_much_faster_before(
    tmp_path: Path, model: Path, measured: dict[str, Any], factor: float, status: int
) -> None:
    old = rewritten(tmp_path, measured, p50_ms=factor)

    done = bench(
        str(model),
        "--rounds",
        "1",
        "--seconds",
        "0.02",
        "--threads",
        "1",
        "--compare",
        str(old),
        "--fail-above",
        "900%",
    )

    assert done.exit_code == status, done.output
    assert ("p50_ms is" in done.stderr) == bool(status)
    assert "RATIO" in done.stdout


def test_figures_of_another_machine_are_shown_and_judge_nothing(
    tmp_path: Path, model: Path, measured: dict[str, Any]
) -> None:
    measured = {**measured, "machine": {"processor": "Cortex-A72", "features": [], "cpus": 4}}
    old = rewritten(tmp_path, measured, p50_ms=100.0)

    done = bench(str(model), "--rounds", "1", "--seconds", "0.02", "--threads", "1", "--compare", str(old))

    assert done.exit_code == 0
    assert "another machine" in done.stderr


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"{" * 5000, b'{"format": 2}', b'{"format": 1, "machine": {}, "rows": [{}]}']
)
def test_a_file_that_is_no_benchmark_is_refused_before_anything_runs(tmp_path: Path, model: Path, data: bytes) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(data)

    done = bench(str(model), "--compare", str(path))

    assert done.exit_code == 1
    assert "is not a benchmark" in str(done.exception)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--pin", "x"],
        ["--pin", "99999"],
        ["--fail-above", "10%"],
        ["--compare", "missing.json"],
        ["--fail-above", "much"],
        ["--backend", "ort-web", "--threads", "2"],
        ["--backend", "onnxruntime", "--backend", "ort-web", "--pin", str(CPU)],
    ],
)
def test_wrong_usage_exits_with_2(model: Path, wrong: list[str]) -> None:
    assert bench(str(model), *wrong).exit_code == 2


def test_a_variant_that_does_not_load_is_named_and_the_others_are_measured(write_bundle: WriteBundle) -> None:
    folder = write_bundle({"onnx/fp32": zoo.mlp(), "onnx/int8": zoo.unknown_operator()})

    done = bench(str(folder), "--rounds", "1", "--seconds", "0.02", "--json")

    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [one["variant"] for one in document["rows"]] == ["onnx/fp32"]
    assert [one["variant"] for one in document["failed"]] == ["onnx/int8"]
    assert "onnxruntime cannot load" in document["failed"][0]["reason"]


def test_a_way_is_called_with_the_input_of_a_file(write_model: WriteModel, tmp_path: Path) -> None:
    model, pair = str(write_model(zoo.halves())), tmp_path / "x.csv"
    pair.write_text("1,2\n")

    assert "does not work here" in bench(model, *QUICK).stderr  # a zero has no halves
    assert bench(model, *QUICK, "--input", f"x={pair}").exit_code == 0


@pytest.mark.browser
@pytest.mark.long
def test_the_page_is_measured_in_chromium(write_model: WriteModel, tmp_path: Path) -> None:
    model, pair = str(write_model(zoo.halves())), tmp_path / "x.csv"
    pair.write_text("1,2\n")

    done = bench(model, "--backend", "ort-web", "--input", str(pair), *QUICK, "--json")

    (found,) = json.loads(done.stdout)["rows"]
    assert (found["backend"], found["device"], found["rss_bytes"]) == ("ort-web", "wasm", None)
    assert 0 < found["p50_ms"] < found["cold_ms"]


@pytest.mark.long
@pytest.mark.browser
def test_the_page_is_measured_on_webgpu_where_that_is_asked_for(write_model: WriteModel) -> None:
    arguments = [str(write_model(zoo.mlp())), "--backend", "ort-web", "--rounds", "1", "--seconds", "0.05", "--json"]

    document = json.loads(bench(*arguments, "--device", "webgpu").stdout)

    assert document["failed"] == []
    assert [found["device"] for found in document["rows"]] == ["webgpu"]


def test_a_device_that_no_page_has_is_refused(model: Path) -> None:
    done = bench(str(model), "--backend", "ort-web", "--device", "cuda")

    assert done.exit_code == 1
    assert "`ort-web` does not run on device `cuda`" in str(done.exception)
