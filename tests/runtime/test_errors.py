"""Errors carry facts, hints and codes, and cross a wire as the same class."""

from __future__ import annotations

import contextlib
import json
import pickle
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import edge_infer
import edge_infer_converters
from edge_infer import EdgeInferError, InputError, errors
from edge_infer.errors import _subclasses, did_you_mean, error_from_json

CLASSES = sorted(_subclasses(EdgeInferError).values(), key=lambda one: one.__name__)


@pytest.mark.parametrize("error_class", CLASSES, ids=lambda one: one.__name__)
def test_an_error_crosses_the_wire_as_the_same_class(error_class: type[EdgeInferError]) -> None:
    error = error_class("Input `x` has rank 2", hint="reshape it", tensor="x", expected=[1, 2])

    rebuilt = error_from_json(json.loads(json.dumps(error.to_json())))

    assert type(rebuilt) is error_class
    assert (rebuilt.message, rebuilt.hint, rebuilt.tensor, rebuilt.expected) == (
        "Input `x` has rank 2",
        "reshape it",
        "x",
        [1, 2],
    )
    assert str(rebuilt) == "Input `x` has rank 2\nhint: reshape it"
    assert type(pickle.loads(pickle.dumps(error))) is error_class


def test_facts_that_json_does_not_know_are_spelt() -> None:
    both = [float("nan"), (-float("inf"), 1.5)]

    error = InputError("no", got=float("inf"), both=both, where={1: {2}}, held=True)
    text = json.dumps(error.to_json(), allow_nan=False)

    assert json.loads(text)["details"] == {
        "got": "Infinity",
        "both": ["NaN", ["-Infinity", 1.5]],
        "where": {"1": "{2}"},
        "held": True,
    }


def test_codes_are_unique() -> None:
    def codes(root: type[EdgeInferError]) -> list[str]:
        return [root.code, *(code for child in root.__subclasses__() for code in codes(child))]

    found = codes(EdgeInferError)

    assert len(set(found)) == len(found)


def test_a_code_of_a_later_version_becomes_the_base_class() -> None:
    error = error_from_json({"error": "no", "code": "from_the_future", "details": None})

    assert type(error) is EdgeInferError
    assert error.message == "no"


def test_an_unknown_fact_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="colour"):
        _ = InputError("no").colour


def test_an_input_error_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)


def test_the_nearest_choice_is_suggested_whatever_its_case() -> None:
    """JavaScript suggests the same: `web/test/errors.test.js` reads this file too."""
    cases = json.loads((Path(__file__).parent / "suggestions.json").read_text("utf-8"))

    for word, choices, meant in cases:
        assert did_you_mean(word, choices) == (f"did you mean `{meant}`?" if meant else ""), word


def test_the_tree_in_the_docstring_has_every_class_below_its_base() -> None:
    for package in (edge_infer, edge_infer_converters):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # of an extra, or of a page's own modules
                    import_module(module.name)
    tree = (errors.__doc__ or "").split("\n\n")[1].splitlines()
    bases: list[str] = []
    listed = set()
    for line in tree:
        bars, name = re.match(r"    ([│├└─ ]*)(\w+)", line).groups()  # type: ignore[union-attr]
        depth = len(bars) // 4
        listed.add((name, bases[depth - 1] if depth else ""))
        bases[depth:] = [name]

    def defined(root: type[EdgeInferError], base: str = "") -> set[tuple[str, str]]:
        own = {(root.__name__, base)} if root.__module__.startswith("edge_infer") else set()
        return own.union(*(defined(child, root.__name__) for child in root.__subclasses__()))

    assert listed == defined(EdgeInferError)
