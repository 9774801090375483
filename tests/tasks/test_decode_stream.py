"""Tokens that arrive one by one give the text that all of them give, as soon as it is certain."""

from __future__ import annotations

import random

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models
from tokenizers.decoders import DecodeStream

from edge_infer import InputError, Tokenizer
from tests.support.tasks.trained_tokenizers import KINDS, SENTENCES, odd_text, read, trained, written

odd_texts = st.integers(0, 2**32).map(lambda seed: odd_text(random.Random(seed)))


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_gives_what_the_package_gives(kind: str, skip: bool) -> None:
    theirs, mine = trained(kind), read(kind)

    for text in SENTENCES:
        expected, stream = DecodeStream(skip_special_tokens=skip), mine.decode_stream(skip_special_tokens=skip)
        for number in theirs.encode(text).ids:
            assert stream.step(number) == expected.step(theirs, number), text


@pytest.mark.parametrize("kind", ["gpt2", "llama2", "t5"])
@settings(max_examples=60)
@given(text=odd_texts | st.text(max_size=30))
def test_the_parts_together_are_the_text(kind: str, text: str) -> None:
    mine = read(kind)
    ids = mine.encode(text).ids
    stream = mine.decode_stream()

    given_parts = [stream.step(number) for number in ids]

    whole = mine.decode(ids)
    assert whole.startswith("".join(part for part in given_parts if part).rstrip("\ufffd"))
    if ids and given_parts[-1]:
        assert "".join(part for part in given_parts if part) == whole


def test_a_character_of_several_tokens_is_given_when_it_is_whole() -> None:
    mine = read("gpt2")
    ids = [mine.token_to_id(one) for one in ("h", "ð", "Ł", "ĺ", "Ģ", "!")]
    stream = mine.decode_stream()

    assert [stream.step(number) for number in ids if number is not None] == ["h", None, None, None, "😀", "!"]


def test_a_text_that_changes_behind_its_beginning_is_an_error() -> None:
    theirs = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    theirs.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "other")])
    expected, stream = DecodeStream(), Tokenizer.from_bytes(written(theirs)).decode_stream()
    assert stream.step(0) == expected.step(theirs, 0) == "a"

    with pytest.raises(InputError, match="changes"):
        stream.step(1)
    with pytest.raises(Exception, match="prefix"):
        expected.step(theirs, 1)
