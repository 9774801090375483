"""Models of speech that name a token for each frame (CTC) answer with text, the same in Python and JavaScript."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

import edge_infer
from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import read_step
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer_converters import convert
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Path(__file__).with_name("run_steps.mjs")
TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "\u00c9"]
VOCABULARY = json.dumps({token: number for number, token in enumerate(TOKENS)}).encode()


def scores(path: list[int], seed: int = 0) -> np.ndarray:
    """Return scores [1, frames, vocabulary] whose best token of each frame is given."""
    made = np.random.default_rng(seed).random((1, len(path), len(TOKENS))).astype(np.float32)
    for frame, token in enumerate(path):
        made[0, frame, token] = 2.0
    return made


def answer(values: np.ndarray, vocabulary: bytes = VOCABULARY, **parameters: Any) -> Any:
    place = Place(lambda _: vocabulary, [], [], [], "")
    place.outputs = {"logits": None}  # type: ignore[dict-item]
    apply = read_step({"step": "post.ctc", **parameters}, "steps").prepare(place)
    tensor = Tensor(np.ascontiguousarray(values, np.float32).tobytes(), DType.FLOAT32, values.shape)
    return apply({"logits": tensor}, Item())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([5, 5, 0, 5, 6], "AAB"),
        ([0, 4, 5, 4, 4, 6, 4, 0], "A B"),
        ([5, 4, 0, 4, 6], "A  B"),
        ([1, 7, 7, 2, 3], "\u00c9"),
        ([0, 0], ""),
    ],
)
def test_repeated_tokens_and_blanks_are_left_out(path: list[int], text: str) -> None:
    assert answer(scores(path)) == {"text": text}
    assert answer(scores(path), lowers=True) == {"text": text.lower()}


def test_of_equal_scores_the_first_is_taken() -> None:
    assert answer(np.zeros((1, 3, len(TOKENS)), np.float32)) == {"text": ""}


@pytest.mark.parametrize(
    ("vocabulary", "said"),
    [
        (b"[]", "is not a vocabulary"),
        (b"{}", "is not a vocabulary"),
        (b'{"<pad>": 1}', "is not a vocabulary"),
        (b'{"<pad>": 0, "A": 0}', "is not a vocabulary"),
        (b'{"<pad>": true}', "is not a vocabulary"),
        (b'{"A": 0}', "has no token `<pad>`"),
        (b"{" * 100_000, "is not JSON"),
    ],
)
def test_a_wrong_vocabulary_is_refused(vocabulary: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=said):
        answer(scores([5]), vocabulary)
    (in_javascript,) = run_in_javascript(tmp_path, [(scores([5]), {})], vocabulary)
    assert in_javascript["code"] == "manifest_error"
    assert said in in_javascript["message"]


def test_more_scores_than_tokens_are_refused() -> None:
    with pytest.raises(InputError, match=r"has 8 tokens, and `vocab\.json` 2"):
        answer(scores([5]), b'{"<pad>": 0, "A": 1}')


def run_in_javascript(
    folder: Path, cases: list[tuple[np.ndarray, dict[str, Any]]], vocabulary: bytes = VOCABULARY
) -> list[Any]:
    (folder / "vocab.json").write_bytes(vocabulary)
    place = {
        "outputs": [{"name": "logits", "dtype": "float32", "shape": [1, "frames", len(TOKENS)]}],
        "files": {"vocab.json": str(folder / "vocab.json")},
    }
    given = [
        {
            "steps": [{"step": "post.ctc", **parameters}],
            "place": place,
            "value": {
                "kind": "outputs",
                "tensors": {
                    "logits": {
                        "kind": "tensor",
                        "dtype": "float32",
                        "shape": values.shape,
                        "data": base64.b64encode(values.tobytes()).decode(),
                    }
                },
            },
        }
        for values, parameters in cases
    ]
    (folder / "cases.json").write_text(json.dumps(given))
    done = subprocess.run(
        ["node", str(PROGRAM), str(folder / "cases.json")], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def test_javascript_gives_the_same_text(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    cases: list[tuple[np.ndarray, dict[str, Any]]] = [
        (draw.integers(0, 3, (1, int(draw.integers(1, 40)), len(TOKENS))).astype(np.float32), {"lowers": bool(i % 2)})
        for i in range(60)
    ]

    found = run_in_javascript(tmp_path, cases)

    assert [one["answer"] for one in found] == [answer(values, **parameters) for values, parameters in cases]
    assert len({one["answer"]["text"] for one in found}) > 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of a CTC model: every 320 samples a frame, by a convolution."""
    kernel = np.random.default_rng(2).standard_normal((len(TOKENS), 1, 320)).astype(np.float32)
    model = zoo.model(
        [
            helper.make_node("Unsqueeze", ["input_values", "axis"], ["rows"]),
            helper.make_node("Conv", ["rows", "kernel"], ["found"], strides=[320]),
            helper.make_node("Transpose", ["found"], ["logits"], perm=[0, 2, 1]),
        ],
        [zoo.value("input_values", ["batch", "samples"])],
        [zoo.value("logits", ["batch", "frames", len(TOKENS)])],
        {"axis": np.array([1]), "kernel": kernel},
    )
    place = tmp_path / "speech"
    (place / "onnx").mkdir(parents=True)
    (place / "onnx/model.onnx").write_bytes(model)
    files: dict[str, Any] = {
        "config.json": {"architectures": ["Wav2Vec2ForCTC"], "model_type": "wav2vec2"},
        "preprocessor_config.json": {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 16000},
        "tokenizer_config.json": {"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "do_lower_case": True},
    }
    for name, document in files.items():
        (place / name).write_text(json.dumps(document))
    (place / "vocab.json").write_bytes(VOCABULARY)
    return place


def test_a_folder_and_its_bundle_transcribe(folder: Path) -> None:
    sound = np.random.default_rng(3).standard_normal(16000).astype(np.float32) * 0.1
    direct: Callable[[Any], Any] = edge_infer.pipeline("automatic-speech-recognition", folder)
    bundle = convert(folder, folder.with_suffix(".bundle"), format="onnx", precision="fp32").path

    recognize = edge_infer.pipeline(bundle, self_test=True)

    text = recognize(sound)["text"]
    assert direct(sound) == {"text": text}
    assert len(text) > 10
    assert set(text) <= set("ab\u00e9 ")
    normed = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
    kernel = onnx.numpy_helper.to_array(
        next(one for one in onnx.load(folder / "onnx/model.onnx").graph.initializer if one.name == "kernel")
    )
    path = (normed.reshape(-1, 320) @ kernel[:, 0].T).argmax(1).tolist()
    assert recognize(sound) == answer(scores(path), lowers=True)


def test_a_folder_without_its_vocabulary_says_so(folder: Path) -> None:
    (folder / "vocab.json").unlink()

    with pytest.raises(edge_infer.errors.UnsupportedError, match=r"has no vocab\.json"):
        edge_infer.pipeline(folder)
