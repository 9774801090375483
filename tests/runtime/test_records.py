"""Records: what they share with `typing.NamedTuple`, and that nothing changes them."""

from __future__ import annotations

import copy
import pickle

import pytest

from edge_infer.platform.records import Record
from edge_infer.runtime.session import Report


class Point(Record):
    x: int
    y: int = 0


def test_fields_are_given_by_place_or_by_name_and_have_defaults() -> None:
    assert tuple(Point(1)) == (1, 0)
    assert Point(x=1, y=2) == Point(1, 2) != Point(2, 1)
    assert len({Point(1), Point(1, 0), Point(2)}) == 2
    assert Point(1)._replace(y=5)._asdict() == {"x": 1, "y": 5}


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})],
    ids=["few", "many", "twice", "z"],
)
def test_wrong_fields_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **named)


def test_nothing_changes_a_record() -> None:
    point = Point(1)

    with pytest.raises(AttributeError, match="_replace"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x

    assert point == Point(1)


def test_a_record_survives_copies_and_processes() -> None:
    report = Report("digits", "onnx/int8", "onnxruntime", "1.2", "auto", "cpu", (), 1, (), "rule")

    assert pickle.loads(pickle.dumps(report)) == copy.deepcopy(report) == report
    assert repr(Point(3)) == "Point(x=3, y=0)"
