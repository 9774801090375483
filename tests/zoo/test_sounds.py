"""Real models of microcontrollers answer sounds: the frontend's features, and the state from frame to frame."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import edge_infer
from edge_infer.tasks.audio.micro_frontend import MicroFrontend, Settings
from edge_infer_converters import convert
from tests.support import real_models

ZOO = real_models.folder()
YES = Path(__file__).parents[1] / "support/tasks/yes.wav"

pytestmark = [pytest.mark.long, pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")]


def sound() -> np.ndarray[Any, Any]:
    """Two seconds: noise, and between .5 and 1.5 s a buzz through three formants, as a voice makes it."""
    rng, count = np.random.default_rng(0), 32_000
    time = np.arange(count) / 16_000
    voice = sum(np.sin(2 * np.pi * 120 * k * time) * np.exp(-(((120 * k - 700) / 500) ** 2)) for k in range(1, 30))
    is_on = (time > 0.5) & (time < 1.5)
    mixed = 0.1 * voice * is_on * np.abs(np.sin(9 * time)) + rng.normal(0, 0.002, count)
    samples: np.ndarray[Any, Any] = np.clip(np.rint(mixed * 32_768), -32_768, 32_767).astype(np.int16)
    return samples


def converted(name: str, document: dict[str, Any], folder: Path) -> Path:
    assert ZOO is not None
    (folder / "steps.json").write_text(json.dumps(document))
    bundle = folder / "m.bundle"
    convert(ZOO / f"{name}.tflite", bundle, format="tflite", preprocess=str(folder / "steps.json"))
    return bundle


def test_a_streamed_voice_detector_scores_each_frame_as_litert_does(tmp_path: Path) -> None:
    scale = 0.10217524319887161
    document = {
        "task": "voice-activity-detection",
        "inputs": {
            "input_audio": [
                {"step": "audio.decode"},
                {"step": "audio.resample", "rate": 16_000},
                {"step": "audio.micro_features"},
                {"step": "tensor.quantize", "scale": scale, "zero_point": -128},
                {"step": "tensor.frames", "rows": 3, "samples": 160},
            ]
        },
        "outputs": [{"step": "tensor.dequantize", "tensor": "dense", "scale": 1 / 256}, {"step": "post.tensor"}],
    }
    samples = sound()

    bundle = converted("vad_stream", document, tmp_path)
    with edge_infer.pipeline(bundle, self_test=True) as detect:
        answer = detect({"array": array("f", samples / np.float32(32_768)), "sampling_rate": 16_000})

    rows = np.array(MicroFrontend(Settings()).features(samples.tolist())).astype(np.float32) / np.float32(25.6)
    features = np.clip(np.rint(rows.astype(np.float64) / scale) - 128, -128, 127).astype(np.int8)
    interpreter = Interpreter(str(ZOO / "vad_stream.tflite"))  # type: ignore[operator]
    interpreter.allocate_tensors()
    given, got = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    wanted = []
    for at in range(0, len(features) - 2, 3):
        interpreter.set_tensor(given, features[None, at : at + 3])
        interpreter.invoke()
        wanted.append(float(interpreter.get_tensor(got).reshape(())) / 256)
    np.testing.assert_allclose(np.array(answer.tolist()).reshape(-1), wanted, atol=1e-7)
    assert np.ptp(wanted) > 0.2, "it hears something"


def test_micro_speech_hears_silence_in_noise(tmp_path: Path) -> None:
    document = {
        "task": "audio-classification",
        "inputs": {
            "Reshape_1": [
                {"step": "audio.decode"},
                {"step": "audio.resample", "rate": 16_000},
                {"step": "audio.fit", "samples": 16_000},
                {"step": "audio.micro_features", "hop": 320, "unit": "int8"},
                {"step": "tensor.reshape", "shape": [1960]},
            ]
        },
        "outputs": [
            {"step": "tensor.dequantize", "tensor": "labels_softmax", "scale": 1 / 256, "zero_point": -128},
            {"step": "post.top_k", "tensor": "labels_softmax"},
        ],
    }
    bundle = converted("micro_speech", document, tmp_path)
    with edge_infer.pipeline(bundle) as classify:
        noise = np.rint(np.random.default_rng(0).normal(0, 30, 16_000)) / 32_768
        answer = classify({"array": array("f", noise), "sampling_rate": 16_000})

    assert answer[0]["label"] == "LABEL_0", "the first class of its labels is silence"
    assert answer[0]["score"] > 0.8


@pytest.mark.parametrize("name", ["kws_f32", "kws_int8"])
def test_the_keyword_model_of_mlperf_tiny_hears_a_word(name: str, tmp_path: Path) -> None:
    """`yes.wav` is by `espeak-ng -v en-us -s 130 yes`, at 16 kHz and 8 bits."""
    assert ZOO is not None
    convert(ZOO / f"{name}.tflite", tmp_path / "m.bundle", format="tflite", preprocess="speech-commands")
    with edge_infer.pipeline(tmp_path / "m.bundle", self_test=True) as classify:
        answer = classify(str(YES))

    assert answer[0]["label"] == "yes"
    assert answer[0]["score"] > 0.9
