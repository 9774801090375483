"""Cameras, microphones and pipes: answers as soon as they are certain, and none of an old picture."""

from __future__ import annotations

import io
import sys
from array import array
from threading import Event
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.platform import installed
from edge_infer.tasks.live import camera, microphone
from edge_infer.tasks.post.speech_segments import SpeechDetector
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOISE = np.random.default_rng(2).uniform(-0.9, 0.9, 16_000)
SOUND = np.concatenate([np.zeros(8000), NOISE, np.zeros(8000), NOISE[:8000], np.zeros(4000)]).astype("float32")


@pytest.fixture
def hear(tmp_path: Path) -> Iterator[edge_infer.Pipeline]:
    with edge_infer.pipeline(pipelines.loudness(tmp_path / "loud.bundle")) as found:
        yield found


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a module in the place of a package that reads a device."""

    def install(name: str, **members: Any) -> None:
        made = ModuleType(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)
        known = installed.origin_of
        monkeypatch.setattr(installed, "origin_of", lambda asked: "here" if asked == name else known(asked))

    return install


@pytest.mark.parametrize("size", [7, 160, 1000, len(SOUND)])
def test_blocks_of_any_length_give_what_the_whole_sound_gives(hear: edge_infer.Pipeline, size: int) -> None:
    blocks = [SOUND[at : at + size] for at in range(0, len(SOUND), size)]
    assert list(hear.listen(blocks)) == hear(SOUND)
    assert len(hear(SOUND)) == 2


def test_speech_is_told_before_the_sound_goes_on(hear: edge_infer.Pipeline) -> None:
    told: list[Any] = []

    def blocks() -> Iterator[Any]:
        yield SOUND[:27_000]
        told.append("more was asked for")
        yield SOUND[27_000:]

    told.extend(one["start"] for one in hear.listen(blocks()))
    assert told[0] == 0.5
    assert told[1] == "more was asked for"


def test_a_model_without_state_answers_windows_that_overlap(tmp_path: Path) -> None:
    from onnx import helper

    bundle = pipelines.write(
        tmp_path / "loudest.bundle",
        [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("ReduceMax", ["a"], ["y"], axes=[1], keepdims=1)],
        [edge_infer.TensorSpec("x", "float32", ("batch", 1000))],
        [edge_infer.TensorSpec("y", "float32", ("batch", 1))],
        "audio-classification",
        {"x": [{"step": "audio.decode"}, {"step": "audio.fit", "samples": 1000}, {"step": "audio.normalize"}]},
        [{"step": "post.top_k"}],
        labels=["loud"],
    )
    with edge_infer.pipeline(bundle) as hear:
        found = list(hear.listen([SOUND[7000:9500]]))
        assert [one["start"] for one in found] == [0, 500 / 16_000, 1000 / 16_000, 1500 / 16_000]
        assert found[0]["answer"][0]["score"] == 0
        assert found[2]["answer"][0]["score"] > 0.5


def test_only_sounds_are_listened_to(tmp_path: Path, hear: edge_infer.Pipeline) -> None:
    with edge_infer.pipeline(pipelines.colours(tmp_path / "c.bundle")) as see, pytest.raises(UnsupportedError):
        see.listen()
    with pytest.raises(UnsupportedError, match="takes no image"):
        hear.watch()
    with pytest.raises(InputError, match="no argument `loudness`"):
        hear.listen([], loudness=3)


def test_samples_of_a_pipe_are_whole_numbers() -> None:
    data = np.array([0, 16384, -32768, 8192], "<i2").tobytes() + b"\1"
    found = list(microphone.raw_blocks(io.BytesIO(data), 3))
    assert [block.tolist() for block in found] == [[0, 0.5, -1], [0.25, 0, 0]]


def test_a_microphone_is_read_block_by_block(module: Any, hear: edge_infer.Pipeline) -> None:
    left = [SOUND[at : at + 160].tobytes() for at in range(0, 32_000, 160)]

    class Stream:
        def __init__(self, rate: int, size: int, device: Any, *, channels: int, dtype: str) -> None:
            assert (rate, size, device, channels, dtype) == (16_000, 160, None, 1, "float32")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, size: int) -> tuple[bytes, bool]:
            assert size == 160
            return left.pop(0), False

    module("sounddevice", RawInputStream=Stream, PortAudioError=OSError)
    assert next(hear.listen())["start"] == 0.5


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, hear: edge_infer.Pipeline) -> None:
    monkeypatch.setattr(installed, "origin_of", lambda _: None)
    with pytest.raises(UnsupportedError, match="sounddevice") as caught:
        list(hear.listen())
    assert "arecord" in caught.value.hint
    with pytest.raises(UnsupportedError, match="OpenCV or picamera2"):
        list(camera.frames())


def test_a_camera_gives_its_newest_picture(module: Any, tmp_path: Path) -> None:
    shown, is_next = [], Event()

    class Capture:
        def __init__(self, number: int) -> None:
            self.number = number

        def isOpened(self) -> bool:  # noqa: N802
            return self.number == 0

        def release(self) -> None:
            shown.append("released")

        def read(self) -> tuple[bool, Any]:
            if shown:
                assert is_next.wait(30)
                is_next.clear()
            shown.append("picture")
            blue_first = np.full((4, 6, 3), (10, 20, 250), np.uint8)
            return len(shown) < 3, blue_first

    module("cv2", VideoCapture=Capture)
    with edge_infer.pipeline(pipelines.colours(tmp_path / "c.bundle")) as see:
        answers = []
        for answer in see.watch(0, top_k=1):
            answers.append(answer[0]["label"])
            is_next.set()
    assert answers == ["red", "red"]
    assert shown == ["picture", "picture", "picture", "released"]
    with pytest.raises(InputError, match="there is no camera `1`"):
        list(camera.frames(1))


def test_floats_and_arrays_are_blocks_too(hear: edge_infer.Pipeline) -> None:
    assert list(hear.listen([array("f", SOUND)])) == hear(SOUND)


def test_stretches_close_together_are_padded_up_to_the_middle_wherever_they_are_told() -> None:
    names = ("threshold", "end_threshold", "min_speech_ms", "min_silence_ms", "pad_ms")
    values = dict(zip(names, (0.5, None, 0.0, 10.0, 100.0), strict=True))
    at_once, live = SpeechDetector(values, 1000, 10), SpeechDetector(values, 1000, 10)
    told = []
    for score in [0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]:
        at_once.step(score)
        live.step(score)
        told += live.ended()
    assert [(one["start"], one["end"]) for one in told] == [(0.0, 0.05), (0.05, 0.1)]
    assert [one["start"] for one in at_once.finish()] == [0.0, 0.05]


def test_each_picture_of_a_file_is_answered(module: Any, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(b"a film")

    class Capture:
        def __init__(self, place: str) -> None:
            assert place == str(film)
            self.left, self.isOpened, self.release = 9, lambda: True, lambda: None

        def read(self) -> tuple[bool, Any]:
            self.left -= 1
            return self.left >= 0, np.full((4, 6, 3), 20 * max(self.left, 0), np.uint8)

    module("cv2", VideoCapture=Capture)
    with edge_infer.pipeline(pipelines.colours(tmp_path / "c.bundle")) as see:
        assert len(list(see.watch(str(film)))) == 9
