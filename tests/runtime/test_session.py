"""Session: the door is checked, runs may come from any thread, tensors can stay in the engine."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

import edge_infer
from edge_infer import InputError, Session, Tensor
from edge_infer.errors import BackendUnavailable, ExecutionError, UnsupportedError, UnsupportedModel
from edge_infer.formats.safetensors import write_examples
from tests.support import zoo
from tests.support.onnxruntime_c import take_c_interface

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.model_files import WriteBundle, WriteModel


@pytest.fixture(autouse=True, params=["python", "c"])
def interface(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim holds on both interfaces of ONNX Runtime."""
    if request.param == "c":
        if sys.platform != "linux":
            pytest.skip("the wheel has this library on Linux only")
        take_c_interface(monkeypatch)


@pytest.fixture
def mlp(write_model: WriteModel) -> Iterator[Session]:
    with edge_infer.load(write_model(zoo.mlp())) as session:
        yield session


@pytest.fixture
def echo(write_model: WriteModel) -> Iterator[Session]:
    """y = x, float32 of shape (n, 3)."""
    with edge_infer.load(write_model(zoo.identity())) as session:
        yield session


# -- what goes in --

ROW = [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    "value",
    [
        np.array(ROW, np.float32),
        np.array([[0, 1, 2, 3]], np.float32)[:, 1:],
        np.asfortranarray(np.array(ROW, np.float32)),
        Tensor.from_list(ROW, "float32"),
        np.array(ROW, np.float32).data,
        np.array([ROW[0], ROW[0]], np.float32).data[::2],
        array("f", ROW[0]).tobytes(),
        bytearray(array("f", ROW[0])),
        ROW,
        [[1, 2, 3]],
        ((1.0, 2.0, 3.0),),
    ],
    ids=[
        "ndarray",
        "slice",
        "fortran",
        "Tensor",
        "memoryview",
        "strided",
        "bytes",
        "bytearray",
        "list",
        "ints",
        "tuple",
    ],
)
def test_every_kind_of_value_is_taken(echo: Session, value: Any) -> None:
    assert echo.run({"x": value})["y"].tolist() == ROW


@pytest.mark.parametrize(
    ("inputs", "message", "hint"),
    [
        ({}, "Input `x` is missing", "the model needs x: float32[n, 3]"),
        ({"X": ROW}, "Input `X` is not known; choose from `x`", "did you mean `x`?"),
        ({"x": ROW, "y": ROW}, "Input `y` is not known", ""),
        (ROW, "Inputs are a list, expected a mapping", 'session.run({"x": ...})'),
        (np.zeros((1, 3), np.float32), "Inputs are a ndarray", "session.run"),
        ({"x": np.zeros((1, 3))}, "has dtype float64, expected float32", "x.astype('float32')"),
        ({"x": np.zeros((1, 3), ">f4")}, "has the other byte order", "astype"),
        ({"x": np.zeros((1, 3), np.complex64)}, "has dtype complex64, expected float32", "astype"),
        ({"x": np.zeros(3, np.float32)}, "has shape (3,), expected (n, 3)", "x.reshape(1, 3)"),
        ({"x": np.zeros((1, 4), np.float32)}, "has shape (1, 4), expected (n, 3)", "any size"),
        ({"x": np.zeros((1, 1, 1, 3), np.float32)}, "has shape (1, 1, 1, 3)", "expected 2 dimensions, got 4"),
        ({"x": bytes(7)}, "has 7 bytes, which do not tell its shape", "edge_infer.Tensor"),
        ({"x": [[1, 2], [3]]}, "Nested lists are ragged", "expected x: float32[n, 3]"),
        ({"x": [["a", "b", "c"]]}, "does not fit float32", "expected x"),
        ({"x": object()}, "is a object, expected an array", "expected x"),
        ({"x": None}, "is a NoneType, expected an array", "expected x"),
        (
            {"x": np.ma.masked_array([[1, 2, 3]], [[False, True, False]], np.float32)},
            "is a masked array",
            "x.filled(0)",
        ),
        ({"x": np.float64(0.5)}, "has dtype float64, expected float32", "astype"),
        ({"x": array("B", bytes(12))}, "has dtype uint8, expected float32", "astype"),
    ],
    ids=lambda value: None if isinstance(value, (dict, list, np.ndarray)) else str(value)[:30],
)
def test_a_value_that_does_not_fit_says_what_was_expected(echo: Session, inputs: Any, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        echo.run(inputs)

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_channels_in_the_other_order_are_named(write_model: WriteModel) -> None:
    with (
        edge_infer.load(write_model(zoo.identity(shape=("n", 3, 8, 8)))) as session,
        pytest.raises(InputError, match="channels first"),
    ):
        session.run({"x": np.zeros((1, 8, 8, 3), np.float32)})


def test_nan_and_infinity_are_values_like_any_other(echo: Session) -> None:
    result = echo.run({"x": np.array([[np.nan, np.inf, -np.inf]], np.float32)})["y"]

    np.testing.assert_array_equal(result, [[np.nan, np.inf, -np.inf]])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("bool", [[5, 0, 1]]),
        ("bool", [["a", "b", "c"]]),
        ("string", [[1, 2, 3]]),
        ("string", np.array([["a", None, b"c"]])),
    ],
    ids=["ints", "texts", "numbers", "objects"],
)
def test_nothing_is_cast_to_truth_values_or_texts(write_model: WriteModel, dtype: str, value: Any) -> None:
    with edge_infer.load(write_model(zoo.identity(dtype))) as session, pytest.raises(InputError):
        session.run({"x": value})


def test_an_empty_batch_gives_an_empty_result(mlp: Session) -> None:
    assert mlp.run({"x": np.zeros((0, 64), np.float32)})["logits"].shape == (0, 10)


# -- what comes out --


def test_outputs_are_numpy_or_tensors_as_asked(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())

    assert isinstance(edge_infer.load(path).run({"x": ROW})["y"], np.ndarray)
    assert isinstance(edge_infer.load(path, arrays="numpy").run({"x": ROW})["y"], np.ndarray)
    assert isinstance(edge_infer.load(path, arrays="tensor").run({"x": ROW})["y"], Tensor)
    with pytest.raises(InputError, match="choose from `auto`, `numpy`, `tensor`"):
        edge_infer.load(path, arrays="torch")


def test_only_the_outputs_asked_for_are_computed(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.lstm_cell())) as session:
        feeds = {name: np.zeros(spec_shape, np.float32) for name, spec_shape in LSTM_SHAPES.items()}

        assert list(session.run(feeds, ["c_out"])) == ["c_out"]
        with pytest.raises(InputError, match="Output `c_uot` is not known") as caught:
            session.run(feeds, ["c_uot"])
        assert caught.value.hint == "did you mean `c_out`?"


# -- prepared calls --


def test_a_prepared_call_gives_what_run_gives(mlp: Session) -> None:
    rng = np.random.default_rng(0)

    with mlp.prepare({"x": (4, 64)}) as call:
        for _ in range(3):
            x = rng.normal(size=(4, 64)).astype(np.float32)
            np.testing.assert_array_equal(call({"x": x})["logits"], mlp.run({"x": x})["logits"])


def test_a_prepared_call_runs_on_what_was_written_into_its_buffer(mlp: Session) -> None:
    x = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)

    with mlp.prepare({"x": (1, 64)}) as call:
        call.inputs["x"][...] = x
        np.testing.assert_array_equal(call()["logits"], mlp.run({"x": x})["logits"])


def test_the_next_call_overwrites_the_outputs_of_the_last(mlp: Session) -> None:
    with mlp.prepare({"x": (1, 64)}) as call:
        first = call({"x": np.zeros((1, 64), np.float32)})["logits"]
        before = first.copy()
        second = call({"x": np.ones((1, 64), np.float32)})["logits"]

    assert first is second
    assert not np.array_equal(before, second)


def test_the_buffers_of_a_prepared_call_outlive_what_the_caller_does_to_its_results(mlp: Session) -> None:
    x = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
    expected = mlp.run({"x": x})["logits"]

    with mlp.prepare({"x": (1, 64)}) as call:
        call({"x": x}).pop("logits")
        gc.collect()
        strangers = [np.zeros((1, 10), np.float32) for _ in range(100)]
        np.testing.assert_array_equal(call({"x": x})["logits"], expected)
        assert not np.any(strangers)
        with pytest.raises(TypeError):
            call.inputs["x"] = x  # type: ignore[index]


@pytest.mark.parametrize("backend", ["onnxruntime", "reference"])
def test_a_closed_call_says_so(write_model: WriteModel, backend: str) -> None:
    with edge_infer.load(write_model(zoo.mlp()), backend=backend) as session:
        call = session.prepare({"x": (1, 64)})
        call.close()
        call.close()

        with pytest.raises(InputError, match="is closed"):
            call({"x": np.zeros((1, 64), np.float32)})


def test_a_prepared_call_refuses_another_shape(mlp: Session) -> None:
    with mlp.prepare({"x": (4, 64)}) as call, pytest.raises(InputError, match=r"shape \(3, 64\), expected \(4, 64\)"):
        call({"x": np.zeros((3, 64), np.float32)})


@pytest.mark.parametrize("shapes", [None, {"x": (4, 63)}, {"x": ("batch", 64)}, {"x": (4, 64), "z": (1,)}], ids=str)
def test_shapes_that_cannot_be_prepared_are_refused(mlp: Session, shapes: Any) -> None:
    with pytest.raises(InputError):
        mlp.prepare(shapes)


def test_a_prepared_call_gives_outputs_whose_shape_depends_on_the_data(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.nonzero())) as session, session.prepare() as call:
        assert call({"x": [0, 1, 0, 1]})["where"].tolist() == [[1, 3]]
        assert call({"x": [1, 1, 0, 1]})["where"].tolist() == [[0, 1, 3]]


def test_a_prepared_call_may_give_one_symbol_two_sizes_as_run_does(write_model: WriteModel) -> None:
    """Where one input is broadcast to another, the symbol tells nothing of the output."""
    node = onnx.helper.make_node("Add", ["a", "b"], ["y"])
    model = zoo.model([node], [zoo.value(name, ["n", 2]) for name in "ab"], [zoo.value("y", ["n", 2])])
    feeds = {"a": np.ones((3, 2), np.float32), "b": np.full((1, 2), 2, np.float32)}

    session = edge_infer.load(write_model(model), backend="onnxruntime")
    with session, session.prepare({"a": (3, 2), "b": (1, 2)}) as call:
        assert call(feeds)["y"].tolist() == session.run(feeds)["y"].tolist() == [[3, 3]] * 3


# -- tensors that stay in the engine --

LSTM_SHAPES = {"x": (1, 1, 3), "h_in": (1, 1, 4), "c_in": (1, 1, 4)}


def lstm_by_hand(session: Session, steps: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    state = {name: np.zeros(LSTM_SHAPES[name], np.float32) for name in ("h_in", "c_in")}
    seen = []
    for x in steps:
        result = session.run({"x": x, **state})
        state = {"h_in": result["h_out"], "c_in": result["c_out"]}
        seen.append(result["y"])
    return seen


def test_an_lstm_streams_with_its_state_in_the_engine(write_model: WriteModel) -> None:
    rng = np.random.default_rng(1)
    steps = [rng.normal(size=(1, 1, 3)).astype(np.float32) for _ in range(5)]
    with edge_infer.load(write_model(zoo.lstm_cell())) as session:
        expected = lstm_by_hand(session, steps)

        with session.stream({"h_out": "h_in", "c_out": "c_in"}) as stream:
            results = [stream.step({"x": x}) for x in steps]

    assert [list(result) for result in results] == [["y"]] * 5
    np.testing.assert_array_equal([result["y"] for result in results], expected)


def test_the_steps_of_a_stream_are_bound_until_an_input_has_another_shape(write_model: WriteModel) -> None:
    model = zoo.running_sum()
    with edge_infer.load(write_model(model)) as session:
        with session.stream({"total_out": "total_in"}, initial={"total_in": np.zeros(1, np.float32)}) as stream:
            found = [stream.step({"x": np.full(size, 1, np.float32)}) for size in (2, 2, 2, 3, 2)]
            state = stream.state()["total_in"]

        # Each step's outputs are its own, whichever buffers the engine wrote them into.
        assert [result["seen"].tolist() for result in found] == [[1, 1], [3, 3], [5, 5], [7, 7, 7], [10, 10]]
        assert np.asarray(state).tolist() == [11]


def test_a_stream_whose_outputs_change_their_shape_goes_on(write_model: WriteModel) -> None:
    session = edge_infer.load(write_model(zoo.running_sum()))
    with session, session.stream({"total_out": "total_in"}, initial={"total_in": np.zeros(1, np.float32)}) as stream:
        inputs = ([1, 0], [2, 0], [3, 4], [0, 0], [5, 0])
        found = [stream.step({"x": np.array(x, np.float32)})["where"].tolist() for x in inputs]
        state = np.asarray(stream.state()["total_in"]).tolist()

    assert found == [[[0]], [[0]], [[0, 1]], [[]], [[0]]]
    assert state == [15]


class _Counted:
    """A runnable whose steps are counted by the way they go: over bound buffers or free; binding may fail."""

    def __init__(self, runnable: Any, error: Exception | None = None, step_error: Exception | None = None) -> None:
        self._runnable, self._error, self._step_error = runnable, error, step_error
        self.way = ""
        self.tries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runnable, name)

    def run(self, *arguments: Any) -> Any:
        self.way += "f"
        return self._runnable.run(*arguments)

    def bind_steps(self, *arguments: Any) -> Any:
        self.tries += 1
        if self._error is not None:
            raise self._error
        bound = self._runnable.bind_steps(*arguments)
        step = bound.step

        def counted(feeds: Any) -> Any:
            if self._step_error is not None:
                raise self._step_error
            self.way += "b"
            return step(feeds)

        bound.step = counted
        return bound


def _counted_stream(write_model: WriteModel, sizes: Sequence[int], **fails: Exception) -> tuple[_Counted, list[float]]:
    with edge_infer.load(write_model(zoo.running_sum())) as session:
        counted = session._runnable = _Counted(session._runnable, **fails)
        with session.stream({"total_out": "total_in"}, initial={"total_in": np.zeros(1, np.float32)}) as stream:
            return counted, [float(stream.step({"x": np.ones(size, np.float32)})["seen"][0]) for size in sizes]


@pytest.mark.parametrize("interface", ["python"], indirect=True)  # the other one binds no steps
def test_a_stream_binds_again_after_a_step_of_another_shape(write_model: WriteModel) -> None:
    counted, found = _counted_stream(write_model, (2, 2, 3, 2, 2, 2, 2, 3, 2, 3, 2, 3))

    assert found == [1, 3, 5, 8, 10, 12, 14, 16, 19, 21, 24, 26]
    # Bound at once, then after two steps of the same shapes, then after four: shapes in turn bind nothing.
    assert counted.way == "fbfffbbfffff"


@pytest.mark.parametrize("interface", ["python"], indirect=True)  # the other one binds no steps
def test_a_step_whose_buffers_cannot_be_bound_is_answered(write_model: WriteModel) -> None:
    counted, found = _counted_stream(write_model, (2, 2, 2), error=MemoryError())

    assert (counted.way, counted.tries, found) == ("fff", 1, [1, 3, 5])


@pytest.mark.parametrize("interface", ["python"], indirect=True)  # the other one binds no steps
def test_a_bound_step_that_fails_is_not_run_again(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.running_sum())) as session:
        counted = session._runnable = _Counted(session._runnable, step_error=ExecutionError("the engine failed"))
        with session.stream({"total_out": "total_in"}, initial={"total_in": np.zeros(1, np.float32)}) as stream:
            stream.step({"x": np.ones(2, np.float32)})
            with pytest.raises(ExecutionError, match="the engine failed"):
                stream.step({"x": np.ones(2, np.float32)})
            assert counted.way == "f"
            counted._step_error = None
            assert stream.step({"x": np.ones(2, np.float32)})["seen"].tolist() == [3, 3]


def test_a_bound_stream_knows_that_its_session_is_closed(write_model: WriteModel) -> None:
    session = edge_infer.load(write_model(zoo.running_sum()))
    stream = session.stream({"total_out": "total_in"}, initial={"total_in": np.zeros(1, np.float32)})
    for _ in range(3):
        stream.step({"x": np.ones(2, np.float32)})
    session.close()
    with pytest.raises(InputError, match="is closed"):
        stream.step({"x": np.ones(2, np.float32)})
    stream.close()


def test_a_stream_goes_on_from_a_saved_state(write_model: WriteModel) -> None:
    rng = np.random.default_rng(2)
    steps = [rng.normal(size=(1, 1, 3)).astype(np.float32) for _ in range(4)]
    links = {"h_out": "h_in", "c_out": "c_in"}
    with edge_infer.load(write_model(zoo.lstm_cell())) as session:
        expected = lstm_by_hand(session, steps)
        with session.stream(links) as stream:
            for x in steps[:2]:
                stream.step({"x": x})
            saved = stream.state()

        with session.stream(links, initial=saved) as stream:
            results = [stream.step({"x": x})["y"] for x in steps[2:]]

    np.testing.assert_array_equal(results, expected[2:])


def test_a_cache_grows_in_the_engine_without_a_copy(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.kv_step())) as session:
        past: Any = np.zeros((1, 0, 2), np.float32)
        totals = []
        for i in range(5):
            key = np.full((1, 1, 2), i, np.float32)
            result = session.run({"key": key, "past": past}, keep=["present"])
            past = result["present"]
            totals.append(float(result["total"]))
            assert (past.location, past.shape) == ("engine", (1, i + 1, 2))

        assert totals == [0, 2, 6, 12, 20]
        assert past.to_host().tolist() == [[[float(i)] * 2 for i in range(5)]]
        assert past[0, 4].tolist() == [4.0, 4.0]


def test_a_kept_tensor_survives_its_session_and_is_closed_once(write_model: WriteModel) -> None:
    session = edge_infer.load(write_model(zoo.identity()))
    kept = session.run({"x": ROW}, keep=["y"])["y"]

    session.close()
    gc.collect()

    assert kept.tolist() == ROW
    kept.close()
    kept.close()
    with pytest.raises(InputError, match="closed"):
        kept.to_host()


def test_a_closed_tensor_cannot_be_fed(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.identity())) as session:
        kept = session.run({"x": ROW}, keep=["y"])["y"]
        kept.close()

        with pytest.raises(InputError, match="closed"):
            session.run({"x": kept})


def test_outputs_are_written_into_given_buffers(mlp: Session) -> None:
    x = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    target = np.empty((2, 10), np.float32)

    result = mlp.run({"x": x}, into={"logits": target})

    assert result["logits"] is target
    np.testing.assert_array_equal(target, mlp.run({"x": x})["logits"])


def read_only() -> Any:
    array = np.empty((2, 10), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("backend", ["onnxruntime", "reference"])
@pytest.mark.parametrize(
    "target",
    [np.empty((2, 9), np.float32), np.empty((2, 10)), np.empty((10, 2), np.float32).T, read_only(), [0.0] * 20],
    ids=["shape", "dtype", "strides", "read-only", "list"],
)
def test_a_buffer_that_does_not_fit_is_refused(write_model: WriteModel, backend: str, target: Any) -> None:
    with (
        edge_infer.load(write_model(zoo.mlp()), backend=backend) as session,
        pytest.raises(InputError, match="buffer for output `logits`"),
    ):
        session.run({"x": np.zeros((2, 64), np.float32)}, into={"logits": target})


@pytest.mark.parametrize("backend", ["onnxruntime", "reference"])
def test_a_tensor_is_a_buffer_too(write_model: WriteModel, backend: str) -> None:
    data = bytearray(80)
    with edge_infer.load(write_model(zoo.mlp()), backend=backend) as session:
        x = np.ones((2, 64), np.float32)

        session.run({"x": x}, into={"logits": Tensor(data, "float32", (2, 10))})

        np.testing.assert_allclose(np.frombuffer(data, np.float32), session.run({"x": x})["logits"].ravel(), rtol=1e-5)


def test_names_to_keep_or_fill_must_be_wanted(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.lstm_cell())) as session:
        feeds = {name: np.zeros(shape, np.float32) for name, shape in LSTM_SHAPES.items()}

        with pytest.raises(InputError, match="`h_out` is not known or not wanted"):
            session.run(feeds, ["y"], keep=["h_out"])
        with pytest.raises(InputError, match="`h_out` is not known or not wanted"):
            session.run(feeds, ["y"], into={"h_out": np.empty((1, 1, 4), np.float32)})
        assert session.run(feeds, ["h_out"], keep=(name for name in ["h_out"]))["h_out"].location == "engine"  # type: ignore[arg-type]
        assert session.run(feeds, []) == {}


def test_strings_cannot_be_kept(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.identity("string"))) as session:
        with pytest.raises(UnsupportedError, match="of strings"):
            session.run({"x": [["a", "b", "c"]]}, keep=["y"])
        with pytest.raises(InputError, match="of strings"):
            session.run({"x": [["a", "b", "c"]]}, into={"y": np.empty((1, 3), object)})


def test_a_state_needs_known_names_and_an_initial_value_where_it_is_free(write_model: WriteModel) -> None:
    with edge_infer.load(write_model(zoo.kv_step())) as session:
        with pytest.raises(InputError, match="which output becomes which input"):
            session.stream()
        with pytest.raises(InputError, match="Output `presnt` is not known"):
            session.stream({"presnt": "past"})
        with pytest.raises(InputError, match="Input `pst` is not known"):
            session.stream({"present": "pst"})
        with pytest.raises(InputError, match="expected an initial value"):
            session.stream({"present": "past"})
        with session.stream({"present": "past"}, initial={"past": np.zeros((1, 0, 2), np.float32)}) as stream:
            assert float(stream.step({"key": np.ones((1, 1, 2), np.float32)})["total"]) == 2
            with pytest.raises(InputError, match="is a state of this stream"):
                stream.step({"key": np.ones((1, 1, 2), np.float32), "past": np.zeros((1, 0, 2), np.float32)})


def test_two_streams_may_start_from_one_state(write_model: WriteModel) -> None:
    rng = np.random.default_rng(3)
    prefix, one, other = (rng.normal(size=(1, 1, 3)).astype(np.float32) for _ in range(3))
    links = {"h_out": "h_in", "c_out": "c_in"}
    with edge_infer.load(write_model(zoo.lstm_cell())) as session:
        zeros = {name: np.zeros((1, 1, 4), np.float32) for name in ("h_in", "c_in")}
        start = session.run({"x": prefix, **zeros}, keep=["h_out", "c_out"])
        initial = {"h_in": start["h_out"], "c_in": start["c_out"]}

        with session.stream(links, initial=initial) as left, session.stream(links, initial=initial) as right:
            results = [left.step({"x": one})["y"], right.step({"x": other})["y"]]

        for x, result in zip((one, other), results, strict=True):
            np.testing.assert_array_equal(result, lstm_by_hand(session, [prefix, x])[1])
        with pytest.raises(InputError, match="stream is closed"):
            left.step({"x": one})
        with pytest.raises(InputError, match="Two outputs become one input"):
            session.stream({"h_out": "h_in", "c_out": "h_in"})


# -- threads, tasks, lives --


def test_run_may_be_called_from_many_threads(mlp: Session) -> None:
    inputs = [np.random.default_rng(i).normal(size=(2, 64)).astype(np.float32) for i in range(32)]
    expected = [mlp.run({"x": x})["logits"] for x in inputs]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: mlp.run({"x": x})["logits"], inputs * 4))

    np.testing.assert_array_equal(results, expected * 4)


def test_run_async_gives_what_run_gives(mlp: Session) -> None:
    x = np.ones((1, 64), np.float32)

    result = asyncio.run(mlp.run_async({"x": x}))

    np.testing.assert_array_equal(result["logits"], mlp.run({"x": x})["logits"])


def test_a_closed_session_says_so(write_model: WriteModel) -> None:
    session = edge_infer.load(write_model(zoo.identity()))
    session.close()
    session.close()

    with pytest.raises(InputError, match="is closed"):
        session.run({"x": ROW})
    assert "closed" in repr(session)


def test_a_session_says_what_it_runs_on(mlp: Session) -> None:
    report = mlp.report()

    assert (report.variant, report.engine, report.device) == ("onnx/model", "onnxruntime", "cpu")
    assert report.engine_version
    assert report.providers == ("CPUExecutionProvider",)
    assert report.threads > 0
    assert repr(mlp) == f"Session({report.model}, onnx/model, onnxruntime on cpu)"


# -- the self-test --


def golden(output: float) -> bytes:
    x = Tensor.from_list(ROW, "float32")
    return write_examples([({"x": x}, {"y": Tensor.from_list([[1.0, 2.0, output]], "float32")})])


def test_a_bundle_whose_numbers_differ_fails_its_self_test(write_bundle: WriteBundle) -> None:
    name = "examples/golden.safetensors"
    right = write_bundle({"onnx/fp32": zoo.identity()}, extra={name: golden(3.0)}, examples=name)
    assert edge_infer.load(right, self_test=True).run({"x": ROW})["y"].tolist() == ROW

    wrong = write_bundle({"onnx/fp32": zoo.identity()}, extra={name: golden(3.5)}, examples=name)
    with pytest.raises(ExecutionError, match="Self-test failed") as caught:
        edge_infer.load(wrong, self_test=True)
    assert caught.value.hint.startswith("edge-infer verify")


def test_golden_examples_that_do_not_fit_are_the_bundle_s_fault(write_bundle: WriteBundle) -> None:
    name = "examples/golden.safetensors"
    examples = write_examples([({"z": Tensor.from_list(ROW, "float32")}, {"y": Tensor.from_list(ROW, "float32")})])
    wrong = write_bundle({"onnx/fp32": zoo.identity()}, extra={name: examples}, examples=name)

    with pytest.raises(ExecutionError, match="examples do not fit the model: Input `z` is not known"):
        edge_infer.load(wrong, self_test=True)


def test_a_bundle_without_examples_cannot_test_itself(write_model: WriteModel) -> None:
    with pytest.raises(InputError, match="no golden examples"):
        edge_infer.load(write_model(zoo.identity()), self_test=True)


# -- what cannot be loaded --


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "cannot load `model.onnx`", "cut short or no ONNX model"),
        (b"not a model" * 100, "cannot load `model.onnx`", "cut short or no ONNX model"),
        (zoo.mlp()[:-100], "cannot load `model.onnx`", "cut short"),
        (zoo.unknown_operator(), "Frobnicate", "lacks"),
        (zoo.future_opset(), "opset", "older opset"),
    ],
    ids=["empty", "garbage", "truncated", "unknown operator", "future opset"],
)
def test_a_file_that_is_no_usable_model_says_why(write_model: WriteModel, data: bytes, message: str, hint: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        edge_infer.load(write_model(data))

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message


def test_a_manifest_that_promises_other_inputs_is_refused(write_bundle: WriteBundle) -> None:
    folder = write_bundle({"onnx/fp32": zoo.identity()})
    path = folder / "manifest.json"
    document = json.loads(path.read_text("utf-8"))
    right = {"name": "x", "dtype": "float32", "shape": ["n", 3]}
    for change in ({"name": "image"}, {"dtype": "int32"}, {"shape": ["n", 3, 1]}):
        path.write_text(json.dumps(document | {"inputs": [right | change]}), "utf-8")
        with pytest.raises(edge_infer.ManifestError, match="promises the input"):
            edge_infer.load(folder)
    path.write_text(json.dumps(document | {"inputs": [right], "outputs": [right]}), "utf-8")
    with pytest.raises(edge_infer.ManifestError, match="promises the output"):
        edge_infer.load(folder)


def test_an_input_of_unknown_rank_takes_any(write_model: WriteModel) -> None:
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    path = write_model(zoo.model([node], [zoo.value("x", None)], [zoo.value("y", None)]))

    for backend in ("onnxruntime", "reference"):
        with edge_infer.load(path, backend=backend) as session:
            assert session.run({"x": np.ones((2, 3), np.float32)})["y"].shape == (2, 3)
            assert session.run({"x": np.ones(4, np.float32)})["y"].shape == (4,)


def test_the_references_results_are_its_own(write_model: WriteModel) -> None:
    x = np.ones((1, 3), np.float32)
    with edge_infer.load(write_model(zoo.identity()), backend="reference") as session:
        y = session.run({"x": x})["y"]
    x[:] = 5

    assert y.tolist() == [[1, 1, 1]]


def test_a_device_that_is_not_here_is_refused_not_replaced(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())

    with pytest.raises(BackendUnavailable, match="No engine can run `model` on device `webgpu` here"):
        edge_infer.load(path, device="webgpu")
    with pytest.raises(InputError, match="Device `gpu` is not known"):
        edge_infer.load(path, device="gpu")


def test_a_backend_that_is_unknown_or_reads_another_format_is_refused(write_model: WriteModel) -> None:
    path = write_model(zoo.identity())

    with pytest.raises(InputError, match="Backend `onnxruntme` is not known") as caught:
        edge_infer.load(path, backend="onnxruntme")
    assert caught.value.hint == "did you mean `onnxruntime`?"
    with pytest.raises(BackendUnavailable, match="Backend `litert` reads none of `onnx`"):
        edge_infer.load(path, backend="litert")


def test_an_unknown_variant_names_the_known_ones(write_bundle: WriteBundle) -> None:
    folder = write_bundle({"onnx/fp32": zoo.identity()})

    with pytest.raises(InputError, match="no variant `onnx/int8`; choose from `onnx/fp32`") as refused:
        edge_infer.load(folder, variant="onnx/int8")
    assert refused.value.hint == "ask for `onnx/fp32`"
    with pytest.raises(InputError) as refused:
        edge_infer.load(folder, variant="onnx/fp23")
    assert refused.value.hint == "did you mean `onnx/fp32`?"


def test_a_variant_that_fails_is_replaced_and_reported_or_refused_strictly(write_bundle: WriteBundle) -> None:
    folder = write_bundle({"onnx/int8": zoo.unknown_operator(), "onnx/fp32": zoo.identity()})

    with edge_infer.load(folder) as session:
        report = session.report()
    assert report.variant == "onnx/fp32"
    assert len(report.fallbacks) == 1
    assert report.fallbacks[0].startswith("onnx/int8 by onnxruntime on cpu: ")

    with pytest.raises(UnsupportedModel, match="Frobnicate"):
        edge_infer.load(folder, strict=True)


def test_the_reference_evaluator_names_the_node_at_which_it_fails(write_model: WriteModel) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], name="fine"),
        helper.make_node("Reshape", ["n", "shape"], ["y"], name="too_few"),
    ]
    model = zoo.model(nodes, [zoo.value("x", ["n"])], [zoo.value("y", [2, 3])], {"shape": np.array([2, 3], np.int64)})

    with (
        edge_infer.load(write_model(model), backend="reference") as session,
        pytest.raises(ExecutionError, match="at Reshape node `too_few`") as found,
    ):
        session.run({"x": np.zeros(5, np.float32)})

    assert found.value.hint
