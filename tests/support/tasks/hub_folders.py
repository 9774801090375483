"""Folders as they lie on the Hugging Face Hub, with models of a few weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "the", "cat", "sat")
WIDTH = 4


def tokenizer() -> bytes:
    """Words between [CLS] and [SEP]; it asks for a length of 3, which nobody must follow."""
    special = [
        {"id": i, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False}
        for i, word in enumerate(WORDS[:5])
    ]
    template = {
        "type": "TemplateProcessing",
        "single": [_special("[CLS]"), _sequence("A", 0), _special("[SEP]")],
        "pair": [_special("[CLS]"), _sequence("A", 0), _special("[SEP]"), _sequence("B", 1), _special("[SEP]", 1)],
        "special_tokens": {
            word: {"id": word, "ids": [i], "tokens": [word]} for word, i in (("[CLS]", 2), ("[SEP]", 3))
        },
    }
    document = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 3},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": special,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    return json.dumps(document).encode()


def _special(word: str, kind: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": word, "type_id": kind}}


def _sequence(which: str, kind: int) -> dict[str, Any]:
    return {"Sequence": {"id": which, "type_id": kind}}


def table(width: int = WIDTH) -> np.ndarray[Any, Any]:
    """A vector for each word."""
    return np.random.default_rng(7).standard_normal((len(WORDS), width)).astype(np.float32)


def text_encoder(length: int | str = "sequence") -> bytes:
    """`input_ids`, `attention_mask` -> `last_hidden_state`: the vector of each token."""
    return zoo.model(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        [zoo.value(name, ["batch", length], "int64") for name in ("input_ids", "attention_mask")],
        [zoo.value("last_hidden_state", ["batch", length, WIDTH])],
        {"table": table()},
    )


def text_classifier(classes: int, *, by_token: bool = False, output: str = "logits") -> bytes:
    """`input_ids` -> `logits`, of the text or of each token."""
    nodes = [helper.make_node("Gather", ["table", "input_ids"], [output if by_token else "vectors"])]
    shape: list[int | str] = ["batch", "sequence", classes] if by_token else ["batch", classes]
    if not by_token:
        nodes.append(helper.make_node("ReduceMean", ["vectors", "axes"], [output], keepdims=0))
    weights = {"table": table(classes), "axes": np.array([1])}
    return zoo.model(
        nodes,
        [zoo.value("input_ids", ["batch", "sequence"], "int64")],
        [zoo.value(output, shape)],
        {key: value for key, value in weights.items() if not (by_token and key == "axes")},
    )


def image_classifier(classes: int, side: int | str = 8, name: str = "pixel_values", opset: int = 21) -> bytes:
    """The mean of each channel, times a matrix."""
    weights = np.random.default_rng(5).standard_normal((3, classes)).astype(np.float32) * 3
    return zoo.model(
        [
            helper.make_node("GlobalAveragePool", [name], ["means"]),
            helper.make_node("Flatten", ["means"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        ],
        [zoo.value(name, ["batch", 3, side, side])],
        [zoo.value("logits", ["batch", classes])],
        {"weights": weights},
        opset,
    )


def fixed_outputs(side: int | str, given: Mapping[str, np.ndarray[Any, Any]], name: str = "pixel_values") -> bytes:
    """A model of images whose outputs are always the same."""
    nodes = [helper.make_node("ReduceMean", [name], ["mean"], keepdims=0)]
    nodes.append(helper.make_node("Mul", ["mean", "zero"], ["nothing"]))
    nodes += [helper.make_node("Add", [f"{one}_fixed", "nothing"], [one]) for one in given]
    weights = {f"{one}_fixed": value for one, value in given.items()} | {"zero": np.array(0, np.float32)}
    return zoo.model(
        nodes,
        [zoo.value(name, [1, 3, side, side])],
        [zoo.value(one, value.shape) for one, value in given.items()],
        weights,
    )


def write(folder: Path, model: bytes | None, files: Mapping[str, Any], name: str = "onnx/model.onnx") -> Path:
    """Write a folder: JSON files from objects, others from bytes."""
    given: dict[str, Any] = dict(files) if model is None else {**files, name: model}
    for path, content in given.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


SENTENCES: dict[str, Any] = {
    "config.json": {"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 512},
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 6, "do_lower_case": False},
    "tokenizer_config.json": {"model_max_length": 512},
    "tokenizer.json": tokenizer(),
}
"""A sentence-transformers model, as all-MiniLM-L6-v2 is laid out."""

VIT: dict[str, Any] = {
    "config.json": {
        "architectures": ["ViTForImageClassification"],
        "id2label": {"0": "red", "1": "green", "2": "blue"},
    },
    "preprocessor_config.json": {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}},
}
"""A classifier of images whose file leaves most to the class."""
