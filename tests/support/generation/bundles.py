"""Small bundles that generate text: random weights, a tokenizer of bytes or words, a chat template."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest, Variant
from edge_infer.generation.config import DecoderConfig
from edge_infer.tensors.tensor import TensorSpec
from tests.support.generation.answer_vectors import TEMPLATE, tokenizer_file
from tests.support.generation.decoders import random_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.generation.weight_file import Encoding

CONFIG = DecoderConfig(
    architecture="llama",
    vocab_size=300,
    hidden_size=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=16,
    mlp_size=96,
    context=256,
    rotary_size=16,
    attention_scale=0.25,
    layer_kinds=(0, 0),
)


def text_bundle(
    folder: Path,
    *,
    name: str = "tiny",
    kind: str = "bytes",
    encodings: tuple[Encoding, ...] = ("int4", "int8"),
    config: DecoderConfig = CONFIG,
    template: str | None = TEMPLATE,
) -> Path:
    """Write a bundle.

    Args:
        folder: Where; it must not be there.
        name: The bundle's.
        kind: Of the tokenizer: `bytes` or `words`.
        encodings: Of the weights: a variant for each.
        config: Of the decoder; its vocabulary is at least the tokenizer's.
        template: The chat template; None for none.
    """
    (folder / "decoder").mkdir(parents=True)
    (folder / "tokenizer").mkdir()
    entry: dict[str, Any] = {
        "kind": "decoder/1",
        "architecture": config.architecture,
        "context": config.context,
        "vocab_size": config.vocab_size,
        "tokenizer": "tokenizer/tokenizer.json",
        "bos": 1,
        "eos": [2],
        "add_bos": kind == "words",
        "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"},
    }
    (folder / entry["tokenizer"]).write_text(json.dumps(tokenizer_file(kind)), encoding="utf-8")
    if template is not None:
        entry["chat_template"] = "chat_template.jinja"
        (folder / entry["chat_template"]).write_text(template, encoding="utf-8")
    variants = []
    for encoding in encodings:
        precision = {"f32": "fp32", "f16": "fp16"}.get(encoding, encoding)
        file = f"decoder/model_{precision}.safetensors"
        random_decoder(config, encoding, seed=7, optional=frozenset({"head"})).write(folder / file)
        variants.append(Variant(f"decoder/{precision}", "decoder", precision, file))
    files = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        files.append(FileEntry(path.relative_to(folder).as_posix(), len(data), sha256(data).hexdigest()))
    manifest = Manifest(
        name,
        "1",
        [TensorSpec("input_ids", "int32", ["tokens"])],
        [TensorSpec("logits", "float32", [config.vocab_size])],
        variants,
        files,
        task="text-generation",
        generate=entry,
    )
    (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return folder
