"""Keras models that take texts: layers of TensorFlow are refused by name, and the guide's way works."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edge_infer
from edge_infer import Tokenizer
from edge_infer.errors import ConversionError
from edge_infer_converters import convert

GUIDE = (Path(__file__).parents[2] / "docs/guide/pipeline_sources.md").read_text("utf-8")
PART = GUIDE.partition("## Texts and names of Keras")[2].partition("\n## ")[0]
WORDS = ["", "[UNK]", "good", "bad", "film", "it's".replace("'", "")]


def write_tokenizer(path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)
    names: dict[str, Any] = {"json": json, "Path": Path}
    exec(code, names)
    names["write_tokenizer"](WORDS, path)


@pytest.mark.parametrize("kind", ["TextVectorization", "StringLookup", "IntegerLookup", "Hashing", "HashedCrossing"])
def test_a_layer_of_tensorflow_is_named(kind: str, tmp_path: Path) -> None:
    inside = {"class_name": "Functional", "config": {"layers": [{"class_name": kind, "config": {"name": "words"}}]}}
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": [inside]}}))
    with pytest.raises(ConversionError, match=rf"the layer `words` \({kind}\).*TensorFlow") as caught:
        convert(tmp_path / "m.keras", tmp_path / "m.bundle")
    assert "--preprocess" in caught.value.hint


def test_the_tokenizer_of_the_guide_does_what_the_layer_does(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    # By hand, as TextVectorization documents it: lower case, no punctuation, spaces between words; 1 is unknown.
    assert tokenizer.encode("A GOOD film; it's [not]  b-a\\d!").ids == [1, 2, 4, 5, 1, 3]


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3.15 with NumPy 2.4
def test_a_model_behind_its_words_becomes_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    keras.utils.set_random_seed(3)
    words = keras.Input((8,), dtype="int64", name="words")
    vectors = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(len(WORDS), 4)(words))
    model = keras.Model(words, keras.layers.Dense(2, activation="softmax")(vectors))
    model.save(tmp_path / "words.keras")
    write_tokenizer(tmp_path / "tokenizer.json")
    (definition,) = re.findall(r"```json\n(.*?)```", PART, re.DOTALL)
    (tmp_path / "steps.json").write_text(definition)
    (tmp_path / "labels.txt").write_text("good\nbad\n")
    made = convert(
        tmp_path / "words.keras",
        tmp_path / "words.bundle",
        preprocess=str(tmp_path / "steps.json"),
        labels=tmp_path / "labels.txt",
        precision="fp32",
        format="onnx",
    )
    want = model(np.array([[2, 4, 1, 0, 0, 0, 0, 0]])).detach().cpu().numpy()[0]
    with edge_infer.pipeline(made.path, self_test=True) as judge:
        scores = {one["label"]: one["score"] for one in judge("Good film, Bern!", top_k=2)}
    assert [scores["good"], scores["bad"]] == pytest.approx(want.tolist(), abs=1e-5)
