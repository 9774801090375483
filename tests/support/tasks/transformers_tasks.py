"""Write folders of the Hub with random weights, and what transformers answers: `transformers_tasks.py FOLDER`.

Run it with `PYTHONPATH=.bench/transformers:.`, as the tests do. `asked.json` has by folder the task, the raw input, the
arguments and transformers' own answer; a picture and a sound are files beside it.
"""

from __future__ import annotations

import json
import random
import sys
import wave
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image

from tests.support.tasks.hub_export import SMALL, export, hearer_of_letters, ranking
from tests.support.tasks.trained_tokenizers import trained, written

TEXT = "The house of the president is in Paris"


def images(place: Path) -> dict[str, Any]:
    """Write a classifier of images."""
    chance = np.random.default_rng(3)
    photo = Image.fromarray(chance.integers(0, 256, (61, 83, 3), np.uint8))
    photo.save(place / "photo.png")
    names = {0: "cat", 1: "dog", 2: "bird"}
    model = hf.ViTForImageClassification(
        hf.ViTConfig(image_size=64, patch_size=16, id2label=names, initializer_range=0.5, **SMALL)
    )
    processor = hf.ViTImageProcessor(size={"height": 64, "width": 64})
    pixels = processor(photo, return_tensors="pt")["pixel_values"]
    export(place / "vit", model, [processor], {"pixel_values": pixels}, ["logits"], 2)
    answer = hf.pipeline("image-classification", model=model, image_processor=processor)(photo)
    return {"vit": {"task": "image-classification", "file": "photo.png", "arguments": {}, "answer": answer}}


def texts(place: Path) -> dict[str, Any]:
    """Write models of texts."""
    (place / "tokenizer.json").write_bytes(written(trained("bert")))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"], "mask_token": "[MASK]"}
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_file=str(place / "tokenizer.json"), model_max_length=64, **names, **special
    )
    kinds = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "initializer_range": 0.5, **SMALL}

    def config(*names: str) -> Any:
        return hf.BertConfig(id2label=dict(enumerate(names)), **kinds)

    asked = {"question": "Who is there?", "context": TEXT}
    pair = {"text": "a short text", "text_pair": TEXT}
    two = hf.BertForSequenceClassification(config("good", "bad"))
    rank = hf.BertForSequenceClassification(config("relevance"))
    rank.config.sentence_transformers = {"version": "5"}
    tags = hf.BertForTokenClassification(config("O", "B-PER", "I-PER"))
    spans = hf.BertForQuestionAnswering(config("a", "b"))
    shifted = hf.RobertaForSequenceClassification(
        hf.RobertaConfig(id2label={0: "good", 1: "bad"}, pad_token_id=tokenizer.pad_token_id, **kinds)
    )
    ends = ["start_logits", "end_logits"]
    cases: list[tuple[str, str, Any, Any, dict[str, Any], list[str], int]] = [
        ("sentiment", "text-classification", two, TEXT, {"top_k": 2}, ["logits"], 2),
        ("pairs", "text-classification", two, pair, {"top_k": 2}, ["logits"], 2),
        ("roberta", "text-classification", shifted, TEXT, {"top_k": 2}, ["logits"], 2),
        ("tags", "token-classification", tags, TEXT, {}, ["logits"], 3),
        ("answers", "question-answering", spans, asked, {}, ends, 3),
        ("ranks", "text-ranking", rank, {"query": "a house", "documents": [TEXT, "no"]}, {}, ["logits"], 2),
    ]
    found = {}
    for name, task, model, given, arguments, outputs, axes in cases:
        example = dict(tokenizer(TEXT, "a text", return_tensors="pt"))
        if name == "roberta":
            example.pop("token_type_ids", None)
        export(place / name, model, [tokenizer], example, outputs, axes)
        answer = None
        if task in ("text-classification", "token-classification"):
            answer = hf.pipeline(task, model=model, tokenizer=tokenizer)(given, **arguments)
        elif task == "text-ranking":
            answer = ranking(model, tokenizer, **given)
        found[name] = {"task": task, "asked": given, "arguments": arguments, "answer": answer}
        if task == "text-classification":
            texts_given = [given["text"], given["text_pair"]] if isinstance(given, dict) else [given]
            encoded = tokenizer(*texts_given)
            found[name]["tensors"] = {key: [encoded[key]] for key in example}
    return found


def sounds(place: Path) -> dict[str, Any]:
    """Write a model that hears letters."""
    chance = random.Random(4)
    samples = array("h", (chance.randrange(-9000, 9000) for _ in range(8000)))
    with wave.open(str(place / "noise.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    sound = np.array(samples, np.float32) / 32768
    extractor = hf.Wav2Vec2FeatureExtractor(sampling_rate=16_000)
    model, tokenizer = hearer_of_letters(place / "letters.json")
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    example = {"input_values": extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_values"]}
    export(place / "letters", model, [extractor, tokenizer], example, ["logits"], 3)
    task = "automatic-speech-recognition"
    peer = hf.pipeline(task, model=model, feature_extractor=extractor, tokenizer=tokenizer)
    return {"letters": {"task": task, "file": "noise.wav", "arguments": {}, "answer": peer(sound.copy())}}


def main(place: Path) -> None:
    """Write all folders."""
    torch.manual_seed(0)
    hf.logging.set_verbosity_error()
    found = {**images(place), **texts(place), **sounds(place)}
    (place / "asked.json").write_text(json.dumps(found, default=float), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
