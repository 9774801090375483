"""Tokenizer files and texts that are not what they should be: a clear error, and bounded time and memory."""

from __future__ import annotations

import json
import random
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer import BundleError, EdgeInferError, InputError, Tokenizer, UnsupportedModel
from tests.support import limited
from tests.support.soak import rounds
from tests.support.tasks.trained_tokenizers import KINDS, SENTENCES, trained, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VOCABULARY = {"[UNK]": 0, "a": 1, "b": 2}
WORDPIECE = {"type": "WordPiece", "vocab": VOCABULARY, "unk_token": "[UNK]"}


def file(**parts: object) -> bytes:
    return json.dumps({"model": WORDPIECE, **parts}).encode()


def split(pattern: str) -> bytes:
    return file(pre_tokenizer={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"})


DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"model": "\xff"}',
    "a list": b"[]",
    "no model": b"{}",
    "a model that is a text": b'{"model": "BPE"}',
    "deep JSON": b"[" * 100_000,
    "NaN": b'{"model": NaN}',
    "a number of 5,000 digits": b'{"model": ' + b"1" * 5000 + b"}",
    "a number out of range": b'{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 1e999]]}}',
    "ids that are texts": file(model={**WORDPIECE, "vocab": {"a": "1"}}),
    "an id below 0": file(model={**WORDPIECE, "vocab": {"a": -1}}),
    "an id that is true": file(model={**WORDPIECE, "vocab": {"a": True}}),
    "a vocabulary that is a list": file(model={**WORDPIECE, "vocab": []}),
    "a pair of one": file(model={"type": "BPE", "vocab": VOCABULARY, "merges": ["a"]}),
    "a pair of no tokens": file(model={"type": "BPE", "vocab": VOCABULARY, "merges": ["a b"]}),
    "scores that are texts": file(model={"type": "Unigram", "unk_id": 0, "vocab": [["a", "1"]]}),
    "no tokens": file(model={"type": "Unigram", "unk_id": 0, "vocab": []}),
    "an unknown token that is none": file(model={"type": "Unigram", "unk_id": 3, "vocab": [["a", 1]]}),
    "a flag that is a text": file(normalizer={"type": "BertNormalizer", "lowercase": "yes"}),
    "a part without a type": file(normalizer={}),
    "a part that is a text": file(decoder="WordPiece"),
    "a delimiter of two": file(pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": "ab"}),
    "a wrong behaviour": file(pre_tokenizer={"type": "Punctuation", "behavior": "burn"}),
    "a map that is no base64": file(normalizer={"type": "Precompiled", "precompiled_charsmap": "é"}),
    "a map that ends": file(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
    "a template without its text": file(
        post_processor={"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    ),
    "a template with an unknown token": file(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "?", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    ),
    "a length that is a text": file(truncation={"max_length": "5", "stride": 0}),
    "a padding of four billion": file(padding={"strategy": {"Fixed": 4 * 10**9}, "pad_id": 0}),
    "an added token that is a number": file(added_tokens=[5]),
    "parts in parts": (
        b'{"model":{},"normalizer":' + b'{"type":"Sequence","normalizers":[' * 20_000 + b"]}" * 20_000 + b"}"
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_clear_error(name: str) -> None:
    with pytest.raises(BundleError, match=r"tokenizer\.json") as caught:
        Tokenizer.from_bytes(DAMAGED[name])
    assert caught.value.hint


REFUSED = {
    "UnicodeScripts": file(pre_tokenizer={"type": "UnicodeScripts"}),
    "FixedLength": file(pre_tokenizer={"type": "FixedLength", "length": 5}),
    "Frobnicate": file(normalizer={"type": "Frobnicate"}),
    "Whisper": file(decoder={"type": "Whisper"}),
    "Sentence": file(post_processor={"type": "Sentence"}),
    "Morfessor": file(model={"type": "Morfessor", "vocab": {}}),
    "dropout": file(model={"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1}),
    "more than one template": file(
        post_processor={
            "type": "Sequence",
            "processors": [{"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 2]}] * 2,
        }
    ),
    "max_input_chars_per_word": file(model={**WORDPIECE, "max_input_chars_per_word": 10**9}),
    "tokens of 1000 characters": file(model={"type": "Unigram", "unk_id": 0, "vocab": [["a" * 1000, -1.0]]}),
    "a text of 5000 characters": file(added_tokens=[{"id": 3, "content": "a" * 5000, "special": True}]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_part_that_is_not_built_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=name):
        Tokenizer.from_bytes(REFUSED[name])


EXPONENTIAL = [
    "(a+)+$", "(a*)*b", "(a|a)*b", "(a|aa)+$", "(.*a){20}", "((a?)+)+", "(?:a+){2,}b", r"(\w+\s?)*$", "([a-z]+)*=",
    "(a{0,99}){0,99}b", "(?:(?:a{1000}){1000}){1000}",
]  # fmt: skip
FOREIGN = [
    r"(a)\1", r"(?<n>a)\k<n>", r"\p{Han}+", r"[[:alpha:]]", r"(?(1)a|b)", r"a{2}{3}", r"a{1,2}+", r"\X", r"\R", r"\K",
    "(?R)", "(?#note)", "(?m:.)", "a(?i)b", "(", ")", "[", "[a", "[b-a]", "*a", "a**", "\\", r"\p{", "(?<=a+)b",
    "a{5000}", "(" * 50 + ")" * 50, "a" * 30_000, "a+b+c+d+e+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", [*EXPONENTIAL, *FOREIGN], ids=lambda one: one[:30])
def test_a_pattern_that_cannot_be_run_or_takes_exponential_time_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"pattern|quantifier"):
        Tokenizer.from_bytes(split(pattern))


def leaves(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of everything in a JSON value, of long lists and objects only the first entries."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in list(entries)[:8]:
        yield from leaves(inside, (*path, key))


WRONG: list[object] = [None, True, -1, 2**70, 0.5, "", "x", "\ud800", [], {}, [[]], {"type": "Sequence"}, {"String": 5}]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_mutated_file_is_read_or_refused_with_our_error(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    document = json.loads(written(trained(kind)))
    for path in chance.choices(list(leaves(document)), k=chance.randrange(1, 3)):
        place = document
        try:
            for key in path[:-1]:
                place = place[key]
            if chance.random() < 0.2:
                del place[path[-1]]
            else:
                place[path[-1]] = chance.choice(WRONG)
        except (KeyError, IndexError, TypeError):  # the first change took the place of the second
            continue

    try:
        tokenizer = Tokenizer.from_bytes(json.dumps(document).encode())
        encoding = tokenizer.encode(SENTENCES[0], SENTENCES[4], offsets=True)
        tokenizer.decode(encoding.ids)
    except EdgeInferError as error:
        assert error.message


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_flipped_bytes_are_read_or_refused_with_our_error(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(written(trained(kind)))
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)

    try:
        Tokenizer.from_bytes(bytes(data)).encode(SENTENCES[1])
    except EdgeInferError as error:
        assert error.message


def test_parts_inside_many_parts_are_refused() -> None:
    part: dict[str, object] = {"type": "NFC"}
    for _ in range(40):
        part = {"type": "Sequence", "normalizers": [part]}

    with pytest.raises(BundleError, match="too deeply"):
        Tokenizer.from_bytes(file(normalizer=part))


def test_a_text_that_no_token_can_write_is_an_error() -> None:
    without = {**WORDPIECE, "unk_token": "[NONE]"}

    with pytest.raises(InputError, match="no unknown token"):
        Tokenizer.from_bytes(file(model=without)).encode("é")
    with pytest.raises(InputError, match="no unknown token"):
        Tokenizer.from_bytes(file(model={"type": "Unigram", "unk_id": None, "vocab": [["a", -1]]})).encode("b")


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="longer than 16777216"):
        Tokenizer.from_bytes(file()).encode("a" * (2**24 + 1))
    with pytest.raises(InputError, match="longer than 1000000"):
        Tokenizer.from_bytes(file(model={"type": "BPE", "vocab": {"a": 0}, "merges": []})).encode("a" * 1_000_001)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_megabytes_of_text_take_bounded_time_and_memory(kind: str, tmp_path: Path) -> None:
    """Text, one letter, spaces, line ends, marks and faces: each 2 MB (10), in a process with 0.8 GB (4)."""
    size = rounds(2_000_000, 10_000_000)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(written(trained(kind)))
    program = textwrap.dedent(
        """
        import sys, time
        from edge_infer import InputError, Tokenizer, Truncation
        tokenizer = Tokenizer.from_file(sys.argv[1])
        for piece in ("The quick brown fox, 13 dogs. ", "a", " ", "\\n", "e\\u0301", "\\U0001f600", "\\x00"):
            text = piece * (int(sys.argv[2]) // len(piece.encode()))
            begin = time.perf_counter()
            try:
                said = len(tokenizer.encode(text, truncation=Truncation(128)))
            except InputError as error:
                said = error.message
            print(repr(piece), said, round(time.perf_counter() - begin, 1))
        """
    )
    done = limited.run([sys.executable, "-c", program, str(path), str(size)], seconds=300, memory_bytes=400 * size)

    assert done.code == 0, done.err
    assert len(re.findall(r"^'.*' 128 ", done.out, re.M)) >= 1, done.out
    assert done.peak_bytes < 300 * size
    print(done.out)
