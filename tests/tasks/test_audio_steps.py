"""Steps of sound: WAV files of every kind, resampling, mel bands; with numpy and without."""

from __future__ import annotations

import math
import struct
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.audio import log_mel, resample
from edge_infer.tasks.audio.mel import mel_filters
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.audio.wav import read_wav
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.sources.asked import SPEECH_COMMANDS
from edge_infer.tasks.sources.feature_extractors import sound_steps
from edge_infer.tasks.sources.fields import Fields
from edge_infer.tasks.steps import read_step
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

WAVE = np.sin(np.arange(1000) * 0.05) * 0.7


def step(name: str, **parameters: Any) -> Callable[[Any, Item], Any]:
    """The function of a step for a model of one input."""
    place = Place(lambda _: b"", [], [TensorSpec("x", "float32", (1, "samples"))], [], "x")
    return read_step({"step": name, **parameters}, "test").prepare(place)


def wav(
    encoding: int, bits: int, body: bytes, channels: int = 1, rate: int = 16_000, *, extensible: bool = False
) -> bytes:
    width = bits // 8 * channels
    kind = struct.pack("<HHIIHH", 0xFFFE if extensible else encoding, channels, rate, rate * width, width, bits)
    if extensible:
        kind += struct.pack("<HHIH", 22, bits, 0, encoding) + bytes(14)
    parts = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", len(kind)) + kind
    parts += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts


@pytest.mark.parametrize("extensible", [False, True])
def test_every_kind_of_wav_gives_the_same_sound(extensible: bool) -> None:
    whole = np.round(WAVE * 2**31).astype("<i4")
    bodies = {
        (1, 8): ((whole >> 24) + 128).astype("u1").tobytes(),
        (1, 16): (whole >> 16).astype("<i2").tobytes(),
        (1, 24): whole.view("u1").reshape(-1, 4)[:, 1:].tobytes(),
        (1, 32): whole.tobytes(),
        (3, 32): WAVE.astype("<f4").tobytes(),
        (3, 64): WAVE.astype("<f8").tobytes(),
    }
    for (encoding, bits), body in bodies.items():
        sound = read_wav(wav(encoding, bits, body, extensible=extensible))
        assert sound.rate == 16_000
        assert np.abs(np.array(sound.samples) - WAVE).max() < 2 ** -(min(bits, 24) - 1), (encoding, bits)


def test_channels_are_mixed_to_one() -> None:
    stereo = np.stack([WAVE, -WAVE, np.full(1000, 0.3)], 1)
    sound = read_wav(wav(3, 32, stereo.astype("<f4").tobytes(), channels=3))
    assert np.array(sound.samples) == pytest.approx(np.full(1000, 0.1), abs=1e-6)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        wav(1, 16, b"", channels=0),
        wav(1, 16, b"\0\0", rate=0),
        wav(2, 4, b"\0\0"),
        wav(1, 12, b"\0\0"),
        wav(1, 16, b"\0\0")[:30],
        wav(1, 16, b"\0\0").replace(b"data", b"dato"),
    ],
)
def test_a_damaged_wav_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_wav(data)


def test_what_is_not_a_sound_is_refused() -> None:
    read = step("audio.decode")
    wrong = [
        b"fLaC",
        3,
        "none.wav",
        ["a"],
        np.zeros((2, 2, 2), "float32"),
        np.zeros((2, 90), "float32"),
        np.zeros(0, "f4"),
    ]
    for value in [*wrong, {"array": WAVE, "sampling_rate": 0}, np.array([np.nan], "float32"), wav(1, 16, b"")]:
        with pytest.raises(InputError):
            read(value, Item())


def test_samples_of_every_type_are_the_same_sound() -> None:
    read = step("audio.decode")
    expected = WAVE.astype("float32")
    given = [WAVE, expected, expected.tolist(), array("f", expected), {"raw": WAVE, "sampling_rate": 16_000}]
    for value in given:
        assert np.array_equal(np.array(read(value, Item()).samples, "float32"), expected)
    sixteen = read(np.round(WAVE * 32768).astype("int16"), Item())
    assert np.abs(np.array(sixteen.samples) - WAVE).max() < 2**-15
    assert read(WAVE, Item({"sampling_rate": 8000})).rate == 8000


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([8000, 11_025, 22_050, 44_100, 48_000]), st.integers(1, 700))
def test_resampling_is_the_same_without_numpy(rate: int, length: int) -> None:
    sound = Sound(array("f", np.random.default_rng(length).uniform(-1, 1, length)), rate)
    convert = step("audio.resample", rate=16_000)
    with pytest.MonkeyPatch.context() as patch:
        fast = convert(sound, Item()).samples
        patch.setattr(resample, "has_numpy", lambda: False)
        assert convert(sound, Item()).samples == fast
    assert len(fast) == math.ceil(length * 16_000 / rate)


def test_a_slow_sound_is_not_drawn_out_to_hours() -> None:
    """A file of 32 kB that states 1 sample per second would become 256 million samples."""
    with pytest.raises(InputError, match="too long at 16000 per second"):
        step("audio.resample", rate=16_000)(Sound(array("f", bytes(4 * 16_000)), 1), Item())


def test_resampling_keeps_a_tone_and_stops_what_would_fold_back() -> None:
    times = np.arange(44_100) / 44_100
    convert = step("audio.resample", rate=16_000)
    low = convert(Sound(array("f", np.sin(2 * np.pi * 1000 * times)), 44_100), Item()).samples
    expected = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    assert np.abs(np.array(low) - expected)[200:-200].max() < 1e-3
    high = convert(Sound(array("f", np.sin(2 * np.pi * 9500 * times)), 44_100), Item()).samples
    assert np.abs(np.array(high))[200:-200].max() < 1e-2


@pytest.mark.parametrize("style", ["plain", "whisper"])
@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_mel_bands_are_those_of_a_direct_transform(monkeypatch: pytest.MonkeyPatch, style: str, scale: str) -> None:
    samples = np.random.default_rng(2).uniform(-1, 1, 1300)
    convert = step("audio.log_mel", fft=120, hop=60, mels=12, scale=scale, style=style, axes="mels_first")
    sound = Sound(array("f", samples), 16_000)
    fast = np.asarray(convert(sound, Item()))
    padded = np.pad(np.array(sound.samples, float), 60, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(120) / 120)
    frames = np.stack([padded[i : i + 120] * window for i in range(0, len(padded) - 119, 60)])
    turns = np.exp(-2j * np.pi * np.outer(np.arange(120), np.arange(61)) / 120)
    energy = np.abs(frames @ turns) ** 2
    bands = np.zeros((61, 12))
    for band, (first, weights) in enumerate(mel_filters(120, 12, 16_000, 0, None, scale, area_norm=True)):
        bands[first : first + len(weights), band] = weights
    expected = np.log10(np.maximum(energy @ bands, 1e-10))
    if style == "whisper":
        expected = (np.maximum(expected[:-1], expected[:-1].max() - 8) + 4) / 4
    assert fast == pytest.approx(expected.T, abs=1e-5)
    monkeypatch.setattr(log_mel, "has_numpy", lambda: False)
    assert np.asarray(convert(sound, Item())) == pytest.approx(fast, abs=1e-6)


def kaldi(samples: np.ndarray, frame: int, hop: int) -> np.ndarray:
    """Frames without their mean, sharpened, as Kaldi and transformers' `audio_utils.spectrogram` make them."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, frame)[::hop].astype("float64")
    frames = frames - frames.mean(1, keepdims=True)
    return np.concatenate([frames[:, :1] * (1 - 0.97), frames[:, 1:] - 0.97 * frames[:, :-1]], 1)


def triangles(fft: int, mels: int, low: float, high: float) -> np.ndarray:
    """Bands that are straight over HTK's mel, as `tf.signal.linear_to_mel_weight_matrix` and Kaldi make them."""

    def mel(hz: Any) -> Any:
        return 1127 * np.log(1 + np.asarray(hz) / 700)

    edges = np.linspace(mel(low), mel(high), mels + 2)
    bins = mel(np.linspace(0, 8000, fft // 2 + 1))[:, None]
    rising, falling = (bins - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - bins) / np.diff(edges)[1:]
    bands: np.ndarray = np.maximum(0, np.minimum(rising, falling))
    return bands


def test_kaldi_features_are_those_of_a_float64_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that a folder with an `ASTFeatureExtractor` gets."""
    samples = np.random.default_rng(4).uniform(-0.5, 0.5, 3000).astype("float32")
    config = Fields({"feature_extractor_type": "ASTFeatureExtractor", "max_length": 20}, "preprocessor_config.json")
    chain = sound_steps(config, TensorSpec("x", "float32", (1, 20, 128)))
    made: Any = Sound(array("f", samples), 16_000)
    plain: Any = made
    for one in chain[2:]:
        function = step(one["step"], **{name: value for name, value in one.items() if name != "step"})
        made = function(made, Item())
        with monkeypatch.context() as patch:
            patch.setattr(log_mel, "has_numpy", lambda: False)
            plain = function(plain, Item())
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)
    energy = np.abs(np.fft.rfft(kaldi(samples, 400, 160) * window, 512)) ** 2
    expected = np.zeros((20, 128))
    expected[:17] = np.log(np.maximum(energy @ triangles(512, 128, 20, 8000), 2.0**-23))
    expected = (expected + 4.2677393) / (2 * 4.5689974)
    assert np.abs(np.asarray(made) - expected).max() < 1e-6
    assert np.abs(np.asarray(made) - np.asarray(plain)).max() < 1e-6


def test_the_mfcc_of_keywords_is_that_of_a_float64_reference() -> None:
    samples = np.random.default_rng(5).normal(0, 0.05, 16_000).astype("float32")
    made: Any = Sound(array("f", samples), 16_000)
    for one in SPEECH_COMMANDS[2:]:
        made = step(one["step"], **{name: value for name, value in one.items() if name != "step"})(made, Item())
    level = np.clip(samples / samples.max(), -1, 1).astype("float64")
    frames = np.lib.stride_tricks.sliding_window_view(level, 480)[::320]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(480) / 480)
    bands = np.abs(np.fft.rfft(frames * window, 512)) @ triangles(512, 40, 20, 4000)
    cosines = np.cos(np.pi / 80 * np.outer(2 * np.arange(40) + 1, np.arange(10)))
    expected = np.log(bands + 1e-6) @ cosines * 2 / math.sqrt(80)
    assert np.asarray(made).shape == (49, 10)
    assert np.abs(np.asarray(made) - expected).max() < 1e-5 * np.abs(expected).max()


def test_mel_and_cepstral_steps_refuse_what_does_not_fit() -> None:
    with pytest.raises(ManifestError, match="frames of 800 samples and a transform of 400"):
        step("audio.log_mel", frame=800)
    with pytest.raises(InputError, match="has no 13 coefficients"):
        step("audio.mfcc")(Tensor(array("f", [0.0] * 24), DType.FLOAT32, (2, 12)), Item())
    with pytest.raises(InputError, match="cannot be made 3 rows long"):
        step("tensor.fit", rows=3)(Tensor(bytes(4), DType.INT8, (2, 2)), Item())
    silence = Sound(array("f", [0.0, -0.5]), 16_000)
    assert step("audio.scale", by="highest", factor=2.0, clip=0.75)(silence, Item()).samples.tolist() == [0, -0.75]


def test_a_sound_too_short_for_a_frame_says_what_to_add() -> None:
    with pytest.raises(InputError, match="too short") as caught:
        step("audio.log_mel")(Sound(array("f", [0.1] * 100), 16_000), Item())
    assert "audio.fit" in caught.value.hint


def test_a_sound_is_fitted_framed_and_normalised() -> None:
    sound = Sound(array("f", [0.1, 0.2, 0.3, 0.4, 0.5]), 16_000)
    assert step("audio.fit", samples=3)(sound, Item()).samples == sound.samples[:3]
    assert step("audio.fit", samples=7)(sound, Item()).samples.tolist()[5:] == [0, 0]
    frames = step("audio.frame", samples=2, context=1)(sound, Item())
    assert [[round(x, 1) for x in frame.tolist()] for frame in frames] == [
        [0, 0.1, 0.2],
        [0.2, 0.3, 0.4],
        [0.4, 0.5, 0],
    ]
    scaled = np.asarray(step("audio.normalize", method="mean_variance")(sound, Item()))
    assert (scaled.mean(), scaled.std()) == pytest.approx((0, 1), abs=1e-5)
    assert np.asarray(step("audio.normalize", method="peak")(sound, Item())).max() == 1


def test_a_file_of_nothing_says_that_it_is_empty() -> None:
    with pytest.raises(InputError, match="the sound is empty") as caught:
        step("audio.decode")(b"", Item())
    assert caught.value.hint == "record it again"
