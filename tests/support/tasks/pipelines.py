"""Tiny bundles with pipelines: a model of a few nodes, and what stands before and after it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import State, Variant
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}
COLOURS = ["red", "green", "blue"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a", "paris", "london"]


def write(
    folder: Path,
    nodes: Sequence[Any],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    task: str,
    before: Mapping[str, Any],
    after: Sequence[Any],
    *,
    constants: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    state: Sequence[State] = (),
) -> Path:
    """Write a bundle and return its folder."""

    def infos(specs: Sequence[TensorSpec]) -> list[Any]:
        return [helper.make_tensor_value_info(spec.name, _TYPES[spec.dtype], list(spec.shape)) for spec in specs]

    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "made", infos(inputs), infos(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    held = {"onnx/model.onnx": model.SerializeToString(), **(files or {})}
    if labels:
        held["labels.json"] = json.dumps(list(labels)).encode()
    manifest = Manifest(
        folder.stem,
        "1",
        inputs,
        outputs,
        [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx", state=state)],
        [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in held.items()],
        labels="labels.json" if labels else None,
        task=task,
        pipeline={"version": 1, "inputs": before, "outputs": list(after)},
    )
    for path, data in {**held, "manifest.json": manifest.to_bytes()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def colours(folder: Path, *, steps: Sequence[Any] = (), after: Sequence[Any] = ()) -> Path:
    """An image classifier: the mean of each channel, times 8, is the logit of its colour."""
    return write(
        folder,
        [
            helper.make_node("ReduceMean", ["pixels"], ["means"], axes=[2, 3], keepdims=0),
            helper.make_node("Mul", ["means", "eight"], ["logits"]),
        ],
        [TensorSpec("pixels", "float32", ("batch", 3, 8, 8))],
        [TensorSpec("logits", "float32", ("batch", 3))],
        "image-classification",
        {
            "pixels": list(steps)
            or [
                {"step": "image.decode"},
                {"step": "image.resize", "shortest": 10},
                {"step": "image.center_crop", "width": 8, "height": 8},
                {"step": "image.rescale_normalize"},
            ]
        },
        list(after) or [{"step": "post.softmax"}, {"step": "post.top_k"}],
        constants={"eight": np.float32(8)},
        labels=COLOURS,
    )


def tokenizer() -> bytes:
    """A tokenizer of ten words, with the template of BERT."""
    special = [{"id": i, "content": WORDS[i], "special": True, **_PLAIN} for i in range(4)]
    template: dict[str, Any] = {
        "type": "BertProcessing",
        "sep": ["[SEP]", 3],
        "cls": ["[CLS]", 2],
    }
    document = {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    return json.dumps(document).encode()


_PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
TOKENS = [TensorSpec(name, "int64", ("batch", "tokens")) for name in ("input_ids", "attention_mask")]


def words(
    folder: Path,
    task: str,
    after: Sequence[Any],
    width: int = 4,
    labels: Sequence[str] = (),
    *,
    offsets: bool = False,
    pooled: bool = False,
) -> Path:
    """A model of texts: a row of a table for each token, or with `pooled` the mean of all rows that are not padding."""
    table = np.random.default_rng(3).normal(size=(len(WORDS), width)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows" if pooled else "found"])]
    if pooled:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
            helper.make_node("Mul", ["rows", "column"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "one"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["column", "one"], ["count"], keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["found"]),
        ]
    shape: tuple[Any, ...] = ("batch", width) if pooled else ("batch", "tokens", width)
    return write(
        folder,
        nodes,
        TOKENS,
        [TensorSpec("found", "float32", shape)],
        task,
        {"*": [{"step": "text.tokenize", "offsets": offsets, "max_length": 32}]},
        after,
        constants={"table": table, "last": np.array([-1]), "one": np.array([1])},
        labels=labels,
        files={"tokenizer.json": tokenizer()},
    )


def questions(folder: Path, **tokenize: Any) -> Path:
    """A model whose answers begin at `paris` and end at `london`."""
    table = np.full((len(WORDS), 2), -9, np.float32)
    table[WORDS.index("paris"), 0] = table[WORDS.index("london"), 1] = 9
    return write(
        folder,
        [
            helper.make_node("Gather", ["table", "input_ids"], ["found"]),
            helper.make_node("Gather", ["found", "zero"], ["start_logits"], axis=2),
            helper.make_node("Gather", ["found", "first"], ["end_logits"], axis=2),
        ],
        TOKENS,
        [TensorSpec(name, "float32", ("batch", "tokens")) for name in ("start_logits", "end_logits")],
        "question-answering",
        {"*": [{"step": "text.tokenize", "offsets": True, "max_length": 32, "truncate": "only_second", **tokenize}]},
        [{"step": "post.answer_span"}],
        constants={"table": table, "zero": np.int64(0), "first": np.int64(1)},
        files={"tokenizer.json": tokenizer()},
    )


def loudness(folder: Path) -> Path:
    """A streamed model of sound: its output is the loudest sample of a frame, its state counts the frames."""
    return write(
        folder,
        [
            helper.make_node("Abs", ["frame"], ["loud"]),
            helper.make_node("ReduceMax", ["loud"], ["speech"], axes=[1], keepdims=1),
            helper.make_node("Add", ["count", "one"], ["counted"]),
        ],
        [TensorSpec("frame", "float32", ("batch", 160)), TensorSpec("count", "float32", (1,))],
        [TensorSpec("speech", "float32", ("batch", 1)), TensorSpec("counted", "float32", (1,))],
        "voice-activity-detection",
        {
            "frame": [
                {"step": "audio.decode"},
                {"step": "audio.resample", "rate": 16000},
                {"step": "audio.frame", "samples": 160},
            ]
        },
        [{"step": "post.speech_segments", "tensor": "speech", "min_speech_ms": 50, "pad_ms": 0}],
        constants={"one": np.array([1], np.float32)},
        state=[State("counted", "count")],
    )


def graphs(folder: Path) -> Path:
    """A classifier of sounds whose features, and whose scores, small ONNX models of the bundle make."""

    def graph(nodes: Sequence[Any], given: Any, made: Any, **constants: Any) -> bytes:
        held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
        inside = helper.make_graph(list(nodes), "graph", [given], [made], held)
        found: bytes = helper.make_model(
            inside, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
        ).SerializeToString()
        return found

    def info(name: str, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

    bands = [
        helper.make_node("Reshape", ["samples", "shape"], ["bands"]),
        helper.make_node("Mul", ["bands", "bands"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["power"], axes=[2], keepdims=0),
    ]
    weights = np.random.default_rng(6).standard_normal((4, 2)).astype(np.float32) * 9
    return write(
        folder,
        [helper.make_node("MatMul", ["power", "weights"], ["logits"])],
        [TensorSpec("power", "float32", ("batch", 4))],
        [TensorSpec("logits", "float32", ("batch", 2))],
        "audio-classification",
        {
            "power": [
                {"step": "audio.decode"},
                {"step": "audio.fit", "samples": 320},
                {"step": "audio.normalize"},
                {"step": "tensor.graph", "file": "bands.onnx"},
            ]
        },
        [{"step": "post.graph", "file": "sure.onnx"}, {"step": "post.top_k", "tensor": "scores"}],
        constants={"weights": weights},
        labels=["high", "low"],
        files={
            "bands.onnx": graph(bands, info("samples", "n", 320), info("power", "n", 4), shape=np.array([-1, 4, 80])),
            "sure.onnx": graph(
                [helper.make_node("Softmax", ["logits"], ["scores"])], info("logits", "n", 2), info("scores", "n", 2)
            ),
        },
    )
