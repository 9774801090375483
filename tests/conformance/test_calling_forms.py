"""One model, one answer: whatever the form of the call, on every native engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import edge_infer
from edge_infer.backends.onnxruntime import c
from tests.support import soak, zoo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer import Session
    from tests.support.model_files import WriteModel

ONNX_ENGINES = ("onnxruntime", "reference")
Arrays = dict[str, Any]


def plain(session: Session, feeds: Arrays) -> Arrays:
    return dict(session.run(feeds))


def one_by_one(session: Session, feeds: Arrays) -> Arrays:
    return {spec.name: session.run(feeds, outputs=[spec.name])[spec.name] for spec in session.outputs}


def into_buffers(session: Session, feeds: Arrays) -> Arrays:
    expected = session.run(feeds)
    buffers = {name: np.full_like(np.asarray(value), 99) for name, value in expected.items()}
    session.run(feeds, into=buffers)
    return buffers


def kept(session: Session, feeds: Arrays) -> Arrays:
    mine = {name: value.copy() for name, value in feeds.items()}
    found = session.run(mine, keep=[spec.name for spec in session.outputs])
    for value in mine.values():
        value.fill(0)  # what was kept is no view of it
    return {name: value.to_host() if hasattr(value, "to_host") else value for name, value in found.items()}


def prepared(session: Session, feeds: Arrays) -> Arrays:
    with session.prepare({name: value.shape for name, value in feeds.items()}) as call:
        call({name: np.ones_like(value) for name, value in feeds.items()})
        return {name: np.array(np.asarray(value)) for name, value in call(feeds).items()}


def kept_and_fed(session: Session, feeds: Arrays) -> Arrays:
    """The outputs of a run with inputs that the engine holds, where an output can be an input."""
    first = session.run(feeds, keep=[spec.name for spec in session.outputs])
    held = {name: first.get(name, value) for name, value in feeds.items()}
    return dict(session.run(held)) if any(name in first for name in feeds) else dict(session.run(feeds))


FORMS: list[Callable[[Session, Arrays], Arrays]] = [plain, one_by_one, into_buffers, kept, prepared, kept_and_fed]


def check(path: Path, feeds: Arrays, expected: Arrays) -> None:
    for backend in ONNX_ENGINES:
        for form in FORMS:
            with edge_infer.load(path, backend=backend) as session:
                found = form(session, feeds)
            for name, value in expected.items():
                np.testing.assert_array_equal(np.asarray(found[name]), value, f"{name} by {backend}, {form.__name__}")
    model = c.load_model(str(path), path.name, {})
    names = [spec.name for spec in model.outputs]
    targets = {name: np.full_like(value, 99) for name, value in expected.items()}
    for into, keep in (({}, ()), (targets, ()), ({}, names)):
        results = model.run(feeds, names, into, keep)
        for name, value in expected.items():
            found = results[name]
            host = found.to_host() if isinstance(found, edge_infer.Tensor) else found
            np.testing.assert_array_equal(np.asarray(host), value, f"{name} by the C interface")
    model.close()


def test_outputs_that_are_inputs_or_initializers_are_right_in_every_form(write_model: WriteModel) -> None:
    x = np.array([[1.5, -2, 3]], np.float32)

    check(write_model(zoo.passing_through()), {"x": x}, {"x": x, "c": np.array([5, 7], np.float32), "y": x.clip(0)})


#: A node that gives its input's elements unchanged, in this or in another shape; the engine may compute it in place.
SAME = ["Identity", "Reshape", "Dropout", "Squeeze", "Neg"]
SHAPES: list[tuple[int, ...]] = [(), (0, 2), (1,), (2, 3), (1, 1, 4)]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[bytes, Arrays]:
    """A graph whose inputs and outputs may be aliases of each other, repeated, unused, empty or scalar."""
    shape = draw(st.sampled_from(SHAPES))
    inputs = ["a", "b"][: draw(st.integers(1, 2))]
    values = [*inputs, "w"]
    shapes = dict.fromkeys(values, shape)
    nodes, weights = [], {"w": np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)}
    for number in range(draw(st.integers(0, 4))):
        kind, source, name = draw(st.sampled_from([*SAME, "Add"])), draw(st.sampled_from(values)), f"t{number}"
        shapes[name] = shapes[source]
        if kind == "Reshape":
            weights[f"s{number}"] = np.array([-1] if np.prod(shapes[source]) else [0], np.int64)
            shapes[name] = (int(np.prod(shapes[source])),)
            nodes.append(helper.make_node(kind, [source, f"s{number}"], [name], allowzero=1))
        elif kind == "Squeeze":
            shapes[name] = tuple(size for size in shapes[source] if size != 1)
            nodes.append(helper.make_node(kind, [source], [name]))
        elif kind == "Add":
            nodes.append(helper.make_node(kind, [source, source], [name]))
        else:
            nodes.append(helper.make_node(kind, [source], [name]))
        values.append(name)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4, unique=True))
    feeds = {name: np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) + 1 for name in inputs}
    made = zoo.model(
        nodes,
        [zoo.value(name, shape) for name in inputs],
        [zoo.value(name, shapes[name]) for name in outputs],
        weights,
    )
    return made, feeds


def compare(tmp_path: Path, model: bytes, feeds: Arrays) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    with edge_infer.load(path, backend="reference") as session:
        expected = {name: np.asarray(value) for name, value in session.run(feeds).items()}
    check(path, feeds, expected)


def settled(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settled(25)
@given(case=graphs())
def test_aliases_give_the_same_in_every_form(tmp_path: Path, case: tuple[bytes, Arrays]) -> None:
    compare(tmp_path, *case)


@pytest.mark.long
@settled(soak.rounds(100, 500))
@given(case=graphs())
def test_many_aliases_give_the_same_in_every_form(tmp_path: Path, case: tuple[bytes, Arrays]) -> None:
    compare(tmp_path, *case)
