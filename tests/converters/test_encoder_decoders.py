"""Folders of Whisper and of T5 become bundles that answer as transformers does: the same tokens at the same times."""

from __future__ import annotations

import json
from array import array
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer import Bundle
from edge_infer.chains.build import build_chain
from edge_infer.errors import ConversionError, InputError, ManifestError, UnsupportedError, UnsupportedModel
from edge_infer.generation.encoder_decoder import SequenceModel
from edge_infer.generation.speech import Recognizer
from edge_infer.tasks.item import Item
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer_converters import convert
from tests.support.generation import hub_folders, pair_folders, record_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support/generation/pair_answers.json").read_text("utf-8")
)
WHISPERS = [one for one in pair_folders.CONFIGS if one.startswith("whisper")]
TEXTS = [one for one in pair_folders.CONFIGS if not one.startswith("whisper")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the bundle of a model in all precisions; each is made once."""

    @cache
    def make(kind: str) -> Path:
        folder = pair_folders.write_pair(tmp_path_factory.mktemp("pair") / kind, kind)
        return convert(folder, folder.with_suffix(".bundle"), precision="fp32,int8,fp16").path

    return make


def cross(model: SequenceModel) -> dict[str, Any]:
    """Return what the recorded logits were computed with."""
    if model.definition.speech:
        recognizer = Recognizer(model)
        features, _ = recognizer._windows(array("f", record_pairs.sound(1.0).tolist()), Item())
        return model.encode({"input_features": recognizer._window(features, 0, recognizer.speech.frames)})
    ids = model.tokenizer.encode(record_pairs.TEXTS[-1]).ids
    return model.encode({"input_ids": Tensor.from_list([ids], DType.INT64)})


def logits(model: SequenceModel) -> np.ndarray:
    crossed, tokens = cross(model), record_pairs.steps(pair_folders.VOCABULARY)
    rows = range(record_pairs.STEPS - record_pairs.ROWS, record_pairs.STEPS)
    found = [model.first_logits(crossed, tokens[: row + 1]) for row in rows]
    model.forget(crossed)
    return np.array(found)[:, :: record_pairs.COLUMNS]


@pytest.mark.parametrize("kind", pair_folders.CONFIGS)
def test_logits_are_those_of_transformers(made: Callable[[str], Path], kind: str) -> None:
    expected = np.array(RECORDED[kind]["logits"])

    for variant, most in {"onnx/fp32": 1e-5, "onnx/fp16": 3e-2, "onnx/int8": 0.6}.items():
        with SequenceModel(Bundle.open(made(kind)), variant) as model:
            assert np.abs(logits(model) - expected).max() < most * expected.std()


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_are_answered_with_the_same_tokens(made: Callable[[str], Path], kind: str) -> None:
    with SequenceModel(Bundle.open(made(kind))) as model:
        for text, answer in RECORDED[kind]["answers"].items():
            crossed = model.encode({"input_ids": Tensor.from_list([model.tokenizer.encode(text).ids], DType.INT64)})
            expected = answer[1 : answer.index(2)] if 2 in answer else answer[1:]
            assert list(model.tokens(crossed, [0], len(answer) - 1)) == expected


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in WHISPERS for case in RECORDED[kind]["answers"]])
def test_sounds_are_answered_with_the_same_tokens_and_times(made: Callable[[str], Path], kind: str, case: str) -> None:
    seconds, options = record_pairs.SOUNDS[case]
    has_times = "return_timestamps" in options
    more = {name: value for name, value in options.items() if name != "return_timestamps"}
    with SequenceModel(Bundle.open(made(kind))) as model:
        found = list(Recognizer(model).segments(record_pairs.sound(seconds), has_times=has_times, **more))

    expected = RECORDED[kind]["answers"][case]
    assert [one.tokens for one in found] == [tokens for _, _, tokens in expected]
    if has_times:
        times = [[start, end] for start, end, _ in expected]
        assert np.allclose([[one.start, one.end or 0.0] for one in found], times, rtol=0, atol=1e-6)


def test_a_pipeline_gives_text_and_times(made: Callable[[str], Path]) -> None:
    sound = record_pairs.sound(3.3)
    with edge_infer.pipeline("automatic-speech-recognition", made("whisper-times")) as recognize:
        answer = recognize(sound, return_timestamps=True)
        both = recognize([sound, {"array": record_pairs.sound(0.5), "sampling_rate": 16000}])

    assert [chunk["timestamp"] for chunk in answer["chunks"]][:3] == [(0.08, 0.62), (0.62, 0.86), (0.94, 1.7)]
    assert answer["text"] == "".join(chunk["text"] for chunk in answer["chunks"])
    assert both[0] == {"text": answer["text"]}
    assert "<|" not in both[1]["text"]


def test_a_text_task_answers_in_its_own_words(made: Callable[[str], Path], tmp_path: Path) -> None:
    folder = pair_folders.write_pair(tmp_path / "t5", "t5")
    bundle = convert(folder, tmp_path / "short.bundle", task="summarization", precision="fp32").path

    with edge_infer.pipeline(bundle) as summarize, edge_infer.pipeline(made("t5")) as plain:
        assert summarize.task == "summarization"
        (answer,) = summarize("the thing", max_tokens=5)
        assert answer == {"summary_text": plain("summarize: the thing", max_tokens=5)[0]["generated_text"]}


def test_the_manifest_says_what_the_folder_says(made: Callable[[str], Path]) -> None:
    manifest = Bundle.open(made("whisper")).manifest

    assert (manifest.task, [one.id for one in manifest.variants][:3]) == (
        "automatic-speech-recognition",
        ["onnx/fp32", "onnx/int8", "onnx/fp16"],
    )
    entry = manifest.generate
    assert entry is not None
    assert entry["encoders"]["onnx/int8"] == "onnx/encoder-int8"
    assert (entry["start"], entry["eos"], entry["context"]) == (261, [260], 40)
    assert entry["speech"]["languages"] == {"en": 262, "de": 263, "fr": 264}
    assert {one.input for one in manifest.variants[0].state} == {
        f"past_{part}_{layer}" for part in ("key", "value") for layer in (0, 1)
    }


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = pair_folders.write_pair(tmp_path / "t5", "t5")

    assert convert(folder, tmp_path / "a.bundle").revision == convert(folder, tmp_path / "b.bundle").revision


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"language": "es"}, "does not know the language `es`"),
        ({"task": "sing"}, "the model does not sing"),
        ({"return_timestamps": "word"}, "`return_timestamps` is 'word'"),
        ({"beams": 4}, "has no argument `beams`"),
    ],
)
def test_what_a_model_of_speech_does_not_take_is_refused(
    made: Callable[[str], Path], arguments: dict[str, Any], said: str
) -> None:
    with edge_infer.pipeline(made("whisper")) as recognize, pytest.raises(InputError, match=said):
        recognize(record_pairs.sound(0.3), **arguments)


@pytest.mark.parametrize("value", [b"no sound", [], float("nan"), {"array": [float("nan")], "sampling_rate": 16000}])
def test_what_is_no_sound_is_refused(made: Callable[[str], Path], value: Any) -> None:
    with edge_infer.pipeline(made("whisper")) as recognize, pytest.raises(InputError):
        assert recognize([value]) != []


def test_another_task_and_another_kind_are_refused(made: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="is for automatic-speech-recognition, not for summarization"):
        edge_infer.pipeline("summarization", made("whisper"))
    with pytest.raises(UnsupportedError, match="generates by `encoder-decoder/1`"):
        edge_infer.generate(made("t5"))
    with edge_infer.pipeline(made("t5")) as answer, pytest.raises(InputError, match="takes texts, not int"):
        answer(5)
    with edge_infer.pipeline(made("t5")) as answer, pytest.raises(UnsupportedError, match="takes no table"):
        answer.predict_table({"a": [1]})


def test_a_chain_refuses_an_encoder_and_a_decoder_by_name(made: Callable[[str], Path], tmp_path: Path) -> None:
    step = {"name": "said", "bundle": str(made("t5")), "from": "text"}
    with pytest.raises(ManifestError, match=r"step `said`: .* generates by `encoder-decoder/1`"):
        build_chain({"inputs": {"text": "text"}, "steps": [step]}, tmp_path, tmp_path / "chain.bundle")


#: By case the model, what is changed, the error and what must be said.
WRONG: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "odd-heads": ("whisper", {"changes": {"encoder_attention_heads": 5}}, ConversionError, "a divisor of the 32"),
    "width": ("whisper", {"changes": {"d_model": 64}}, ConversionError, r"\[32, 16, 3\], expected \[64, 16, 3\]"),
    "width-of-text": ("t5", {"changes": {"d_model": "wide"}}, ConversionError, "`d_model` is 'wide'"),
    "layers": ("t5", {"changes": {"num_layers": 3}}, ConversionError, "have no `encoder.block.2"),
    "fewer-layers": ("t5", {"changes": {"num_layers": 1}}, UnsupportedModel, "`encoder.block.1"),
    "huge": ("whisper", {"changes": {"encoder_layers": 2**31}}, ConversionError, "`encoder_layers` is 2147483648"),
    "activation": (
        "t5",
        {"changes": {"feed_forward_proj": "swish"}},
        ConversionError,
        "`feed_forward_proj` is 'swish'",
    ),
    "distance": ("t5", {"changes": {"relative_attention_max_distance": 3}}, ConversionError, "max_distance` is 3"),
    "start": ("t5", {"changes": {"decoder_start_token_id": 320}}, ConversionError, "`decoder_start_token_id` is 320"),
    "bands": ("whisper", {"features": {"feature_size": 80}}, ConversionError, "the 16 bands of config.json"),
    "window": ("whisper", {"features": {"chunk_length": 30}}, ConversionError, "has 3000 frames, expected 100"),
    "window-huge": ("whisper", {"features": {"chunk_length": 2**60}}, ConversionError, "`chunk_length` is"),
    "hop": ("whisper", {"features": {"hop_length": 0}}, ConversionError, "`hop_length` is 0"),
    "languages": ("whisper", {"advice": {"lang_to_id": [1]}}, ConversionError, "`lang_to_id` is"),
    "language": ("whisper", {"advice": {"lang_to_id": {"<|en|>": 999}}}, ConversionError, "languages` is 999"),
    "suppressed": ("whisper", {"advice": {"suppress_tokens": ["a"]}}, ConversionError, "suppress` is 'a'"),
    "end": ("whisper", {"advice": {"eos_token_id": -1}}, ConversionError, "`eos_token_id` is -1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_folder_is_refused_by_its_field(tmp_path: Path, case: str) -> None:
    kind, changed, error, said = WRONG[case]
    folder = pair_folders.write_pair(tmp_path / "evil", kind, **changed)

    with pytest.raises(error, match=said):
        convert(folder, tmp_path / "out.bundle")
    assert not (tmp_path / "out.bundle").exists()


@pytest.mark.parametrize("kind", ["t5", "whisper"])
def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, kind: str) -> None:
    folder = pair_folders.write_pair(tmp_path / "evil", kind)
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["a"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(document))

    with pytest.raises(ConversionError, match=f"has a token 5000, and the model {pair_folders.VOCABULARY} tokens"):
        convert(folder, tmp_path / "out.bundle")
    assert not (tmp_path / "out.bundle").exists()


def test_a_special_token_without_weights_is_told_and_refused_in_texts(tmp_path: Path) -> None:
    folder = pair_folders.write_pair(tmp_path / "t5", "t5")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["added_tokens"].append({**document["added_tokens"][-1], "id": 5000, "content": "<|image|>"})
    (folder / "tokenizer.json").write_text(json.dumps(document))

    bundle = convert(folder, tmp_path / "out.bundle", precision="fp32").path

    with (
        edge_infer.pipeline(bundle) as answer,
        pytest.raises(InputError, match="has the token 5000, the model has 320"),
    ):
        answer("see <|image|>")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model.encoder.conv1.weight", None, "have no `model.encoder.conv1.weight`"),
        ("model.decoder.layers.1.fc2.weight", None, "have no `model.decoder.layers.1.fc2.weight`"),
        ("model.encoder.layer_norm.bias", np.ones(31, np.float32), r"\[31\], expected \[32\]"),
        ("model.decoder.layers.0.fc1.bias", np.full(64, np.nan, np.float32), "holds NaN"),
        (
            "model.decoder.layers.9.fc1.bias",
            np.ones(3, np.float32),
            r"layers\.9\.fc1\.bias` and 0 more",
        ),
    ],
)
def test_a_wrong_tensor_is_named(tmp_path: Path, name: str, value: np.ndarray | None, said: str) -> None:
    tensors = {key: one for key, one in pair_folders.weights("whisper").items() if key != name}
    if value is not None:
        tensors[name] = value
    folder = pair_folders.write_pair(tmp_path / "evil", tensors=tensors)

    with pytest.raises((ConversionError, UnsupportedModel), match=said):
        convert(folder, tmp_path / "out.bundle")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"calibration": "data.npz"}, "without --calibration"),
        ({"task": "fill-mask"}, "without --task"),
        ({"precision": "int4"}, "no precision `int4`"),
        ({"target": "pi"}, "as its folder says"),
    ],
)
def test_options_that_do_not_apply_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    folder = pair_folders.write_pair(tmp_path / "t5", "t5")

    with pytest.raises(InputError, match=said):
        convert(folder, tmp_path / "out.bundle", **options)


_SPEECH = dict.fromkeys(("rate", "mels", "fft", "hop", "samples", "positions", "no_timestamps"), 8)
#: By case fields of the manifest's `generate` to replace, and what must be said.
MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "no-encoders": ({"encoders": {}}, "`generate.encoders` must name a variant"),
    "lost-encoder": ({"encoders": {"onnx/fp32": "onnx/none"}}, "`onnx/none`, which are not variants"),
    "start": ({"start": 9999}, "must be tokens of the vocabulary"),
    "eos": ({"eos": ["a"]}, "must be tokens of the vocabulary"),
    "context": ({"context": -1}, "`generate.context` is -1"),
    "speech": ({"speech": []}, r"`generate.speech` is \[\]"),
    "rate": ({"speech": {"rate": 0}}, "`generate.speech.rate` is 0"),
    "huge-rate": ({"speech": {"rate": 2**40}}, "`generate.speech.rate` is 1099511627776"),
    "no-frames": ({"speech": {**_SPEECH, "hop": 9}}, "`generate.speech.samples` is 8, expected 9 or more"),
    "suppress": ({"speech": {**_SPEECH, "suppress": 5}}, "`generate.speech.suppress` is 5, expected a list"),
    "no-end": ({"eos": []}, "`generate.context` and `generate.eos` of a model of speech must be given"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_wrong_manifest_is_refused(made: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    import shutil

    fields, said = MANIFESTS[case]
    place = Path(shutil.copytree(made("whisper"), tmp_path / "evil.bundle"))
    document = json.loads((place / "manifest.json").read_text())
    document["generate"] |= fields
    (place / "manifest.json").write_text(json.dumps(document))

    with pytest.raises(ManifestError, match=said):
        edge_infer.pipeline(place)


@pytest.mark.parametrize("kind", ["t5", "whisper"])
def test_more_tokens_than_logits_are_refused(made: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    import shutil

    place = Path(shutil.copytree(made(kind), tmp_path / "evil.bundle"))
    document = json.loads((place / "manifest.json").read_text())
    document["generate"]["vocab_size"] = 999_999
    if kind == "whisper":
        document["generate"]["speech"]["suppress"] = [999_998]
    (place / "manifest.json").write_text(json.dumps(document))

    with (
        edge_infer.pipeline(place) as answer,
        pytest.raises(ManifestError, match=r"`generate\.vocab_size` is 999999, the decoder `onnx/fp32` gives"),
    ):
        answer(np.zeros(800, np.float32) if kind == "whisper" else "a text")


def test_a_folder_of_text_with_a_decoder_alone_stays_one(tmp_path: Path) -> None:
    result = convert(hub_folders.write_folder(tmp_path / "gpt2", "gpt2"), tmp_path / "m.bundle", precision="int8")

    assert Bundle.open(result.path).manifest.task == "text-generation"
