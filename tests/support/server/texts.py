"""A bundle that generates text by a decoder without weights, whose steps a test can hold."""

from __future__ import annotations

import hashlib
import json
from threading import Event
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.generation import generate
from edge_infer.generation.vectors import write_vectors
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution.text_model import TextLimits, TextModel
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.tasks.text.byte_alphabet import CHARACTERS
from edge_infer.tensors.tensor import TensorSpec
from tests.support.generation.fake_decoder import FakeDecoder
from tests.support.server.bundles import write_bundle
from tests.support.server.client import Answer, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

    from edge_infer.generation.vectors import GenerationVector
    from edge_infer.server.app import Application
    from edge_infer.server.http.in_thread import ServerThread

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
END, SIZE = 256, 258
USER = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"
#: The tokens of `USER`.
PROMPT = len("user: Hi\nassistant:")


def tokenizer_file() -> bytes:
    """One token for each byte, and two marks."""
    mark = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level: dict[str, Any] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": END, "content": "</s>", **mark}, {"id": END + 1, "content": "<s>", **mark}],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {character: byte for byte, character in CHARACTERS.items()},
            "merges": [],
        },
    }
    return json.dumps(document).encode()


def text_bundle(
    folder: Path,
    name: str = "chat",
    *,
    template: str | None = TEMPLATE,
    context: int = 512,
    vectors: Sequence[GenerationVector] = (),
) -> Path:
    """Write a bundle; its weights are never read."""
    files = {"decoder/model_int4.safetensors": b"weights", "tokenizer/tokenizer.json": tokenizer_file()}
    generate: dict[str, Any] = {
        "kind": "decoder/1",
        "architecture": "fake",
        "context": context,
        "vocab_size": SIZE,
        "tokenizer": "tokenizer/tokenizer.json",
        "eos": [END],
        "special_tokens": {"eos_token": "</s>"},
        "defaults": {"temperature": 0.7},
    }
    if template is not None:
        files["chat_template.jinja"] = template.encode()
        generate["chat_template"] = "chat_template.jinja"
    if vectors:
        files["generation_vectors.json"] = write_vectors(vectors)
        generate["vectors"] = "generation_vectors.json"
    manifest = Manifest(
        name,
        "1",
        [TensorSpec("input_ids", "int32", ("tokens",))],
        [TensorSpec("logits", "float32", (SIZE,))],
        [Variant("decoder/int4", "decoder", "int4", "decoder/model_int4.safetensors")],
        [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()],
        task="text-generation",
        generate=generate,
    )
    return write_bundle(folder, {"manifest.json": manifest.to_bytes(), **files})


class HeldDecoder(FakeDecoder):
    """A decoder whose steps a test can hold: it runs while `go` is set."""

    def __init__(self, slots: int, context: int, change: Callable[[list[int], memoryview[float]], None]) -> None:
        super().__init__(SIZE, slots, context, change=change)
        self.go, self.entered = Event(), Event()
        self.go.set()

    def run(self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], wanted: Sequence[int]) -> None:
        self.entered.set()
        assert self.go.wait(60)
        super().run(tokens, slots, positions, wanted)


def endless(_seen: list[int], logits: memoryview[float]) -> None:
    """Never choose a mark."""
    logits[END] = logits[END + 1] = -99.0


def use_fakes(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[list[int], memoryview[float]], None] = endless
) -> list[HeldDecoder]:
    """Let bundles open decoders without weights, whose answers have no end; return those that were opened."""
    made: list[HeldDecoder] = []

    def opened(_bundle: Any, _variant: Any, *, slots: int, context: int, **_more: Any) -> HeldDecoder:
        made.append(HeldDecoder(slots, context, change))
        return made[-1]

    monkeypatch.setattr(generate, "open_decoder", opened)
    return made


def spelling(text: str, behind: int) -> Callable[[list[int], memoryview[float]], None]:
    """Make the model say a text, then end, behind prompts of so many tokens."""
    ids = [*text.encode(), END]

    def change(seen: list[int], logits: memoryview[float]) -> None:
        at = len(seen) - behind
        if 0 <= at < len(ids):
            logits[ids[at]] = 99.0

    return change


def post(server: ServerThread, path: str, document: Any, **headers: str) -> Answer:
    """Send JSON."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Client(server.url)(path, "POST", body, content_type="application/json", **headers)


def events_of(body: bytes) -> list[Any]:
    """Return the documents of server-sent events; the last must be `[DONE]`."""
    parts = body.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def app_of(path: Path, slots: int = 2, **more: Any) -> Application:
    limits = Limits(text=TextLimits(slots), batch=BatchLimits(max_wait_ms=1e6))
    return create_app({"chat": path}, limits=limits, **more)


def model_of(app: Application) -> TextModel:
    (model,) = app.engine.active()
    assert isinstance(model, TextModel)
    return model


def is_empty(app: Application) -> bool:
    """Whether no slot is in use, nothing waits, and no memory is held."""
    model = model_of(app)
    slots, runner = model.slots, model.runner
    return not (slots.running or slots.waiting or runner.running or len(model.batcher) or model.in_flight)
