"""Static int8 in TFLite: which values share a scale, and which are quantized again where values are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

from edge_infer.parity import comparison
from edge_infer_converters import convert
from edge_infer_converters.data.reference_outputs import noise
from tests.support import zoo
from tests.support.converters.engines import run_onnx, run_tflite
from tests.support.converters.reporter import Told
from tests.support.converters.tflite_quantized import Arrays, feeds_of, graph_of, image_net

if TYPE_CHECKING:
    from pathlib import Path

_CHANNELS, _BLOCKS = 8, 3


def weight(*shape: int, times: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    values: np.ndarray = (rng.uniform(-1, 1, shape) * times / shape[1]).astype(np.float32)
    return values


def turned(channels: int) -> np.ndarray:
    """Weights that give each channel the values of another one."""
    values: np.ndarray = np.roll(np.eye(channels, dtype=np.float32), 1, axis=0)[:, :, None, None]
    return values


def sqnr(model: bytes, written: bytes) -> float:
    calls: list[Arrays] = feeds_of(model, 4)
    wanted = [run_onnx(model, call) for call in calls]
    return comparison.compare(wanted, [run_tflite(written, call) for call in calls]).sqnr_db


def blocks_with_a_last_of(times: float) -> bytes:
    """Blocks that end in a concatenation and read half of the one before, as ShuffleNet has them: y of x.

    Args:
        times: How much larger the values of the last block are; the output is that of the blocks before.
    """
    half = _CHANNELS // 2
    weights = {"halves": np.array([half, half], np.int64), "first": turned(_CHANNELS)}
    nodes = [helper.make_node("Conv", ["x", "first"], ["b0"])]
    for number in range(1, _BLOCKS + 1):
        factor = times if number == _BLOCKS else 1.0
        weights[f"w{number}"] = turned(half) * np.float32(factor)
        nodes += [
            helper.make_node("Split", [f"b{number - 1}", "halves"], [f"l{number}", f"r{number}"], axis=1),
            helper.make_node("Conv", [f"r{number}", f"w{number}"], [f"c{number}"]),
            helper.make_node("Concat", [f"c{number}", f"l{number}"], [f"b{number}"], axis=1),
        ]
    weights |= {"early": weight(4, half, 1, 1), "late": weight(4, _CHANNELS, 1, 1, times=1 / times)}
    nodes += [
        helper.make_node("Conv", [f"r{_BLOCKS - 1}", "early"], ["y"]),
        helper.make_node("Conv", [f"b{_BLOCKS}", "late"], ["z"]),
    ]
    outputs = [zoo.value("y", None), zoo.value("z", None)]
    return zoo.model(nodes, [zoo.value("x", [1, _CHANNELS, 6, 6])], outputs, weights)


def test_blocks_that_are_joined_do_not_take_the_scale_of_the_largest() -> None:
    model = blocks_with_a_last_of(100)

    written = graph_of(model).write("int8", feeds_of(model))

    calls = feeds_of(model, 4)
    early = [{"y": run_onnx(model, call)["y"]} for call in calls]
    found = comparison.compare(early, [{"y": run_tflite(written.data, call)["y"]} for call in calls])
    assert found.sqnr_db >= 30
    assert written.operators.count("QUANTIZE") == 2, "the input, and what goes into the largest block"


def test_blocks_of_like_ranges_share_one_scale() -> None:
    """Quantizing again would cost more than the few steps that a shared scale leaves unused."""
    model = blocks_with_a_last_of(1)

    written = graph_of(model).write("int8", feeds_of(model))

    assert written.operators.count("QUANTIZE") == 1, "the input"
    assert sqnr(model, written.data) >= 30


@pytest.mark.parametrize("word", ["int8", "int8x16"])
@pytest.mark.parametrize("op", ["Concat", "Max"])
def test_a_value_beside_a_larger_one_keeps_its_steps_for_other_readers(op: str, word: str) -> None:
    weights = {"small": weight(4, 4, 1, 1), "large": weight(4, 4, 1, 1, times=200), "v": weight(4, 4, 1, 1)}
    join = helper.make_node(op, ["a", "b"], ["j"])
    if op == "Concat":
        join.attribute.append(helper.make_attribute("axis", 1))
    nodes = [
        helper.make_node("Conv", ["x", "small"], ["a"]),
        helper.make_node("Conv", ["x", "large"], ["b"]),
        join,
        helper.make_node("Conv", ["a", "v"], ["y"]),
        helper.make_node("MaxPool", ["j"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Relu", ["p"], ["z"]),
    ]
    outputs = [zoo.value("y", None), zoo.value("z", None)]
    model = zoo.model(nodes, [zoo.value("x", [1, 4, 6, 6])], outputs, weights)

    written = graph_of(model).write(word, feeds_of(model))

    wanted = [run_onnx(model, call) for call in feeds_of(model, 4)]
    got = [run_tflite(written.data, call) for call in feeds_of(model, 4)]
    for name in ("y", "z"):
        found = comparison.compare([{name: one[name]} for one in wanted], [{name: one[name]} for one in got])
        assert found.sqnr_db >= 30


def test_scores_that_are_joined_at_the_end_are_not_rounded_to_the_steps_of_boxes() -> None:
    weights = {"b": weight(4, 8, times=60), "s": weight(8, 8, times=3)}
    nodes = [
        helper.make_node("MatMul", ["x", "bt"], ["boxes"]),
        helper.make_node("MatMul", ["x", "s"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["scores"], axis=-1),
        helper.make_node("Concat", ["boxes", "scores"], ["j"], axis=-1),
        helper.make_node("Transpose", ["j"], ["y"], perm=[1, 0]),
    ]
    weights["bt"] = np.ascontiguousarray(weights.pop("b").T)
    model = zoo.model(nodes, [zoo.value("x", [16, 8])], [zoo.value("y", [12, 16])], weights)
    graph = graph_of(model)

    written = graph.write("int8", feeds_of(model))

    calls = feeds_of(model, 4)
    wanted = [{"scores": run_onnx(model, call)["y"][4:]} for call in calls]
    got = [{"scores": run_tflite(written.data, call)["y"][4:]} for call in calls]
    assert comparison.compare(wanted, got).sqnr_db >= 30
    assert graph.write("int8", feeds_of(model), integer_interface=True).operators.count("DEQUANTIZE") == 0


def test_a_softmax_in_the_middle_is_read_in_the_scale_that_its_kernel_gives() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "b"], ["y"]),
    ]
    weights = {"a": weight(8, 16, times=3), "b": weight(16, 8, times=9)}
    model = zoo.model(nodes, [zoo.value("x", [16, 8])], [zoo.value("y", [16, 8])], weights)

    written = graph_of(model).write("int8", feeds_of(model))

    assert written.operators == ("QUANTIZE", "FULLY_CONNECTED", "SOFTMAX", "FULLY_CONNECTED", "DEQUANTIZE")
    interpreter = Interpreter(model_content=written.data)
    scales = [detail["quantization"] for detail in interpreter.get_tensor_details()]
    assert (1 / 256, -128) in scales


def test_ranges_without_rare_values_leave_smaller_steps_for_the_others() -> None:
    model = zoo.model(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        [zoo.value("x", [1, 4, 64, 64])],
        [zoo.value("y", None)],
        {"w": weight(4, 4, 1, 1)},
    )
    calls = feeds_of(model, 4)
    calls[0]["x"][0, 0, 0, 0] = 1000

    whole, clipped = (graph_of(model).write("int8", calls, method=one).data for one in ("minmax", "percentile"))

    assert sqnr(model, clipped) >= sqnr(model, whole) + 20


def test_auto_takes_the_ranges_that_measure_best(tmp_path: Path) -> None:
    model = image_net()
    images = np.concatenate([call["image"] for call in feeds_of(model, 4)])
    images[0, 0, 0, 0] = 20
    calls = [{"image": image[None]} for image in images]
    (tmp_path / "m.onnx").write_bytes(model)
    np.savez(tmp_path / "samples.npz", image=images)
    files: dict[str, bytes] = {}
    for method in ("minmax", "percentile", "mse", "auto"):
        bundle = tmp_path / f"{method}.bundle"
        options: dict[str, Any] = {"format": "tflite", "precision": "int8", "keep_all": True, "calibrate": method}
        convert(tmp_path / "m.onnx", bundle, calibration=tmp_path / "samples.npz", reporter=Told(), **options)
        files[method] = (bundle / "tflite/model_int8.tflite").read_bytes()

    auto = files.pop("auto")

    references = [run_onnx(model, call) for call in calls]
    errors = {one: noise(references, [run_tflite(data, call) for call in calls]) for one, data in files.items()}
    assert len(set(errors.values())) == 3
    assert auto == files[min(errors, key=lambda one: errors[one])]
