"""What Ultralytics and TensorFlow Lite write into model files is read, and nothing of it is run."""

from __future__ import annotations

import contextlib
import io
import os
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BundleError, EdgeInferError, InputError, UnsupportedError
from edge_infer.tasks.sources import asked, tflite_metadata, ultralytics
from edge_infer.tasks.sources.facts import read_facts
from edge_infer.tasks.sources.opened import described
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from edge_infer.tasks.sources.found import Found

ZOO = os.environ.get("EDGE_INFER_ZOO")
needs_zoo = pytest.mark.skipif(not ZOO, reason="EDGE_INFER_ZOO does not name the folder of real models")


def with_metadata(model: bytes, **metadata: str) -> bytes:
    proto = onnx.load_from_string(model)
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return bytes(proto.SerializeToString())


def yolo(shape: tuple[int, ...], **metadata: str) -> bytes:
    model = hub_folders.fixed_outputs(64, {"output0": np.zeros(shape, np.float32)}, "images")
    given = {"names": "{0: 'person', 1: \"it's\"}", "task": "detect", "stride": "32", "imgsz": "[64, 64]", **metadata}
    return with_metadata(model, **given)


def found(data: bytes) -> Found:
    made = ultralytics.find(read_facts(data, "onnx", "yolo.onnx"))
    assert made is not None
    return made


def steps(chain: list[Any]) -> list[dict[str, Any]]:
    return [step.to_json() for step in chain]


# -- Ultralytics --


@pytest.mark.parametrize(
    ("shape", "metadata", "format_"),
    [
        ((1, 6, 84), {}, "yolov8"),
        ((1, 84, 7), {}, "yolov5"),
        ((1, 300, 6), {}, "yolov10"),
        ((1, 6, 6), {"end2end": "True"}, "yolov10"),
    ],
)
def test_the_shape_of_the_output_says_which_yolo_it_is(
    shape: tuple[int, ...], metadata: dict[str, str], format_: str
) -> None:
    made = found(yolo(shape, **metadata))

    assert made.labels == ["person", "it's"]
    assert steps(made.definition.inputs["images"]) == [
        {"step": "image.decode"},
        {"step": "image.letterbox", "width": 64, "height": 64},
        {"step": "image.rescale_normalize"},
    ]
    after = steps(made.definition.outputs)
    assert after[0] == {"step": "post.boxes", "format": format_, "threshold": 0.25}
    assert [step["step"] for step in after[1:]] == (["post.nms"] if format_ != "yolov10" else []) + ["post.detections"]


def test_points_and_classes_of_ultralytics() -> None:
    pose = found(yolo((1, 4 + 1 + 51, 84), task="pose", names="{0: 'person'}", kpt_shape="[17, 3]"))
    model = with_metadata(
        hub_folders.image_classifier(2, 32, "images"), names="['a', 'b']", task="classify", stride="1"
    )
    classes = found(model)

    assert (pose.definition.task, steps(pose.definition.outputs)[0]["points"]) == ("keypoint-detection", 17)
    assert steps(classes.definition.inputs["images"])[1:3] == [
        {"step": "image.resize", "shortest": 32},
        {"step": "image.center_crop", "width": 32, "height": 32, "rule": "torchvision"},
    ]
    assert [step["step"] for step in steps(classes.definition.outputs)] == ["post.softmax", "post.top_k"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"names": "__import__('os').system('touch HACKED')"}, "cannot be read"),
        ({"names": "{0: open('x')}"}, "cannot be read"),
        ({"names": "{" * 5000}, "cannot be read"),
        ({"names": "-" * 100_000 + "1"}, "cannot be read"),
        ({"names": "{0: 'x'}" + " " * 2**21}, "expected at most"),
        ({"names": "{0: 'x', 2: 'y'}"}, "does not number"),
        ({"names": "{0: 1}"}, "by number"),
        ({"names": "7"}, "not the names"),
        ({"names": "{}"}, "0 labels"),
        ({"task": "segment"}, "`segment` is not supported"),
        ({"names": "{0: 'a', 1: 'b', 2: 'c'}"}, "is not that of a YOLO of 3 classes"),
        ({"task": "pose", "kpt_shape": "[17, 2]"}, "`kpt_shape`"),
    ],
)
def test_hostile_metadata_are_refused_and_run_no_code(
    metadata: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()

    with pytest.raises((BundleError, UnsupportedError), match=message) as caught:
        found(yolo((1, 6, 84), **metadata))

    assert caught.value.hint
    assert not list(tmp_path.iterdir())
    assert time.monotonic() - started < 5


def test_names_of_many_classes_are_read_at_once() -> None:
    names = {i: f"class {i}" for i in range(20_000)}
    model = hub_folders.fixed_outputs(64, {"output0": np.zeros((1, 20_004, 21), np.float32)}, "images")
    made = found(with_metadata(model, names=str(names), task="detect", stride="32"))

    assert len(made.labels) == 20_000


def test_pipeline_reads_a_bare_model_of_ultralytics(tmp_path: Path) -> None:
    output = np.zeros((1, 6, 21), np.float32)
    output[0, :, 4] = [32, 32, 16, 8, 0.1, 0.9]
    model = hub_folders.fixed_outputs(64, {"output0": output}, "images")
    path = tmp_path / "yolo.onnx"
    path.write_bytes(with_metadata(model, names="{0: 'cat', 1: 'dog'}", task="detect", stride="32", imgsz="[64, 64]"))

    with edge_infer.pipeline(path) as detect:
        answer = detect(np.zeros((128, 128, 3), np.uint8))

    assert answer == [
        {
            "score": pytest.approx(0.9),
            "label": "dog",
            "box": {"xmin": 48.0, "ymin": 56.0, "xmax": 80.0, "ymax": 72.0},
        }
    ]
    assert detect.definition.source == "ultralytics"


def test_a_model_without_metadata_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "plain.onnx"
    path.write_bytes(zoo.identity())

    assert described(path) is path
    with pytest.raises(UnsupportedError, match="does not say what stands before and after"):
        edge_infer.pipeline(path)


# -- TensorFlow Lite --


def with_labels(contents: bytes) -> bytes:
    """A real classifier of 1,001 classes, the file of its labels replaced."""
    data = (Path(ZOO or "") / "mbv2_u8.tflite").read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as other:
        for name in archive.namelist():
            other.writestr(name, contents)
    return data[: data.rindex(b"PK\x03\x04")] + packed.getvalue()


def of_tflite(data: bytes) -> Found | None:
    return tflite_metadata.find(read_facts(data, "tflite", "model.tflite"), data)


@needs_zoo
def test_real_files_are_read_whole() -> None:
    for name, task, count, first in (
        ("coco_ssd", "object-detection", 90, "person"),
        ("mbv2_u8", "image-classification", 1001, "background"),
        ("mbv1_025_128_u8", "image-classification", 1001, "background"),
        ("mbv2_embed", "image-feature-extraction", 0, ""),
    ):
        bundle = described(Path(ZOO or "") / f"{name}.tflite")
        assert isinstance(bundle, Bundle)
        assert bundle.manifest.task == task
        labels = bundle.labels()
        assert (len(labels), labels[0] if labels else "") == (count, first), name


@needs_zoo
def test_mean_and_std_are_for_floats_and_a_quantized_output_is_dequantized() -> None:
    def made(name: str) -> Found:
        found = of_tflite((Path(ZOO or "") / name).read_bytes())
        assert found is not None
        return found

    levels, floats = made("mbv2_u8.tflite").definition, made("mbv2_embed.tflite").definition

    assert steps(levels.inputs["input"])[-1] == {"step": "image.to_tensor"}
    assert steps(levels.outputs) == [{"step": "tensor.dequantize", "scale": 1 / 256}, {"step": "post.top_k"}]
    assert steps(floats.inputs["keras_layer_input"])[-1] == {
        "step": "image.rescale_normalize",
        "scale": 1.0,
        "mean": [127.5] * 3,
        "std": [127.5] * 3,
    }


@needs_zoo
def test_the_outputs_of_a_detector_are_known_by_the_operator() -> None:
    with edge_infer.pipeline(Path(ZOO or "") / "coco_ssd.tflite") as detect:
        (decode, _) = steps(detect.definition.outputs)
        names = [f"TFLite_Detection_PostProcess{end}" for end in ("", ":1", ":2", ":3")]

        assert decode["tensors"] == dict(zip(("boxes", "classes", "scores", "count"), names, strict=True))
        assert (decode["order"], decode["unit"]) == ("yxyx", "ratio")
        assert detect(np.zeros((30, 50, 3), np.uint8)) == []


@needs_zoo
def test_a_tokenizer_of_the_metadata_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="RegexTokenizer") as caught:
        described(Path(ZOO or "") / "regex_searcher.tflite")
    assert caught.value.hint == "say what the steps are: --preprocess FILE.json"


@needs_zoo
def test_a_zip_bomb_of_labels_is_not_unpacked() -> None:
    data = with_labels(b"x\n" * 50_000_000)
    started = time.monotonic()

    with pytest.raises(BundleError, match="unpack to more than"):
        of_tflite(data)

    assert time.monotonic() - started < 5


@needs_zoo
def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BundleError, match=r"name 2 labels, and output .* has 1001"):
        of_tflite(with_labels(b"cat\ndog\n"))
    with pytest.raises(BundleError, match="are not UTF-8"):
        of_tflite(with_labels(b"\xff\n" * 1001))
    with pytest.raises(BundleError, match=r"which is missing|cannot be read"):
        data = (Path(ZOO or "") / "mbv2_u8.tflite").read_bytes()
        of_tflite(data[: data.rindex(b"PK\x03\x04")])


@needs_zoo
def test_a_mutated_file_gives_a_definition_or_an_error_of_this_package() -> None:
    data = (Path(ZOO or "") / "mbv1_025_128_u8.tflite").read_bytes()
    metadata = data.index(b"M001")
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(int(rng.integers(1, 6))):
            changed[metadata + int(rng.integers(-8, 600))] = rng.integers(256)
        try:
            of_tflite(bytes(changed))
        except EdgeInferError:
            refused += 1
    assert refused > 10


def test_a_mutated_onnx_file_gives_a_definition_or_an_error_of_this_package() -> None:
    data = yolo((1, 6, 84))
    rng = np.random.default_rng(11)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(int(rng.integers(1, 6))):
            changed[rng.integers(len(changed))] = rng.integers(256)
        with contextlib.suppress(EdgeInferError):
            ultralytics.find(read_facts(bytes(changed), "onnx", "x.onnx"))


# -- what the user asks for --


def test_presets_fit_the_models_input() -> None:
    classes = read_facts(hub_folders.image_classifier(3, 192), "onnx", "x")
    boxes = read_facts(hub_folders.fixed_outputs(64, {"out": np.zeros((1, 6, 84), np.float32)}), "onnx", "x")

    imagenet = asked.of_preset("imagenet", classes, None)
    yolo_ = asked.of_preset("yolo", boxes, None)

    assert steps(imagenet.definition.inputs["pixel_values"])[1:3] == [
        {"step": "image.resize", "shortest": 219},
        {"step": "image.center_crop", "width": 192, "height": 192, "rule": "torchvision"},
    ]
    assert steps(imagenet.definition.outputs) == [{"step": "post.softmax"}, {"step": "post.top_k"}]
    assert steps(yolo_.definition.outputs)[0]["format"] == "yolov8"
    with pytest.raises(InputError, match="no preset `imagnet`"):
        asked.of_preset("imagnet", classes, None)
    with pytest.raises(InputError, match="is for images"):
        asked.of_preset("imagenet", classes, "fill-mask")
    with pytest.raises(UnsupportedError, match="does not take images"):
        asked.of_preset("imagenet", read_facts(zoo.identity(), "onnx", "x"), None)


def test_a_file_of_steps_may_leave_the_outputs_to_the_task() -> None:
    facts = read_facts(hub_folders.image_classifier(3), "onnx", "x")
    before = b'{"inputs": {"pixel_values": [{"step": "image.decode"}, {"step": "image.rescale_normalize"}]}}'

    made = asked.of_file(before, "steps.json", facts, "image-classification")

    assert [step.name for step in made.definition.outputs] == ["post.softmax", "post.top_k"]
    with pytest.raises(InputError, match="does not name the task"):
        asked.of_file(before, "steps.json", facts, None)
    with pytest.raises(InputError, match="no `inputs`"):
        asked.of_file(b"{}", "steps.json", facts, "image-classification")
    with pytest.raises(InputError, match="there is no task `cats`"):
        asked.of_file(before, "steps.json", facts, "cats")
