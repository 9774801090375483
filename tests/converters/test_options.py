"""What is asked of a conversion: places, fixed dimensions, another operator set, and the same options from Python."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import edge_infer
from edge_infer import Bundle, TensorSpec
from edge_infer.errors import ConversionError, InputError
from edge_infer_converters import Recipe, convert
from edge_infer_converters.cli import convert as command
from edge_infer_converters.options import OPTIONS
from edge_infer_converters.passes.graphs import opset_of
from edge_infer_converters.passes.opset import to_opset
from edge_infer_converters.sources import onnx as source
from edge_infer_converters.sources.options import SourceOptions, parse_shapes
from tests.support import zoo
from tests.support.converters.conversions import mlp_data
from tests.support.converters.engines import random_feeds, run_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def made_for(*targets: str, **options: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """List what a recipe makes, each with the places that it is for."""
    return {plan.id: plan.targets for plan in Recipe(targets=targets, **options).plans("fp32")}  # type: ignore[arg-type]


def pair(batch: str = "n") -> bytes:
    """sum = left + right over images of free size."""
    dims: list[int | str] = [batch, 3, "height", "width"]
    node = helper.make_node("Add", ["left", "right"], ["sum"])
    return zoo.model([node], [zoo.value("left", dims), zoo.value("right", dims)], [zoo.value("sum", dims)])


# -- places --


def test_each_place_gets_what_suits_it() -> None:
    page = ("onnx/fp32", "onnx/fp16", "onnx/int8", "compiled/fp32", "compiled/int8")
    assert made_for("web") == dict.fromkeys(page, ("web",))
    assert made_for("cuda") == {"onnx/fp32": ("cuda",), "onnx/fp16": ("cuda",)}
    assert {"onnx/fp32", "onnx/int8", "tflite/fp32"} <= set(made_for("pi"))
    assert "onnx/fp16" not in made_for("pi")


def test_a_variant_names_all_the_places_that_it_is_for() -> None:
    found = made_for("cuda", "pi")

    assert found["onnx/fp32"] == ("cuda", "pi")
    assert (found["onnx/fp16"], found["onnx/int8"]) == (("cuda",), ("pi",))


def test_what_is_asked_for_is_made_where_the_place_takes_it() -> None:
    assert made_for("pi", precisions=("fp16",), formats=("onnx",)) == {"onnx/fp16": ("pi",)}
    assert "onnx/mixed" in made_for("web", precisions=("auto",))
    with pytest.raises(InputError, match="for `web`, which takes `onnx/fp32`") as caught:
        made_for("web", formats=("tflite",))
    assert caught.value.hint == "add --precision fp32"


def test_a_place_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="Target `wep` is not known") as caught:
        made_for("wep")

    assert caught.value.hint == "did you mean `web`?"


def test_the_engine_takes_the_variant_made_for_its_place(write_model: WriteModel, tmp_path: Path) -> None:
    """int8 is made for the page only, so a native CPU runs fp32."""
    data = mlp_data(tmp_path / "d.npz")
    result = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", target=("web", "cuda"), calibration=data)

    assert {one.variant.id: one.variant.targets for one in result.variants} == {
        "onnx/fp32": ("web", "cuda"),
        "onnx/fp16": ("web", "cuda"),
        "onnx/int8": ("web",),
        "compiled/fp32": ("web",),
        "compiled/int8": ("web",),
    }
    bundle = convert(write_model(zoo.mlp()), tmp_path / "p.bundle", target="pi", format="onnx", precision="fp32,int8")
    with edge_infer.load(bundle.path, backend="onnxruntime") as session:
        assert session.report().variant == "onnx/int8"


# -- shapes --


def test_a_fixed_symbol_is_fixed_everywhere(write_model: WriteModel) -> None:
    options = SourceOptions(parse_shapes(["left=1x3x8x?"]))

    model = source.load(write_model(pair()), options)

    assert [spec.shape for spec in (*model.inputs, *model.outputs)] == [(1, 3, 8, "width")] * 3


def test_outputs_follow_by_inference(write_model: WriteModel) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    data = zoo.model([node], [zoo.value("x", [1, 1, "h", "w"])], [zoo.value("y", [1, 1, "half_h", "half_w"])])

    model = source.load(write_model(data), SourceOptions({"x": (None, None, 8, 6)}))

    assert model.outputs == (TensorSpec("y", "float32", (1, 1, 4, 3)),)
    assert source.Reference(model).run({"x": np.zeros((1, 1, 8, 6), np.float32)})["y"].shape == (1, 1, 4, 3)


def test_a_fixed_shape_lets_tflite_be_written(write_model: WriteModel, tmp_path: Path) -> None:
    free = convert(write_model(pair()), tmp_path / "free.bundle")
    fixed = convert(write_model(pair()), tmp_path / "fixed.bundle", shape={"left": (1, 3, 8, 8)})

    assert "Dimension 2 of input `left` is free" in free.not_made["tflite/fp32"]
    assert fixed.not_made.get("tflite/fp32") is None
    assert Bundle.open(tmp_path / "fixed.bundle").manifest.inputs[1].shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("shapes", "said", "hint"),
    [
        ({"lefft": (1, 3, 8, 8)}, "no input `lefft`", "did you mean `left`?"),
        ({"left": (1, 3, 8)}, "has 4 dimensions, nx3xheightxwidth; the shape given has 3", "--shape left=?x?x?x?"),
        ({"left": (1, 4, 8, 8)}, "Dimension 1 of input `left` is 3 and cannot become 4", "?"),
        ({"left": (1, 3, 8, 8), "right": (1, 3, 8, 9)}, "Symbol `width` is 8 in input `left` and 9", "the same size"),
        ({"left": (1, 3, 8, 9), "right": (1, 3, 8, 9), "x": ()}, "no input `x`", ""),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(
    write_model: WriteModel, shapes: dict[str, tuple[int | None, ...]], said: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        source.load(write_model(pair()), SourceOptions(shapes))

    assert said in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("text", ["image", "image=", "=1x3", "image=1x0", "image=1x-3", "image=1xx3", "image=axb"])
def test_a_shape_that_cannot_be_read_is_refused(text: str) -> None:
    if text == "image=":
        assert parse_shapes([text]) == {"image": ()}  # a scalar
        return
    with pytest.raises(InputError, match=r"cannot be read, expected NAME=1x3x224x224"):
        parse_shapes([text])


def test_two_shapes_of_one_input_are_refused() -> None:
    assert parse_shapes(["a=1x2", "a=1x2"]) == {"a": (1, 2)}
    with pytest.raises(InputError, match="Input `a` is given two shapes"):
        parse_shapes(["a=1x2", "a=1x3"])


@given(st.text(min_size=1), st.lists(st.none() | st.integers(1, 10**9), max_size=5))
def test_every_shape_survives_being_written_and_read(name: str, dims: list[int | None]) -> None:
    text = f"{name}={'x'.join('?' if dim is None else str(dim) for dim in dims)}"

    assert parse_shapes([text]) == {name: tuple(dims)}


# -- operator sets --


@pytest.mark.parametrize("opset", [13, 17, 23])
def test_another_operator_set_gives_the_same_numbers(write_model: WriteModel, tmp_path: Path, opset: int) -> None:
    result = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", opset=opset, format="onnx", precision="fp32")

    written = onnx.load(tmp_path / "m.bundle/onnx/model.onnx")
    feeds = random_feeds(zoo.mlp(), batch=5)
    assert opset_of(written) == opset
    assert result.variants[0].quality.verdict.word == "ok"
    wanted = run_onnx(zoo.mlp(), feeds)["logits"]
    np.testing.assert_allclose(run_onnx(written.SerializeToString(), feeds)["logits"], wanted, rtol=1e-6)


def test_an_older_operator_set_comes_in_an_older_file_format() -> None:
    assert to_opset(onnx.load_from_string(zoo.mlp()), 13).ir_version == 7


def test_an_operator_that_the_older_set_lacks_is_an_error(write_model: WriteModel, tmp_path: Path) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"])
    model = zoo.model([node], [zoo.value("x", [3])], [zoo.value("y", [3])])

    with pytest.raises(ConversionError, match="has operator set 21 and cannot be written in 13") as caught:
        convert(write_model(model), tmp_path / "m.bundle", opset=13)

    assert "leave --opset out" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


OPERATORS: dict[str, tuple[int, list[tuple[str, str, dict[str, Any]]], dict[str, Any]]] = {
    "axes become an input": (17, [("ReduceMean", "x", {"axes": [1]})], {}),
    "axes become an attribute": (18, [("ReduceMax", "x a", {}), ("Squeeze", "y0 a", {})], {"a": [1]}),
    "parts": (13, [("Split", "x parts", {"axis": 1})], {"parts": [1, 3]}),
    "a shape": (17, [("Reshape", "x s", {}), ("Identity", "y0", {})], {"s": [8, 3]}),
    "limits": (13, [("Clip", "x low high", {})], {"low": np.float32(0), "high": np.float32(0.5)}),
    "edges": (21, [("Pad", "x p", {})], {"p": [0, 1, 0, 0, 0, 1]}),
    "larger images": (9, [("Upsample", "x by", {})], {"by": np.array([1, 1, 2], np.float32)}),
    "the last axis": (17, [("Softmax", "x", {"axis": -1})], {}),
    "all after the batch": (11, [("Softmax", "x", {})], {}),
    "a middle axis": (17, [("Softmax", "x", {"axis": 1})], {}),
}
#: What an older operator set does not have, and is refused: by ONNX's own adapter it would give other numbers.
REFUSED = {("a middle axis", 9), ("a middle axis", 12)}


@pytest.mark.parametrize("opset", [9, 12, 17, 18, 26])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_changed_give_the_same_numbers_in_another_set(name: str, opset: int) -> None:
    own, operators, stored = OPERATORS[name]
    nodes = [
        helper.make_node(kind, read.split(), [f"y{i}"] if kind != "Split" else ["y0", "rest"], **options)
        for i, (kind, read, options) in enumerate(operators)
    ]
    weights = {key: np.asarray(value, getattr(value, "dtype", np.int64)) for key, value in stored.items()}
    model = onnx.load_from_string(
        zoo.model(nodes, [zoo.value("x", [2, 4, 3])], [zoo.value(nodes[-1].output[0], None)], weights, own)
    )
    model.ir_version = 8
    feeds = {"x": np.random.default_rng(0).normal(0, 1, (2, 4, 3)).astype(np.float32)}
    (wanted,) = run_onnx(model.SerializeToString(), feeds).values()
    model.graph.output[0].CopyFrom(zoo.value(nodes[-1].output[0], wanted.shape))

    if (name, opset) in REFUSED:
        with pytest.raises(ConversionError, match="adapter is wrong"):
            to_opset(model, opset)
        return
    written = to_opset(model, opset)

    assert opset_of(written) == opset
    (got,) = run_onnx(written.SerializeToString(), feeds).values()
    np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("opset", [0, -1, 999])
def test_an_operator_set_that_does_not_exist_is_refused(opset: int) -> None:
    with pytest.raises(ConversionError, match=f"There is no operator set {opset}"):
        to_opset(onnx.load_from_string(zoo.mlp()), opset)


# -- from Python --


def test_python_has_every_option_by_its_declared_name_type_and_default() -> None:
    """The signature is written out for editors; the declaration is what the command and the docs are made of."""
    parameters = list(inspect.signature(convert).parameters.values())

    found = [(one.name, one.annotation, one.default) for one in parameters]
    assert [name for name, *_ in found[:2]] == ["model", "output"]
    assert found[2:-2] == [(one.name, one.type, one.default) for one in OPTIONS]
    assert [name for name, *_ in found[-2:]] == ["reporter", "recipe"]


def test_the_command_has_every_option_by_its_declared_name_and_default() -> None:
    shown = {parameter.name: parameter for parameter in command.params}

    assert list(shown) == ["source", "output", *(one.name for one in OPTIONS), "dry_run", "as_json"]
    for one in OPTIONS:
        assert one.command_flag.partition("/")[0] in shown[str(one.name)].opts
        assert shown[one.name].default == (None if one.repeats else one.default)


def test_the_names_and_defaults_of_the_options_stay() -> None:
    assert {one.command_flag: one.default for one in OPTIONS} == {
        "--target": "any", "--name": None, "--model-version": "1", "--calibration": None, "--calibrate": "minmax",
        "--eval": None, "--labels": None, "--task": None, "--preprocess": None,
        "--license": None, "--sample": (),
        "--precision": None, "--max-loss": None, "--min-sqnr": None,
        "--max-size": None, "--max-latency-ratio": None, "--max-latency": None, "--max-ram": None,
        "--measured": None, "--metric": None, "--format": None,
        "--shape": None, "--dynamic": None,
        "--bind": None, "--layout": "onnx", "--tflite-io": None, "--keep-names": False,
        "--allow-baked": False, "--opset": None,
        "--layers": False, "--report": None, "--prune-dead-channels": False, "--prune": None, "--transport": None,
        "--goldens": None,
            "--drift/--no-drift": True, "--keep-all": False,
        "--cache/--no-cache": True, "--force": False,
    }  # fmt: skip


def test_the_docstring_describes_every_option() -> None:
    described = inspect.getdoc(convert) or ""

    assert all(f"    {one.name}: " in described for one in OPTIONS)
    assert "{options}" not in described


@pytest.mark.parametrize(
    "option",
    [
        {"target": "web"},
        {"max_latency_ratio": 1.0},
        {"calibrate": "mse"},
        {"prune_dead_channels": True},
        {"keep_names": True},
        {"cache": False},
    ],
    ids=lambda option: next(iter(option)),
)
def test_a_recipe_beside_other_options_is_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="`recipe` says what to make, and so do other arguments"):
        convert(tmp_path / "m.onnx", tmp_path / "m.bundle", recipe=Recipe(), **option)


def test_int8x16_is_made_by_name_measured_and_proven(write_model: WriteModel, tmp_path: Path) -> None:
    path = write_model(zoo.mlp(), "mlp.onnx")

    made = convert(path, tmp_path / "m.bundle", precision="fp32,int8,int8x16", format="tflite")

    assert [one.variant.id for one in made.variants if one.is_kept] == ["tflite/fp32", "tflite/int8", "tflite/int8x16"]
    narrow, wide = made.variants[1:]
    assert wide.quality.parity.sqnr_db > narrow.quality.parity.sqnr_db
    assert wide.variant.targets == ("mcu",)
    with edge_infer.load(tmp_path / "m.bundle", variant="tflite/int8x16", self_test=True) as session:
        assert session.report().variant == "tflite/int8x16"


@pytest.mark.parametrize("option", [{"target": "mcu"}, {"tflite_io": "int8", "format": "tflite", "precision": "int8"}])
def test_a_microcontroller_gets_int8_where_float_is_smaller(
    write_model: WriteModel, tmp_path: Path, option: dict[str, Any]
) -> None:
    """It cannot run the float file: a model of a few hundred bytes has no other way."""
    weights = {"w": np.ones((2, 3, 3, 3), np.float32)}
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    model = zoo.model([node], [zoo.value("x", [1, 3, 4, 4])], [zoo.value("y", [1, 2, 2, 2])], weights)

    made = convert(write_model(model), tmp_path / "m.bundle", **option)

    assert [one.variant.id for one in made.variants] == ["tflite/int8"]
