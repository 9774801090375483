"""More shapes of Hugging Face folders against transformers' own pipelines, as in `tasks_equality.py`: random weights.

python benchmarks/tasks_shapes.py [--json]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / ".bench/tasks"))

from convert_models import minilm_folder
from tasks_equality import main

import edge_infer
from edge_infer.tasks.audio.wav import read_wav
from tests.support.tasks.hub_export import SMALL, SMALL_EARS, export
from tests.support.tasks.trained_tokenizers import trained

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
NAMES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


def images(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of image model."""
    import transformers as hf
    from PIL import Image

    photo = Image.open(ROOT / "examples/faces/astronaut.jpg").resize((451, 300))
    size, classify = {"height": 64, "width": 64}, "image-classification"
    cases = (
        (
            classify,
            hf.DeiTForImageClassification(hf.DeiTConfig(image_size=64, patch_size=16, num_labels=5, **SMALL)),
            hf.DeiTImageProcessor(size={"height": 80, "width": 80}, crop_size=size),
            "logits",
        ),
        (
            classify,
            hf.SwinForImageClassification(
                hf.SwinConfig(image_size=64, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, num_labels=5)
            ),
            hf.ViTImageProcessor(size=size),
            "logits",
        ),
        (
            classify,
            hf.ResNetForImageClassification(
                hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)
            ),
            hf.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.875),
            "logits",
        ),
        (
            "image-feature-extraction",
            hf.CLIPVisionModel(hf.CLIPVisionConfig(image_size=64, patch_size=16, **SMALL)),
            hf.CLIPImageProcessor(size={"shortest_edge": 64}, crop_size=size),
            "last_hidden_state",
        ),
    )
    for task, model, processor, output in cases:
        folder = place / type(model).__name__
        pixels = processor(photo, return_tensors="pt")["pixel_values"]
        export(folder, model, [processor], {"pixel_values": pixels}, (output,), 1)
        peer = hf.pipeline(task, model=model, image_processor=processor, device="cpu")
        with edge_infer.pipeline(task, folder) as ask:
            ours, theirs = ask(photo), peer(photo)
        if task == "image-feature-extraction":
            ours, theirs = (np.array(one).ravel().tolist() for one in (ours.tolist(), theirs))
        yield f"{task}, {folder.name}", ours, theirs


def texts(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of text model, with the tokenizer of its kind."""
    import transformers as hf

    words = hf.AutoTokenizer.from_pretrained(str(minilm_folder()))
    no_types = {"model_input_names": ["input_ids", "attention_mask"]}
    plain = hf.PreTrainedTokenizerFast(tokenizer_object=words.backend_tokenizer, **no_types, **NAMES)
    by_bytes, by_scores = (
        hf.PreTrainedTokenizerFast(tokenizer_object=trained(kind), **no_types) for kind in ("gpt2", "t5")
    )
    small = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    attention = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    cases: tuple[tuple[Any, Any, Any, dict[str, Any]], ...] = (
        (hf.DistilBertForSequenceClassification, hf.DistilBertConfig, plain, small),
        (hf.AlbertForSequenceClassification, hf.AlbertConfig, words, {"embedding_size": 16, **SMALL}),
        (hf.MPNetForSequenceClassification, hf.MPNetConfig, plain, SMALL),
        (hf.DebertaV2ForSequenceClassification, hf.DebertaV2Config, words, {**attention, **SMALL}),
        (hf.RobertaForSequenceClassification, hf.RobertaConfig, by_bytes, {"type_vocab_size": 1, **SMALL}),
        (hf.XLMRobertaForSequenceClassification, hf.XLMRobertaConfig, by_scores, {"type_vocab_size": 1, **SMALL}),
    )
    asked = ["hello world", "a much longer text than that one"]
    for kind, config, tokenizer, settings in cases:
        model = kind(config(vocab_size=len(tokenizer), **settings)).eval()
        folder = place / kind.__name__
        export(folder, model, [tokenizer], dict(tokenizer("hello world this is", return_tensors="pt")), ("logits",), 2)
        peer = hf.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
        with edge_infer.pipeline("text-classification", folder) as ask:
            yield f"text-classification, {kind.__name__}", ask(asked, top_k=2), [peer(one, top_k=2) for one in asked]


def sounds(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of model of sounds."""
    import transformers as hf

    sound = np.array(read_wav((ROOT / "tests/support/tasks/yes.wav").read_bytes()).samples, np.float32)
    cases: tuple[tuple[Any, Any, int], ...] = (
        (
            hf.HubertForSequenceClassification(hf.HubertConfig(num_labels=5, **SMALL_EARS)),
            hf.Wav2Vec2FeatureExtractor(sampling_rate=16_000),
            2,
        ),
        (
            hf.ASTForAudioClassification(hf.ASTConfig(max_length=128, num_labels=5, **SMALL)),
            hf.ASTFeatureExtractor(max_length=128),
            1,
        ),
    )
    for model, extractor, axes in cases:
        folder = place / type(model).__name__
        values = extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_values"]
        export(folder, model, [extractor], {"input_values": values}, ("logits",), axes)
        peer = hf.pipeline("audio-classification", model=model, feature_extractor=extractor, device="cpu")
        with edge_infer.pipeline("audio-classification", folder) as ask:
            yield f"audio-classification, {folder.name}", ask(sound), peer(sound.copy())


def every(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of model."""
    yield from images(place)
    yield from texts(place)
    yield from sounds(place)


if __name__ == "__main__":
    main(every)
