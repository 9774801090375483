"""Folders of the Hugging Face Hub are read as transformers and sentence-transformers read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import edge_infer
from edge_infer.errors import BundleError, EdgeInferError, InputError, UnsupportedError, UnsupportedModel
from edge_infer.tasks.sources import huggingface
from edge_infer.tasks.sources.facts import read_facts
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_infer.tasks.sources.found import Found


def found(model: bytes, files: Mapping[str, Any], task: str | None = None) -> Found:
    written = {name: one if isinstance(one, bytes) else json.dumps(one).encode() for name, one in files.items()}
    made = huggingface.find(written, read_facts(model, "onnx", "model.onnx"), task)
    assert made is not None
    return made


def steps(chain: list[Any]) -> list[dict[str, Any]]:
    return [step.to_json() for step in chain]


def image_config(architecture: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], **more}


def test_what_an_image_processor_does_not_say_is_its_class_own_default() -> None:
    made = found(hub_folders.image_classifier(3), hub_folders.VIT)

    assert made.definition.task == "image-classification"
    assert made.labels == ["red", "green", "blue"]
    assert steps(made.definition.inputs["pixel_values"]) == [
        {"step": "image.decode"},
        {"step": "image.resize", "width": 8, "height": 8},
        {"step": "image.rescale_normalize", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    ]
    assert steps(made.definition.outputs) == [{"step": "post.softmax"}, {"step": "post.top_k"}]


def test_each_processor_has_its_own_rule_for_sizes() -> None:
    def chain(side: int, **processor: Any) -> list[dict[str, Any]]:
        files = {**hub_folders.VIT, "preprocessor_config.json": processor}
        return steps(found(hub_folders.image_classifier(3, side), files).definition.inputs["pixel_values"])[1:3]

    clip = chain(224, feature_extractor_type="CLIPFeatureExtractor")
    convnext = chain(224, image_processor_type="ConvNextImageProcessorFast", size={"shortest_edge": 224})
    warped = chain(384, image_processor_type="ConvNextImageProcessor")
    efficient = chain(346, image_processor_type="EfficientNetImageProcessor")[-1]
    levit = chain(224, image_processor_type="LevitImageProcessor")
    old = chain(16, image_processor_type="ViTImageProcessor", size=16, resample=0)

    assert clip == [
        {"step": "image.resize", "shortest": 224, "filter": "bicubic"},
        {"step": "image.center_crop", "width": 224, "height": 224},
    ]
    assert convnext == [
        {"step": "image.resize", "shortest": 256, "filter": "bicubic"},
        {"step": "image.center_crop", "width": 224, "height": 224},
    ]
    assert warped[0] == {"step": "image.resize", "width": 384, "height": 384, "filter": "bicubic"}
    assert levit[0] == {"step": "image.resize", "shortest": 256, "filter": "bicubic"}
    assert efficient["std"] == [0.25, 0.25, 0.25]
    assert old[0] == {"step": "image.resize", "width": 16, "height": 16, "filter": "nearest"}


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        ({"image_processor_type": "FluffyImageProcessor"}, "`FluffyImageProcessor` is not supported"),
        ({}, "`without a name` is not supported"),
        ({"image_processor_type": "YolosImageProcessor"}, "multiples of 16"),
        ({"image_processor_type": "DPTImageProcessor", "do_pad": True}, "`do_pad`"),
        ({"image_processor_type": "ViTImageProcessor"}, "makes 224 x 224 pixels, and input .* takes 8 x 8"),
        ({"image_processor_type": "CLIPImageProcessor", "do_center_crop": False}, "images of different sizes"),
    ],
)
def test_what_no_step_does_is_refused_by_its_name(processor: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        found(hub_folders.image_classifier(3), {**hub_folders.VIT, "preprocessor_config.json": processor})


def test_a_detector_of_transformers() -> None:
    outputs = {"logits": np.zeros((1, 5, 4), np.float32), "pred_boxes": np.zeros((1, 5, 4), np.float32)}
    files = {
        "config.json": image_config(
            "DetrForObjectDetection", model_type="detr", id2label={"0": "a", "1": "b", "2": "c"}
        ),
        "preprocessor_config.json": {"feature_extractor_type": "DetrFeatureExtractor", "size": 800, "max_size": 1333},
    }
    made = found(hub_folders.fixed_outputs("side", outputs), files)

    assert made.definition.task == "object-detection"
    assert steps(made.definition.inputs["pixel_values"])[1] == {
        "step": "image.resize",
        "shortest": 800,
        "longest": 1333,
    }
    (decode, _) = steps(made.definition.outputs)
    assert decode == {
        "step": "post.boxes",
        "format": "decoded",
        "tensors": {"boxes": "pred_boxes", "scores": "logits"},
        "order": "cxcywh",
        "unit": "ratio",
        "background": "last",
        "activation": "softmax",
    }


def test_a_segmenter_gives_its_classes_first() -> None:
    files = {
        "config.json": image_config("SegformerForSemanticSegmentation", id2label={"0": "road", "1": "sky"}),
        "preprocessor_config.json": {
            "image_processor_type": "SegformerImageProcessor",
            "size": {"height": 8, "width": 8},
        },
    }
    made = found(hub_folders.fixed_outputs(8, {"logits": np.zeros((1, 2, 2, 2), np.float32)}), files)

    assert steps(made.definition.outputs) == [{"step": "post.mask", "layout": "CHW"}]


def test_the_length_of_a_text_never_comes_from_the_tokenizer() -> None:
    made = found(hub_folders.text_encoder(), hub_folders.SENTENCES)

    assert made.definition.source == "sentence-transformers"
    assert steps(made.definition.inputs["*"]) == [{"step": "text.tokenize", "max_length": 6}]
    assert steps(made.definition.outputs) == [{"step": "post.pool"}, {"step": "post.normalize"}]
    without = {name: one for name, one in hub_folders.SENTENCES.items() if name != "sentence_bert_config.json"}
    assert steps(found(hub_folders.text_encoder(), without).definition.inputs["*"])[0]["max_length"] == 512
    shifted = {
        **without,
        "config.json": {"architectures": ["X"], "model_type": "mpnet", "max_position_embeddings": 514},
    }
    assert steps(found(hub_folders.text_encoder(), shifted).definition.inputs["*"])[0]["max_length"] == 512
    fixed = found(hub_folders.text_encoder(length=5), hub_folders.SENTENCES)
    assert steps(fixed.definition.inputs["*"]) == [{"step": "text.tokenize", "max_length": 5, "pad_to": 5}]


def test_poolings_and_modules_that_are_not_built_are_refused_by_name() -> None:
    for files, message in (
        ({"1_Pooling/config.json": {"pooling_mode_weightedmean_tokens": True}}, "weightedmean_tokens"),
        ({"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}}, "max_tokens"),
        ({"modules.json": [{"type": "sentence_transformers.models.Dense"}]}, "`Dense`"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            found(hub_folders.text_encoder(), {**hub_folders.SENTENCES, **files})


@pytest.mark.parametrize(
    ("config", "classes", "expected"),
    [
        ({}, 2, "post.softmax"),
        ({"problem_type": "multi_label_classification"}, 2, "post.sigmoid"),
        ({}, 1, "post.sigmoid"),
        ({"problem_type": "regression"}, 1, "post.top_k"),
    ],
)
def test_scores_are_made_as_transformers_makes_them(config: dict[str, Any], classes: int, expected: str) -> None:
    files = {
        "config.json": {"architectures": ["BertForSequenceClassification"], **config},
        "tokenizer.json": hub_folders.tokenizer(),
    }
    made = found(hub_folders.text_classifier(classes), files)

    assert made.definition.task == "text-classification"
    assert made.definition.outputs[0].name == expected


def test_other_tasks_of_texts() -> None:
    def made(architecture: str, model: bytes, task: str | None = None, **config: Any) -> Found:
        own = {"architectures": [architecture], **config}
        files = {"config.json": own, "tokenizer.json": hub_folders.tokenizer()}
        return found(model, {**files, "tokenizer_config.json": {"mask_token": {"content": "[MASK]"}}}, task)

    nli = {"id2label": {"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"}}
    tags = made("BertForTokenClassification", hub_folders.text_classifier(2, by_token=True))
    mask = made("BertForMaskedLM", hub_folders.text_classifier(12, by_token=True))
    zero = made("X3ForSequenceClassification", hub_folders.text_classifier(3), "zero-shot-classification", **nli)
    rank = made("BertForSequenceClassification", hub_folders.text_classifier(1), sentence_transformers={"version": "5"})

    assert steps(tags.definition.inputs["*"]) == [{"step": "text.tokenize", "offsets": True}]
    assert steps(mask.definition.outputs) == [{"step": "post.softmax"}, {"step": "post.fill_mask"}]
    assert steps(zero.definition.inputs["*"]) == [{"step": "text.tokenize", "truncate": "only_first"}]
    assert (rank.definition.task, steps(rank.definition.outputs)) == ("text-ranking", [{"step": "post.sigmoid"}])
    with pytest.raises(InputError, match="for fill-mask, and not for token-classification"):
        made("BertForMaskedLM", hub_folders.text_classifier(12, by_token=True), "token-classification")
    with pytest.raises(UnsupportedError, match=r"`LlamaForCausalLM` of config\.json"):
        made("LlamaForCausalLM", hub_folders.text_classifier(12, by_token=True))


def test_a_classifier_of_sounds() -> None:
    model = zoo.model(
        [helper.make_node("ReduceMean", ["input_values", "axes"], ["logits"], keepdims=1)],
        [zoo.value("input_values", ["batch", "samples"])],
        [zoo.value("logits", ["batch", 1])],
        {"axes": np.array([1])},
    )
    config = {"architectures": ["Wav2Vec2ForSequenceClassification"], "id2label": {"0": "yes"}}
    processor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 8000}
    made = found(model, {"config.json": config, "preprocessor_config.json": processor})

    assert made.definition.task == "audio-classification"
    assert steps(made.definition.inputs["input_values"]) == [
        {"step": "audio.decode", "rate": 8000},
        {"step": "audio.resample", "rate": 8000},
        {"step": "audio.normalize", "method": "mean_variance"},
    ]
    kinds = {"AST": ["audio.log_mel", "tensor.fit", "tensor.normalize"], "Whisper": ["audio.fit", "audio.log_mel"]}
    for kind, names in kinds.items():
        other = {"feature_extractor_type": f"{kind}FeatureExtractor", "sampling_rate": 16000}
        chain = found(model, {"config.json": config, "preprocessor_config.json": other}).definition.inputs
        assert [one.name for one in chain["input_values"]] == ["audio.decode", "audio.resample", *names]
    clap = {"feature_extractor_type": "ClapFeatureExtractor", "sampling_rate": 48000}
    with pytest.raises(UnsupportedError, match="`ClapFeatureExtractor` is not supported"):
        found(model, {"config.json": config, "preprocessor_config.json": clap})


def test_a_model_of_timm() -> None:
    own = {"input_size": [3, 96, 96], "crop_pct": 0.95, "interpolation": "bicubic", "mean": [0.1, 0.2, 0.3]}
    config = {"architecture": "resnet50", "num_classes": 2, "pretrained_cfg": own, "label_names": ["n01", "n02"]}
    described = {**config, "label_descriptions": {"n01": "a tench"}}
    made = found(hub_folders.image_classifier(2, "side", "input"), {"config.json": described})

    assert made.labels == ["a tench", "n02"]
    assert steps(made.definition.inputs["input"]) == [
        {"step": "image.decode"},
        {"step": "image.resize", "shortest": 101, "filter": "bicubic"},
        {"step": "image.center_crop", "width": 96, "height": 96, "rule": "torchvision"},
        {
            "step": "image.rescale_normalize",
            "mean": [0.1, 0.2, 0.3],
            "std": [0.229, 0.224, 0.225],
        },
    ]
    with pytest.raises(UnsupportedError, match="crop mode `border`"):
        found(
            hub_folders.image_classifier(2, "side", "input"),
            {"config.json": {**config, "pretrained_cfg": {**own, "crop_mode": "border"}}},
        )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"[1]", "does not hold an object"),
        ("config.json", b"{", "is not JSON"),
        ("config.json", b'{"a":' * 100_000, "is not JSON"),
        ("config.json", {"architectures": "Vit"}, "`architectures` is 'Vit', expected a list of texts"),
        ("config.json", {"architectures": ["ViTForImageClassification"], "id2label": {"1": "x"}}, "does not number"),
        ("config.json", {"architectures": ["ViTForImageClassification"], "id2label": {"__class__": "x"}}, "by number"),
        ("config.json", {"architectures": ["ViTForImageClassification"], "id2label": {"0": "x"}}, "names 1 labels"),
        ("config.json", {"architectures": ["ViTForImageClassification"], "problem_type": 5}, "expected text"),
        (
            "preprocessor_config.json",
            {"image_processor_type": "ViTImageProcessor", "size": "big"},
            "expected an object",
        ),
        (
            "preprocessor_config.json",
            {"image_processor_type": "ViTImageProcessor", "size": {"height": 10**9}},
            "height",
        ),
        ("preprocessor_config.json", {"image_processor_type": 3}, "expected text"),
        ("preprocessor_config.json", {"image_processor_type": "ViTImageProcessor", "do_resize": 1}, "true or false"),
        (
            "preprocessor_config.json",
            {"image_processor_type": "ViTImageProcessor", "size": 8, "image_std": [0, 0, 0]},
            "`image_std`",
        ),
        (
            "preprocessor_config.json",
            b'{"image_processor_type": "ViTImageProcessor", "size": 8, "rescale_factor": NaN}',
            "expected a number",
        ),
    ],
)
def test_damaged_files_are_refused(name: str, content: Any, message: str) -> None:
    with pytest.raises((BundleError, UnsupportedError), match=message):
        found(hub_folders.image_classifier(3), {**hub_folders.VIT, name: content})


def test_files_of_any_content_give_a_definition_or_an_error_of_this_package() -> None:
    rng = np.random.default_rng(3)
    values: list[Any] = [None, True, -1, 10**30, 1e308, "x", [], [1, "a"], {}, {"0": 1}, {"height": -1}, [[]], "\0"]
    files: dict[str, Any] = {
        **hub_folders.VIT,
        **{k: v for k, v in hub_folders.SENTENCES.items() if k not in hub_folders.VIT},
    }
    refused = 0
    for _ in range(400):
        changed = json.loads(json.dumps({k: v for k, v in files.items() if not isinstance(v, bytes)}))
        name = sorted(changed)[rng.integers(len(changed))]
        fields = changed[name] if isinstance(changed[name], dict) else changed[name][0]
        known = sorted({*fields, "architectures", "size", "crop_size", "pretrained_cfg", "max_position_embeddings"})
        fields[known[rng.integers(len(known))]] = values[rng.integers(len(values))]
        model = hub_folders.text_encoder() if rng.integers(2) else hub_folders.image_classifier(3)
        try:
            found(model, {**changed, "tokenizer.json": hub_folders.tokenizer()})
        except EdgeInferError:
            refused += 1
        except AssertionError:
            pass  # nothing was found
    assert 20 < refused < 400


def test_pipeline_reads_an_unconverted_folder(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "vit", hub_folders.image_classifier(3), hub_folders.VIT)
    image = np.zeros((5, 9, 3), np.uint8)
    image[..., 1] = 255

    with edge_infer.pipeline(folder) as classify, edge_infer.pipeline(folder / "onnx/model.onnx") as same:
        answer = classify(image)
        assert same(image) == answer
        assert same.labels == ["red", "green", "blue"]

    weights = np.random.default_rng(5).standard_normal((3, 3)).astype(np.float32) * 3
    logits = np.array([-1, 1, -1], np.float32) @ weights
    scores = np.exp(logits) / np.exp(logits).sum()
    assert {one["label"]: one["score"] for one in answer} == pytest.approx(
        dict(zip(["red", "green", "blue"], map(float, scores), strict=True)), abs=1e-6
    )
    assert classify.definition.source == "huggingface"


def test_a_folder_of_sentence_transformers_gives_its_vectors(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "s", hub_folders.text_encoder(), hub_folders.SENTENCES, "model.onnx")

    with edge_infer.pipeline("feature-extraction", folder) as embed:
        (short, long) = embed(["a good film", "the cat sat a good film the cat"])

    vectors = hub_folders.table()[[2, 5, 6, 8, 3]].mean(0)
    assert short.tolist() == pytest.approx((vectors / np.linalg.norm(vectors)).tolist(), abs=1e-6)
    vectors = hub_folders.table()[[2, 9, 10, 11, 5, 3]].mean(0)  # cut to 6 tokens, and not to 3
    assert long.tolist() == pytest.approx((vectors / np.linalg.norm(vectors)).tolist(), abs=1e-6)


def test_what_a_folder_lacks_is_said(tmp_path: Path) -> None:
    bare = hub_folders.write(tmp_path / "bare", None, {"config.json": {}, "model.safetensors": b""})
    without = {name: one for name, one in hub_folders.SENTENCES.items() if name != "tokenizer.json"}
    text = hub_folders.write(tmp_path / "text", hub_folders.text_encoder(), without)
    odd = json.loads(hub_folders.tokenizer()) | {"normalizer": {"type": "Fancy"}}
    strange = hub_folders.write(
        tmp_path / "odd", hub_folders.text_encoder(), {**hub_folders.SENTENCES, "tokenizer.json": odd}
    )

    with pytest.raises(UnsupportedError, match=r"no onnx/model\.onnx") as caught:
        edge_infer.pipeline(bare)
    assert "optimum-cli export onnx" in caught.value.hint
    with pytest.raises(UnsupportedError, match=r"no tokenizer\.json"):
        edge_infer.pipeline(text)
    with pytest.raises(UnsupportedModel, match="Fancy"):
        edge_infer.pipeline(strange)
    with pytest.raises(InputError, match="for feature-extraction, and not for image-classification"):
        edge_infer.pipeline(
            "image-classification", hub_folders.write(tmp_path / "s", hub_folders.text_encoder(), hub_folders.SENTENCES)
        )


def test_the_outputs_of_questions_and_of_vectors_need_no_logits() -> None:
    """BERT's exports have a second output beside `last_hidden_state`, and those for questions two and no `logits`."""
    names = ("start_logits", "end_logits")
    spans = zoo.model(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["both"]),
            helper.make_node("Split", ["both"], [f"{name}_part" for name in names], axis=2, num_outputs=2),
            *(helper.make_node("Squeeze", [f"{name}_part", "last"], [name]) for name in names),
        ],
        [zoo.value("input_ids", ["batch", "sequence"], "int64")],
        [zoo.value(name, ["batch", "sequence"]) for name in names],
        {"table": hub_folders.table(2), "last": np.array([2])},
        18,
    )
    config = {"architectures": ["BertForQuestionAnswering"], "model_type": "bert"}
    files = {**hub_folders.SENTENCES, "config.json": {**config, "max_position_embeddings": 32}}
    made = found(spans, {name: one for name, one in files.items() if name != "modules.json"})
    assert made.definition.task == "question-answering"
    assert steps(made.definition.outputs) == [{"step": "post.answer_span"}]  # its defaults are these names

    pooled = zoo.model(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"]),
            helper.make_node("ReduceMean", ["last_hidden_state", "axes"], ["pooler_output"], keepdims=0),
        ],
        [zoo.value(name, ["batch", "sequence"], "int64") for name in ("input_ids", "attention_mask")],
        [
            zoo.value("last_hidden_state", ["batch", "sequence", hub_folders.WIDTH]),
            zoo.value("pooler_output", ["batch", hub_folders.WIDTH]),
        ],
        {"table": hub_folders.table(), "axes": np.array([1])},
    )
    after = steps(found(pooled, hub_folders.SENTENCES).definition.outputs)
    assert after[0] == {"step": "post.pool", "tensor": "last_hidden_state"}


def clip(inputs: list[str], outputs: list[str]) -> bytes:
    """A model in the form of CLIP's, whose outputs have the names that are given."""
    image, text = zoo.value("pixel_values", ["images", 3, 8, 8]), zoo.value("input_ids", ["batch", "tokens"], "int64")
    nodes = [helper.make_node("ReduceMean", [inputs[0]], ["mean"], keepdims=0)]
    if inputs[0] == "input_ids":
        nodes = [
            helper.make_node("Cast", ["input_ids"], ["float"], to=1),
            helper.make_node("ReduceMean", ["float"], ["mean"], keepdims=0),
        ]
    nodes += [helper.make_node("Add", ["mean", f"{name}_fixed"], [name]) for name in outputs]
    shapes = {name: (1, 3, 4) if name == "last_hidden_state" else (1, 4) for name in outputs}
    return zoo.model(
        nodes,
        [image if name == "pixel_values" else text for name in inputs],
        [zoo.value(name, shape) for name, shape in shapes.items()],
        {f"{name}_fixed": np.zeros(shape, np.float32) for name, shape in shapes.items()},
    )


def test_the_text_part_of_clip_gives_the_vector_that_its_images_have_too() -> None:
    files = {**hub_folders.SENTENCES, "config.json": {"architectures": ["CLIPTextModelWithProjection"]}}
    del files["modules.json"]

    made = found(clip(["input_ids"], ["text_embeds", "last_hidden_state"]), files)

    assert made.definition.task == "feature-extraction"
    assert steps(made.definition.outputs) == [{"step": "post.tensor", "tensor": "text_embeds"}]


def test_a_model_of_images_and_texts_at_once_is_refused_with_the_way_to_its_parts() -> None:
    files = {**hub_folders.SENTENCES, "config.json": {"architectures": ["CLIPModel"], "model_type": "clip"}}

    with pytest.raises(UnsupportedError, match="`CLIPModel` takes images and texts at once") as caught:
        found(clip(["pixel_values", "input_ids"], ["logits_per_image", "text_embeds"]), files)

    assert "CLIPTextModelWithProjection" in caught.value.hint
