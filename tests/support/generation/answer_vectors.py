"""Writes `answer_vectors.json`, the answers that Python's and JavaScript's generators must both give.

    python -m tests.support.generation.answer_vectors

The decoder is `FakeDecoder` with 300 tokens and 160 positions, whose logits are a hash of all tokens before. Each
model's cases run one after the other on one generator, so that the cache of one serves the next.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edge_infer.generation.definition import GenerateDefinition
from edge_infer.generation.generator import Generator
from edge_infer.tasks.text.byte_alphabet import CHARACTERS
from edge_infer.tasks.text.tokenizer import Tokenizer
from tests.support.generation.fake_decoder import FakeDecoder

PATH = Path(__file__).with_suffix(".json")
VOCAB_SIZE, CONTEXT = 300, 160
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}"
    "<{{ message.role }}>{{ message.content | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_TALK = [{"role": "user", "content": "How are you?"}]
_TOOLS = '[{"name": "add", "scale": 1.0, "step": 1e-07, "many": 3}]'
_SCHEMA = {
    "type": "object",
    "description": "passed over",
    "properties": {
        'é"': {"enum": [1, 1.5, "é", None, {"a": [True]}]},
        "list": {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 3},
        "name": {"type": "string", "minLength": 1, "maxLength": 4},
        "self": {"$ref": "#/$defs/node"},
    },
    "required": ["list", "self"],
    "$defs": {"node": {"anyOf": [{"const": 0}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}]}},
}
_CASES: list[dict[str, Any]] = [
    {"prompt": "Hello wörld", "options": {"temperature": 0, "max_tokens": 24}},
    {"prompt": "Hello wörld, you", "options": {"seed": 7, "max_tokens": 40, "temperature": 1.2, "top_k": 0}},
    {"prompt": "a", "options": {"seed": 1, "stop": ["e", "no", "  "], "max_tokens": 200}},
    {"prompt": "日本", "options": {"seed": 2, "max_tokens": 12, "logprobs": 2, "repetition_penalty": 1.2}},
    {"prompt": "x" * 150, "options": {"seed": 3, "max_tokens": 5, "frequency_penalty": 0.5, "presence_penalty": 1}},
    {"prompt": "long", "options": {"seed": 4, "max_tokens": 5000, "min_p": 0, "logit_bias": {"1": -100, "2": -100}}},
    {"messages": _TALK, "options": {"seed": 5, "max_tokens": 30}},
    {"messages": [*_TALK, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": [
        {"type": "text", "text": "And"}, {"type": "text", "text": " now?"}]}], "options": {"max_tokens": 9}},
    {"prompt": "{}", "options": {"seed": 6, "max_tokens": 60, "response_format": {"type": "json_object"}}},
    {"options": {"seed": 7, "max_tokens": 90, "temperature": 2, "logprobs": 0, "response_format": {
        "type": "json_schema", "schema": _SCHEMA}}, "messages": _TALK},
    {"messages": _TALK, "tools": _TOOLS, "options": {"seed": 2**64 - 1, "max_tokens": 9, "temperature": 0.5}},
]  # fmt: skip


def tokenizer_file(kind: str) -> dict[str, Any]:
    """Describe a small tokenizer: bytes as characters (GPT-2), or words with tokens for bytes (Llama 2)."""
    special = [{"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False} for i, text in enumerate(["<pad>", "<s>", "</s>"])]  # fmt: skip
    file: dict[str, Any] = {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": None}
    if kind == "bytes":
        known = {text["content"]: text["id"] for text in special}
        known |= {character: 3 + byte for byte, character in CHARACTERS.items()}
        known |= {"el": 259, "ell": 260, "Ġw": 261, "no": 262}
        part = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        model: dict[str, Any] = {"type": "BPE", "vocab": known, "merges": ["e l", "el l", "Ġ w", "n o"]}
        return {**file, "pre_tokenizer": part, "decoder": part, "model": model}
    words = [
        "▁",
        "▁Hello",
        "▁w",
        "rld",
        "e",
        "l",
        "o",
        "▁no",
        "x",
        "a",
        "s",
        "t",
        "?",
        "H",
        "w",
        "r",
        "u",
        "y",
        ".",
        "A",
    ]
    known = {text["content"]: text["id"] for text in special}
    known |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    known |= {word: 259 + i for i, word in enumerate(words)}
    model = {"type": "BPE", "vocab": known, "merges": [], "unk_token": "<pad>"}
    model |= {"byte_fallback": True, "fuse_unk": True}
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    normalizer = {"type": "Sequence", "normalizers": [prepend, space]}
    return {**file, "normalizer": normalizer, "decoder": {"type": "Sequence", "decoders": steps}, "model": model}


def models() -> list[dict[str, Any]]:
    """Make all answers."""
    found = []
    for kind in ("bytes", "words"):
        file = tokenizer_file(kind)
        entry: dict[str, Any] = {
            "kind": "decoder/1", "context": 2048, "vocab_size": VOCAB_SIZE, "tokenizer": "tokenizer.json",
            "bos": 1, "add_bos": kind == "words", "eos": [2], "defaults": {"temperature": 0.9, "seed": 11},
            "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"},
        }  # fmt: skip
        definition = GenerateDefinition(
            "", 2048, VOCAB_SIZE, "tokenizer.json", None, 1, entry["add_bos"], (2,), entry["special_tokens"],
            entry["defaults"], None,
        )  # fmt: skip
        tokenizer = Tokenizer.from_bytes(json.dumps(file).encode())
        decoder = FakeDecoder(VOCAB_SIZE, 1, CONTEXT)
        generator = Generator(decoder, tokenizer, definition, template=TEMPLATE, label="fake")
        made = []
        for case in _CASES:
            asked = case.get("prompt") or case["messages"]
            tools = json.loads(case["tools"]) if "tools" in case else None
            stream = generator.stream(asked, **case["options"], **({"tools": tools} if tools else {}))
            pieces = list(stream)
            answer = stream.completion
            logprobs = answer.logprobs and [[*one[:3], [list(top) for top in one.top]] for one in answer.logprobs]
            made.append(
                {
                    **case,
                    "rendered": generator.render(asked, tools) if "messages" in case else None,
                    "text": answer.text,
                    "tokens": list(answer.tokens),
                    "finish_reason": answer.finish_reason,
                    "usage": list(answer.usage),
                    "logprobs": logprobs,
                    "pieces": len(pieces),
                }
            )
        found.append({"kind": kind, "tokenizer": file, "generate": entry, "template": TEMPLATE, "answers": made})
    return found


if __name__ == "__main__":
    PATH.write_text(json.dumps(models(), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
