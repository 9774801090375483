"""Models of quantization-aware training: their scales are kept, and nothing is quantized twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import edge_infer
from edge_infer.errors import ConversionError, UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.engine import make_session
from edge_infer_converters.passes.quantized_operators import to_quantizers
from edge_infer_converters.passes.quantized_weights import store_quantized_weights
from edge_infer_converters.writers.tflite.writer import FloatGraph
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx, run_tflite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.model_files import WriteModel


def aware(*, per_channel: bool, weight_type: type[np.int8 | np.uint8] = np.int8) -> bytes:
    """A convolution as training tools export it: float weights, and quantizers around all that is computed."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.001, 0.01, 8 if per_channel else ()).astype(np.float32)
    zeros = np.full(scale.shape, 0 if weight_type is np.int8 else 128, weight_type)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Conv", ["xf", "wf"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "cs", "xz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "cs", "xz"], ["y"]),
    ]
    weights: dict[str, np.ndarray] = {
        "w": rng.normal(0, 0.3, (8, 16, 3, 3)).astype(np.float32),
        "ws": scale,
        "wz": zeros,
        "xs": np.array(0.02, np.float32),
        "cs": np.array(0.05, np.float32),
        "xz": np.array(128, np.uint8),
    }
    return zoo.model(nodes, [zoo.value("x", [1, 16, 8, 8])], [zoo.value("y", [1, 8, 6, 6])], weights)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight_type", [np.int8, np.uint8])
def test_quantized_weights_are_stored_as_the_operator_computes_them(
    per_channel: bool, weight_type: type[np.int8 | np.uint8]
) -> None:
    model = onnx.load_from_string(aware(per_channel=per_channel, weight_type=weight_type))
    feeds = random_feeds(model.SerializeToString())

    stored = store_quantized_weights(model)

    types = {tensor.name: numpy_helper.to_array(tensor).dtype for tensor in stored.graph.initializer}
    assert types["wq"] == weight_type
    assert "w" not in types
    assert [node.op_type for node in stored.graph.node].count("QuantizeLinear") == 2
    wanted, got = run_onnx(model.SerializeToString(), feeds), run_onnx(stored.SerializeToString(), feeds)
    np.testing.assert_array_equal(got["y"], wanted["y"])
    assert any(tensor.name == "w" for tensor in model.graph.initializer), "the source is not changed"


def test_a_model_of_quantization_aware_training_is_not_quantized_again(write_model: WriteModel, tmp_path: Path) -> None:
    data = aware(per_channel=True)

    result = convert(write_model(data), tmp_path / "aware.bundle")

    assert [one.variant.id for one in result.variants] == ["onnx/int8", "tflite/int8", "compiled/int8"]
    assert result.variants[0].nbytes < 0.5 * len(data)
    assert all(one.quality.parity.sqnr_db > 60 for one in result.variants)


def test_a_model_of_quantization_aware_training_is_written_in_no_other_precision(write_model: WriteModel) -> None:
    graph = FloatGraph.of_onnx(onnx.load_from_string(aware(per_channel=True)))

    with pytest.raises(ConversionError, match="quantized already: it is not written in fp16 again"):
        graph.write("fp16")


_NODE = helper.make_node
_SIZE = 16


def network() -> onnx.ModelProto:
    """A network with each kind of operator that onnxruntime's quantizer writes in both forms."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}

    def weight(name: str, *shape: int) -> str:
        weights[name] = rng.normal(0, 0.2, shape).astype(np.float32)
        return name

    nodes = [
        _NODE("Conv", ["x", weight("w1", 16, 3, 3, 3), weight("b1", 16)], ["c1"], pads=[1, 1, 1, 1]),
        _NODE("Relu", ["c1"], ["r1"]),
        _NODE("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        _NODE("Conv", ["p1", weight("w2", 16, 1, 3, 3), weight("b2", 16)], ["c2"], pads=[1, 1, 1, 1], group=16),
        _NODE("Clip", ["c2", "low", "high"], ["r2"]),
        _NODE("Conv", ["r2", weight("w3", 16, 16, 1, 1), weight("b3", 16)], ["c3"]),
        _NODE("Add", ["c3", "p1"], ["a1"]),
        _NODE("Conv", ["a1", weight("w4", 8, 16, 1, 1)], ["c4"]),
        _NODE("Mul", ["c4", "c4"], ["m4"]),
        _NODE("Concat", ["m4", "a1"], ["cc"], axis=1),
        _NODE("Conv", ["cc", weight("w5", 6, 24, 1, 1), weight("b5", 6)], ["y"]),
    ]
    ends = [zoo.value("x", ["n", 3, _SIZE, _SIZE])], [zoo.value("y", ["n", 6])]
    graph = helper.make_graph(
        nodes, "g", *ends, [numpy_helper.from_array(value, name) for name, value in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def dense() -> onnx.ModelProto:
    """The same for products of matrices."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in {"w1": (24, 3 * _SIZE * _SIZE), "b1": (24,), "w2": (24, 6)}.items()
    }
    nodes = [
        _NODE("Flatten", ["x"], ["f"]),
        _NODE("Gemm", ["f", "w1", "b1"], ["h"], transB=1),
        _NODE("Relu", ["h"], ["r"]),
        _NODE("MatMul", ["r", "w2"], ["y"]),
    ]
    ends = [zoo.value("x", ["n", 3, _SIZE, _SIZE])], [zoo.value("y", ["n", 6])]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(one, name) for name, one in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw images of different brightness and contrast, so that answers differ."""
    levels = (len(shape) - 1) * (1,)
    brightness, contrast = rng.normal(0, 0.7, (shape[0], *levels)), rng.uniform(0.1, 1.5, (shape[0], *levels))
    return (rng.normal(0, 1, shape) * contrast + brightness).astype(np.float32)


class Drawn(CalibrationDataReader):  # type: ignore[misc]
    """Inputs for `network`."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._calls: Iterator[dict[str, np.ndarray]] = iter([{"x": drawn(rng, (4, 3, _SIZE, _SIZE))} for _ in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._calls, None)


def steps_beside(model: onnx.ModelProto, tflite: bytes, shape: tuple[int, ...], *, optimize: bool = True) -> np.ndarray:
    """Return by how many steps of their scale LiteRT's answers differ from onnxruntime's."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    last = next(node for node in model.graph.node if node.output[0] == "y")
    step = float(stored[last.input[1]])
    rng = np.random.default_rng(7)
    calls = [{"x": drawn(rng, shape)} for _ in range(20)]
    wanted = np.stack([run_onnx(model.SerializeToString(), feeds, optimize=optimize)["y"] for feeds in calls])
    got = np.stack([run_tflite(tflite, feeds)["y"] for feeds in calls])
    assert np.ptp(wanted, axis=(0, 1)).min() > 10 * step, "the answers to the calls differ"
    beside: np.ndarray = np.abs(wanted - got) / step
    return beside


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator], ids=lambda one: one.name)
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize(
    ("activations", "weights"),
    [
        (QuantType.QUInt8, QuantType.QInt8),
        (QuantType.QInt8, QuantType.QInt8),
        (QuantType.QUInt8, QuantType.QUInt8),
    ],
    ids=["uint8", "int8", "asymmetric"],
)
def test_what_onnxruntime_quantized_computes_in_tflite_within_one_step(
    form: QuantFormat, per_channel: bool, activations: QuantType, weights: QuantType, tmp_path: Path
) -> None:
    types = {"activation_type": activations, "weight_type": weights}
    for source, integers in ((network(), 9), (dense(), 2)):
        onnx.save(source, tmp_path / "float.onnx")
        settings = {"quant_format": form, "per_channel": per_channel, **types}
        quantize_static(tmp_path / "float.onnx", tmp_path / "model.onnx", Drawn(), **settings)
        model = onnx.load(tmp_path / "model.onnx")

        written = FloatGraph.of_onnx(model).write("int8")

        # onnxruntime has no kernels for QOperator with signed values once it has optimized them; without that,
        # unsigned ones saturate on x86 CPUs without VNNI.
        optimize = form is QuantFormat.QDQ or activations == QuantType.QUInt8
        beside = steps_beside(model, written.data, (2, 3, _SIZE, _SIZE), optimize=optimize)
        assert (beside < 1.001).mean() >= 0.999
        if weights is QuantType.QInt8:
            assert int(written.note.split()[0]) >= integers, written.note
        if not (per_channel and weights is QuantType.QUInt8):  # zero points of channels have no place in TFLite
            assert len(written.data) < 0.35 * source.ByteSize() + 5000, "its weights are int8"


@pytest.mark.parametrize(
    "node",
    [
        _NODE("AveragePool", ["f"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        _NODE("GlobalAveragePool", ["f"], ["c"]),
        _NODE("HardSwish", ["f"], ["c"]),
        _NODE("LeakyRelu", ["f"], ["c"], alpha=0.1),
        _NODE("Sigmoid", ["f"], ["c"]),
        _NODE("Softmax", ["f"], ["c"], axis=3),
        _NODE("Tanh", ["f"], ["c"]),
    ],
    ids=lambda node: node.op_type,
)
@pytest.mark.parametrize("scale", [1 / 300, 0.02])
def test_one_operator_is_at_most_one_step_beside(node: onnx.NodeProto, scale: float) -> None:
    nodes = [
        _NODE("QuantizeLinear", ["x", "s", "z"], ["q"]),
        _NODE("DequantizeLinear", ["q", "s", "z"], ["f"]),
        node,
        _NODE("QuantizeLinear", ["c", "os", "oz"], ["cq"]),
        _NODE("DequantizeLinear", ["cq", "os", "oz"], ["y"]),
    ]
    weights: dict[str, np.ndarray] = {
        "s": np.array(0.03, np.float32),
        "z": np.array(120, np.uint8),
        "os": np.array(scale, np.float32),
        "oz": np.array(90, np.uint8),
    }
    shape = [1, 4, 4, 4] if "Pool" not in node.op_type else [1, 4, 2, 2] if node.op_type[0] == "A" else [1, 4, 1, 1]
    data = zoo.model(nodes, [zoo.value("x", [1, 4, 4, 4])], [zoo.value("y", shape)], weights)
    feeds = {"x": np.random.default_rng(0).normal(0, 1.5, (1, 4, 4, 4)).astype(np.float32)}

    written = FloatGraph.of_onnx(onnx.load_from_string(data)).write("int8")

    beside = np.abs(run_onnx(data, feeds)["y"] - run_tflite(written.data, feeds)["y"]) / scale
    assert beside.max() < 1.001


def torch_like() -> onnx.ModelProto:
    """Forms that torch exports: 7 bits by Clip, Cast to the same type, scales from Constant, weights turned behind."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "w": rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32),
        "ws": rng.uniform(0.002, 0.01, 8).astype(np.float32),
        "wz": np.zeros(8, np.int8),
        "b": rng.normal(0, 1, 8).astype(np.float32),
        "xs": np.array(0.03, np.float32),
        "xz": np.array(64, np.uint8),
        "low": np.array(0, np.uint8),
        "high": np.array(127, np.uint8),
        "cs": np.array(0.06, np.float32),
        "cz": np.array(0, np.uint8),
        "l": rng.integers(-128, 127, (5, 8)).astype(np.int8),
        "ls": np.array(0.004, np.float32),
        "lz": np.array(0, np.int8),
        "lb": rng.normal(0, 1, 5).astype(np.float32),
        "os": np.array(0.05, np.float32),
        "oz": np.array(70, np.uint8),
    }
    nodes = [
        _NODE("Identity", ["xs"], ["xsi"]),
        _NODE("QuantizeLinear", ["x", "xsi", "xz"], ["xq"]),
        _NODE("Clip", ["xq", "low", "high"], ["xc"]),
        _NODE("DequantizeLinear", ["xc", "xs", "xz"], ["xf"]),
        _NODE("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0),
        _NODE("DequantizeLinear", ["wq", "ws", "wz"], ["wf"], axis=0),
        _NODE("Conv", ["xf", "wf", "b"], ["c"], pads=[1, 1, 1, 1]),
        _NODE("Relu", ["c"], ["r"]),
        _NODE("QuantizeLinear", ["r", "cs", "cz"], ["rq"]),
        _NODE("Cast", ["rq"], ["rc"], to=onnx.TensorProto.UINT8),
        _NODE("DequantizeLinear", ["rc", "cs", "cz"], ["rf"]),
        _NODE("MaxPool", ["rf"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        _NODE("GlobalAveragePool", ["m"], ["a"]),
        _NODE("Flatten", ["a"], ["f"]),
        _NODE("QuantizeLinear", ["f", "cs", "cz"], ["fq"]),
        _NODE("DequantizeLinear", ["fq", "cs", "cz"], ["ff"]),
        _NODE("DequantizeLinear", ["l", "ls", "lz"], ["lf"]),
        _NODE("Transpose", ["lf"], ["lt"], perm=[1, 0]),
        _NODE("MatMul", ["ff", "lt"], ["p"]),
        _NODE("Add", ["p", "lb"], ["s"]),
        _NODE("QuantizeLinear", ["s", "os", "oz"], ["sq"]),
        _NODE("DequantizeLinear", ["sq", "os", "oz"], ["y"]),
    ]
    ends = [zoo.value("x", ["n", 3, 8, 8])], [zoo.value("y", ["n", 5])]
    graph = helper.make_graph(
        nodes, "g", *ends, [numpy_helper.from_array(value, name) for name, value in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_the_forms_of_quantization_aware_training_compute_in_integers() -> None:
    model = torch_like()

    written = FloatGraph.of_onnx(model).write("int8")

    assert written.note.startswith("7 of 7 operators in int8")
    beside = steps_beside(model, written.data, (2, 3, 8, 8))
    assert (beside < 1.001).mean() >= 0.99
    assert beside.max() < 2.001, "the mean of integers is rounded otherwise where it lies between two"


def test_a_quantized_model_takes_and_gives_its_own_integers_where_they_are_asked_for() -> None:
    model = torch_like()
    feeds = {"x": np.random.default_rng(3).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    graph = FloatGraph.of_onnx(model)

    written = graph.write("int8", integer_interface=True)

    assert "DEQUANTIZE" not in written.operators
    integers = np.clip(np.rint(feeds["x"] / np.float32(0.03)) + 64 - 128, -128, 127).astype(np.int8)
    given = run_tflite(written.data, {"x": integers})["y"]
    assert given.dtype == np.int8
    wanted = run_tflite(graph.write("int8").data, feeds)["y"]
    np.testing.assert_allclose((given.astype(np.float32) - (70 - 128)) * 0.05, wanted, atol=1e-6)


def test_scales_that_are_computed_are_refused_by_name() -> None:
    nodes = [
        _NODE("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        _NODE("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    data = zoo.model(nodes, [zoo.value("x", [1, 4])], [zoo.value("y", [1, 4])], {})

    with pytest.raises(UnsupportedOperator, match="QuantizeLinear"):
        FloatGraph.of_onnx(onnx.load_from_string(data))


def test_a_value_that_is_read_as_float_too_is_not_rounded() -> None:
    """The sum reads the convolution's own result, as residual paths of TensorRT's exporters do."""
    model = onnx.load_from_string(aware(per_channel=True))
    model.graph.output[0].name = "z"
    model.graph.node.append(_NODE("Add", ["c", "y"], ["z"]))
    feeds = random_feeds(model.SerializeToString())

    written = FloatGraph.of_onnx(model).write("int8")

    assert len(written.data) < 0.7 * len(aware(per_channel=True)), "its weights are int8"
    wanted = run_onnx(model.SerializeToString(), feeds)["z"]
    assert (np.abs(run_tflite(written.data, feeds)["z"] - wanted) < 1e-4).mean() > 0.99, "but for rounding of ties"


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_alpha_of_a_quantized_product_scales_its_bias_too(alpha: float) -> None:
    rng = np.random.default_rng(3)
    stored = {
        "as": np.float32(0.02),
        "az": np.uint8(10),
        "bs": np.float32(0.01),
        "bz": np.int8(0),
        "b": rng.integers(-100, 100, (4, 3)).astype(np.int8),
        "c": np.array([1000, -2000, 3000], np.int32),
    }
    names = ["a", "as", "az", "b", "bs", "bz", "c"]
    node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", alpha=alpha)
    ends = (
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    domains = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", *ends, weights), opset_imports=domains, ir_version=8)
    feeds = {"a": rng.integers(0, 255, (2, 4)).astype(np.uint8)}

    given, made = (
        make_session(one.SerializeToString(), "g").run(None, feeds)[0] for one in (model, to_quantizers(model))
    )

    np.testing.assert_allclose(made, given, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_floats_beside_stored_integers_are_not_rounded(dtype: str, write_model: WriteModel, tmp_path: Path) -> None:
    """The engine makes `MatMulNBits` of it, which rounds both sides, natively and not in a page."""
    rng = np.random.default_rng(7)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}
    blocks: dict[str, Any] = {"axis": 0, "block_size": 32} if dtype == "int4" else {"axis": 1}
    for i in range(3):
        weights[f"w{i}"] = rng.integers(-8, 8, (128, 128))
        weights[f"s{i}"] = np.full((4, 128) if dtype == "int4" else 128, 0.03, np.float32)
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{i}", f"s{i}"], [f"real{i}"], **blocks),
            helper.make_node("MatMul", [f"y{i}", f"real{i}"], [f"z{i}"]),
            helper.make_node("Tanh", [f"z{i}"], [f"y{i + 1}"]),
        ]
    sides = [zoo.value("y0", ["n", 128])], [zoo.value("y3", ["n", 128])]
    scales = {name: weights[name] for name in ("s0", "s1", "s2")}
    model = onnx.load_from_string(zoo.model(nodes, *sides, scales))
    kind = zoo.ELEMENT_TYPES[dtype]
    model.graph.initializer.extend(
        helper.make_tensor(name, kind, (128, 128), weights[name].reshape(-1).tolist()) for name in ("w0", "w1", "w2")
    )
    data = model.SerializeToString()
    feed = {"y0": rng.normal(0, 1, (2, 128)).astype(np.float32)}

    convert(write_model(data), tmp_path / "m.bundle", format="onnx")

    with edge_infer.load(tmp_path / "m.bundle", backend="onnxruntime") as session:
        np.testing.assert_allclose(session.run(feed)["y3"], run_onnx(data, feed, optimize=False)["y3"], atol=1e-4)
