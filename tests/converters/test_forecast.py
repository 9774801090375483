"""`convert --dry-run`: what would be tried, how large it would be and how long it takes; nothing is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import InputError
from edge_infer_converters import convert, convert_run
from edge_infer_converters.given import Given
from edge_infer_converters.recipe import Recipe
from tests.support import zoo
from tests.support.converters.conversions import edge_infer, mlp_data

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

WORDS = "fp32,fp16,int8,int8-dynamic,int4,mixed"


def test_the_command_says_what_it_would_try_and_writes_nothing(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")
    before = sorted(path.name for path in tmp_path.iterdir())

    done = edge_infer("mlp.onnx", "--dry-run", "--json", "--precision", "auto", "--calibrate", "mse", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_id = {one["id"]: one for one in found["variants"]}
    assert by_id["onnx/int8"]["how"] == "ranges from 32 samples by mse"
    assert by_id["onnx/int8"]["calls"] == 64
    assert by_id["onnx/mixed"]["how"].startswith("searched: ")
    assert found["data"] == "32 random samples"
    assert found["multiplies"] > 0
    assert found["call_ms"] > 0
    assert found["seconds"] >= sum(one["seconds"] for one in found["variants"])
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_table_names_each_variant(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", "--dry-run", "-o", "mlp.bundle", "--max-size", "9kB", cwd=tmp_path)

    assert [line.split()[0] for line in done.stdout.splitlines()][:2] == ["VARIANT", "onnx/fp32"]
    assert done.stderr.splitlines()[-1].startswith("Nothing is written. onnx/fp32 of ")
    assert "max_size 9000" in done.stderr
    assert not (tmp_path / "mlp.bundle").exists()


def test_files_have_the_bytes_that_were_foreseen(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(zoo.mlp()), mlp_data(tmp_path / "data.npz")
    recipe = Recipe.of(precision=WORDS, keep_all=True)

    foreseen = convert_run.foresee(model, None, recipe, Given(calibration=data))
    made = convert(model, tmp_path / "m.bundle", calibration=data, precision=WORDS, keep_all=True)

    sizes = {one.id: one.nbytes for one in foreseen.variants}
    assert [one.variant.id for one in made.variants] == [one.id for one in foreseen.variants]
    for one in made.variants:
        low, high = sizes[one.variant.id] or (0, 0)
        # Names and nodes around the weights take some kB that nobody counts before.
        assert 0.75 * low - 2000 <= one.nbytes <= 1.25 * high + 4000, one.variant.id


def test_options_that_take_more_calls_are_counted(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(zoo.mlp()), mlp_data(tmp_path / "data.npz")

    def calls(id_: str, **given: Any) -> int:
        foreseen = convert_run.foresee(model, None, Recipe.of(format="onnx", **given), Given(calibration=data))
        return next(one.calls for one in foreseen.variants if one.id == id_)

    plain = calls("onnx/mixed", precision="fp32,mixed")
    assert calls("onnx/mixed", precision="fp32,mixed", prune="30%") > 2 * plain - 1
    assert calls("onnx/mixed", precision="fp32,mixed", transport="palette") > plain
    assert calls("onnx/int8", precision="int8", calibrate="auto") > 3 * calls("onnx/int8", precision="int8")


def test_calls_that_fit_matrices_in_int4_are_counted(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(zoo.mlp()), mlp_data(tmp_path / "data.npz")
    recipe = Recipe.of(format="onnx", precision="fp32,int4")

    def found(given: Given) -> tuple[str, int]:
        foreseen = convert_run.foresee(model, None, recipe, given)
        return next((one.how, one.calls) for one in foreseen.variants if one.id == "onnx/int4")

    fitted, plain = found(Given(calibration=data)), found(Given(evaluation=data))

    assert fitted[0] == "weights alone, matrices fitted to 48 samples"
    assert plain[0] == "weights alone"
    assert fitted[1] - plain[1] == 48 + 2 * 12


def test_what_cannot_be_made_is_said_with_its_reason(write_model: WriteModel) -> None:
    foreseen = convert_run.foresee(write_model(zoo.nonzero()), None, Recipe())

    assert "onnx/int8" in foreseen.left_out
    assert {one.id for one in foreseen.variants}.isdisjoint(foreseen.left_out)
    assert foreseen.to_json()["left_out"] == dict(foreseen.left_out)


def test_an_output_that_could_not_be_written_is_refused_now(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name of a model file"):
        convert_run.foresee(write_model(zoo.mlp()), tmp_path / "m.onnx", Recipe())


def test_without_a_dry_run_an_output_is_needed(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(zoo.mlp(), "mlp.onnx")

    done = edge_infer("mlp.onnx", cwd=tmp_path)

    assert done.returncode == 2
    assert "-o" in done.stderr
