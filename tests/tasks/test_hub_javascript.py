"""JavaScript reads folders of the Hugging Face Hub as Python does: the same definitions, labels, errors and hints."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import BundleError, EdgeInferError, UnsupportedError
from edge_infer.tasks.definition import read_definition
from edge_infer.tasks.sources import huggingface
from edge_infer.tasks.sources.facts import read_facts
from edge_infer.tasks.sources.image_processors import PROCESSORS
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    Files = dict[str, Any]

HERE = Path(__file__).parent
IMAGES = hub_folders.image_classifier(3)
FREE = hub_folders.image_classifier(3, "side")
ENCODER = hub_folders.text_encoder()
TEXT: Files = {
    "tokenizer.json": hub_folders.tokenizer(),
    "tokenizer_config.json": {"mask_token": {"content": "[MASK]"}, "model_max_length": 512},
}
MODELS = (IMAGES, FREE, ENCODER, hub_folders.text_encoder(5), hub_folders.text_classifier(2))
NLI = {"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"}
#: What a field is changed to, one after the other.
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 3, 224, 0.5, 10**30, 1e308, "x", "", [], [1, "a"], [0.5], [0.5, 0.5, 0.5]),
    *({}, {"0": 1}, {"0": "a"}, {"height": -1}, {"height": 8, "width": 8}, {"shortest_edge": 8}, [[]], "\0"),
    *(["ViTForImageClassification"], ["RobertaForQuestionAnswering"], ["ADistilBertModel"], ["LlamaForCausalLM"]),
]
_SIZE = 'write "size": {"height": 224, "width": 224}'
#: What an image processor asks for and no step does, and what to write instead.
REFUSED_PROCESSORS: list[tuple[str, Files, str]] = [
    ("ViT", {"size": {"depth": 8}}, _SIZE),
    ("ViT", {"size": [8]}, _SIZE),
    ("ViT", {"size": {"height": 0, "width": 8}}, _SIZE),
    ("CLIP", {"size": {"height": 8}}, _SIZE),
    ("CLIP", {"crop_size": {"height": 8}}, 'write "crop_size": {"height": 224, "width": 224}'),
    ("ViT", {"resample": 9}, 'write "resample": 2 for bilinear, or another number from 0 to 5'),
    ("ViT", {"size": 8, "image_std": [0]}, "write 1 or 3 numbers, none of them 0: "),
    ("DPT", {"size": 8, "ensure_multiple_of": 5000}, 'write "ensure_multiple_of": 32'),
    ("ConvNext", {"size": {"shortest_edge": 8}, "crop_pct": 7}, 'write "crop_pct": 0.875'),
]
#: The same of a model of timm.
REFUSED_TIMM: list[tuple[Files, str]] = [
    ({"input_size": [3, 96]}, 'write "input_size": [3, 224, 224]'),
    ({"crop_pct": 7}, 'write "crop_pct": 0.875'),
    ({"interpolation": "random"}, 'write "interpolation": "bicubic"'),
    ({"crop_mode": "border"}, "say what the steps are: --preprocess FILE.json"),
]
_LOWERS: Files = {**hub_folders.SENTENCES, "sentence_bert_config.json": {"do_lower_case": True}}
_SAVES_LOWER = "AutoTokenizer.from_pretrained(FOLDER, do_lower_case=True).save_pretrained(FOLDER)"
#: Folders that are refused, and how the hint begins.
REFUSED: list[tuple[bytes, Files, str]] = [
    *(
        (
            FREE,
            {
                **hub_folders.VIT,
                "preprocessor_config.json": {"image_processor_type": f"{kind}ImageProcessor", **more},
            },
            hint,
        )
        for kind, more, hint in REFUSED_PROCESSORS
    ),
    *((FREE, {"config.json": {"pretrained_cfg": given}}, hint) for given, hint in REFUSED_TIMM),
    (ENCODER, _LOWERS, _SAVES_LOWER),
]


def model(outputs: dict[str, Any], **inputs: Any) -> bytes:
    """A model with these inputs and outputs, by name the shape."""
    return zoo.model(
        [],
        [
            zoo.value(name, shape, "int64" if name in ("input_ids", "attention_mask") else "float32")
            for name, shape in inputs.items()
        ],
        [zoo.value(name, shape) for name, shape in outputs.items()],
        {},
    )


def kinds() -> Iterator[tuple[bytes, Files, str | None]]:
    """Give a folder of each kind."""
    yield from ((one, files, None) for one, files, _ in REFUSED)
    for name in PROCESSORS:
        for more in ({}, {"size": {"height": 8, "width": 8}}, {"size": 8}, {"size": [8, 8], "do_center_crop": False}):
            for one in (IMAGES, FREE):
                processor = {"image_processor_type": name, **more}
                yield one, {**hub_folders.VIT, "preprocessor_config.json": processor}, None
    dpt = {"image_processor_type": "DPTImageProcessor", "size": 100, "ensure_multiple_of": 8, "keep_aspect_ratio": True}
    depth = {"architectures": ["DPTForDepthEstimation"]}
    image = {"pixel_values": ["batch", 3, "height", "width"]}
    for keeps in (True, False):
        files = {"config.json": depth, "preprocessor_config.json": {**dpt, "keep_aspect_ratio": keeps}}
        yield model({"predicted_depth": [1, "h", "w"]}, **image), files, None
    boxes = {"logits": [1, 5, 4], "pred_boxes": [1, 5, 4]}
    for kind in ("detr", "rt_detr"):
        detector = {
            "architectures": ["XForObjectDetection"],
            "model_type": kind,
            "id2label": {"0": "a", "1": "b", "2": "c"},
        }
        resized = {"feature_extractor_type": "DetrFeatureExtractor", "size": 800, "max_size": 1333}
        files = {"config.json": detector, "preprocessor_config.json": resized}
        yield model(boxes, **image, pixel_mask=[1, 4, 4]), files, None
    segment = {"architectures": ["SegformerForSemanticSegmentation"], "id2label": {"0": "road", "1": "sky"}}
    processor = {"image_processor_type": "SegformerImageProcessorFast", "size": {"height": 8, "width": 8}}
    for shape in ([1, 2, 2, 2], [1, 4, 4, 2], [1, 2]):
        yield model({"logits": shape}, **image), {"config.json": segment, "preprocessor_config.json": processor}, None
    ids = {"input_ids": ["batch", "tokens"], "attention_mask": ["batch", "tokens"]}
    each = {"logits": ["batch", "tokens", 3]}
    ends = {"start_logits": ["batch", "tokens"], "end_logits": ["batch", "tokens"]}
    for architecture, outputs, task in (
        ("BertForTokenClassification", each, None),
        ("BertForMaskedLM", each, None),
        ("BertForMaskedLM", each, "token-classification"),
        ("BertForQuestionAnswering", ends, None),
        ("BertForQuestionAnswering", each, None),
        ("BertForSequenceClassification", {"logits": ["batch", 3]}, None),
        ("BertForSequenceClassification", {"logits": ["batch", 3]}, "zero-shot-classification"),
        ("BertForSequenceClassification", {"logits": ["batch", 2]}, None),
        ("BertForSequenceClassification", {"logits": ["batch", 1]}, "text-ranking"),
        ("BertModel", {"last_hidden_state": ["batch", "tokens", 4], "pooler_output": ["batch", 4]}, None),
        ("CLIPTextModelWithProjection", {"text_embeds": ["batch", 4], "last_hidden_state": ["b", "t", 4]}, None),
        ("LlamaForCausalLM", each, None),
    ):
        fields: tuple[Files, ...] = (
            {},
            {"id2label": NLI},
            {"problem_type": "multi_label_classification"},
            {"problem_type": "regression"},
        )
        for field in fields:
            for kind in ("bert", "roberta"):
                config = {"architectures": [architecture], "model_type": kind, "max_position_embeddings": 514, **field}
                yield model(outputs, **ids), {**TEXT, "config.json": config}, task
    for pooling in ("cls_token", "mean_tokens", "weightedmean_tokens"):
        yield ENCODER, {**hub_folders.SENTENCES, "1_Pooling/config.json": {f"pooling_mode_{pooling}": True}}, None
    prompts = {"default_prompt_name": "query", "prompts": {"query": "query: "}}
    yield ENCODER, {**hub_folders.SENTENCES, "config_sentence_transformers.json": prompts}, None
    for kind in ("Wav2Vec2", "AST", "Whisper", "Clap"):
        for samples in ("samples", 16000):
            processor = {"feature_extractor_type": f"{kind}FeatureExtractor", "sampling_rate": 8000}
            config = {"architectures": [f"{kind}ForAudioClassification"], "id2label": {"0": "yes"}}
            files = {"config.json": config, "preprocessor_config.json": processor}
            yield model({"logits": ["batch", 1]}, input_values=["batch", samples]), files, None
    ctc = {"config.json": {"architectures": ["Wav2Vec2ForCTC"]}, "vocab.json": {"<pad>": 0, "a": 1}}
    listener = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": False}
    for tokens in ({}, {"pad_token": {"content": "[PAD]"}, "do_lower_case": True}):
        heard: Files = {**ctc, "preprocessor_config.json": listener, "tokenizer_config.json": tokens}
        yield model({"logits": ["b", "t", 2]}, input_values=["batch", "samples"]), heard, None
    own = {"input_size": [3, 96, 96], "crop_pct": 0.95, "interpolation": "bicubic", "mean": [0.1, 0.2, 0.3]}
    for changed in (
        {},
        {"crop_mode": "squash"},
        {"crop_mode": "border"},
        {"num_classes": 0},
        {"input_size": [3, 96, 64]},
    ):
        timm = {"architecture": "resnet50", "pretrained_cfg": {**own, **changed}, "label_names": ["n1", "n2"]}
        yield FREE, {"config.json": {**timm, "label_descriptions": {"n1": "a tench"}}}, None


def changed() -> Iterator[tuple[bytes, Files, str | None]]:
    """Give folders with fields of any content."""
    chance = np.random.default_rng(5)
    every = [*kinds(), (IMAGES, hub_folders.VIT, None), (ENCODER, hub_folders.SENTENCES, None)]
    for _ in range(1500):
        at = int(chance.integers(len(every)))
        one, given, task = every[at]
        files: Files = {
            name: value if isinstance(value, bytes) else json.loads(json.dumps(value)) for name, value in given.items()
        }
        names = sorted(name for name, value in files.items() if not isinstance(value, bytes))
        fields = files[names[chance.integers(len(names))]]
        fields = fields[0] if isinstance(fields, list) else fields
        known = sorted(
            {*fields, "architectures", "size", "crop_size", "pretrained_cfg", "max_position_embeddings", "id2label"}
        )
        fields[known[chance.integers(len(known))]] = VALUES[chance.integers(len(VALUES))]
        yield (MODELS[chance.integers(len(MODELS))] if chance.integers(4) == 0 else one), files, task


@pytest.mark.parametrize(("data", "given", "hint"), REFUSED)
def test_what_is_refused_says_what_to_write_instead(data: bytes, given: Files, hint: str) -> None:
    """JavaScript says the same: `test_both_languages_find_the_same` has these folders too."""
    files = {name: (one if isinstance(one, bytes) else json.dumps(one).encode()) for name, one in given.items()}

    with pytest.raises((BundleError, UnsupportedError)) as caught:
        huggingface.find(files, read_facts(data, "onnx", "model.onnx"), None)

    assert caught.value.hint.startswith(hint)


def test_both_languages_find_the_same(tmp_path: Path) -> None:
    cases = [*kinds(), *changed()]
    expected, asked = [], []
    for data, given, task in cases:
        files = {name: (one if isinstance(one, bytes) else json.dumps(one).encode()) for name, one in given.items()}
        facts = read_facts(data, "onnx", "model.onnx")
        asked.append(
            {
                "files": {name: one.decode() for name, one in files.items()},
                "inputs": [spec.to_json() for spec in facts.inputs],
                "outputs": [spec.to_json() for spec in facts.outputs],
                "task": task,
            }
        )
        expected.append(described(files, facts, task))
    (tmp_path / "asked.json").write_text(json.dumps(asked), "utf-8")
    command = ["node", str(HERE / "describe.mjs"), str(tmp_path / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for case, ours, theirs in zip(asked, expected, json.loads(done.stdout), strict=True):
        if theirs and "task" in theirs:  # without what is said and is the default anyway
            theirs["pipeline"] = read_definition(theirs["task"], theirs["pipeline"]).to_json()
        if theirs and "hint" in theirs:  # a terminal takes an option, a page an argument
            theirs["hint"] = re.sub(r'^pipeline\("(.*)", \.\.\.\)$', r"--task \1", theirs["hint"])
            assert theirs["hint"], case
        assert theirs == ours, case
    tasks = {one["task"] for one in expected if one and "task" in one}
    assert tasks >= {*huggingface._ENDINGS.values(), "feature-extraction", "zero-shot-classification", "text-ranking"}


def described(files: dict[str, bytes], facts: Any, task: str | None) -> dict[str, Any] | None:
    """Return what `describe.mjs` prints."""
    try:
        found = huggingface.find(files, facts, task)
    except EdgeInferError as error:
        return {"code": error.code, "hint": error.hint}
    if found is None:
        return None
    definition = found.definition
    pipeline = json.loads(json.dumps(definition.to_json()))
    return {"task": definition.task, "pipeline": pipeline, "labels": found.labels, "files": sorted(found.files)}


@pytest.mark.parametrize("name", ["onnx/model.onnx", "model_quantized.onnx"])
def test_a_folder_answers_in_node_as_in_python(name: str, tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "sentences", ENCODER, hub_folders.SENTENCES, name)
    texts = ["a good film", "the cat sat a good film the cat"]
    (tmp_path / "texts.json").write_text(json.dumps(texts), "utf-8")
    answer = ask(folder, tmp_path / "texts.json")
    with edge_infer.pipeline(folder) as embed:
        expected = [one.tolist() for one in embed(texts)]
    assert answer["answers"] == [pytest.approx(one, abs=1e-7) for one in expected]


def test_what_a_folder_lacks_is_said_in_node(tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text('["a"]', "utf-8")
    bare = hub_folders.write(tmp_path / "bare", None, {"config.json": {}})
    odd = {**hub_folders.VIT, "config.json": {"architectures": ["LlamaForCausalLM"]}}
    said = [
        ask(place, tmp_path / "texts.json")
        for place in (tmp_path / "none", bare, hub_folders.write(tmp_path / "odd", IMAGES, odd))
    ]
    assert [one["code"] for one in said] == ["fetch_error", "unsupported", "unsupported"]
    assert "manifest.json" in said[0]["message"]
    assert "onnx/model.onnx" in said[1]["message"]
    assert "LlamaForCausalLM" in said[2]["message"]


def ask(folder: Path, texts: Path) -> Any:
    """Ask the pipeline of a folder in Node."""
    command = ["node", str(HERE / "ask.mjs"), str(folder), str(texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
