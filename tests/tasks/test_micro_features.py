"""The features of microcontrollers are those of TensorFlow Lite Micro's own frontend."""

from __future__ import annotations

import json
from array import array
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import edge_infer
from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.audio.micro_frontend import MicroFrontend, Settings
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import read_step
from edge_infer.tensors.arrays import to_tensor
from edge_infer_converters import convert
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: What the package `pymicro-features` 2.0.2, which holds TensorFlow's C, gives for `sweep()`: 98 frames of 40.
_FEATURES = "ac5e7ef4d5e2a2a6d4ee3afac52b6c5ff9ad045742e70573f15bc88bb2c8dc39"


def step(name: str, **parameters: Any) -> Any:
    return read_step({"step": name, **parameters}, "test").prepare(Place(lambda _: b"", [], [], []))


def sweep(count: int = 16_000) -> list[int]:
    """A rising tone that gets softer, and noise: made of whole numbers alone."""
    state, phase, found = 1, 0, []
    for i in range(count):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        phase = (phase + 300 + i // 40) & 0xFFFF
        tone = (phase if phase < 32_768 else 65_535 - phase) - 16_384
        found.append(max(-32_768, min(32_767, tone // (1 + i // 4000) + ((state >> 20) - 2048) // 4)))
    return found


def sound(samples: Sequence[int]) -> Sound:
    return Sound(array("f", (one / 32_768 for one in samples)), 16_000)


def test_features_are_those_of_the_frontend_in_c() -> None:
    rows = MicroFrontend(Settings()).features(sweep())

    assert rows[0][:8] == [656, 603, 655, 597, 653, 592, 648, 588]
    assert rows[-1][-8:] == [0, 0, 0, 0, 133, 0, 0, 0]
    # glibc 2.36 rounds one logarithm the other way (its `log1pf` is not exact), which moves a weight by 1 in 4,096.
    assert rows[20][32] == 429
    rows[20][32] = 430
    assert sha256(json.dumps(rows).encode()).hexdigest() == _FEATURES


def test_a_sound_becomes_a_tensor_of_its_features() -> None:
    rows = MicroFrontend(Settings()).features(sweep())

    real = step("audio.micro_features")(sound(sweep()), Item())
    integers = step("audio.micro_features", unit="int8")(sound(sweep()), Item())

    np.testing.assert_array_equal(np.array(real.tolist(), np.float32), np.array(rows) / np.float64(25.6))
    wanted = np.clip((np.array(rows) * 256 + 333) // 666 - 128, -128, 127)
    np.testing.assert_array_equal(integers.tolist(), wanted)
    assert str(integers.dtype) == "int8"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(step=320),
        Settings(8000, 256, 128, 20, 60.0, 3800.0),
        Settings(window=512, is_gained=False),
        Settings(16_000, 16, 16, 4),
        Settings(48_000, 2048, 480, 128, 20.0, 20_000.0),
    ],
)
def test_other_settings_give_numbers_of_16_bits(settings: Settings) -> None:
    rows = MicroFrontend(settings).features([32_767, -32_768] * 2048)

    assert len(rows) == (4096 - settings.window) // settings.step + 1
    assert all(0 <= value <= 0xFFFF for row in rows for value in row)
    assert all(len(row) == settings.channels for row in rows)


def test_silence_and_broken_samples_are_silent() -> None:
    for samples in ([0.0] * 480, [float("nan"), float("inf")] * 240):
        assert not any(step("audio.micro_features")(Sound(array("f", samples), 16_000), Item()).tolist()[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"high_hz": 100}, "bands from 125 to 100 Hz"),
        ({"rate": 8000}, "end at 4000 at most"),
        ({"window": 5000}, "window"),
        ({"channels": 0}, "channels"),
        ({"unit": "dB"}, "unit"),
    ],
)
def test_settings_that_do_not_fit_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        step("audio.micro_features", **parameters)


def test_a_sound_that_is_too_short_is_refused() -> None:
    with pytest.raises(InputError, match="100 samples is too short: a frame takes 480"):
        step("audio.micro_features")(sound([1] * 100), Item())


def test_a_tensor_takes_another_shape_or_is_cut_into_frames() -> None:
    tensor = to_tensor(np.arange(14, dtype=np.float32).reshape(7, 2))

    assert step("tensor.reshape", shape=[2, 7])(tensor, Item()).tolist() == np.arange(14).reshape(2, 7).tolist()
    made = Item()
    frames = step("tensor.frames", rows=3, samples=160)(tensor, made)
    assert [frame.tolist() for frame in frames] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert made.frame == 480
    with pytest.raises(InputError, match=r"shape \[7, 2\] has 14 elements, and \[3, 5\] has 15"):
        step("tensor.reshape", shape=[3, 5])(tensor, Item())
    with pytest.raises(InputError, match="a frame takes 8 rows"):
        step("tensor.frames", rows=8)(tensor, Item())
    for shape in ([], [0, 4], [1.5], [1] * 9):
        with pytest.raises(ManifestError, match="expected 1 to 8 whole numbers from 1 to"):
            step("tensor.reshape", shape=shape)


def test_a_model_of_features_answers_a_sound(tmp_path: Path) -> None:
    """Two classes: whether the first or the second half of a second has more in it."""
    weights = np.zeros((1960, 2), np.float32)
    weights[:980, 0], weights[980:, 1] = 0.001, 0.001
    model = zoo.model(
        [helper.make_node("MatMul", ["features", "w"], ["scores"])],
        [zoo.value("features", [1, 1960])],
        [zoo.value("scores", [1, 2])],
        {"w": weights},
    )
    (tmp_path / "m.onnx").write_bytes(model)
    steps = [
        {"step": "audio.decode"},
        {"step": "audio.resample", "rate": 16_000},
        {"step": "audio.fit", "samples": 16_000},
        {"step": "audio.micro_features", "hop": 320},
        {"step": "tensor.reshape", "shape": [1960]},
    ]
    (tmp_path / "steps.json").write_text(json.dumps({"inputs": {"features": steps}}))
    (tmp_path / "labels.txt").write_text("early\nlate\n")

    convert(
        tmp_path / "m.onnx",
        tmp_path / "m.bundle",
        preprocess=str(tmp_path / "steps.json"),
        labels=tmp_path / "labels.txt",
        precision="fp32",
        format="onnx",
        task="audio-classification",
    )

    rng = np.random.default_rng(0)
    late = np.concatenate([np.zeros(9000), rng.normal(0, 0.2, 7000)]).astype(np.float32)
    with edge_infer.pipeline(tmp_path / "m.bundle", self_test=True) as classify:
        for samples, label in ((late, "late"), (late[::-1].copy(), "early")):
            assert classify({"array": samples, "sampling_rate": 16_000})[0]["label"] == label
