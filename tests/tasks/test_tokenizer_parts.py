"""Each part of a `tokenizer.json` alone does what it does in the package `tokenizers`."""

from __future__ import annotations

import base64
import json
import random
import struct
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from edge_infer import Tokenizer, UnsupportedModel
from edge_infer.tasks.text.decoders import decoder
from edge_infer.tasks.text.definition import Part
from edge_infer.tasks.text.normalizers import normalizer
from edge_infer.tasks.text.pre_tokenizers import pre_tokenizer
from tests.support.tasks.trained_tokenizers import LLAMA3, SENTENCES, corpus, odd_text, trained, written

BEHAVIOURS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
#: The patterns of published tokenizers: of Qwen 2, of GPT-4o, of DeepSeek 3 and of Bloom, by the files on the Hub.
PATTERNS = {
    "llama3": LLAMA3,
    "qwen2": LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
    "gpt4o": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "deepseek3": (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "chinese": r"[一-龥぀-ゟ゠-ヿ]+",
}


def texts() -> list[str]:
    chance = random.Random(7)
    lines = corpus()
    return [*SENTENCES, "", " ", *("".join(lines[at : at + 4]) for at in range(0, len(lines), 200))] + [
        odd_text(chance) for _ in range(150)
    ]


def as_part(theirs: Any) -> Part:
    return Part(json.loads(theirs.__getstate__()), "part")


def character_map(entries: dict[str, str]) -> bytes:
    """Write a SentencePiece character map: each node of the trie has a block of 256 units of the double array."""
    nodes: list[bytes] = [b""]
    for key in entries:
        data = key.encode()
        nodes += [data[:end] for end in range(1, len(data) + 1) if data[:end] not in nodes]
    units = [0] * (256 * (len(nodes) + 1))
    blob, at = b"", {}
    for key, new in entries.items():
        at[key.encode()] = len(blob)
        blob += new.encode() + b"\0"

    def place(node: bytes) -> int:
        return 0 if not node else (block(node[:-1]) ^ node[-1])

    def block(node: bytes) -> int:
        return 256 * (nodes.index(node) + 1)

    for node in nodes:
        here = place(node)
        offset = here ^ block(node)
        units[here] = (offset << 10 if offset < 1 << 21 else 0) | (node[-1] if node else 0)
        if node in at:
            units[here] |= 0x100
            units[block(node)] = 0x80000000 | at[node]
    packed = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(packed)) + packed + blob


MAP = {"Ａ": "A", "ﬁ": "fi", "\u00a0": " ", "e\u0301": "é", "각": "kak", "\t": " ", "ab": "", "½": "1/2"}
NORMALIZERS: dict[str, Any] = {
    **{name: getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
    "Nmt": normalizers.Nmt(),
    "ByteLevel": normalizers.ByteLevel(),
    "Strip": normalizers.Strip(),
    "Strip left": normalizers.Strip(left=True, right=False),
    "Strip right": normalizers.Strip(left=False, right=True),
    "Prepend": normalizers.Prepend("▁x"),
    "Replace": normalizers.Replace(" ", "▁▁"),
    "Replace by nothing": normalizers.Replace("e", ""),
    "Replace pattern": normalizers.Replace(Regex(r"\s{2,}|[aeiou]+"), "<>"),
    "Precompiled": normalizers.Precompiled(character_map(MAP)),
    "Sequence": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()]),
    **{
        f"BertNormalizer {number:04b}": normalizers.BertNormalizer(
            clean_text=bool(number & 1),
            handle_chinese_chars=bool(number & 2),
            strip_accents=bool(number & 4),
            lowercase=bool(number & 8),
        )
        for number in range(16)
    },
    "BertNormalizer": normalizers.BertNormalizer(),
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_a_normalizer_writes_the_same_text_for_the_same_places(name: str) -> None:
    """The places are those of the single characters: a model that knows none of them gives one token for each."""
    theirs = tokenizers.Tokenizer(models.BPE({"<unk>": 0}, [], unk_token="<unk>", fuse_unk=False))
    theirs.normalizer = NORMALIZERS[name]
    mine, step = Tokenizer.from_bytes(written(theirs)), normalizer(as_part(NORMALIZERS[name]))
    assert step is not None

    for text in texts():
        assert step(text, None)[0] == NORMALIZERS[name].normalize_str(text), text
        assert mine.encode(text, offsets=True).offsets == theirs.encode(text).offsets, text


PRE_TOKENIZERS: dict[str, Any] = {
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "CharDelimiterSplit": pre_tokenizers.CharDelimiterSplit("e"),
    "Digits": pre_tokenizers.Digits(),
    "Digits alone": pre_tokenizers.Digits(individual_digits=True),
    "ByteLevel": pre_tokenizers.ByteLevel(),
    "ByteLevel without a space": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "ByteLevel without words": pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
    **{
        f"Metaspace {scheme} {split}": pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
        for scheme in ("always", "first", "never")
        for split in (True, False)
    },
    **{f"Punctuation {how}": pre_tokenizers.Punctuation(how) for how in BEHAVIOURS},
    **{
        f"Split {how} {invert} {pattern!r}": pre_tokenizers.Split(pattern, how, invert=invert)
        for how in BEHAVIOURS
        for invert in (True, False)
        for pattern in (" ", Regex(r"\s+|[aeiou]"))
    },
    **{f"Split of {name}": pre_tokenizers.Split(Regex(one), "isolated") for name, one in PATTERNS.items()},
    "Split at nothing": pre_tokenizers.Split(Regex("x*"), "isolated"),
    "Split at lines": pre_tokenizers.Split(Regex(r"^\s|.$|\bthe\b"), "isolated"),
    "Sequence": pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]
    ),
    "Sequence of three": pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(use_regex=False)]
    ),
}


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_a_pre_tokenizer_makes_the_same_words(name: str) -> None:
    step = pre_tokenizer(as_part(PRE_TOKENIZERS[name]))
    assert step is not None

    for text in texts():
        expected = [one for one in PRE_TOKENIZERS[name].pre_tokenize_str(text) if one[0]]
        spans = [(at, at + 1) for at in range(len(text))]
        found = [(word, (part[0][0], part[-1][1])) for word, part, _ in step([(text, spans, True)]) if word and part]
        assert found == expected, text
        assert [word for word, _, _ in step([(text, None, True)]) if word] == [word for word, _ in expected], text


TOKENS = ["hello", "##world", "▁the", "▁▁end", "Ġcat", "</w>", "a</w>", "<0xE2>", "<0x82>", "<0xAC>", "<0xC3>",
          "x", "x", "<pad>", "|", " ", " n't", " .", "do not", "é", "Ã©", "ÿ", "", "<0x4>", "<0xZZ>",
          "<0x+4>", "▁"]  # fmt: skip
DECODERS: dict[str, Any] = {
    "BPEDecoder": decoders.BPEDecoder(),
    "ByteFallback": decoders.ByteFallback(),
    "ByteLevel": decoders.ByteLevel(),
    "CTC": decoders.CTC(),
    "CTC uncleaned": decoders.CTC(cleanup=False),
    "Fuse": decoders.Fuse(),
    "Metaspace": decoders.Metaspace(),
    "Metaspace never": decoders.Metaspace(prepend_scheme="never"),
    "Replace": decoders.Replace("▁", " "),
    "Replace pattern": decoders.Replace(Regex("[el]+"), "_"),
    "WordPiece": decoders.WordPiece(),
    "WordPiece uncleaned": decoders.WordPiece(cleanup=False),
    "Sequence": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_writes_the_same_text(name: str) -> None:
    step = decoder(as_part(DECODERS[name]))
    assert step is not None
    chance = random.Random(8)

    for _ in range(300):
        tokens = chance.choices(TOKENS, k=chance.randrange(1, 12))
        assert "".join(step(tokens)) == DECODERS[name].decode(tokens), tokens


def test_a_decoder_strips_as_many_characters_as_it_says() -> None:
    theirs = decoders.Strip("_", 1, 2)
    step = decoder(as_part(theirs))
    assert step is not None

    for token in ("__a__", "_ab___", "abc", "a_b"):
        assert "".join(step([token])) == theirs.decode([token])
    assert step(["", "_", "__"]) == ["", "", ""]  # the package stops the process


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize(
    "post",
    [
        processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0)),
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False),
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=False),
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="$A:3 x", pair="$B:1 x $A:2 x:1", special_tokens=[("x", 7)]),
        processors.TemplateProcessing(
            single="w $0", pair="$A $B:1", special_tokens=[{"id": "w", "ids": [5, 6], "tokens": ["a", "b"]}]
        ),
    ],
)
@pytest.mark.parametrize("special", [True, False])
def test_a_post_processor_puts_the_same_around(kind: str, post: Any, special: bool) -> None:
    theirs = tokenizers.Tokenizer.from_str(trained(kind).to_str())
    theirs.post_processor = post
    mine = Tokenizer.from_bytes(written(theirs))

    for text in SENTENCES:
        for first, second in ((text, None), (text, SENTENCES[0]), (" ", text), (" a", "  b")):
            expected = theirs.encode(first, second, add_special_tokens=special)
            found = mine.encode(first, second, add_special_tokens=special, offsets=True)
            for name in ("ids", "type_ids", "offsets", "special_tokens_mask", "attention_mask"):
                assert getattr(found, name) == getattr(expected, name), (name, first)


AB = {"a": 0, "?": 1, "b": 2, "ab": 3}
MODELS: dict[str, Any] = {
    "WordPiece": models.WordPiece(
        {"[UNK]": 0, "a": 1, "##b": 2, "##c": 3, "abc": 4}, unk_token="[UNK]", max_input_chars_per_word=4
    ),
    "WordPiece prefix": models.WordPiece({"?": 0, "a": 1, "@b": 2}, unk_token="?", continuing_subword_prefix="@"),
    "WordLevel": models.WordLevel({"?": 0, "a": 1, "abc": 2}, unk_token="?"),
    "BPE suffix": models.BPE(
        {**AB, "b</w>": 4, "ab</w>": 5}, [("a", "b</w>")], end_of_word_suffix="</w>", unk_token="?"
    ),
    "BPE prefix": models.BPE({**AB, "@b": 4}, [("a", "@b")], continuing_subword_prefix="@", unk_token="?"),
    "BPE whole words": models.BPE({**AB, "c": 4, "abc": 5}, [("a", "b")], unk_token="?", ignore_merges=True),
    "BPE fused": models.BPE({"a": 0, "?": 1}, [], unk_token="?", fuse_unk=True),
    "BPE bytes": models.BPE(
        {**AB, "<0x62>": 4, "<0xC3>": 5, "<0xA9>": 6}, [("a", "b")], unk_token="?", byte_fallback=True
    ),
    "BPE without unknown": models.BPE(AB, [("a", "b")]),
    "Unigram": models.Unigram([("<unk>", 0.0), ("a", -1.0), ("ab", -1.5), ("b", -0.6), ("abc", -2.0)], 0, False),
    "Unigram bytes": models.Unigram(
        [("?", 0.0), ("a", -1.0), ("<0x62>", -9.0), ("<0xC3>", -9.0), ("<0xA9>", -9.0)], 0, True
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_cuts_words_the_same(name: str) -> None:
    theirs = tokenizers.Tokenizer(MODELS[name])
    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    mine = Tokenizer.from_bytes(written(theirs))
    chance = random.Random(9)

    for _ in range(300):
        text = "".join(chance.choices("aaabbbcé x ", k=chance.randrange(1, 80)))
        expected = theirs.encode(text)
        found = mine.encode(text, offsets=True)
        assert (found.ids, found.offsets) == (expected.ids, expected.offsets), text
        assert mine.encode(text).ids == expected.ids, text


def test_a_word_of_many_characters_is_joined_in_the_same_order() -> None:
    """Long words take another way than short ones."""
    theirs, mine = trained("gpt2"), Tokenizer.from_bytes(written(trained("gpt2")))
    chance = random.Random(10)
    letters = "".join(corpus()[:400]).replace(" ", "").replace("\n", "")

    for length in (47, 48, 49, 200, 5000):
        text = "".join(letters[at : at + 5] for at in chance.choices(range(len(letters)), k=length // 5))
        text = "".join(one for one in text if one.isalpha())
        assert mine.encode(text).ids == theirs.encode(text).ids


@pytest.mark.parametrize("theirs", [pre_tokenizers.UnicodeScripts(), pre_tokenizers.FixedLength(5)])
def test_a_part_that_is_not_built_is_refused_by_its_name(theirs: Any) -> None:
    with pytest.raises(UnsupportedModel, match=type(theirs).__name__):
        pre_tokenizer(as_part(theirs))


def test_a_character_map_is_base64_in_the_file() -> None:
    part = as_part(NORMALIZERS["Precompiled"])

    assert base64.b64decode(part.text("precompiled_charsmap")) == character_map(MAP)
