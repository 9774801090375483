"""The page's tokenizer gives what Python's gives: ids, offsets, masks, text and the pieces of a stream."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edge_infer import EdgeInferError, Padding, Tokenizer, Truncation
from tests.support.tasks.trained_tokenizers import KINDS, SENTENCES, corpus, odd_text, read, trained, written
from tests.support.tasks.write_unicode_table import MODULE, TABLE, as_module

PROGRAM = Path(__file__).with_name("encode.mjs")


def calls() -> list[dict[str, Any]]:
    chance = random.Random(12)
    lines = corpus()
    texts = [*SENTENCES, "", *("".join(lines[at : at + 7]) for at in range(0, len(lines), 60))]
    texts += [odd_text(chance) for _ in range(400)]
    plain = [{"text": text, "pair": None, "options": {"truncation": None, "padding": None}} for text in texts]
    cut = [
        {
            "text": chance.choice(texts),
            "pair": chance.choice([None, *SENTENCES]),
            "options": {
                "addSpecialTokens": chance.random() < 0.7,
                "truncation": {
                    "maxLength": chance.randrange(1, 40),
                    "strategy": chance.choice(["longest_first", "only_first", "only_second"]),
                    "side": chance.choice(["left", "right"]),
                },
                "padding": {"length": chance.choice([None, 20]), "multipleOf": 8, "side": "left", "padId": 1},
            },
        }
        for _ in range(200)
    ]
    return plain + cut


def answer(tokenizer: Tokenizer, call: dict[str, Any]) -> dict[str, Any]:
    """Return what the program prints for a call."""
    options = call["options"]
    cut, fill = options["truncation"], options["padding"]
    try:
        encoding = tokenizer.encode(
            call["text"],
            call["pair"],
            add_special_tokens=options.get("addSpecialTokens", True),
            truncation=cut and Truncation(cut["maxLength"], strategy=cut["strategy"], side=cut["side"]),
            padding=fill and Padding(fill["length"], fill["multipleOf"], fill["side"], fill["padId"]),
            offsets=True,
        )
        stream = tokenizer.decode_stream()
        pieces = [stream.step(number) for number in encoding.ids]
    except EdgeInferError as error:
        return {"code": error.code}
    is_pair_of_wide = call["pair"] is not None and max(call["text"] + call["pair"], default="") > "\uffff"
    return {
        "ids": encoding.ids,
        "offsets": None if is_pair_of_wide else [list(one) for one in encoding.offsets or []],
        "typeIds": encoding.type_ids,
        "attentionMask": encoding.attention_mask,
        "specialTokensMask": encoding.special_tokens_mask,
        "text": tokenizer.decode(encoding.ids),
        "pieces": pieces,
    }


def javascript(file: bytes, asked: list[dict[str, Any]], folder: Path) -> Any:
    """Return what the program prints."""
    (folder / "tokenizer.json").write_bytes(file)
    (folder / "calls.json").write_text(json.dumps(asked), "utf-8")
    done = subprocess.run(
        ["node", str(PROGRAM), str(folder)], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_javascript_gives_the_same(kind: str, tmp_path: Path) -> None:
    for call, one in zip(calls(), javascript(written(trained(kind)), calls(), tmp_path), strict=True):
        assert one == answer(read(kind), call), call


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "NFC"},
        {"type": "NFKC"},
        {"type": "NFD"},
        {"type": "NFKD"},
        {
            "type": "Sequence",
            "normalizers": [
                {"type": "Strip", "strip_left": True, "strip_right": True},
                {"type": "Nmt"},
                {"type": "NFKD"},
                {"type": "StripAccents"},
                {"type": "Replace", "pattern": {"Regex": "[aeo]+|\\s\\s"}, "content": "<😀>"},
                {"type": "Prepend", "prepend": "▁"},
            ],
        },
    ],
    ids=lambda one: one["type"],
)
def test_offsets_are_the_same_behind_every_normalizer(normalizer: dict[str, Any], tmp_path: Path) -> None:
    chance = random.Random(14)
    file = json.dumps({**json.loads(written(trained("gpt2"))), "normalizer": normalizer}).encode()
    marks = "".join(map(chr, (*range(0x300, 0x34F), 0x5B0, 0x5C1, 0x64B, 0x93C, 0x1D165)))
    texts = [*SENTENCES, "", *(odd_text(chance) for _ in range(60))]
    texts += ["".join(chance.choices("aeoAEνक각ᄀ" + marks, k=chance.randrange(12))) for _ in range(120)]
    asked = [{"text": text, "pair": None, "options": {"truncation": None, "padding": None}} for text in texts]
    tokenizer = Tokenizer.from_bytes(file)

    for call, one in zip(asked, javascript(file, asked, tmp_path), strict=True):
        assert one == answer(tokenizer, call), call


def test_both_have_the_same_unicode_table() -> None:
    assert MODULE.read_text("utf-8") == as_module(TABLE.read_text("utf-8").rstrip())
