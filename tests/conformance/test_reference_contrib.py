"""Operators of `com.microsoft` and support vector machines on the reference engine: what ONNX Runtime gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import edge_infer

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel

RNG = np.random.default_rng(5)
F4 = np.float32


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F4)


def whole(*shape: int, dtype: str = "u1") -> Any:
    return RNG.integers(*((0, 256) if dtype == "u1" else (-128, 128)), shape).astype(dtype)


def scale(value: float) -> Any:
    return np.array(value, F4)


ZERO = np.array(120, np.uint8)
IMAGE = whole(1, 3, 6, 5)
Case = tuple[str, list[Any], dict[str, Any]]
#: The first input is given, the others are constants.
CASES: list[Case] = [
    *(
        ("MatMulNBits", [floats(3, 70), whole(4, 70 // 32 + 1, 32 * bits // 8), floats(12), *zeros],
         {"K": 70, "N": 4, "bits": bits, "block_size": 32})
        for bits in (4, 8)
        for zeros in ([], [whole(4 * -(-3 * bits // 8))])
    ),
    ("GatherBlockQuantized", [np.array([[3, 0], [1, 4]]), floats(5, 2)], {"block_size": 32, "bits": 4}),
    ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3)],
     {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("FusedGemm", [floats(2, 3), floats(4, 3), floats(4)], {"activation": "Relu", "transB": 1}),
    ("FusedMatMul", [floats(2, 3, 4), floats(2, 3, 5)], {"transA": 1, "alpha": 0.5}),
    ("Gelu", [floats(3, 4)], {}),
    *(
        (name, [IMAGE, scale(0.02), ZERO, whole(3, 1, 1), scale(0.01), ZERO, scale(0.03), ZERO], {})
        for name in ("QLinearAdd", "QLinearMul")
    ),
    ("QLinearSigmoid", [IMAGE, scale(0.02), ZERO, scale(1 / 256), np.array(0, np.uint8)], {}),
    ("QLinearLeakyRelu", [IMAGE, scale(0.02), ZERO, scale(0.02), ZERO], {"alpha": 0.3}),
    ("QLinearGlobalAveragePool", [IMAGE, scale(0.02), ZERO, scale(0.01), ZERO], {"channels_last": 0}),
    ("QLinearAveragePool", [IMAGE, scale(0.02), ZERO, scale(0.015), ZERO], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("QLinearAveragePool", [IMAGE, scale(0.02), ZERO, scale(0.015), ZERO],
     {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1}),
    *(
        ("QLinearSoftmax", [IMAGE, scale(0.05), ZERO, scale(1 / 256), np.array(0, np.uint8)],
         {"opset": opset, "axis": 1})
        for opset in (11, 13)
    ),
    ("QGemm", [whole(2, 6), scale(0.02), ZERO, whole(4, 6, dtype="i1"), scale(0.01), np.array(0, np.int8),
               RNG.integers(-900, 900, 4).astype("i4"), scale(0.05), ZERO], {"transB": 1}),
]  # fmt: skip


def model_of(operator: str, inputs: list[Any], attributes: dict[str, Any]) -> bytes:
    names = [f"i{k}" for k in range(len(inputs))]
    constants = [numpy_helper.from_array(one, name) for one, name in zip(inputs[1:], names[1:], strict=True)]
    if operator == "GatherBlockQuantized":  # its table comes before the places
        constants.append(numpy_helper.from_array(whole(5, 32), "table"))
        names = ["table", *names]
    kind = TensorProto.UINT8 if operator.startswith("Q") else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)],
        "graph",
        [helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"), CASES, ids=[f"{one[0]}-{i}" for i, one in enumerate(CASES)]
)
def test_an_operator_gives_what_onnx_runtime_gives(
    operator: str, inputs: list[Any], attributes: dict[str, Any], write_model: WriteModel
) -> None:
    path = write_model(model_of(operator, inputs, attributes))
    results = []
    for backend in ("onnxruntime", "reference"):
        with edge_infer.load(path, backend=backend) as session:
            results.append(session.run({"i0": inputs[0]})["y"])

    assert results[0].dtype == results[1].dtype
    if results[0].dtype == np.uint8:
        assert np.abs(results[0].astype(int) - results[1].astype(int)).max() <= 1
        assert np.ptp(results[1]) > 0
    else:
        np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "sigmoid"])
@pytest.mark.parametrize(
    ("has_chances", "transform"), [(False, "NONE"), (True, "NONE"), (False, "SOFTMAX"), (False, "LOGISTIC")]
)
def test_support_vectors_give_what_onnx_runtime_gives(
    classes: int, kernel: str, has_chances: bool, transform: str, write_model: WriteModel
) -> None:
    rng = np.random.default_rng(classes)
    counts = [3 + i for i in range(classes)]
    pairs = classes * (classes - 1) // 2
    chances: dict[str, Any] = (
        {"prob_a": [-1.0 - i / 4 for i in range(pairs)], "prob_b": [0.1] * pairs} if has_chances else {}
    )
    _compare_machines(
        write_model,
        rng,
        {
            "classlabels_ints": [*range(5, 5 + classes)],
            "vectors_per_class": counts,
            "support_vectors": rng.standard_normal(sum(counts) * 4).astype(F4).tolist(),
            "coefficients": rng.standard_normal(sum(counts) * (classes - 1)).astype(F4).tolist(),
            "rho": rng.standard_normal(pairs).astype(F4).tolist(),
            "kernel_type": kernel.upper(),
            "kernel_params": [0.3, 0.5, 2.0],
            "post_transform": transform,
            **chances,
        },
    )


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("is_positive", [False, True])
def test_weights_for_each_class_give_what_onnx_runtime_gives(
    classes: int, is_positive: bool, write_model: WriteModel
) -> None:
    rng = np.random.default_rng(classes)
    weights = rng.standard_normal(classes * 4).astype(F4)
    attributes = {
        "classlabels_ints": [*range(5, 5 + classes)],
        "coefficients": (np.abs(weights) if is_positive else weights).tolist(),
        "rho": [0.3],
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
    }

    _compare_machines(write_model, rng, attributes)


def _compare_machines(write_model: WriteModel, rng: np.random.Generator, attributes: dict[str, Any]) -> None:
    node = helper.make_node("SVMClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [20, 4])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [20]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, None),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path = write_model(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    given = {"x": rng.standard_normal((20, 4)).astype(F4)}
    results = []
    for backend in ("onnxruntime", "reference"):
        with edge_infer.load(path, backend=backend) as session:
            results.append(session.run(given))

    assert results[1]["label"].tolist() == results[0]["label"].tolist()
    np.testing.assert_allclose(results[1]["scores"], results[0]["scores"], rtol=1e-3, atol=1e-4)
