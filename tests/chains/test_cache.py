"""Results of steps that are kept: found again by what they were made of, in memory or in a folder, within bounds."""

from __future__ import annotations

import json
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge_infer
from edge_infer.chains.cache import StepCache
from edge_infer.chains.plain_values import digest, read, written
from edge_infer.errors import InputError
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.image.image import Image
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from tests.support.chains import made

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [f"{number:064x}" for number in range(9)]
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("$tensor"), inner, max_size=4),
    max_leaves=12,
)


@given(_PLAIN)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    assert read(written(value)) == value


@given(st.binary(max_size=60))
def test_other_bytes_are_damaged_or_json(data: bytes) -> None:
    with suppress(ValueError):
        read(data)


def test_values_of_chains_are_read_as_they_were_written() -> None:
    image, sound = Image(bytes(range(12)), 2, 2, 3), Sound(array("f", [0.5, -1.0]), 16_000)
    tensor = Tensor.from_list([[1.5, 2.5]], DType.FLOAT32)
    found = read(
        written({"image": image, "parts": [sound], "tensor": tensor, "texts": Tensor(["a"], DType.STRING, (1,))})
    )
    assert (found["image"], found["parts"], found["tensor"].tolist()) == (image, [sound], [[1.5, 2.5]])
    assert found["texts"].tolist() == ["a"]


def test_digests_tell_values_apart() -> None:
    values = ["a", b"a", 1, 1.5, [1], {"a": 1}, np.zeros(2, np.float32), np.zeros(2, np.int32), array("f", [0, 0])]
    values += [
        Image(b"abc", 1, 1, 3),
        {"array": [0.0], "sampling_rate": 8000},
        {"array": [0.0], "sampling_rate": 16000},
    ]
    assert len({digest(value) for value in values}) == len(values)
    assert digest(object()) is None


@pytest.mark.parametrize("is_in_folder", [False, True])
def test_what_was_used_least_lately_goes_first(tmp_path: Path, is_in_folder: bool) -> None:
    cache = StepCache(tmp_path / "kept" if is_in_folder else None, max_bytes=700)
    for key in KEYS[:3]:
        cache.put(key, "x" * 150)
        assert cache.get(KEYS[0]) == (True, "x" * 150)
    cache.put(KEYS[3], "y" * 400)
    assert cache.get(KEYS[3])[0]
    assert not cache.get(KEYS[1])[0]
    cache.put(KEYS[4], "z" * 800)  # larger than all the room
    assert not cache.get(KEYS[4])[0]
    assert len(cache) >= 1
    cache.clear()
    assert len(cache) == 0


def test_a_folder_is_of_other_processes_too_and_damage_is_a_miss(tmp_path: Path) -> None:
    StepCache(tmp_path).put(KEYS[0], [1, 2])
    assert StepCache(tmp_path).get(KEYS[0]) == (True, [1, 2])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert StepCache(tmp_path).get(KEYS[0]) == (False, None)
    assert not file.exists()


def test_a_folder_that_takes_no_files_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = StepCache(tmp_path / "file")
    cache.put(KEYS[0], 1)
    assert cache.get(KEYS[0]) == (False, None)


def test_no_room_is_refused() -> None:
    with pytest.raises(InputError, match="`max_bytes` is 0"):
        StepCache(max_bytes=0)


@pytest.mark.parametrize("is_in_folder", [False, True])
def test_a_step_that_is_marked_runs_once_for_an_input(tmp_path: Path, is_in_folder: bool) -> None:
    cache = StepCache(tmp_path / "kept" if is_in_folder else None)
    with edge_infer.Chain.open(made.build(tmp_path, made.grouped(tmp_path)), cache=cache) as chain:
        first, again = chain.run(["good film", "bad film", "good film"]), chain.run(["good film", "paris"])
    assert [one.cached for one in first.timings] == [1, 0]
    assert [one.cached for one in again.timings] == [1, 0]
    assert [one.tolist() for one in first.answer][::2] == [again.answer[0].tolist()] * 2


def test_chains_share_what_was_kept(tmp_path: Path) -> None:
    description = made.grouped(tmp_path)
    other = {**description, "name": "vectors", "steps": description["steps"][:1], "outputs": "vector"}
    cache = StepCache()
    with (
        edge_infer.Chain.open(made.build(tmp_path, description), cache=cache) as one,
        edge_infer.Chain.open(made.build(tmp_path, other), cache=cache) as two,
    ):
        one("good film")
        run = two.run("good film")
        assert [one.cached for one in run.timings] == [1]
        with edge_infer.pipeline(tmp_path / "minilm.bundle") as embed:
            assert run.answer.tolist() == embed("good film").tolist()


def test_another_model_or_argument_is_not_found(tmp_path: Path) -> None:
    description = made.things(tmp_path)
    description["steps"][2]["cache"] = True
    picture = np.full((20, 20, 3), 90, np.uint8)
    cache = StepCache()
    with edge_infer.Chain.open(made.build(tmp_path, description), cache=cache) as chain:
        kept = chain.run(picture).answer
        assert chain.run(picture).timings[2].cached == 2
    description["steps"][2]["with"] = {"top_k": 2}
    with edge_infer.Chain.open(made.build(tmp_path, description, force=True), cache=cache) as chain:
        run = chain.run(picture)
    assert run.timings[2].cached == 0
    assert [one[:1] for one in run.answer["colours"]] == kept["colours"]
    json.dumps(run.answer)
