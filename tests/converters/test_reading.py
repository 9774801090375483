"""Models as other tools write them: what their files leave out or repeat is no reason to refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_infer_converters.data.calibration import read_set
from edge_infer_converters.data.random_inputs import random_set
from edge_infer_converters.engine import fast_session
from edge_infer_converters.sources.factory import open_source
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx

if TYPE_CHECKING:
    from pathlib import Path


def changed(data: bytes, path: Path, **fields: Any) -> Path:
    """Write a model with repeated fields replaced."""
    model = onnx.load_from_string(data)
    for name, values in fields.items():
        place = model if name == "opset_import" else model.graph
        members = list(values)
        del getattr(place, name)[:]
        getattr(place, name).extend(members)
    path.write_bytes(model.SerializeToString())
    return path


def test_nodes_in_any_order_are_sorted(tmp_path: Path) -> None:
    nodes = onnx.load_from_string(zoo.mlp()).graph.node
    source = open_source(changed(zoo.mlp(), tmp_path / "model.onnx", node=reversed(nodes)))
    feeds = random_feeds(zoo.mlp())

    np.testing.assert_array_equal(source.reference().run(feeds)["logits"], run_onnx(zoo.mlp(), feeds)["logits"])


def test_a_domain_of_the_engine_need_not_be_imported(tmp_path: Path) -> None:
    node = helper.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft")
    (tmp_path / "model.onnx").write_bytes(zoo.model([node], [zoo.value("x", [4])], [zoo.value("y", [4])]))

    assert open_source(tmp_path / "model.onnx").reference().run({"x": np.zeros(4, np.float32)})["y"].tolist() == [0] * 4


def test_an_operator_that_only_the_engine_has_in_this_set_is_kept(tmp_path: Path) -> None:
    """ONNX has LayerNormalization since set 17, ONNX Runtime in every set."""
    weights = {"scale": np.ones(4, np.float32), "bias": np.zeros(4, np.float32)}
    node = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], axis=-1)
    data = zoo.model([node], [zoo.value("x", [2, 4])], [zoo.value("y", [2, 4])], weights, opset=11)
    (tmp_path / "model.onnx").write_bytes(data)

    assert [str(spec) for spec in open_source(tmp_path / "model.onnx").outputs] == ["y: float32[2, 4]"]


def test_a_classifier_of_one_domain_gives_its_probabilities(tmp_path: Path) -> None:
    """A map of classes without a rank, and no import of ONNX's own set: onnxmltools wrote such files in 2018."""
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            classlabels_ints=[0, 1],
            coefficients=[1.0, -1.0, -1.0, 1.0],
            intercepts=[0.0, 0.0],
        ),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    outputs = [zoo.value("label", [3], "int64"), helper.make_value_info("probabilities", kind)]
    data = zoo.model(nodes, [zoo.value("x", [3, 2])], outputs)
    source = open_source(changed(data, tmp_path / "model.onnx", opset_import=[helper.make_opsetid("ai.onnx.ml", 1)]))

    given = source.reference().run({"x": np.array([[1, 0], [0, 1], [2, 0]], np.float32)})

    assert given["probabilities"].tolist() == [[1, -1], [-1, 1], [2, -2]]


@pytest.mark.parametrize("behind", [True, False])
def test_int8_weights_that_share_a_zero_point_load_in_precise_mode(tmp_path: Path, behind: bool) -> None:
    """Exporters give all weights one zero point; ONNX Runtime 1.31 refuses that in precise mode."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray[Any, Any]] = {
        "scale": np.array(0.02, np.float32),
        "zero": np.array(0, np.int8),
        "active": np.array(128, np.uint8),
    }
    nodes, name = [], "x"
    for i in range(2):
        weights[f"w{i}"] = rng.integers(-127, 127, (4, 4, 1, 1), np.int8)
        zero = "zero"
        if behind:
            zero = f"zero{i}"
            nodes.append(helper.make_node("Identity", ["zero"], [zero]))
        nodes += [
            helper.make_node("QuantizeLinear", [name, "scale", "active"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", "scale", "active"], [f"d{i}"]),
            helper.make_node("DequantizeLinear", [f"w{i}", "scale", zero], [f"dw{i}"]),
            helper.make_node("Conv", [f"d{i}", f"dw{i}"], [f"c{i}"]),
            helper.make_node("QuantizeLinear", [f"c{i}", "scale", "active"], [f"o{i}"]),
            helper.make_node("DequantizeLinear", [f"o{i}", "scale", "active"], [f"y{i}"]),
        ]
        name = f"y{i}"
    shape = [1, 4, 3, 3]
    data = zoo.model(nodes, [zoo.value("x", shape)], [zoo.value("y1", shape)], weights)
    (tmp_path / "model.onnx").write_bytes(data)

    source, _ = open_source(tmp_path / "model.onnx").cleaned(None, prunes=False)
    session = fast_session(source.release(("onnx",))[1].SerializeToString())

    feeds = random_feeds(data)
    np.testing.assert_allclose(session.run(None, feeds)[0], run_onnx(data, feeds)["y1"], atol=0.0201)


def test_one_symbol_has_one_size_in_all_random_inputs(tmp_path: Path) -> None:
    specs = open_source_specs(tmp_path, {"x": ["batch", "length"], "state": [2, "batch", 8], "mask": ["m", "length"]})
    feeds = random_set(specs, 16).calls[0]

    assert {name: feed.shape for name, feed in feeds.items()} == {"x": (1, 16), "state": (2, 1, 8), "mask": (1, 16)}


def test_samples_of_a_number_are_arrays(tmp_path: Path) -> None:
    specs = open_source_specs(tmp_path, {"x": ["batch", 3], "rate": []})
    np.savez(tmp_path / "data.npz", x=np.zeros((5, 3), np.float32), rate=np.full(5, 16000, np.float32))

    calls = read_set(tmp_path / "data.npz", specs).calls

    assert [type(call["rate"]) for call in calls] == [np.ndarray] * 5


def open_source_specs(folder: Path, shapes: dict[str, list[int | str]]) -> Any:
    """Return the specs of a model that gives its inputs out."""
    nodes = [helper.make_node("Neg", [name], [f"{name}_out"]) for name in shapes]
    inputs = [zoo.value(name, shape) for name, shape in shapes.items()]
    outputs = [zoo.value(f"{name}_out", shape) for name, shape in shapes.items()]
    (folder / "model.onnx").write_bytes(zoo.model(nodes, inputs, outputs))
    return open_source(folder / "model.onnx").inputs
