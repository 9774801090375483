"""A tiny bundle for each task, under the names of `docs/guide/tasks.md`, with a picture and a sound to ask about."""

from __future__ import annotations

import json
import wave
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper
from PIL import Image

from edge_infer.tensors.tensor import TensorSpec
from tests.support.tasks.pipelines import WORDS, colours, graphs, loudness, questions, words, write
from tests.support.tasks.tables import COLUMNS, risk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_BEFORE = [
    {"step": "image.decode"},
    {"step": "image.resize", "width": 8, "height": 8},
    {"step": "image.rescale_normalize", "mean": [0.0], "std": [1.0]},
]
_TOP = [{"step": "post.softmax"}, {"step": "post.top_k"}]
_PIXELS = [TensorSpec("pixels", "float32", (1, 3, 8, 8))]
_DETECT = [{"step": "post.nms"}, {"step": "post.detections"}]
_NLI = ["contradiction", "neutral", "entailment"]


def write_all(folder: Path) -> dict[str, Path]:
    """Write the bundles, `photo.jpg` and `hello.wav`; return the bundles by name."""
    Image.effect_noise((40, 30), 50).convert("RGB").save(folder / "photo.jpg")
    with wave.open(str(folder / "hello.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        loud = [0] * 800 + [30_000 if i % 40 < 20 else -30_000 for i in range(3200)] + [10] * 4800
        file.writeframes(array("h", loud).tobytes())
    boxes, scores = [[[0.1, 0.1, 0.6, 0.9]]], [[[0.2, 0.9]]]
    rows = [[[4.0], [4.0], [4.0], [6.0], [0.8], [3.0], [5.0], [1.0]] * 1]
    points = np.repeat(np.array(rows, np.float32), 10, axis=2)
    decoded = {"format": "decoded", "unit": "ratio", "tensors": {"boxes": "boxes", "scores": "scores"}}
    made = {
        "photos": colours(folder / "photos.bundle"),
        "street": _fixed(
            folder / "street.bundle",
            "object-detection",
            {"boxes": np.array(boxes, np.float32), "scores": np.array(scores, np.float32)},
            [{"step": "post.boxes", **decoded}, *_DETECT],
            ["dog", "car"],
        ),
        "hands": _fixed(
            folder / "hands.bundle",
            "keypoint-detection",
            {"out": points},
            [{"step": "post.boxes", "format": "yolov8", "points": 1}, *_DETECT],
            ["hand"],
        ),
        "scene": _image(
            folder / "scene.bundle", "image-segmentation", "Identity", [{"step": "post.mask", "layout": "CHW"}]
        ),
        "rooms": _image(folder / "rooms.bundle", "depth-estimation", "ReduceMean", [{"step": "post.depth"}]),
        "larger": _image(folder / "larger.bundle", "image-to-image", "Identity", [{"step": "post.image"}]),
        "looks": colours(folder / "looks.bundle"),
        "moods": words(folder / "moods.bundle", "text-classification", _TOP, 2, ["good", "bad"], pooled=True),
        "places": words(
            folder / "places.bundle",
            "token-classification",
            [{"step": "post.entities"}],
            3,
            ["O", "B-LOC", "I-LOC"],
            offsets=True,
        ),
        "answers": questions(folder / "answers.bundle"),
        "gaps": words(folder / "gaps.bundle", "fill-mask", [{"step": "post.fill_mask", "mask": "bad"}], len(WORDS)),
        "topics": words(
            folder / "topics.bundle", "zero-shot-classification", [{"step": "post.tensor"}], 3, _NLI, pooled=True
        ),
        "ranks": words(folder / "ranks.bundle", "text-ranking", [{"step": "post.tensor"}], 1, pooled=True),
        "sentences": words(
            folder / "sentences.bundle", "feature-extraction", [{"step": "post.pool"}, {"step": "post.normalize"}]
        ),
        "sounds": graphs(folder / "sounds.bundle"),
        "speech": _speech(folder / "speech.bundle"),
        "words": _words(folder / "words.bundle"),
        "silero": loudness(folder / "silero.bundle"),
        "risk": risk(folder / "risk.bundle"),
        "prices": _prices(folder / "prices.bundle"),
    }
    _changed(made["looks"], "image-feature-extraction", [{"step": "post.tensor"}])
    return made


def _changed(folder: Path, task: str, after: Sequence[Any]) -> None:
    document = json.loads((folder / "manifest.json").read_text("utf-8"))
    document["task"], document["pipeline"]["outputs"] = task, list(after)
    (folder / "manifest.json").write_text(json.dumps(document), "utf-8")


def _fixed(
    folder: Path, task: str, outputs: Mapping[str, np.ndarray[Any, Any]], after: Sequence[Any], labels: Sequence[str]
) -> Path:
    """A model of images whose outputs are always the same."""
    nodes = [helper.make_node("ReduceMean", ["pixels"], ["mean"], keepdims=0)]
    nodes.append(helper.make_node("Mul", ["mean", "zero"], ["nothing"]))
    nodes += [helper.make_node("Add", [f"{name}_fixed", "nothing"], [name]) for name in outputs]
    constants: dict[str, Any] = {f"{name}_fixed": value for name, value in outputs.items()}
    specs = [TensorSpec(name, "float32", value.shape) for name, value in outputs.items()]
    constants["zero"] = np.float32(0)
    return write(folder, nodes, _PIXELS, specs, task, {"pixels": _BEFORE}, after, constants=constants, labels=labels)


def _image(folder: Path, task: str, operator: str, after: Sequence[Any]) -> Path:
    """A model that gives the picture itself, or the mean of its channels."""
    more: dict[str, Any] = {"axes": [1], "keepdims": 0} if operator == "ReduceMean" else {}
    outputs = [TensorSpec("y", "float32", (1, 8, 8) if more else (1, 3, 8, 8))]
    nodes = [helper.make_node(operator, ["pixels"], ["y"], **more)]
    return write(folder, nodes, _PIXELS, outputs, task, {"pixels": _BEFORE}, after, labels=["red", "green", "blue"])


def _speech(folder: Path) -> Path:
    """Every sound says `hi`."""
    said = np.eye(4, dtype=np.float32)[[0, 1, 1, 0, 2, 3]][None] * 9
    nodes = [
        helper.make_node("ReduceMean", ["sound"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["said", "nothing"], ["logits"]),
    ]
    return write(
        folder,
        nodes,
        [TensorSpec("sound", "float32", (1, "samples"))],
        [TensorSpec("logits", "float32", (1, 6, 4))],
        "automatic-speech-recognition",
        {"sound": [{"step": "audio.decode"}, {"step": "audio.resample", "rate": 16_000}, {"step": "audio.normalize"}]},
        [{"step": "post.ctc"}],
        constants={"said": said, "zero": np.float32(0)},
        files={"vocab.json": json.dumps({"<pad>": 0, "h": 1, "i": 2, "|": 3}).encode()},
    )


def _words(folder: Path) -> Path:
    """Half a second of any sound is the word `yes`."""
    nodes = [
        helper.make_node("ReduceMax", ["sound"], ["loudest"], axes=[1], keepdims=1),
        helper.make_node("Concat", ["loudest", "loudest"], ["both"], axis=1),
        helper.make_node("Add", ["both", "sure"], ["logits"]),
    ]
    return write(
        folder,
        nodes,
        [TensorSpec("sound", "float32", ("batch", 8000))],
        [TensorSpec("logits", "float32", ("batch", 2))],
        "audio-classification",
        {"sound": [{"step": "audio.decode"}, {"step": "audio.fit", "samples": 8000}, {"step": "audio.normalize"}]},
        _TOP,
        constants={"sure": np.array([[2, 0]], np.float32)},
        labels=["yes", "no"],
    )


def _prices(folder: Path) -> Path:
    columns = {**COLUMNS, "names": ["rooms", "area"], "types": ["int64", "float64"], "nullable": []}
    return write(
        folder,
        [helper.make_node("MatMul", ["x", "weights"], ["price"])],
        [TensorSpec("x", "float32", ("batch", 2))],
        [TensorSpec("price", "float32", ("batch", 1))],
        "tabular-regression",
        {"x": [columns, {"step": "tabular.tensor"}]},
        [{"step": "post.value"}],
        constants={"weights": np.array([[10], [2]], np.float32)},
    )
