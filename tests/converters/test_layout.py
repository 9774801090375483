"""`--layout nhwc`: images with their channels last at both ends, in every file, in specs and golden examples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from click.testing import CliRunner
from onnx import helper

import edge_infer
from edge_infer import Bundle
from edge_infer.cli import cli
from edge_infer.errors import InputError
from edge_infer.parity import comparison
from edge_infer_converters import convert
from edge_infer_converters.sources.layout import to_channels_last
from edge_infer_converters.writers.tflite import FloatGraph
from tests.support import zoo
from tests.support.converters.engines import run_onnx, run_tflite
from tests.support.converters.small_models import MODELS, Net, calls_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

WITHOUT_IMAGES = ("bert", "decoder")
#: Those whose operators between the ends all keep their channels last.
WITHOUT_TRANSPOSES = ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3", "efficientnet_lite", "resnet", "u_net", "ds_cnn")


def segmenter() -> bytes:
    """mask [n, 2, 8, 6] and score [n, 3] of image [n, 3, 8, 6], and of a shift that is not an image."""
    net = Net()
    x = net.op("Relu", net.conv(net.op("Relu", net.conv("image", 3, 32)), 32, 32))
    mask = net.op("Sigmoid", net.op("Add", net.conv(x, 32, 2), "shift"))
    score = net.head(x, 32, 3)
    net.nodes += [helper.make_node("Identity", [mask], ["mask"]), helper.make_node("Identity", [score], ["score"])]
    inputs = [zoo.value("image", ["n", 3, 8, 6]), zoo.value("shift", [1])]
    outputs = [zoo.value("mask", ["n", 2, 8, 6]), zoo.value("score", ["n", 3])]
    return zoo.model(net.nodes, inputs, outputs, net.weights)


def dims_of(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]


def turned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.moveaxis(array, 1, -1) if array.ndim > 2 else array


@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITHOUT_IMAGES])
def test_a_network_gives_the_same_numbers_with_its_images_turned(name: str) -> None:
    model = MODELS[name]()
    graph = FloatGraph.of_onnx(to_channels_last(onnx.load_from_string(model)))
    call = calls_of(model, 1)[0]

    written = graph.write()

    got = run_tflite(written.data, {"image": turned(call["image"])})
    for output, wanted in run_onnx(model, call).items():
        is_image = got[output].shape != wanted.shape
        assert is_image == (name == "u_net")
        figures = comparison.compare([{"y": turned(wanted) if is_image else wanted}], [{"y": got[output]}])
        assert figures.sqnr_db >= 115
    if name in WITHOUT_TRANSPOSES:
        assert "TRANSPOSE" not in written.operators


def test_only_images_are_turned_and_dimensions_keep_their_symbols() -> None:
    graph = to_channels_last(onnx.load_from_string(segmenter())).graph

    assert {value.name: dims_of(value) for value in (*graph.input, *graph.output)} == {
        "image": ["n", 8, 6, 3],
        "shift": [1],
        "mask": ["n", 8, 6, 2],
        "score": ["n", 3],
    }


def test_a_signal_of_one_dimension_is_turned() -> None:
    weights = {"w": np.ones((5, 3, 3), np.float32)}
    node = helper.make_node("Conv", ["signal", "w"], ["y"], pads=[1, 1])
    model = zoo.model([node], [zoo.value("signal", [1, 3, 7])], [zoo.value("y", [1, 5, 7])], weights)
    x = np.random.default_rng(0).normal(size=(1, 3, 7)).astype(np.float32)

    changed = to_channels_last(onnx.load_from_string(model))

    assert [dims_of(value) for value in (*changed.graph.input, *changed.graph.output)] == [[1, 7, 3], [1, 7, 5]]
    written = FloatGraph.of_onnx(changed).write()
    np.testing.assert_allclose(
        run_tflite(written.data, {"signal": turned(x)})["y"], turned(run_onnx(model, {"signal": x})["y"]), rtol=1e-5
    )
    assert "TRANSPOSE" not in written.operators


def test_an_output_that_is_read_inside_and_a_branch_stay_right() -> None:
    """The convolution's result is an output, another node reads it, and both branches of an If do."""
    branch = [
        helper.make_graph([helper.make_node(op, ["c"], [f"{op}_y"])], op, [], [zoo.value(f"{op}_y", [1, 2, 3, 4])])
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["is_positive"]),
        helper.make_node("If", ["is_positive"], ["z"], then_branch=branch[0], else_branch=branch[1]),
    ]
    weights = {"w": np.random.default_rng(1).normal(size=(2, 3, 1, 1)).astype(np.float32), "zero": np.float32(0)}
    outputs = [zoo.value("c", [1, 2, 3, 4]), zoo.value("z", [1, 2, 3, 4])]
    model = zoo.model(nodes, [zoo.value("image", [1, 3, 3, 4])], outputs, weights)  # type: ignore[arg-type]
    x = np.random.default_rng(0).normal(size=(1, 3, 3, 4)).astype(np.float32)

    changed = to_channels_last(onnx.load_from_string(model)).SerializeToString()

    wanted, got = run_onnx(model, {"image": x}), run_onnx(changed, {"image": turned(x)})
    np.testing.assert_array_equal(got["c"], turned(wanted["c"]))
    np.testing.assert_array_equal(got["z"], wanted["z"])


def test_a_bundle_says_so_in_specs_examples_and_signatures(write_model: WriteModel, tmp_path: Path) -> None:
    arguments = [str(write_model(segmenter(), "m.onnx")), "-o", str(tmp_path / "m.bundle"), "--layout", "nhwc"]

    done = CliRunner().invoke(cli, ["convert", *arguments, "--precision", "fp32,fp16", "--json"])

    assert done.exit_code == 0, done.output
    bundle = Bundle.open(tmp_path / "m.bundle")
    assert [str(spec) for spec in bundle.manifest.inputs] == ["image: float32[n, 8, 6, 3]", "shift: float32[1]"]
    assert [str(spec) for spec in bundle.manifest.outputs] == ["mask: float32[n, 8, 6, 2]", "score: float32[n, 3]"]
    inputs, outputs = bundle.examples()[0]
    assert (inputs["image"].shape, outputs["mask"].shape) == ((1, 8, 6, 3), (1, 8, 6, 2))
    runner = Interpreter(model_path=str(tmp_path / "m.bundle/tflite/model.tflite")).get_signature_runner()
    assert runner.get_input_details()["image"]["shape_signature"].tolist() == [-1, 8, 6, 3]
    verified = CliRunner().invoke(cli, ["verify", str(tmp_path / "m.bundle"), "--json"])
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["passed"]
    call = {"image": np.ones((1, 3, 8, 6), np.float32), "shift": np.zeros(1, np.float32)}
    wanted = run_onnx(segmenter(), call)
    for variant in ("onnx/fp32", "tflite/fp32"):
        with edge_infer.load(tmp_path / "m.bundle", variant=variant, arrays="numpy") as session:
            got = session.run({**call, "image": turned(call["image"])})
        np.testing.assert_allclose(got["mask"], turned(wanted["mask"]), rtol=1e-4)


def test_data_are_given_in_the_order_that_the_bundle_has(write_model: WriteModel, tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(8, 8, 6, 3)).astype(np.float32)
    shifts = np.zeros((8, 1), np.float32)
    np.savez(tmp_path / "last.npz", image=images, shift=shifts)
    np.savez(tmp_path / "first.npz", image=np.moveaxis(images, -1, 1), shift=shifts)
    model = write_model(segmenter(), "m.onnx")

    made = convert(
        model,
        tmp_path / "m.bundle",
        calibration=tmp_path / "last.npz",
        layout="nhwc",
        precision="int8",
        format="tflite",
    )

    assert [one.variant.id for one in made.variants if one.is_kept] == ["tflite/int8"]
    with pytest.raises(InputError, match=r"expected \(samples, 8, 6, 3\)"):
        convert(model, tmp_path / "n.bundle", calibration=tmp_path / "first.npz", layout="nhwc")


def test_a_model_without_images_says_that_nothing_would_change(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="changes nothing"):
        convert(write_model(zoo.mlp(), "mlp.onnx"), tmp_path / "mlp.bundle", layout="nhwc")


def test_the_layout_of_a_tflite_file_stays(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(FloatGraph.of_onnx(onnx.load_from_string(zoo.mlp())).write().data)

    with pytest.raises(InputError, match="--layout"):
        convert(tmp_path / "m.tflite", tmp_path / "m.bundle", layout="nhwc")


def test_a_layout_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Layout `nwhc` is not known"):
        convert(tmp_path / "m.onnx", tmp_path / "m.bundle", layout="nwhc")
