"""Values of options from Python: each type that an option takes, and every other refused by the option's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_infer.errors import ConversionError, EdgeInferError, InputError
from edge_infer_converters import Recipe, convert
from edge_infer_converters.option_values import taken
from edge_infer_converters.options import OPTIONS

VALUES: dict[str, Any] = {
    "text": "x", "bytes": b"x", "whole": 3, "number": 0.5, "infinite": float("inf"), "complex": 1j, "switch": True,
    "numpy_whole": np.int64(3), "numpy_number": np.float32(0.5), "numpy_switch": np.True_, "array": np.ones(2),
    "path": Path("x"), "texts": ("x",), "texts_in_a_set": {"x"}, "paths": [Path("x")], "numbers": [3],
    "nothings": [None],
    "shapes": {"x": [1, np.int64(3), None]}, "empty_shapes": {"x": (0,)}, "written_shapes": {"x": "1x3"},
    "numbers_by_name": {"x": 3}, "texts_by_number": {3: "x"}, "object": object(),
}  # fmt: skip

TEXT = {"text"}
TEXTS = TEXT | {"texts", "texts_in_a_set"}
PATH = TEXT | {"path"}
WHOLE = {"whole", "numpy_whole"}
NUMBER = WHOLE | {"number", "numpy_number", "infinite"}
SWITCH = {"switch", "numpy_switch"}
SHAPES = {"shapes"}
BINDINGS = {"shapes", "empty_shapes", "written_shapes", "numbers_by_name"}
TAKES = {
    "target": TEXTS, "name": TEXT, "version": TEXT, "calibration": PATH, "calibrate": TEXT, "evaluation": PATH,
    "labels": PATH, "task": TEXT, "preprocess": PATH, "license": TEXT, "samples": PATH | TEXTS | {"paths"},
    "precision": TEXTS, "max_loss": TEXT | NUMBER, "min_sqnr": NUMBER, "max_size": TEXT | WHOLE,
    "max_latency_ratio": NUMBER, "max_latency": TEXT, "max_ram": TEXT | WHOLE, "measured": PATH, "metric": TEXT,
    "format": TEXTS, "shape": SHAPES, "dynamic": TEXTS, "bind": BINDINGS, "layout": TEXT, "tflite_io": TEXT,
    "keep_names": SWITCH, "allow_baked": SWITCH, "opset": WHOLE, "layers": SWITCH, "report": PATH,
    "prune_dead_channels": SWITCH, "prune": TEXT | NUMBER, "transport": TEXT, "goldens": WHOLE, "drift": SWITCH,
    "keep_all": SWITCH, "cache": SWITCH, "force": SWITCH,
}  # fmt: skip


def test_the_table_has_every_option() -> None:
    assert list(TAKES) == [one.name for one in OPTIONS]


@pytest.mark.parametrize("option", TAKES)
def test_a_value_of_another_type_is_refused_by_the_options_name(option: str, tmp_path: Path) -> None:
    """Options are read before the model. The model does not exist: a value that is taken fails for that, later."""
    refused = {}
    for name, value in VALUES.items():
        with pytest.raises(EdgeInferError) as caught:
            convert(tmp_path / "none.onnx", tmp_path / "none.bundle", **{option: value})
        if caught.value.message.startswith(f"`{option}` is ") and ", expected " in caught.value.message:
            refused[name] = caught.value

    assert refused.keys() == VALUES.keys() - TAKES[option]
    assert {type(error) for error in refused.values()} == {InputError}
    assert all(error.hint.startswith(f"{option}=") for error in refused.values())


@pytest.mark.parametrize("option", TAKES)
def test_none_stands_for_the_default(option: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {option: None}

    with pytest.raises(ConversionError, match="There is no file"):
        convert(tmp_path / "none.onnx", tmp_path / "none.bundle", **given)
    assert taken(given) == {one.name: one.default for one in OPTIONS if one.name == option}


@pytest.mark.parametrize(
    ("option", "value", "message", "hint"),
    [
        ("version", 2, "`version` is 2, expected a text", 'version="1"'),
        ("format", 3, "`format` is 3, expected a text or a list of texts", 'format="onnx"'),
        ("opset", "17", "`opset` is '17', expected a whole number", "opset=17"),
        ("max_size", [], "`max_size` is [], expected a text or a whole number", 'max_size="TEXT"'),
        ("keep_all", "no", "`keep_all` is 'no', expected True or False", "keep_all=True"),
        ("calibration", np.ones((9, 9)), "`calibration` is of the type `ndarray`, expected a path (", "calibration="),
        ("shape", ["x=1x3"], "`shape` is ['x=1x3'], expected the sizes of dimensions by input,", "shape={"),
    ],
)
def test_the_error_says_what_is_wanted(option: str, value: object, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        taken({option: value})

    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)
    assert caught.value.details == {"option": option}


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("samples", "x.png", ("x.png",)),
        ("samples", Path("x.png"), (Path("x.png"),)),
        ("max_size", 5e6, 5_000_000),
        ("goldens", np.int64(8), 8),
        ("max_loss", np.float64(0.5), 0.5),
        ("keep_all", np.False_, False),
        ("shape", {"x": np.array([1, 3])}, {"x": (1, 3)}),
        ("precision", iter(["fp32", "int8"]), ("fp32", "int8")),
    ],
)
def test_what_is_meant_beyond_doubt_is_taken_as_pythons_own_types(option: str, value: object, expected: Any) -> None:
    (found,) = taken({option: value}).values()

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("given", "formats"),
    [
        ("onnx", ("onnx",)),
        (["onnx"], ("onnx",)),
        (("tflite", "onnx"), ("tflite", "onnx")),
        ("onnx,compiled", ("onnx", "compiled")),
        (["both", "onnx"], ("onnx", "tflite")),
        (None, ()),
    ],
)
def test_formats_may_be_several(given: object, formats: tuple[str, ...]) -> None:
    assert Recipe.of(format=given).formats == formats


@pytest.mark.parametrize(
    ("argument", "value"), [("model", b"x"), ("model", None), ("output", 3), ("recipe", {}), ("reporter", print)]
)
def test_other_arguments_are_checked_too(argument: str, value: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": tmp_path / "none.onnx", "output": tmp_path / "none.bundle", argument: value}

    with pytest.raises(InputError, match=f"^`{argument}` is .*, expected a "):
        convert(**given)
