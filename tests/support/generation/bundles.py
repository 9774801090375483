"""Bundles of small random models that generate text, with a tokenizer that is trained here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.generation.config import DecoderConfig
from edge_infer.platform.hashing import sha256
from edge_infer.tensors.tensor import TensorSpec
from tests.support.generation.decoders import random_decoder
from tests.support.tasks.trained_tokenizers import trained, written

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.generation.weight_file import Encoding

CHATML = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


def config(vocab_size: int, context: int = 256) -> DecoderConfig:
    """Describe a small Llama."""
    return DecoderConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_size=16,
        mlp_size=96,
        context=context,
        rotary_size=16,
        attention_scale=0.25,
        layer_kinds=(0, 0),
    )


def write_bundle(
    folder: Path,
    *,
    kind: str = "llama3",
    encodings: tuple[Encoding, ...] = ("int4",),
    template: str | None = CHATML,
    context: int = 256,
    **generate: Any,
) -> Path:
    """Write a bundle.

    Args:
        folder: Where.
        kind: Of the tokenizer, as `trained` has them.
        encodings: A variant for each.
        template: The chat template; None for none.
        context: Of the model.
        generate: Fields of the manifest's `generate` in place of the usual ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = trained(kind)
    size = made.get_vocab_size()
    files = {"tokenizer.json": written(made)}
    if template is not None:
        files["chat_template.jinja"] = template.encode()
    (folder / "decoder").mkdir(exist_ok=True)
    variants = []
    for encoding in encodings:
        precision = {"f16": "fp16", "f32": "fp32"}.get(encoding, encoding)
        path = f"decoder/model_{precision}.safetensors"
        random_decoder(config(size, context), encoding, optional=frozenset({"head"})).write(folder / path)
        files[path] = (folder / path).read_bytes()
        variants.append(Variant(f"decoder/{precision}", "decoder", precision, path))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    entry = {
        "kind": "decoder/1",
        "architecture": "llama",
        "context": context,
        "vocab_size": size,
        "tokenizer": "tokenizer.json",
        **({} if template is None else {"chat_template": "chat_template.jinja"}),
        "bos": made.token_to_id("<s>"),
        "eos": [made.token_to_id("</s>")],
        "add_bos": False,
        "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"},
        "defaults": {"temperature": 0.7},
    }
    manifest = Manifest(
        folder.stem,
        "1",
        [TensorSpec("input_ids", "int32", ["tokens"])],
        [TensorSpec("logits", "float32", [size])],
        variants,
        [FileEntry(name, len(data), sha256(data)) for name, data in files.items()],
        task="text-generation",
        generate={**entry, **generate},
    )
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def changed(folder: Path, **generate: Any) -> Path:
    """Change fields of the manifest's `generate`."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text("utf-8"))
    document["generate"].update(generate)
    path.write_text(json.dumps(document), encoding="utf-8")
    return folder
