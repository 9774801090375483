"""Detections: the forms of detectors, overlapping boxes, and the way back to the image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.errors import ExecutionError, ManifestError
from edge_infer.tasks.definition import read_definition
from edge_infer.tasks.item import Geometry, Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.post.detection import Detection
from edge_infer.tasks.steps import read_step
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.tensor import TensorSpec

FACES = Path("examples/faces")


def step(name: str, outputs: list[str] | None = None, labels: list[str] | None = None, **parameters: Any) -> Any:
    specs = [TensorSpec(output, "float32", ()) for output in outputs or ["out"]]
    place = Place(lambda _: b"", labels or [], [], specs)
    return read_step({"step": name, **parameters}, "test").prepare(place)


def item(width: int = 100, height: int = 100) -> Item:
    made = Item()
    made.width = made.input_width = width
    made.height = made.input_height = height
    return made


def floats(values: Any) -> Any:
    return to_tensor(np.asarray(values, "float32"))


@pytest.mark.parametrize("has_numpy", [True, False])
def test_both_yolo_layouts_of_the_same_boxes_give_the_same(monkeypatch: pytest.MonkeyPatch, has_numpy: bool) -> None:
    monkeypatch.setattr("edge_infer.tasks.post.box_formats.has_numpy", lambda: has_numpy)
    random = np.random.default_rng(1)
    boxes, scores = random.uniform(10, 90, (300, 4)), random.uniform(0, 1, (300, 6))
    eight = step("post.boxes", format="yolov8", threshold=0.9)({"out": floats(np.hstack([boxes, scores]).T)}, item())
    five = np.hstack([boxes, np.ones((300, 1)), scores])
    assert step("post.boxes", format="yolov5", threshold=0.9)({"out": floats(five)}, item()) == eight
    expected = [i for i in range(300) if scores[i].astype("float32").max() > 0.9]
    assert len(eight) == len(expected) > 50
    x, y, w, h = boxes[expected[0]]
    assert eight[0].box == pytest.approx((x - w / 2, y - h / 2, x + w / 2, y + h / 2), rel=1e-5)
    assert eight[0].label == scores[expected[0]].argmax()


def test_boxes_that_need_no_thinning_are_read_as_they_are() -> None:
    rows = floats([[1, 2, 30, 40, 0.9, 3], [1, 2, 3, 4, 0.2, 1]])
    (found,) = step("post.boxes", format="yolov10")({"out": rows}, item())
    assert found == (pytest.approx(0.9), 3, (1.0, 2.0, 30.0, 40.0), ())


def test_a_background_counts_for_softmax_and_is_not_found() -> None:
    outputs = {"b": floats([[0.5, 0.5, 0.2, 0.4], [0.1, 0.1, 0.1, 0.1]]), "s": floats([[0, 4, 1], [0, 1, 9]])}
    decode = step(
        "post.boxes",
        ["b", "s"],
        format="decoded",
        tensors={"boxes": "b", "scores": "s"},
        order="cxcywh",
        unit="ratio",
        background="last",
        activation="softmax",
    )
    (found,) = decode(outputs, item(200, 100))
    assert found.score == pytest.approx(np.exp(4) / (1 + np.exp(4) + np.exp(1)))
    assert found.label == 1
    assert found.box == pytest.approx((80, 30, 120, 70))


def test_an_output_that_is_not_named_or_of_another_shape_is_refused() -> None:
    with pytest.raises(ManifestError, match="does not say which output is `boxes`"):
        step("post.boxes", ["b", "s"], format="decoded")
    with pytest.raises(ExecutionError, match="expected 2 dimensions"):
        step("post.boxes", format="yolov8")({"out": floats(np.zeros((1, 84, 10)))}, item())
    with pytest.raises(ExecutionError, match="2 boxes, and the definition has 1 anchors"):
        named = {"boxes": "b", "scores": "s"}
        decode = step("post.boxes", ["b", "s"], format="ssd", tensors=named, anchors=[0.5, 0.5, 1, 1])
        decode({"b": floats(np.zeros((2, 4))), "s": floats(np.zeros((2, 1)))}, item())


def _reference_nms(boxes: np.ndarray[Any, Any], scores: np.ndarray[Any, Any], threshold: float) -> list[int]:
    """The rule of torchvision.ops.nms, written with numpy in float32."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    left, kept = np.argsort(-scores, kind="stable"), []
    while len(left):
        i, left = left[0], left[1:]
        kept.append(int(i))
        low, high = np.maximum(boxes[i, :2], boxes[left, :2]), np.minimum(boxes[i, 2:], boxes[left, 2:])
        sides = np.clip(high - low, 0, None)
        shared = sides[:, 0] * sides[:, 1]
        left = left[shared / (areas[i] + areas[left] - shared) <= np.float32(threshold)]
    return kept


def test_thinning_out_is_torchvisions_rule_in_float32() -> None:
    random = np.random.default_rng(7)
    for round_ in range(12):
        corner = random.uniform(0, 60, (80, 2)) if round_ % 3 else random.integers(0, 12, (80, 2)) * 5
        boxes = np.hstack([corner, corner + random.integers(1, 5, (80, 2)) * 10]).astype("float32")
        scores = (random.integers(0, 20, 80) / 20 if round_ % 2 else random.uniform(0, 1, 80)).astype("float32")
        found = []
        for i, (score, box) in enumerate(zip(scores.tolist(), boxes.tolist(), strict=True)):
            left, top, right, bottom = box
            found.append(Detection(score, i, (left, top, right, bottom)))
        kept = step("post.nms", iou=0.5, by_class=False)(found, item())
        assert [one.label for one in kept] == _reference_nms(boxes, scores, 0.5)


def test_classes_are_thinned_out_on_their_own_and_weights_move_boxes() -> None:
    box = (0.0, 0.0, 10.0, 10.0)
    both = [Detection(0.9, 0, box), Detection(0.8, 1, box), Detection(0.3, 0, (1.0, 0.0, 11.0, 10.0))]
    assert [one.score for one in step("post.nms")(both, item())] == [0.9, 0.8]
    (mean,) = step("post.nms", method="weighted", iou=0.3)([both[0], both[2]], item())
    assert mean.box == pytest.approx((0.25, 0, 10.25, 10))
    assert mean.score == 0.9


def test_boxes_go_back_through_every_step_and_end_at_the_image() -> None:
    made = item(200, 100)
    made.geometry = [Geometry(0.5, 0.5, 0, 0), Geometry(1, 1, 10, -5)]
    found = [Detection(0.5, 1, (20.0, 0.0, 500.0, 45.0), ((10.0, -5.0),))]
    (answer,) = step("post.detections", labels=["cat", "dog"], points={"0": "nose"})(found, made)
    assert answer["label"] == "dog"
    assert answer["box"] == {"xmin": 20, "ymin": 10, "xmax": 200, "ymax": 100}
    assert answer["keypoints"] == [{"label": "nose", "x": 0, "y": 0}]


def test_a_mask_fills_the_image_and_leaves_the_letterbox_out() -> None:
    made = item(8, 4)
    made.input_width = made.input_height = 8
    made.geometry = [Geometry(1, 1, 0, 2)]
    labels = np.zeros((8, 8), "int64")
    labels[2:4, :4] = 3
    answers = step("post.mask")({"out": to_tensor(labels)}, made)
    assert [one["label"] for one in answers] == ["LABEL_0", "LABEL_3"]
    mask = np.frombuffer(answers[1]["mask"].data, np.uint8).reshape(4, 8)
    assert (mask[:2, :4] == 255).all()
    assert mask.sum() == 8 * 255


def test_a_face_is_found_with_its_eyes() -> None:
    definition = read_definition("object-detection", json.loads((FACES / "pipeline.json").read_text()))
    session = edge_infer.load(FACES / "yunet_320.onnx", arrays="tensor")
    with edge_infer.Pipeline(session, definition=definition) as find:
        (face,) = find(FACES / "astronaut.jpg")
        assert face["score"] > 0.9
        left, top, right, bottom = (face["box"][side] for side in ("xmin", "ymin", "xmax", "ymax"))
        assert (left, top, right, bottom) == pytest.approx((117, 66, 210, 178), abs=6)
        eyes = {one["label"]: (one["x"], one["y"]) for one in face["keypoints"]}
        assert eyes["right eye"] == pytest.approx((145, 105), abs=5)
        twice = Image.open(FACES / "astronaut.jpg").resize((640, 640))
        (again,) = find(twice)
        assert again["box"]["xmin"] == pytest.approx(2 * left, abs=4)
        assert find(np.zeros((50, 60, 3), np.uint8)) == []
