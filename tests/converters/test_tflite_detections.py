"""TFLite_Detection_PostProcess becomes ONNX that finds the boxes which LiteRT's kernel finds."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import flexbuffers

from edge_infer.errors import EdgeInferError
from edge_infer_converters.writers.onnx import SUPPORTED, to_onnx
from edge_infer_converters.writers.tflite import reading
from tests.support.converters.engines import run_onnx

ANCHORS, CLASSES = 60, 5
OPTIONS: dict[str, Any] = {
    "max_detections": 10,
    "max_classes_per_detection": 1,
    "detections_per_class": 8,
    "use_regular_nms": False,
    "nms_score_threshold": 0.3,
    "nms_iou_threshold": 0.5,
    "num_classes": CLASSES,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


def detector(**changed: Any) -> bytes:
    """Build a file that holds the operator alone, with a background class in front."""
    rng = np.random.default_rng(1)
    anchors = np.concatenate([rng.uniform(0, 1, (ANCHORS, 2)), rng.uniform(0.1, 0.4, (ANCHORS, 2))], axis=1)
    model: Any = schema.ModelT()
    model.version, model.description = 3, b"test"
    model.buffers = [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(anchors.astype(np.float32).tobytes(), np.uint8)
    code: Any = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode, code.version = b"TFLite_Detection_PostProcess", 1
    graph: Any = schema.SubGraphT()
    shapes = {
        "boxes": [1, ANCHORS, 4],
        "scores": [1, ANCHORS, CLASSES + 1],
        "anchors": [ANCHORS, 4],
        **{f"out{i}": [] for i in range(4)},
    }
    graph.tensors = []
    for name, shape in shapes.items():
        tensor: Any = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name.encode(), shape, schema.TensorType.FLOAT32
        tensor.buffer = int(name == "anchors")
        graph.tensors.append(tensor)
    operator: Any = schema.OperatorT()
    operator.inputs, operator.outputs = [0, 1, 2], [3, 4, 5, 6]
    packed = flexbuffers.Builder()
    packed.MapFromElements({**OPTIONS, **changed})
    operator.customOptions = np.frombuffer(bytes(packed.Finish()), np.uint8)
    graph.inputs, graph.outputs, graph.operators = [0, 1], [3, 4, 5, 6], [operator]
    model.operatorCodes, model.subgraphs = [code], [graph]
    builder = flatbuffers.Builder(4096)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def by_litert(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    for place, detail in enumerate(interpreter.get_input_details()):
        interpreter.set_tensor(detail["index"], feeds[("boxes", "scores")[place]])
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize("changed", [{}, {"use_regular_nms": True}, {"nms_score_threshold": 0.97}], ids=str)
def test_the_boxes_are_those_of_litert(changed: dict[str, Any]) -> None:
    data = detector(**changed)
    made = to_onnx(reading.read_subgraphs(data, "ssd.tflite", SUPPORTED)[0], "ssd").SerializeToString()

    for seed in range(5):
        rng = np.random.default_rng(seed)
        scores = rng.permutation(ANCHORS * (CLASSES + 1)).reshape(1, ANCHORS, -1) / (ANCHORS * (CLASSES + 1))
        boxes = rng.normal(0, 2, (1, ANCHORS, 4))
        feeds = {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}
        wanted, got = by_litert(data, feeds), list(run_onnx(made, feeds).values())
        assert [one.shape for one in got] == [one.shape for one in wanted]
        assert got[3] == wanted[3]
        count = int(wanted[3][0])
        for one, other in zip(wanted[:3], got[:3], strict=True):  # what LiteRT has behind those is left from before
            np.testing.assert_allclose(other[:, :count], one[:, :count], atol=1e-6)
            assert not other[:, count:].any()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_detections": 10**9}, "1000000000 detections"),
        ({"y_scale": "ten"}, "options lack one of"),
        ({"max_classes_per_detection": 3}, "3 classes for a box"),
    ],
)
def test_other_options_are_named(changed: dict[str, Any], said: str) -> None:
    graph = reading.read_subgraphs(detector(**changed), "ssd.tflite", SUPPORTED)[0]

    with pytest.raises(EdgeInferError, match=said):
        to_onnx(graph, "ssd")
