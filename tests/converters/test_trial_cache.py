"""Figures of a search are kept between runs: another budget, or a run that was stopped, costs no measuring again."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.platform.host import cache_folder
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.measure.judge import Outcome
from edge_infer_converters.search import sensitivity, trial_cache
from edge_infer_converters.search.trial_cache import TrialCache, key_of
from tests.support import zoo
from tests.support.converters.conversions import files_of, mlp_data
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/trials"


def recipe(max_loss: float = 0.01, *, is_cached: bool = True, keep_all: bool = False) -> Recipe:
    return Recipe(("onnx",), ("fp32", "mixed"), keep_all, Budget(max_loss=max_loss), is_cached=is_cached)


def test_figures_come_back() -> None:
    trials = TrialCache("model")
    trials.add_noise("w", "int4", 0.25)
    trials.add_noise("w", "int8", float("inf"))
    trials.add_outcome({"w": "int4", "v": "fp32"}, Outcome(float("inf"), -0.5, True))
    trials.save()

    again = TrialCache("model")

    assert (again.noise("w", "int4"), again.noise("w", "int8"), again.noise("v", "int8")) == (0.25, float("inf"), None)
    assert again.outcome({"w": "int4"}) == Outcome(float("inf"), -0.5, True), "fp32 is not a choice"
    assert again.outcome({"w": "int8"}) is None
    assert TrialCache("other").noise("w", "int4") is None


def test_what_this_search_measured_itself_is_no_hit() -> None:
    trials = TrialCache(None)
    trials.add_noise("w", "int4", 0.25)
    assert trials.noise("w", "int4") == 0.25
    assert trials.hits == 0

    kept = TrialCache("model")
    kept.add_noise("w", "int4", 0.25)
    kept.save()
    again = TrialCache("model")
    assert again.noise("w", "int4") == 0.25
    assert again.hits == 1


def test_the_second_search_measures_nothing_and_gives_the_same_bytes(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data, told = write_model(zoo.mlp()), mlp_data(tmp_path / "d.npz"), Told()
    first = convert(model, tmp_path / "a.bundle", name="m", evaluation=data, recipe=recipe())

    def fail(*_: object) -> None:
        raise AssertionError("it was measured before")

    monkeypatch.setattr(sensitivity.WeightSession, "run", fail)
    second = convert(model, tmp_path / "b.bundle", name="m", evaluation=data, recipe=recipe(), reporter=told)

    assert first.revision == second.revision
    assert files_of(first.path)["onnx/model_mixed.onnx"] == files_of(second.path)["onnx/model_mixed.onnx"]
    assert any("figures from an earlier search" in text for text in told.steps)


def test_without_the_cache_nothing_is_kept(write_model: WriteModel, tmp_path: Path, folder: Path) -> None:
    data = mlp_data(tmp_path / "d.npz")

    convert(write_model(zoo.mlp()), tmp_path / "a.bundle", evaluation=data, recipe=recipe(is_cached=False))

    assert not folder.exists()


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"null", b'{"format": 1}', b'{"format": 2, "noises": {}, "outcomes": {}}', b"[" * 100_000,
     b'{"format": 1, "noises": {"a": "x"}, "outcomes": {}}', b'{"format": 1, "noises": {}, "outcomes": {"a": [1]}}'],
)  # fmt: skip
def test_a_damaged_file_counts_as_none(damage: bytes, folder: Path) -> None:
    trials = TrialCache("model")
    trials.add_noise("w", "int4", 0.25)
    trials.save()
    (folder / "model.json").write_bytes(damage)

    again = TrialCache("model")

    assert again.noise("w", "int4") is None
    again.add_noise("w", "int4", 0.5)
    again.save()
    assert TrialCache("model").noise("w", "int4") == 0.5


def test_a_folder_that_cannot_be_written_is_no_failure(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file, where a folder should be")
    trials = TrialCache("model")
    trials.add_noise("w", "int4", 0.25)

    trials.save()

    assert trials.noise("w", "int4") == 0.25


def test_the_oldest_files_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_cache, "MAX_BYTES", 400)
    for age, name in enumerate(["new", "middle", "old"]):
        trials = TrialCache(name)
        trials.add_noise("w" * 100, "int4", 0.25)
        trials.save()
        os.utime(folder / f"{name}.json", (1000 - age, 1000 - age))

    newest = TrialCache("newest")
    newest.add_noise("w" * 100, "int4", 0.5)
    newest.save()

    assert sorted(file.stem for file in folder.iterdir()) == ["new", "newest"]


def test_the_key_follows_all_that_figures_depend_on() -> None:
    calls = [{"x": np.zeros((1, 4), np.float32)}]
    keys = {
        key_of(b"model", calls, "cosine"),
        key_of(b"other", calls, "cosine"),
        key_of(b"model", calls, "accuracy"),
        key_of(b"model", [{"x": np.ones((1, 4), np.float32)}], "cosine"),
        key_of(b"model", [{"x": np.zeros((4, 1), np.float32)}], "cosine"),
        key_of(b"model", [{"y": np.zeros((1, 4), np.float32)}], "cosine"),
        key_of(b"model", [{"x": np.array([["a"]], object)}], "cosine"),
    }

    assert len(keys) == 7
    assert key_of(b"model", calls, "cosine") in keys


def test_files_lie_in_the_users_cache(folder: Path) -> None:
    trials = TrialCache("model")
    trials.save()

    assert cache_folder() / "trials" == folder
    assert json.loads((folder / "model.json").read_text()) == {"format": 1, "noises": {}, "outcomes": {}}


def test_other_labels_are_measured_again(write_model: WriteModel, tmp_path: Path) -> None:
    """Two samples have their labels swapped: the source's own accuracy stays, that of a trial need not."""
    model, path = write_model(zoo.mlp()), mlp_data(tmp_path / "d.npz")
    inputs, labels = (np.load(path)[name] for name in ("x", "labels"))
    told = Told()
    for name, wrong in (("a", 0), ("b", 1)):
        changed = labels.copy()
        changed[wrong] = (changed[wrong] + 1) % 10
        np.savez(path, x=inputs, labels=changed)
        convert(model, tmp_path / f"{name}.bundle", name="m", evaluation=path, recipe=recipe(), reporter=told)

    assert not [said for said in told.steps if "from an earlier search" in said]
