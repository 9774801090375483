"""Small tokenizers of each published kind, trained by the package `tokenizers` on the standard library's text."""

from __future__ import annotations

import encodings
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import edge_infer
from edge_infer.tasks.text.unicode_table import Ranges, ranges, union

if TYPE_CHECKING:
    import random

KINDS = ("bert", "gpt2", "llama2", "llama3", "t5", "wordlevel")
#: The pattern of Llama 3 (https://github.com/meta-llama/llama3, llama/tokenizer.py).
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
#: Sentences in several scripts, and what is odd.
SENTENCES = (
    "The quick brown fox jumps over 13 lazy dogs; it's \"fine\", isn't it?",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Straße, Maß, naïve café.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. ΟΔΟΣ ὈΔΥΣΣΕΎΣ",
    "いろはにほへと ちりぬるを。我輩は猫である。ﾊﾝｶｸ ㌔㍍ ① ½ ﬁ ＡＢＣ１２３",
    "다람쥐 헌 쳇바퀴에 타고파. 각 힣",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।",
    "هذا نص عربي مع تَشْكِيل ١٢٣٤ و علامات، وفواصل؟",
    "דג סקרן שט לו בים זך. ภาษาไทยไม่มีการเว้นวรรค",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 and \u200bzero\u200dwidth\ufeff, soft\u00adhyphen",
    "  several   spaces\t\ttabs\r\nlines\n\n\n  and   \u00a0\u2003\u3000 wide ones  ",
    "def f(x):\n    return x**2  # 3.14e-10 'll 'S 'Re\n\n\tpass\n",
    "İstanbul ıI ŉ ǅ ẞ ﷺ e\u0301\u0323 a\u0345\u0300\u0316 \u0344 ǭ",
    "x" * 150 + " " + "ab" * 60 + " 1234567890123 ----- ***** ======= ......",
    "▁already▁marked ▁ ▁▁ <0x41> ##ing [CLS] </w>",
)
ADDED = ("<|end|>", "[MASK]", "<extra_0>", "Zeta Function")


@cache
def corpus() -> tuple[str, ...]:
    """Return some 300 kB of text, by line: modules of the standard library, and the sentences."""
    folder = Path(json.__file__).parents[1]
    files = [folder / name for name in ("textwrap.py", "difflib.py", "string.py", "this.py", "antigravity.py")]
    files += sorted(Path(json.__file__).parent.glob("*.py")) + sorted(Path(encodings.__file__).parent.glob("a*.py"))
    lines = [line for path in files for line in path.read_text("utf-8").splitlines(keepends=True)]
    return (*lines, *SENTENCES * 8)


def _bert() -> tuple[Tokenizer, trainers.Trainer]:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made, trainers.WordPieceTrainer(
        vocab_size=2000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )


def _byte_level(pattern: str) -> tuple[Tokenizer, trainers.Trainer]:
    made = Tokenizer(models.BPE(ignore_merges=bool(pattern)))
    if pattern:
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return made, trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )


def _llama2() -> tuple[Tokenizer, trainers.Trainer]:
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Only while it is trained: the published files have no pre-tokenizer.
    made.pre_tokenizer = pre_tokenizers.Split(Regex("▁+[^▁]*|[^▁]+"), "isolated")
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return made, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, limit_alphabet=120, show_progress=False)


def _t5() -> tuple[Tokenizer, trainers.Trainer]:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made, trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )


def _wordlevel() -> tuple[Tokenizer, trainers.Trainer]:
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    return made, trainers.WordLevelTrainer(
        vocab_size=1000, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )


_MADE = {
    "bert": _bert,
    "gpt2": lambda: _byte_level(""),
    "llama2": _llama2,
    "llama3": lambda: _byte_level(LLAMA3),
    "t5": _t5,
    "wordlevel": _wordlevel,
}


def _post_processor(kind: str, made: Tokenizer) -> processors.PostProcessor:
    def named(*tokens: str) -> list[tuple[str, int]]:
        return [(token, made.token_to_id(token) or 0) for token in tokens]

    if kind in ("bert", "wordlevel"):
        return processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=named("[CLS]", "[SEP]")
        )
    if kind == "t5":
        return processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=named("</s>"))
    begin = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=named("<s>"))
    if kind == "llama3":
        return processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
    return begin if kind == "llama2" else processors.ByteLevel(trim_offsets=True)


@cache
def trained(kind: str) -> Tokenizer:
    """Return one of `KINDS`, always the same, as the package reads it from its own file: scores differ a little."""
    made, trainer = _MADE[kind]()
    made.train_from_iterator(corpus(), trainer)
    if kind == "llama2":
        made.pre_tokenizer = None
    made.post_processor = _post_processor(kind, made)
    made.add_special_tokens([AddedToken("<|end|>"), AddedToken("[MASK]", lstrip=True)])
    made.add_tokens([AddedToken("<extra_0>", rstrip=True), AddedToken("Zeta Function", single_word=True)])
    return Tokenizer.from_str(made.to_str())


def written(made: Tokenizer) -> bytes:
    """Return the `tokenizer.json` of a tokenizer of the package."""
    text: str = made.to_str()
    return text.encode()


@cache
def read(kind: str) -> edge_infer.Tokenizer:
    """Return one of `KINDS` as edge-infer reads it."""
    return edge_infer.Tokenizer.from_bytes(written(trained(kind)))


@cache
def _assigned() -> Ranges:
    return union(*(ranges(name) for name in ("L", "M", "N", "P", "S", "Z", "Cf")))


def odd_text(chance: random.Random) -> str:
    """Return a text of words, spaces, added tokens and characters from all of Unicode."""
    words = [word for sentence in SENTENCES for word in sentence.split()]
    parts = []
    for _ in range(chance.randrange(1, 25)):
        kind = chance.random()
        if kind < 0.35:
            first, last = chance.choice(_assigned())
            parts.append(chr(chance.randint(first, last)))
        elif kind < 0.45:
            parts.append(chr(chance.choice((chance.randrange(0xD800), chance.randrange(0xE000, 0x110000)))))
        elif kind < 0.6:
            parts.append(chance.choice((" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\x00", "\u0301", "▁")))
        else:
            parts.append(chance.choice(words) if kind < 0.9 else chance.choice(ADDED))
        parts.append(" " if chance.random() < 0.5 else "")
    return "".join(parts)
