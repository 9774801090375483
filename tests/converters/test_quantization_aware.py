"""Models of quantization-aware training: their scales are kept, and nothing is quantized twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer_converters import convert
from edge_infer_converters.passes.quantized_weights import store_quantized_weights
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx

if TYPE_CHECKING:
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

    assert [one.variant.id for one in result.variants] == ["onnx/int8"]
    assert result.variants[0].nbytes < 0.5 * len(data)
    assert result.variants[0].quality.parity.sqnr_db > 60
