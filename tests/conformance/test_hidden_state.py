"""A TFLite file with variables: each run starts from their first values, each stream keeps its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer import InputError, UnsupportedError
from edge_infer.formats.tflite_tables import hidden_state
from tests.support import real_models, stateful_tflite, zoo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer import Session
    from tests.support.model_files import WriteModel

KINDS = {"tensors": (stateful_tflite.in_variable_tensor(), 0), "resources": (stateful_tflite.in_resource(), 10)}
STATEFUL = ("mww_alexa_v1.tflite", "tflm_dtln.tflite", "tflm_lstm.tflite", "vad_stream.tflite")


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, write_model: WriteModel) -> Iterator[tuple[Session, int]]:
    """A model that sums its input, and the sum that it starts with."""
    model, first = KINDS[request.param]
    with edge_infer.load(write_model(model, "sum.tflite"), backend="litert") as session:
        yield session, first


def feed(session: Session, value: float) -> dict[str, Any]:
    return {"x": np.full(session.inputs[0].shape, value, np.float32)}


def total(results: dict[str, Any]) -> float:
    return float(np.asarray(results["y"]).reshape(()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_says_what_it_keeps(kind: str) -> None:
    assert hidden_state(KINDS[kind][0]) == kind
    assert hidden_state(b"no file") == ""


def test_every_run_starts_from_the_first_values(case: tuple[Session, int]) -> None:
    session, first = case

    assert [total(session.run(feed(session, value))) for value in (1, 2, 2)] == [first + 1, first + 2, first + 2]


def test_every_prepared_call_starts_from_the_first_values(case: tuple[Session, int]) -> None:
    session, first = case
    with session.prepare() as call:
        assert [total(call(feed(session, value))) for value in (1, 2, 2)] == [first + 1, first + 2, first + 2]


def test_each_stream_keeps_its_own_values_beside_runs(case: tuple[Session, int]) -> None:
    session, first = case
    with session.stream() as left, session.stream() as right:
        found = []
        for value in (1, 2, 3):
            found.append((total(left.step(feed(session, value))), total(right.step(feed(session, 10 * value)))))
            assert total(session.run(feed(session, 5))) == first + 5
    assert found == [(first + 1, first + 10), (first + 3, first + 30), (first + 6, first + 60)]
    with session.stream() as again:
        assert total(again.step(feed(session, 1))) == first + 1


def test_hidden_state_is_neither_given_nor_read(case: tuple[Session, int]) -> None:
    session, _ = case

    with pytest.raises(InputError, match="its state is hidden"):
        session.stream(initial={"x": [1.0]})
    with session.stream() as stream, pytest.raises(UnsupportedError, match="hidden in the model"):
        stream.state()


def test_a_model_without_state_has_no_stream_by_default(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.identity())) as session:
        assert not session.has_hidden_state
        with pytest.raises(InputError, match="which output becomes which input"):
            session.stream()


def model_paths() -> list[Path]:
    place = real_models.folder()
    return [] if place is None else [place / name for name in STATEFUL]


@pytest.mark.skipif(real_models.folder() is None, reason="EDGE_INFER_ZOO names no folder of real models")
@pytest.mark.parametrize("name", STATEFUL)
def test_real_models_run_from_the_start_and_stream_from_the_last_step(name: str) -> None:
    path = next(path for path in model_paths() if path.name == name)
    rng = np.random.default_rng(0)
    with edge_infer.load(path, backend="litert") as session:
        spec = session.inputs[0]
        shape = tuple(int(dim) for dim in spec.shape)
        feeds = [{spec.name: (rng.normal(size=shape) * 60).astype(str(spec.dtype))} for _ in range(12)]
        alone = [session.run(one) for one in feeds]
        for before, one in zip(alone, feeds, strict=True):
            same(session.run(one), before)
        with session.stream() as left, session.stream() as right:
            steps = [left.step(one) for one in feeds]
            for before, one in zip(steps, feeds, strict=True):
                same(right.step(one), before)
        same(steps[0], alone[0])


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
