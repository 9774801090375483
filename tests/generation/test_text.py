"""Tokens to text as they arrive: whole characters, invalid bytes, stop strings."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import InputError
from edge_infer.generation.answer import Answer
from edge_infer.generation.detokenize import Detokenizer
from edge_infer.generation.stops import Stops
from edge_infer.generation.vocabulary import Vocabulary
from tests.support.tasks.trained_tokenizers import SENTENCES, odd_text, read

KINDS = ("gpt2", "llama3", "llama2")


@cache
def vocabulary(kind: str) -> Vocabulary:
    tokenizer = read(kind)
    return Vocabulary(tokenizer, tokenizer.vocab_size)


def pieces(kind: str, ids: list[int], *, is_answer: bool = True) -> list[str]:
    made = Detokenizer(vocabulary(kind), is_answer=is_answer)
    return [*(made.add(number) for number in ids), made.flush()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_together_are_what_decoding_gives(kind: str) -> None:
    chance = random.Random(7)
    for text in (*SENTENCES, *(odd_text(chance) for _ in range(60))):
        ids = read(kind).encode(text, add_special_tokens=False).ids
        # The tokens of bytes count as special in the tokenizer that is trained here.
        marks = {
            number for number in ids if vocabulary(kind).is_special(number) and not vocabulary(kind).bytes_of(number)
        }
        whole = read(kind).decode([number for number in ids if number not in marks], skip_special_tokens=False)
        assert "".join(pieces(kind, ids)) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_is_held_back_until_it_is_whole(kind: str) -> None:
    ids = read(kind).encode("🦜", add_special_tokens=False).ids[-4:]
    assert [piece for piece in pieces(kind, ids) if piece] == ["🦜"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_sequence_of_tokens_is_an_error(kind: str) -> None:
    chance, size = random.Random(3), read(kind).vocab_size
    for _ in range(30):
        ids = [chance.choice((chance.randrange(size + 50), chance.randrange(300))) for _ in range(200)]
        text = "".join(pieces(kind, ids))
        assert text.encode()
    made = Detokenizer(vocabulary(kind))
    byte = next(number for number in range(size) if vocabulary(kind).bytes_of(number) == b"\xff")
    assert [made.add(byte) for _ in range(3)] == ["\ufffd"] * 3


def test_a_text_that_goes_on_keeps_the_space_of_its_first_token() -> None:
    ids = read("llama2").encode("quick", add_special_tokens=False).ids
    assert "".join(pieces("llama2", ids, is_answer=False)) == " quick"
    assert "".join(pieces("llama2", ids, is_answer=True)) == "quick"


def test_special_tokens_are_not_text() -> None:
    for kind in ("gpt2", "llama3"):
        known = vocabulary(kind)
        end = read(kind).token_to_id("<|end|>")
        assert end is not None
        assert known.is_special(end)
        assert known.bytes_of(end) == b""
        extra = read(kind).token_to_id("<extra_0>")
        assert extra is not None
        assert known.bytes_of(extra) == b"<extra_0>"


def cut(stops: list[str], parts: list[str]) -> str:
    """Return what is given of a text in parts."""
    made, given = Stops(stops), ""
    for part in parts:
        found = made.add(part)
        given += found.text
        if found.is_stopped:
            return given
    return given + made.flush()


def expected(stops: list[str], text: str) -> str:
    """Return the text before the stop string that ends first; of several that end there, the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)]
    return text


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=5),
    st.lists(st.text("abc", max_size=4), max_size=12),
)
def test_stop_strings_are_found_wherever_the_pieces_end(stops: list[str], parts: list[str]) -> None:
    assert cut(stops, parts) == expected(stops, "".join(parts))


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    made = Stops(["\n\nUser:", "END"])
    assert made.add("Hello\n") == ("Hello", False)
    assert made.add("E") == ("\n", False)
    assert made.add("N") == ("", False)
    assert made.add("d") == ("ENd", False)
    assert made.add("\n\nUser") == ("", False)
    assert made.add(": hi") == ("", True)


def test_many_stop_strings_take_one_pass() -> None:
    made = Stops([f"{number:064d}" for number in range(10, 1000)])
    zeros = "0" * 200_000
    given = made.add(zeros)
    assert given.text + made.flush() == zeros
    assert cut([f"{number:064d}" for number in range(10, 1000)], [zeros, "9", "7"]) == zeros[:-62]


def test_stop_strings_have_a_limit() -> None:
    with pytest.raises(InputError, match="characters in all, at most 65536"):
        Stops([f"{number:01000d}" for number in range(100)])


def test_an_answer_ends_before_a_stop_string_across_tokens() -> None:
    ids = read("gpt2").encode("Hello world, stop it now", add_special_tokens=False).ids
    made, text = Answer(vocabulary("gpt2"), ["top i"]), ""
    for number in ids:
        found = made.add(number)
        text += found.text
        if found.is_stopped:
            break
    assert text == "Hello world, s"
    assert found.is_stopped


@pytest.mark.parametrize("written", ["<0xZZ>", "<0x-1>", "<0x+1>", "<0x41>"])
def test_a_token_that_is_written_like_a_byte_is_one_only_by_its_digits(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Vocabulary(read("llama2"), read("llama2").vocab_size)
    number = made.tokenizer.encode("the", add_special_tokens=False).ids[0]
    monkeypatch.setattr(made.tokenizer, "id_to_token", lambda _: written)
    assert (made.bytes_of(number) == b"A") == (written == "<0x41>")
