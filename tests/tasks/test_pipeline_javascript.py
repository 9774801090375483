"""The page's steps of pipelines give what Python's give, bit for bit wherever they are of integers or of tables."""

from __future__ import annotations

import base64
import json
import math
import random
import subprocess
import sys
import wave
from array import array
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer import EdgeInferError
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.item import Geometry, Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.post.box_formats import FORMATS
from edge_infer.tasks.post.detection import Detection
from edge_infer.tasks.steps import prepare_chain, read_step
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support.tasks.trained_tokenizers import SENTENCES, trained, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Case = dict[str, Any]

PROGRAM = Path(__file__).with_name("run_steps.mjs")
ROOT = Path(__file__).parents[2]
FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")


def text_of(data: Any) -> str:
    return base64.b64encode(bytes(data)).decode()


def as_json(value: Any) -> Any:
    """Describe a value of a pipeline as `run_steps.mjs` reads and prints it."""
    if isinstance(value, Image):
        facts = {"width": value.width, "height": value.height, "channels": value.channels}
        return {"kind": "image", **facts, "data": text_of(value.data)}
    if isinstance(value, Sound):
        return {"kind": "sound", "rate": value.rate, "data": text_of(value.samples.tobytes())}
    if isinstance(value, Tensor):
        data = text_of(value.data())
        return {"kind": "tensor", "dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    if isinstance(value, Detection):
        return {**value._asdict(), "box": list(value.box), "points": [list(one) for one in value.points]}
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    return value


def tensor(values: Sequence[float], shape: Sequence[int]) -> Tensor:
    return Tensor(array("f", values), DType.FLOAT32, tuple(shape))


def case(steps: list[Case], value: Any, *, item: Case | None = None, args: Case | None = None, **place: Any) -> Case:
    return {"steps": steps, "value": value, "item": item or {}, "args": args or {}, "place": place}


def spec(name: str, dtype: str, shape: Sequence[int | str]) -> Case:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def python_answer(given: Case) -> Case:
    where = given["place"]
    specs = {
        key: [TensorSpec(one["name"], one["dtype"], one["shape"]) for one in where.get(key, [])]
        for key in ("inputs", "outputs")
    }
    files = where.get("files", {})
    place = Place(
        lambda path: Path(files[path]).read_bytes(),
        where.get("labels", []),
        specs["inputs"],
        specs["outputs"],
        where.get("input", ""),
    )
    item = Item(given["args"])
    names = {"inputWidth": "input_width", "inputHeight": "input_height"}
    for name, value in given["item"].items():
        known = [Geometry(*one) for one in value] if name == "geometry" else value
        setattr(item, names.get(name, name), known)
    try:
        made = given["value"]
        steps = [read_step(entry, f"steps[{index}]") for index, entry in enumerate(given["steps"])]
        for apply in prepare_chain(steps, place):
            made = apply(made, item)
    except EdgeInferError as error:
        return {"code": error.code}
    return {"answer": as_json(made), "geometry": [list(one) for one in item.geometry]}


def both(cases: list[Case], folder: Path) -> list[tuple[Case, Case]]:
    """Return what Python and JavaScript give for each case."""
    documents = [{**one, "value": as_json(as_given(one["value"]))} for one in cases]
    (folder / "cases.json").write_text(json.dumps(documents), "utf-8")
    done = subprocess.run(
        ["node", str(PROGRAM), str(folder / "cases.json")],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return list(zip(map(python_answer, cases), json.loads(done.stdout), strict=True))


def as_given(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"kind": "bytes", "data": text_of(value)}
    if isinstance(value, dict) and value and all(isinstance(one, Tensor) for one in value.values()):
        return {"kind": "outputs", "tensors": value}
    return value


def without_message(answer: Case) -> Case:
    return {key: value for key, value in answer.items() if key not in ("message", "hint")}


def assert_equal(cases: list[Case], folder: Path) -> None:
    for given, (python, javascript) in zip(cases, both(cases, folder), strict=True):
        assert without_message(javascript) == python, given["steps"]


def numbers(value: Any) -> Any:
    """Return an answer with the numbers of its tensors."""
    if isinstance(value, dict) and value.get("kind") == "tensor":
        return [value["shape"], array("f", base64.b64decode(value["data"])).tolist()]
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    return [numbers(one) for one in value] if isinstance(value, list) else value


def is_near(one: Any, other: Any, within: float) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return bool(abs(one - other) <= within) or one == other
    if isinstance(one, dict):
        return set(one) == set(other) and all(is_near(one[key], other[key], within) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(is_near(*pair, within) for pair in zip(one, other, strict=True))
    return bool(one == other)


def assert_near(cases: list[Case], folder: Path, within: float) -> None:
    for given, (python, javascript) in zip(cases, both(cases, folder), strict=True):
        assert is_near(numbers(python), numbers(without_message(javascript)), within), given["steps"]


def picture(chance: random.Random, most: int) -> Image:
    width, height, channels = chance.randrange(1, most), chance.randrange(1, most), chance.choice((1, 3))
    count = width * height * channels
    if chance.random() < 0.3:  # black and white, where sums go beyond 0 and 255
        return Image(bytes(chance.choices((0, 255), k=count)), width, height, channels)
    return Image(chance.randbytes(count), width, height, channels)


def resizes(count: int, most: int) -> list[Case]:
    chance = random.Random(5)
    cases = []
    for index in range(count):
        name, order = FILTERS[index % 6], ("horizontal", "pillow12.2", "pillow13")[index // 6 % 3]
        size = {"width": chance.randrange(1, most), "height": chance.randrange(1, most)}
        way = chance.choice((size, size, {"shortest": size["width"]}, {"shortest": size["width"], "longest": most}))
        cases.append(case([{"step": "image.resize", **way, "filter": name, "order": order}], picture(chance, most)))
    return cases


def test_resized_images_are_equal_in_every_filter_and_order(tmp_path: Path) -> None:
    assert_equal(resizes(54, 90), tmp_path)


def test_sides_that_are_multiples_are_equal(tmp_path: Path) -> None:
    chance = random.Random(6)
    sizes = [{name: chance.randrange(1, 90) for name in ("width", "height")} for _ in range(12)]
    steps = [{"step": "image.resize", **size, "multiple": chance.randrange(1, 15)} for size in sizes]
    assert_equal([case([step], picture(chance, 90)) for step in steps], tmp_path)


@pytest.mark.long
def test_many_resized_images_are_equal(tmp_path: Path) -> None:
    assert_equal(resizes(600, 400), tmp_path)


def image_cases(count: int) -> list[Case]:
    chance = random.Random(6)
    cases = []
    for _ in range(count):
        image, size = picture(chance, 40), {"width": chance.randrange(1, 40), "height": chance.randrange(1, 40)}
        dtype, layout = chance.choice(("float32", "float16")), chance.choice(("NCHW", "NHWC"))
        mean, std = ([chance.random() for _ in range(3)] for _ in range(2))
        floats: Case = {"inputs": [spec("x", dtype, ("n", "c", "h", "w"))], "input": "x"}
        levels: Case = {
            "inputs": [spec("x", chance.choice(("uint8", "int8", "float32")), ("n", "c", "h", "w"))],
            "input": "x",
        }
        cases += [
            case(
                [{"step": "image.center_crop", **size, "rule": chance.choice(("transformers", "torchvision"))}], image
            ),
            case(
                [
                    {
                        "step": "image.letterbox",
                        **size,
                        "anchor": chance.choice(("center", "top_left")),
                        "upscale": chance.random() < 0.5,
                        "color": chance.randrange(256),
                    }
                ],
                image,
            ),
            case([{"step": "image.flip_channels"}, {"step": "image.to_tensor", "layout": layout}], image, **levels),
            case([{"step": "image.rescale_normalize", "mean": mean, "std": std, "layout": layout}], image, **floats),
        ]
    return cases


def test_cropped_padded_and_normalised_images_are_equal(tmp_path: Path) -> None:
    assert_equal(image_cases(8), tmp_path)


@pytest.mark.long
def test_many_cropped_padded_and_normalised_images_are_equal(tmp_path: Path) -> None:
    assert_equal(image_cases(200), tmp_path)


def sound(chance: random.Random, length: int, rate: int = 16_000) -> Sound:
    return Sound(array("f", [chance.uniform(-1, 1) for _ in range(length)]), rate)


def test_resampled_framed_and_normalised_sounds_are_equal(tmp_path: Path) -> None:
    chance = random.Random(7)
    cases = [
        case([{"step": "audio.resample", "rate": new}], sound(chance, length, old))
        for old, new, length in (
            (44_100, 16_000, 2000),
            (8000, 16_000, 500),
            (48_000, 16_000, 999),
            (22_050, 24_000, 300),
        )
    ]
    cases += [
        case([{"step": "audio.normalize", "method": method}], sound(chance, 4001))
        for method in ("none", "mean_variance", "peak")
    ]
    cases.append(case([{"step": "audio.normalize", "method": "peak"}], Sound(array("f", [0.0] * 5), 8000)))
    cases.append(case([{"step": "audio.frame", "samples": 512, "context": 64}], sound(chance, 1300)))
    cases += [
        case([{"step": "audio.fit", "samples": 700, "pad": pad}], sound(chance, size))
        for pad in (True, False)
        for size in (600, 800)
    ]
    assert_equal(cases, tmp_path)


def test_log_mels_are_equal_within_1e_6(tmp_path: Path) -> None:
    chance = random.Random(8)
    ways: list[Case] = [
        {"style": "whisper", "axes": "mels_first"},
        {"fft": 512, "hop": 200, "mels": 40, "scale": "htk", "area_norm": False, "log": "ln", "center": False},
        {
            "fft": 63,
            "hop": 31,
            "mels": 9,
            "power": 1,
            "log": "ln_plus_floor",
            "floor": 1e-3,
            "low_hz": 60,
            "high_hz": 7600,
        },
        {"center": False, "fft": 1000},
        {"frame": 400, "fft": 512, "scale": "htk", "slopes": "mel", "window": "povey", "remove_mean": True},
        {"window": "hann_symmetric", "slopes": "mel", "preemphasis": 0.97, "log": "ln", "center": False},
        {"window": "hamming"},
    ]
    cases = [case([{"step": "audio.log_mel", **way}], sound(chance, 900)) for way in ways]
    cases += [
        case(
            [
                {"step": "audio.scale", "by": by, "factor": 3.0, "clip": clip},
                {"step": "audio.log_mel", "mels": 40, "fft": 512, "log": "ln"},
                {"step": "audio.mfcc", "coefficients": 10, "norm": norm},
                {"step": "tensor.fit", "rows": rows, "value": -1.5},
                {"step": "tensor.normalize", "mean": 0.25, "std": 4.5},
            ],
            sound(chance, 900),
        )
        for by, clip, norm, rows in (("highest", 1.0, "tensorflow", 4), ("loudest", None, "ortho", 9))
    ]
    assert_near(cases, tmp_path, 2e-6)
    refused: list[list[Case]] = [
        [{"step": "audio.log_mel", "frame": 401}],
        [{"step": "audio.log_mel"}, {"step": "audio.mfcc", "coefficients": 81}],
    ]
    assert_equal([case(steps, sound(chance, 900)) for steps in refused], tmp_path)


def wav(width: int, channels: int, frames: int) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as writing:
        writing.setnchannels(channels)
        writing.setsampwidth(width)
        writing.setframerate(22_050)
        writing.writeframes(random.Random(width * 10 + channels).randbytes(width * channels * frames))
    return file.getvalue()


def floating(bits: int) -> bytes:
    body = array("f" if bits == 32 else "d", [0.25, -1.5, 0.1, 1 / 3]).tobytes()
    head = (
        (3).to_bytes(2, "little")
        + (2).to_bytes(2, "little")
        + (8000).to_bytes(4, "little")
        + bytes(6)
        + bits.to_bytes(2, "little")
    )
    parts = b"fmt " + (16).to_bytes(4, "little") + head + b"data" + len(body).to_bytes(4, "little") + body
    return b"RIFF" + (4 + len(parts)).to_bytes(4, "little") + b"WAVE" + parts


def test_wav_files_are_read_alike_the_broken_ones_too(tmp_path: Path) -> None:
    assert sys.byteorder == "little"
    files = [wav(width, channels, 50) for width in (1, 2, 3, 4) for channels in (1, 2, 7)] + [
        floating(32),
        floating(64),
    ]
    whole = wav(2, 2, 20)
    files += [whole[:size] for size in (0, 11, 12, 30, 40, 44, 47, 60)] + [
        b"OggS" + bytes(60),
        whole[:22] + b"\0\0" + whole[24:],
    ]
    assert_equal([case([{"step": "audio.decode"}], one) for one in files], tmp_path)


def test_samples_are_taken_alike(tmp_path: Path) -> None:
    values: list[Any] = [
        [0.1, -0.2, 1],
        {"array": [0.5, 0.1], "sampling_rate": 8000},
        {"array": [0.5], "sampling_rate": 0},
        [],
        "missing.wav",
    ]
    cases = [case([{"step": "audio.decode"}], one, args={"sampling_rate": 44_100}) for one in values[:-1]]
    assert_equal(cases, tmp_path)


def test_quantized_and_constant_tensors_are_equal(tmp_path: Path) -> None:
    chance = random.Random(9)
    cases = []
    for dtype in ("int8", "uint8", "int16"):
        values = [chance.choice((0.5, 1.5, 2.5, -0.5, chance.uniform(-300, 300))) for _ in range(200)]
        inputs = [spec("x", dtype, (200,))]
        cases.append(
            case(
                [{"step": "tensor.quantize", "scale": 1.0, "zero_point": 3}],
                tensor(values, (200,)),
                inputs=inputs,
                input="x",
            )
        )
    image = Image(chance.randbytes(105), 7, 5, 3)
    quantized: list[Case] = [
        {"step": "image.rescale_normalize"},
        {"step": "tensor.quantize", "scale": 0.01, "zero_point": -9},
    ]
    cases.append(case(quantized, image, inputs=[spec("x", "int8", (1, 5, 7, 3))], input="x"))
    for dtype, given in (("int64", [16_000]), ("float32", [0.1]), ("int8", [300]), ("bool", [1]), ("float32", [1, 2])):
        cases.append(
            case([{"step": "tensor.constant", "values": given}], None, inputs=[spec("x", dtype, ("n",))], input="x")
        )
    steps = Tensor(bytes(range(200)), DType.UINT8, (200,))
    read: list[Case] = [{"step": "tensor.dequantize", "scale": 0.1, "zero_point": 7}, {"step": "post.tensor"}]
    cases.append(case(read, {"y": steps}, outputs=[spec("y", "uint8", (200,))]))
    assert_equal(cases, tmp_path)


def test_scores_and_vectors_are_equal_within_1e_6(tmp_path: Path) -> None:
    chance = random.Random(10)
    values = tensor([chance.uniform(-8, 8) for _ in range(60)], (6, 10))
    outputs = [spec("y", "float32", (6, 10))]
    chains: list[list[Case]] = [
        [{"step": "post.softmax", "temperature": 1.7}],
        [{"step": "post.sigmoid"}],
        [{"step": "post.normalize"}],
    ]
    chains += [[{"step": "post.pool", "method": method}] for method in ("mean", "first", "last", "max", "none")]
    cases = [case(chain, {"y": values}, outputs=outputs) for chain in chains]
    row = {"y": tensor([0.1, 0.7, 0.7, -1, 0.2], (5,))}
    ranked: list[Case] = [{"step": "post.top_k", "top_k": 3}]
    cases += [
        case(ranked, row, outputs=[spec("y", "float32", (5,))], labels=labels) for labels in ([], list("abcde"), ["a"])
    ]
    cases.append(case(ranked, row, outputs=[spec("y", "float32", (5,))], args={"threshold": 0.15, "top_k": 5}))
    assert_near(cases, tmp_path, 1e-6)


def outputs_of(name: str, chance: random.Random) -> tuple[Case, dict[str, Tensor], Case]:
    """Return the parameters, the outputs and the item of a detector of a form."""
    item = {"width": 300, "height": 200, "inputWidth": 64, "inputHeight": 64}

    def made(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return tensor([chance.uniform(low, high) for _ in range(math.prod(shape))], shape)

    if name == "yunet":
        counts = {8: 64, 16: 16}
        widths = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
        tensors = {f"{what}_{s}": made(count, width) for s, count in counts.items() for what, width in widths.items()}
        return {"strides": [8, 16], "threshold": 0.7}, tensors, item
    if name == "tflite":
        tensors = {"b": made(20, 4), "c": made(20, high=5), "s": made(20), "n": tensor([15], (1,))}
        names = {"boxes": "b", "classes": "c", "scores": "s", "count": "n"}
        return {"tensors": names, "order": "yxyx", "unit": "ratio"}, tensors, item
    if name in ("decoded", "ssd"):
        tensors = {"b": made(50, 8 if name == "ssd" else 4), "s": made(50, 4, low=-3, high=3)}
        more: Case = {
            "activation": chance.choice(("sigmoid", "softmax", "none")),
            "background": chance.choice(("none", "first", "last")),
        }
        if name == "ssd":
            more |= {
                "anchors": [chance.random() for _ in range(200)],
                "points": 2,
                "order": chance.choice(("yxyx", "xyxy")),
            }
        else:
            more |= {"order": chance.choice(("xyxy", "yxyx", "cxcywh")), "unit": chance.choice(("pixel", "ratio"))}
        return {"tensors": {"boxes": "b", "scores": "s"}, "threshold": 0.4, **more}, tensors, item
    if name == "fastestdet":
        return {"threshold": 0.3}, {"out": made(8, 6, 6)}, item
    shapes = {"yolov5": (60, 8), "yolov8": (4 + 3 + 6, 60), "yolov10": (30, 6)}
    return {"points": 2} if name == "yolov8" else {}, {"out": made(*shapes[name])}, item


def detections(count: int) -> list[Case]:
    chance = random.Random(11)
    cases = []
    for index in range(count):
        name = sorted(FORMATS)[index % len(FORMATS)]
        parameters, tensors, item = outputs_of(name, chance)
        thinned = {
            "step": "post.nms",
            "method": chance.choice(("greedy", "weighted")),
            "by_class": chance.random() < 0.5,
            "iou": 0.3,
        }
        read = [
            {"step": "post.boxes", "format": name, **parameters},
            thinned,
            {"step": "post.detections", "points": {"0": "eye"}},
        ]
        outputs = [spec(one, "float32", made.shape) for one, made in tensors.items()]
        cases.append(case(read, tensors, item=item, outputs=outputs, labels=["a", "b"]))
    return cases


def test_every_form_of_boxes_is_equal_within_1e_5(tmp_path: Path) -> None:
    assert_near(detections(40), tmp_path, 1e-5)


@pytest.mark.long
def test_many_boxes_are_equal_within_1e_5(tmp_path: Path) -> None:
    assert_near(detections(800), tmp_path, 1e-5)


def test_masks_are_equal(tmp_path: Path) -> None:
    chance = random.Random(12)
    letterboxed = {"width": 40, "height": 30, "inputWidth": 24, "inputHeight": 24, "geometry": [[0.6, 0.6, 0, 3]]}
    scores = [chance.random() for _ in range(432)]
    cases = []
    for layout, shape in (("CHW", (3, 12, 12)), ("HWC", (12, 12, 3))):
        outputs = [spec("y", "float32", shape)]
        read: list[Case] = [{"step": "post.mask", "layout": layout}]
        cases.append(
            case(read, {"y": tensor(scores, shape)}, item=letterboxed, outputs=outputs, labels=["a", "b", "c"])
        )
    small = tensor([1, 2, 1, 0], (2, 2))
    cases.append(
        case(
            [{"step": "post.mask"}],
            {"y": small},
            item={"width": 5, "height": 3},
            outputs=[spec("y", "float32", (2, 2))],
        )
    )
    assert_equal(cases, tmp_path)


def test_features_of_microcontrollers_are_equal(tmp_path: Path) -> None:
    chance = random.Random(19)
    loud = Sound(array("f", (chance.choice((-1.0, 0.999, 0.0)) for _ in range(3000))), 16_000)
    ways: list[Case] = [
        {},
        {"unit": "int8", "hop": 320},
        {"window": 256, "hop": 100, "channels": 20, "gain": False},
        {"window": 1024, "hop": 512, "low_hz": 20, "high_hz": 8000, "channels": 64},
        {"window": 16, "hop": 16, "channels": 3},
        {"window": 4000},
        {"low_hz": 9000},
    ]
    cases = [
        case([{"step": "audio.micro_features", **way}], one) for way in ways for one in (sound(chance, 4000), loud)
    ]
    tensors = tensor([chance.random() for _ in range(24)], (6, 4))
    more: list[Case] = [{"step": "tensor.reshape", "shape": [2, 12]}, {"step": "tensor.reshape", "shape": [5]}]
    more += [{"step": "tensor.reshape", "shape": [0]}, {"step": "tensor.frames", "rows": 2, "samples": 10}]
    more += [{"step": "tensor.frames", "rows": 7}]
    cases += [case([one], tensors) for one in more]
    assert_equal(cases, tmp_path)


def test_depths_and_pictures_are_equal(tmp_path: Path) -> None:
    chance = random.Random(17)
    letterboxed = {"width": 40, "height": 30, "inputWidth": 24, "inputHeight": 24, "geometry": [[0.6, 0.6, 0, 3]]}
    maps: list[tuple[tuple[int, ...], Case]] = [
        ((12, 12), letterboxed),
        ((1, 5, 9), {"width": 31, "height": 7}),
        ((6, 4, 1), {"width": 2, "height": 3}),
    ]
    cases = []
    for shape, item in maps:
        depths = tensor([chance.uniform(-3, 9) for _ in range(math.prod(shape))], shape)
        outputs = [spec("y", "float32", shape)]
        cases.append(case([{"step": "post.depth"}], {"y": depths}, item=item, outputs=outputs))
    for values in ([2.5] * 4, [1.0, math.nan, 2.0, 0.0]):
        given = {"y": tensor(values, (2, 2))}
        outputs = [spec("y", "float32", (2, 2))]
        cases.append(case([{"step": "post.depth"}], given, item={"width": 2, "height": 2}, outputs=outputs))
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("CHW", (3, 4, 6)),
        ("HWC", (4, 6, 3)),
        ("CHW", (4, 6)),
        ("CHW", (2, 4, 6)),
    ]
    for layout, shape in shapes:
        choices = (0.5 / 255, 1.5 / 255, -0.2, 1.3, math.nan)
        numbers = [chance.choice((chance.random(), *choices)) for _ in range(math.prod(shape))]
        more: Case
        for more in ({}, {"scale": 127.5, "offset": 127.5}):
            read = [{"step": "post.image", "layout": layout, **more}]
            cases.append(case(read, {"y": tensor(numbers, shape)}, outputs=[spec("y", "float32", shape)]))
    assert_equal(cases, tmp_path)


def test_stretches_of_speech_are_equal(tmp_path: Path) -> None:
    chance = random.Random(13)
    cases = []
    for _ in range(12):
        scores, level = [], 0.1
        for _ in range(120):
            level = chance.choice((level, level, level, level, 0.1, 0.45, 0.9))
            scores.append(level)
        read = [{"step": "post.speech_segments", "min_speech_ms": 60, "pad_ms": chance.choice((0, 30, 200))}]
        outputs = [spec("y", "float32", (120, 1))]
        cases.append(case(read, {"y": tensor(scores, (120, 1))}, item={"rate": 16_000, "frame": 512}, outputs=outputs))
    assert_equal(cases, tmp_path)


def texts(steps: Callable[[], list[Case]], values: list[Any], folder: Path, **more: Any) -> list[Case]:
    file = folder / "tokenizer.json"
    file.write_bytes(written(trained("bert")))
    inputs = [spec(name, "int64", ("n", "t")) for name in ("input_ids", "attention_mask", "token_type_ids")]
    return [case(steps(), value, inputs=inputs, files={"tokenizer.json": str(file)}, **more) for value in values]


def test_texts_become_equal_tokens(tmp_path: Path) -> None:
    values: list[Any] = [*SENTENCES, "", {"text": "one", "text_pair": "another"}, ["one", "another"], 7, {"text": 1}]
    plain = texts(lambda: [{"step": "text.tokenize"}], values, tmp_path)
    filled = texts(
        lambda: [{"step": "text.tokenize", "max_length": 9, "pad_to": 16, "prefix": "query: "}], values, tmp_path
    )
    assert_equal(plain + filled, tmp_path)


def test_wrong_definitions_are_refused_alike(tmp_path: Path) -> None:
    wrong: list[Any] = [
        {},
        7,
        {"step": "image.resise", "width": 3, "height": 3},
        {"step": "image.resize"},
        {"step": "image.resize", "width": 3},
        {"step": "image.resize", "width": 3.5, "height": 3},
        {"step": "image.resize", "width": True, "height": 3},
        {"step": "image.resize", "width": 0, "height": 3},
        {"step": "image.resize", "shortest": 9, "widht": 3},
        {"step": "image.resize", "shortest": 9, "filter": "cubic"},
        {"step": "image.decode", "background": [1, 2]},
        {"step": "image.decode", "background": [1, 2, 300]},
        {"step": "image.letterbox", "width": 3, "height": 3, "upscale": 1},
        {"step": "post.boxes", "format": "decoded", "tensors": {"boxes": 3}},
        {"step": "post.boxes", "format": "decoded"},
        {"step": "post.top_k", "tensor": ""},
        {"step": "post.top_k", "tensor": "z"},
        {"step": "post.softmax", "temperature": 0},
        {"step": "tensor.quantize", "scale": 1},
        {"step": "image.to_tensor"},
        {"step": "image.rescale_normalize", "std": [0, 1, 1]},
        {"step": "text.tokenize", "tensors": {"ids": "tokens"}},
        {"step": "text.tokenize", "tensors": {"ids": "x", "masks": "x"}},
        {"step": "post.boxes", "format": "yolov8", "tensors": {"output": "a"}},
    ]
    place: Case = {
        "inputs": [spec("x", "float32", ("n", "c", "h", "w"))],
        "outputs": [spec(name, "float32", (3,)) for name in "ab"],
        "input": "x",
    }
    found = both([case([one], None, **place) for one in wrong], tmp_path)

    assert [python["code"] for python, _ in found] == [javascript.get("code") for _, javascript in found]
    assert {python["code"] for python, _ in found} == {"manifest_error"}


def test_the_parameters_of_javascript_are_those_of_python() -> None:
    namespace: dict[str, Any] = {"__file__": str(ROOT / "web/generate_parameters.py"), "__name__": "generate"}
    exec((ROOT / "web/generate_parameters.py").read_text("utf-8"), namespace)

    assert (ROOT / "web/src/tasks/parameters.js").read_text("utf-8") == namespace["written"]()
