"""Wrong and malicious raw data and definitions: an error that names the fault, in bounded time and memory."""

from __future__ import annotations

import copy
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import edge_infer
from edge_infer.errors import BundleError, EdgeInferError, InputError, ManifestError
from edge_infer.tasks.definition import read_definition
from tests.support.tasks import pipelines

DEFINITION = json.loads(Path("examples/faces/pipeline.json").read_text())
SESSION = edge_infer.load("examples/faces/yunet_320.onnx", arrays="tensor")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["image.resize", "post.nms", "NHWC", "yolov8", "ssd", "*", "__class__", "../../etc/passwd"]),
    st.lists(st.integers(-3, 300), max_size=5),
    st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=3),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


PLACES = places(DEFINITION)[1:]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_a_definition_with_anything_in_any_place_runs_or_says_why_not(data: st.DataObject) -> None:
    document = copy.deepcopy(DEFINITION)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(PLACES))
        holder: Any = document
        try:
            for key in way:
                holder = holder[key]
            holder[last] = data.draw(VALUES)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    try:
        find = edge_infer.Pipeline(SESSION, definition=read_definition("object-detection", document))
        answers = find(np.full((40, 30, 3), 90, np.uint8))
    except EdgeInferError as error:
        assert error.message
    else:
        assert isinstance(answers, (list, edge_infer.Tensor, dict, tuple))


def png(width: int, height: int, body: bytes = b"") -> bytes:
    """A PNG file whose head promises a size."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", zlib.compress(body)) + part(b"IEND", b"")


def photo() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(file, "JPEG")
    return file.getvalue()


def animation() -> bytes:
    file = io.BytesIO()
    first, *others = [Image.new("RGB", (9, 9), (20 * i, 0, 0)) for i in range(5)]
    first.save(file, "GIF", save_all=True, append_images=others)
    return file.getvalue()


@pytest.fixture(scope="module")
def see(tmp_path_factory: pytest.TempPathFactory) -> edge_infer.Pipeline:
    return edge_infer.pipeline(pipelines.colours(tmp_path_factory.mktemp("hostile") / "c.bundle"))


@pytest.mark.parametrize(
    "data",
    [
        png(30_000, 30_000),
        png(2**31 - 1, 1),
        png(100_000, 10),
        png(0, 5),
        png(50, 50, b"short"),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"GIF89a",
        b"\xff\xd8\xff\xe0" + bytes(100),
        bytes(10_000),
    ],
    ids=["huge", "long", "wide", "empty", "short", "svg", "gif", "jpeg", "zeros"],
)
def test_a_bad_image_is_refused_before_it_takes_memory(see: edge_infer.Pipeline, data: bytes) -> None:
    with pytest.raises(InputError):
        see(data)


def test_a_cut_photo_is_refused_and_an_animation_is_its_first_picture(see: edge_infer.Pipeline) -> None:
    whole = photo()
    see(whole)
    for end in (3, 20, len(whole) // 2, len(whole) - 20):
        with pytest.raises(InputError, match="cannot be read"):
            see(whole[:end])
    assert see(animation()) == see(np.zeros((9, 9, 3), np.uint8))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_photo_with_other_bytes_is_read_or_refused(see: edge_infer.Pipeline, data: st.DataObject) -> None:
    damaged = bytearray(photo())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(see(bytes(damaged))) == 3
    except InputError as error:
        assert error.message


def test_texts_of_no_length_and_of_great_length_are_answered(tmp_path: Path) -> None:
    bundle = pipelines.words(tmp_path / "w.bundle", "feature-extraction", [{"step": "post.pool"}])
    with edge_infer.pipeline(bundle) as embed:
        assert embed("").shape == (4,)
        assert embed("good film " * 300_000).shape == (4,)
        with pytest.raises(InputError):
            embed("a" * (2**24 + 1))
        with pytest.raises(InputError, match="surrogate"):
            embed("\ud800")


def test_a_text_that_is_not_cut_to_the_models_length_is_the_engines_error(tmp_path: Path) -> None:
    labels = ["NO"]
    after = [{"step": "post.softmax"}, {"step": "post.top_k"}]
    bundle = pipelines.words(tmp_path / "w.bundle", "text-classification", after, 2, labels, pooled=True)
    with (
        edge_infer.pipeline(bundle) as classify,
        pytest.raises(BundleError, match="2 scores, and the bundle has 1 labels"),
    ):
        classify("good")


@pytest.mark.parametrize(
    "sound",
    [
        [],
        [float("nan")],
        [float("inf")],
        {"array": [0.1], "sampling_rate": -3},
        {"array": [0.1], "sampling_rate": True},
        {"array": "nonsense", "sampling_rate": 8000},
        {"array": [0.1] * 10, "sampling_rate": 767_999},
        b"RIFF\xff\xff\xff\xffWAVE",
    ],
)
def test_a_bad_sound_is_refused(tmp_path: Path, sound: Any) -> None:
    with edge_infer.pipeline(pipelines.loudness(tmp_path / "l.bundle")) as hear, pytest.raises(InputError):
        hear(sound if not isinstance(sound, list) else np.array(sound, "float32"))


def test_a_step_that_asks_for_too_much_is_refused() -> None:
    for step in (
        {"step": "image.resize", "width": 10**9, "height": 1},
        {"step": "audio.log_mel", "fft": 10**9},
        {"step": "audio.frame", "samples": 2**40},
        {"step": "post.boxes", "format": "ssd", "anchors": [0.5] * (2**20 + 4)},
        {"step": "image.center_crop", "width": 2**20, "height": 2**20},
    ):
        with pytest.raises(ManifestError):
            read_definition("object-detection", {"version": 1, "inputs": {"input": [step]}, "outputs": [step]})


def test_files_outside_the_bundle_are_not_read(tmp_path: Path) -> None:
    bundle = pipelines.words(tmp_path / "w.bundle", "feature-extraction", [{"step": "post.pool"}])
    path = bundle / "manifest.json"
    document = json.loads(path.read_text())
    for name in ("../secret.json", "/etc/passwd", "onnx/../../secret.json", "none.json"):
        document["pipeline"]["inputs"]["*"][0]["file"] = name
        path.write_text(json.dumps(document))
        with pytest.raises(ManifestError):
            edge_infer.pipeline(bundle)
