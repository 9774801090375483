"""Measuring the ways to run a model, and remembering it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import InputError, UnsupportedModel
from edge_infer.formats.safetensors import write_examples
from edge_infer.platform.host import available_cpus
from edge_infer.runtime.measurements import Measurement, file_of, remember, remembered
from edge_infer.runtime.tuning import upper_ratio
from edge_infer.tensors.arrays import to_tensor
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bundle(write_bundle: WriteBundle, write_model: WriteModel, cache: Path) -> Path:
    """Two variants with the same right answers, and a third with other weights, whose answers are wrong."""
    right, wrong = zoo.mlp(), zoo.mlp(seed=1)
    x = np.random.default_rng(0).normal(size=(4, 1, 64)).astype(np.float32)
    with edge_infer.load(write_model(right)) as session:
        golden = [({"x": to_tensor(one)}, {"logits": to_tensor(session.run({"x": one})["logits"])}) for one in x]
    return write_bundle(
        {"onnx/fp32": right, "onnx/mixed": right, "onnx/int8": wrong},
        extra={"examples/golden.safetensors": write_examples(golden)},
        examples="examples/golden.safetensors",
    )


def test_every_variant_is_measured_with_one_thread_and_with_all_and_judged(bundle: Path) -> None:
    tuning = edge_infer.tune(bundle, max_time_s=0.05)

    threads = {1, available_cpus()}
    ways = {(row.variant, row.threads): row for row in tuning.rows}
    assert {way for way in ways if way[1] in threads} == {
        (variant, number) for variant in ("onnx/fp32", "onnx/mixed", "onnx/int8") for number in threads
    }
    assert ways["onnx/int8", 1].verdict == "fail"
    assert ways["onnx/fp32", 1].verdict == "ok"
    assert ways["onnx/fp32", 1].sqnr_db == 100
    assert [row.ms for row in tuning.rows] == sorted(row.ms for row in tuning.rows)


def test_a_later_load_takes_what_was_measured_and_says_so(bundle: Path) -> None:
    """By rule it would take the integer variant, whose answers are wrong here."""
    with edge_infer.load(bundle) as session:
        assert session.report().variant == "onnx/int8"

    tuning = edge_infer.tune(bundle, max_time_s=0.05)

    with edge_infer.load(bundle) as session:
        report = session.report()
    assert report.variant == tuning.best.variant.id != "onnx/int8"
    assert report.threads == tuning.best.threads
    assert report.why.startswith("measured: the fastest of ")


def test_load_with_tune_measures_once(bundle: Path, cache: Path) -> None:
    with edge_infer.load(bundle, tune=True, backend="onnxruntime") as session:
        assert session.report().why.startswith("measured")
    (path,) = cache.glob("measured/*.json")
    before = path.stat().st_mtime_ns

    edge_infer.load(bundle, tune=True, backend="onnxruntime").close()

    assert path.stat().st_mtime_ns == before


def test_a_narrow_measurement_keeps_what_was_measured_of_the_other_ways(bundle: Path) -> None:
    wide = edge_infer.tune(bundle, max_time_s=0.05, threads=[1])

    narrow = edge_infer.tune(bundle, max_time_s=0.05, backend="reference", variant="onnx/fp32")

    opened = edge_infer.Bundle.open(bundle)
    assert {*remembered(opened.manifest.name, opened.revision)} == {*wide.rows, *narrow.rows}
    with edge_infer.load(bundle) as session:
        assert session.report().engine == "onnxruntime"


def test_programs_that_wish_other_numbers_of_threads_do_not_measure_again_and_again(bundle: Path, cache: Path) -> None:
    for threads in (1, 2):
        edge_infer.load(bundle, tune=True, variant="onnx/fp32", backend="onnxruntime", threads=threads).close()
    (path,) = cache.glob("measured/*.json")
    before = path.stat().st_mtime_ns

    for threads in (1, 2):
        edge_infer.load(bundle, tune=True, variant="onnx/fp32", backend="onnxruntime", threads=threads).close()

    assert path.stat().st_mtime_ns == before


def test_a_variant_that_fails_is_not_taken_though_nothing_else_was_measured(bundle: Path) -> None:
    tuning = edge_infer.tune(bundle, max_time_s=0.05, variant="onnx/int8", backend="onnxruntime")

    assert tuning.best.has_failed
    with edge_infer.load(bundle) as session:
        assert session.report().variant == "onnx/mixed"


def test_a_variant_that_fails_is_taken_with_a_warning_where_it_is_asked_for(bundle: Path) -> None:
    edge_infer.tune(bundle, max_time_s=0.05, variant="onnx/int8", backend="onnxruntime")

    with pytest.warns(RuntimeWarning, match="`onnx/int8` by onnxruntime on cpu failed its golden examples") as found:
        edge_infer.load(bundle, variant="onnx/int8").close()

    assert found[0].filename == __file__


def test_what_is_not_to_be_saved_leaves_nothing(bundle: Path, cache: Path) -> None:
    tuning = edge_infer.tune(bundle, max_time_s=0.05, threads=[1], save=False)

    assert tuning.path is None
    assert not cache.exists()


def test_a_bare_model_without_golden_examples_is_measured_on_made_up_inputs(
    write_model: WriteModel, cache: Path
) -> None:
    path = write_model(zoo.mlp())

    tuning = edge_infer.tune(path, max_time_s=0.05, threads=[1])

    (row,) = tuning.rows
    assert (row.verdict, row.sqnr_db) == ("unknown", None)
    with edge_infer.load(path) as session:
        assert session.report().threads == 1
        assert session.report().why.startswith("measured")


def test_a_model_that_no_engine_loads_is_an_error_that_names_each_reason(write_model: WriteModel, cache: Path) -> None:
    with pytest.raises(UnsupportedModel, match="onnx/model by onnxruntime: onnxruntime cannot load"):
        edge_infer.tune(write_model(zoo.unknown_operator()), max_time_s=0.05)


def test_a_budget_without_a_measurement_warns_with_the_thing_to_type(bundle: Path) -> None:
    with pytest.warns(RuntimeWarning, match="edge-infer tune"):
        edge_infer.load(bundle, latency_budget_ms=5).close()


@pytest.mark.parametrize(
    "wish", [{"threads": 0}, {"latency_budget_ms": 0}, {"latency_budget_ms": -1}, {"latency_budget_ms": float("nan")}]
)
def test_a_wish_that_cannot_be_is_refused(bundle: Path, wish: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wish))):
        edge_infer.load(bundle, **wish)  # type: ignore[arg-type]


def test_threads_reach_the_engine(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.mlp()), threads=1) as session:
        assert session.report().threads == 1


def test_an_engine_that_takes_no_number_of_threads_says_so(write_model: WriteModel) -> None:
    with pytest.raises(InputError, match="`reference` takes no number of threads"):
        edge_infer.load(write_model(zoo.mlp()), backend="reference", threads=2)


def test_numbers_of_threads_are_not_measured_on_an_engine_that_takes_none(write_model: WriteModel) -> None:
    with pytest.raises(InputError, match="`reference` takes no number of threads"):
        edge_infer.tune(write_model(zoo.mlp()), backend="reference", threads=[2], save=False)


def test_a_load_that_measures_nothing_loads_nothing_that_measures(bundle: Path) -> None:
    code = (
        f"import edge_infer, sys; edge_infer.load({str(bundle)!r}); print('edge_infer.runtime.tuning' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


# -- the file --

ROW = Measurement("onnx/int8", "onnxruntime", "1.2.3", "cpu", 1, 0.5, 0.01, None, "unknown")


def test_the_interval_of_paired_rounds_holds_their_median() -> None:
    base = [1.0] * 9

    assert upper_ratio([0.8, 0.9, 0.7, 0.8, 0.8, 0.9, 0.8, 0.8, 0.8], base) == 0.9
    assert upper_ratio([0.8, 1.2, 0.7, 1.1, 0.8, 1.3, 0.8, 0.8, 0.8], base) > 1
    assert upper_ratio([0.8, 0.9, 1.1, 0.8, 0.9], base[:5]) == 1.1, "five rounds must all be below 1"


def test_the_rules_choice_is_what_others_are_paired_with(write_bundle: WriteBundle, cache: Path) -> None:
    bundle = write_bundle({"onnx/fp32": zoo.mlp(), "onnx/mixed": zoo.mlp()})

    rows = edge_infer.tune(bundle, max_time_s=0.05, threads=[1], backend="onnxruntime", save=False).rows

    with edge_infer.load(bundle, backend="onnxruntime") as session:
        by_rule = session.report().variant
    assert {row.variant for row in rows if row.vs_rule == 1.0} == {by_rule}
    assert all(row.vs_rule is not None and row.vs_rule > 0 for row in rows)


def test_what_is_remembered_comes_back(cache: Path) -> None:
    path = remember("digits", "ab" * 32, [ROW])

    assert remembered("digits", "ab" * 32) == (ROW,)
    assert remembered("digits", "cd" * 32) == ()
    assert path == file_of("digits", "ab" * 32)


def test_figures_of_another_processor_do_not_count(cache: Path) -> None:
    path = remember("digits", "ab" * 32, [ROW])
    assert path is not None
    document = json.loads(path.read_text())
    document["machine"]["processor"] = "Cortex-A72"
    path.write_text(json.dumps(document))

    assert remembered("digits", "ab" * 32) == ()
    remember("digits", "ab" * 32, [ROW._replace(threads=2)])
    assert remembered("digits", "ab" * 32) == (ROW._replace(threads=2),)


def test_a_way_that_is_measured_again_replaces_its_old_figures_and_those_of_the_engines_older_version(
    cache: Path,
) -> None:
    more = [ROW._replace(threads=2), ROW._replace(backend="litert", version="9")]
    remember("digits", "ab" * 32, [ROW, *more])

    remember("digits", "ab" * 32, [ROW._replace(ms=0.7)])
    assert {*remembered("digits", "ab" * 32)} == {ROW._replace(ms=0.7), *more}

    remember("digits", "ab" * 32, [ROW._replace(version="1.2.4")])
    assert {*remembered("digits", "ab" * 32)} == {ROW._replace(version="1.2.4"), more[1]}


def test_a_way_that_no_longer_works_is_forgotten(cache: Path) -> None:
    other = ROW._replace(backend="litert")
    remember("digits", "ab" * 32, [ROW, other])

    remember("digits", "ab" * 32, [ROW._replace(threads=2)], [("onnx/int8", "onnxruntime", "cpu", 1)])

    assert {*remembered("digits", "ab" * 32)} == {ROW._replace(threads=2), other}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\0" * 100,
        b"[]",
        b"{}",
        b"{" * 100_000,
        b"9" * (2**20 + 1),
        json.dumps({"format": 1, "revision": "ab" * 32, "machine": {}, "rows": [{"variant": "onnx/int8"}]}).encode(),
        json.dumps(
            {"format": 1, "revision": "ab" * 32, "machine": {}, "rows": [{**ROW._asdict(), "ms": "fast"}]}
        ).encode(),
        json.dumps({"format": 1, "revision": "ab" * 32, "machine": {}, "rows": [{**ROW._asdict(), "ms": -1}]}).encode(),
        json.dumps(
            {"format": 1, "revision": "ab" * 32, "machine": {}, "rows": [{**ROW._asdict(), "threads": 10**9}]}
        ).encode(),
    ],
    ids=["empty", "zeros", "list", "object", "deep", "large", "fields", "text", "negative", "threads"],
)
def test_a_damaged_file_is_ignored_with_a_warning(cache: Path, damage: bytes) -> None:
    path = file_of("digits", "ab" * 32)
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)

    with pytest.warns(RuntimeWarning, match="damaged"):
        assert remembered("digits", "ab" * 32) == ()

    remember("digits", "ab" * 32, [ROW])
    assert remembered("digits", "ab" * 32) == (ROW,)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400), noise=st.binary(max_size=8))
@pytest.mark.filterwarnings("ignore:Ignoring:RuntimeWarning")
def test_a_file_with_any_bytes_replaced_never_fails_a_load(cache: Path, cut: int, noise: bytes) -> None:
    path = remember("digits", "ab" * 32, [ROW])
    assert path is not None
    data = path.read_bytes()
    path.write_bytes(data[:cut] + noise + data[cut + len(noise) :])

    assert isinstance(remembered("digits", "ab" * 32), tuple)


def test_a_cache_that_cannot_be_read_is_no_cache(cache: Path) -> None:
    file_of("digits", "ab" * 32).mkdir(parents=True)

    assert remembered("digits", "ab" * 32) == ()


# -- the command --


def test_a_folder_that_cannot_be_written_costs_the_memory_and_not_the_measurement(
    bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache.parent / "file").write_text("in the way")
    monkeypatch.setenv("EDGE_INFER_CACHE", str(cache.parent / "file" / "cache"))

    with pytest.warns(RuntimeWarning, match="cannot be remembered"):
        tuning = edge_infer.tune(bundle, max_time_s=0.05, threads=[1], backend="onnxruntime")

    assert tuning.path is None
    assert tuning.rows


def test_figures_of_an_engine_that_is_gone_do_not_count(bundle: Path, cache: Path) -> None:
    tuning = edge_infer.tune(bundle, max_time_s=0.05, threads=[1], backend="onnxruntime")
    gone = tuning.rows[0]._replace(backend="gone-engine", ms=1e-6)
    opened = edge_infer.Bundle.open(bundle)
    remember(opened.manifest.name, opened.revision, [gone, *tuning.rows])

    with edge_infer.load(bundle) as session:
        assert session.report().engine == "onnxruntime"


def test_the_command_prints_the_best_way_and_where_it_is_remembered(bundle: Path) -> None:
    done = CliRunner().invoke(cli, ["tune", str(bundle), "--max-time-s", "0.05", "--threads", "1", "--json"])

    said = json.loads(done.stdout)
    assert said["best"]["variant"] in ("onnx/fp32", "onnx/mixed")
    assert said["best"]["threads"] == 1
    assert {row["variant"] for row in said["rows"]} == {"onnx/fp32", "onnx/mixed", "onnx/int8"}
    assert json.loads(file_of("model", edge_infer.Bundle.open(bundle).revision).read_text())["rows"] == said["rows"]


def test_the_command_fails_where_nothing_that_it_measured_gives_the_golden_outputs(bundle: Path) -> None:
    done = CliRunner().invoke(cli, ["tune", str(bundle), "--max-time-s", "0.05", "--variant", "onnx/int8"])

    assert done.exit_code == 1
    assert "gives its golden outputs" in done.stderr
    assert "runs best" not in done.stderr


def test_the_commands_table_puts_the_fastest_first_and_shows_ratios_to_it(bundle: Path) -> None:
    done = CliRunner().invoke(cli, ["tune", str(bundle), "--max-time-s", "0.05", "--threads", "1", "--no-save"])

    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["VARIANT", "ENGINE", "DEVICE", "THREADS"]
    assert len(lines) == 4
    assert " 1.00 " in lines[1]
    assert "runs best here as" in done.stderr
