"""The page's tokenizer gives what Python's gives: ids, masks, text and the pieces of a stream."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer import EdgeInferError, Padding, Truncation
from tests.support.tasks.trained_tokenizers import KINDS, SENTENCES, corpus, odd_text, read, trained, written
from tests.support.tasks.write_unicode_table import MODULE, TABLE, as_module

if TYPE_CHECKING:
    from edge_infer import Tokenizer

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
        )
        stream = tokenizer.decode_stream()
        pieces = [stream.step(number) for number in encoding.ids]
    except EdgeInferError as error:
        return {"code": error.code}
    return {
        "ids": encoding.ids,
        "typeIds": encoding.type_ids,
        "attentionMask": encoding.attention_mask,
        "specialTokensMask": encoding.special_tokens_mask,
        "text": tokenizer.decode(encoding.ids),
        "pieces": pieces,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_javascript_gives_the_same(kind: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(written(trained(kind)))
    (tmp_path / "calls.json").write_text(json.dumps(calls()), "utf-8")
    done = subprocess.run(
        ["node", str(PROGRAM), str(tmp_path)], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    found = json.loads(done.stdout)

    for call, one in zip(calls(), found, strict=True):
        assert one == answer(read(kind), call), call


def test_both_have_the_same_unicode_table() -> None:
    assert MODULE.read_text("utf-8") == as_module(TABLE.read_text("utf-8").rstrip())
