"""The first layers of a Keras model that prepare images become the pipeline of its bundle, with Keras's own answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import edge_infer
from edge_infer_converters import convert

if TYPE_CHECKING:
    from pathlib import Path

MODELS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
layers = keras.layers

def model(shape, *first):
    keras.utils.set_random_seed(1)
    last = [layers.Conv2D(4, 3), layers.GlobalAveragePooling2D(), layers.Dense(3, activation="softmax")]
    return keras.Sequential([keras.Input(shape, name="picture"), *first, *last])

def free():
    spread = layers.Normalization(mean=[.4, .5, .6], variance=[.05, .06, .07])
    return model((None, None, 3), layers.Resizing(16, 16), layers.CenterCrop(12, 12), layers.Rescaling(1 / 255), spread)

def nested():
    first = keras.Sequential([layers.Rescaling(1 / 127.5, offset=-1)])
    return model((12, 12, 3), first)

def ratio():
    return model((12, 12, 3), layers.Normalization(mean=[.4, .5, .6], variance=[.05, .06, .07]))

def silent():
    return model((12, 12, 3))
"""


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(("name", "divisor"), [("free", 1), ("nested", 1), ("ratio", 255)])
def test_the_answers_are_those_of_keras(
    name: str, divisor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"pictures_{name}"
    (tmp_path / f"{module}.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    convert(f"{module}:{name}", tmp_path / "b.bundle", precision="fp32", format="onnx", labels=_labels(tmp_path))
    side = (23, 31) if name == "free" else (12, 12)
    picture = np.random.default_rng(4).integers(0, 256, (*side, 3), np.uint8)
    keras_model = getattr(sys.modules[module], name)()
    want = keras_model(picture[None].astype(np.float32) / divisor).detach().cpu().numpy()[0]
    with edge_infer.pipeline(tmp_path / "b.bundle", self_test=True) as ask:
        assert ask.definition.source == "keras"
        scores = {one["label"]: one["score"] for one in ask(picture)}
    assert [scores[one] for one in "abc"] == pytest.approx(want, abs=1e-5)


@pytest.mark.long
@pytest.mark.torch
def test_a_model_that_prepares_nothing_gets_no_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures_silent.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    convert("pictures_silent:silent", tmp_path / "b.bundle", precision="fp32", format="onnx")
    assert edge_infer.Bundle.open(tmp_path / "b.bundle").manifest.pipeline is None


def _labels(folder: Path) -> Path:
    (folder / "labels.txt").write_text("a\nb\nc\n")
    return folder / "labels.txt"
