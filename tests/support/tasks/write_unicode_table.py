"""Write edge_infer/tasks/text/unicode_table.json: the Unicode that the `tokenizers` package really uses.

The same table becomes web/src/tasks/text/unicode-data.js.

python tests/support/tasks/write_unicode_table.py

The package has five versions of Unicode inside (its regex engine, Rust's own tables, two old ones of BertNormalizer,
one of the normal forms), so each table is found by asking it about every code point. It needs
`tokenizers` in the version of `tests/constraints.txt` and `regex` for the grapheme classes, which cannot be asked for.

A set is a flat list of runs: the gap before a run, its length, the gap before the next one ... `lower` is a list of
`gap, length, step, delta`. Sets of code points that are equal are written once.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TABLE = Path(__file__).parents[3] / "edge_infer/tasks/text/unicode_table.json"
MODULE = Path(__file__).parents[3] / "web/src/tasks/text/unicode-data.js"
EVERY = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co"
#: The Unicode of Python 3.11, the oldest Python that is supported: what is younger than it is not normalized anywhere.
OLDEST = "14.0.0"


def runs(codes: Iterable[int]) -> list[int]:
    """Write a set of code points as gaps and lengths."""
    found: list[int] = []
    end = -1
    at = 0
    for code in sorted(codes):
        if code == end:
            found[-1] += 1
        else:
            found += [code - at, 1]
        at = end = code + 1
    return found


def by_patterns(patterns: dict[str, str]) -> dict[str, list[int]]:
    """Return the code points that classes of the package's regex engine (Oniguruma) match, by name.

    Parts of Unicode where none of them matches anything are asked about once and not for each.
    """
    texts = ["".join(map(chr, codes)) for codes in batched(EVERY)]
    some = {*_matched(f"[{''.join(patterns.values())}]", texts)}
    texts = [text for text in texts if not some.isdisjoint(text)]
    return {name: [ord(one) for one in _matched(pattern, texts)] for name, pattern in patterns.items()}


def _matched(pattern: str, texts: list[str]) -> Iterator[str]:
    step = normalizers.Replace(Regex(f"{pattern}+"), "")
    for text in texts:
        left = {*step.normalize_str(text)}
        yield from (one for one in text if one not in left)


def where(answers: Iterable[bool]) -> list[int]:
    return [code for code, answer in zip(EVERY, answers, strict=True) if answer]


def each(step: Callable[[str], str], between: str = "\n") -> Iterator[str]:
    """Give what a step makes of each code point, asked about many at once: `between` parts them and joins with none."""
    for codes in batched(EVERY):
        parts = step(f"{between}{between.join(map(chr, codes))}{between}").split(between)[1:-1]
        # It says more than there was where a character becomes what parts them.
        yield from parts if len(parts) == len(codes) else [step(chr(code)) for code in codes]


def pieces(part: Any) -> Iterator[int]:
    """Count what a pre-tokenizer makes of each code point between two letters."""
    for codes in batched(EVERY):
        text = f"a{'a'.join(map(chr, codes))}a"
        owner: list[int | None] = [None] * len(text)
        for number, (_, (start, end)) in enumerate(part.pre_tokenize_str(text)):
            owner[start:end] = [number] * (end - start)
        yield from (len({*owner[at - 1 : at + 2]} - {None}) for at in range(1, len(text), 2))


def batched(codes: list[int]) -> Iterator[list[int]]:
    return (codes[at : at + 4096] for at in range(0, len(codes), 4096))


def bert(**switches: bool) -> Any:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **switches})


def lower() -> tuple[list[int], dict[str, str]]:
    """Return the lower case of single characters: runs with one delta, and those that become several characters."""
    lowercase = normalizers.Lowercase()
    found: list[list[int]] = []
    odd = {}
    for code, text in zip(EVERY, each(lowercase.normalize_str), strict=True):
        if len(text) > 1:
            odd[str(code)] = text
        elif text != chr(code):
            delta = ord(text) - code
            start, length, step, last = found[-1] if found else (0, 0, 0, 0)
            if (
                delta == last
                and length
                and code - start - (length - 1) * max(step, 1) in ({1, 2} if length == 1 else {step})
            ):
                found[-1] = [start, length + 1, code - start if length == 1 else step, delta]
            else:
                found.append([code, 1, 1, delta])
    flat, at = [], 0
    for start, length, step, delta in found:
        flat += [start - at, length, step, delta]
        at = start
    return flat, odd


def unnormalized() -> list[int]:
    """Return the code points that are left alone by the package's normal forms, or younger than the oldest Python."""
    if unicodedata.unidata_version != OLDEST:
        sys.exit(f"run this with a Python of Unicode {OLDEST} (3.11), not {unicodedata.unidata_version}")
    found = {code for code in EVERY if unicodedata.category(chr(code)) == "Cn"}
    for name in ("NFD", "NFKD", "NFC", "NFKC"):
        form = getattr(normalizers, name)()
        for code, there in zip(EVERY, each(form.normalize_str), strict=True):
            here = unicodedata.normalize(name, chr(code))
            if there != here:
                found.add(code)
                found.update(map(ord, here) if name == "NFD" else ())
    nfd = normalizers.NFD()
    for code in EVERY:
        # a mark is sorted before one of a higher class, and behind one of a lower class: U+0345 has the highest, 240
        if unicodedata.combining(chr(code)) and code not in found:
            for text in (f"a\u0345{chr(code)}", f"a{chr(code)}\u0334"):
                if nfd.normalize_str(text) != unicodedata.normalize("NFD", text):
                    found.add(code)
    return sorted(found)


def graphemes() -> dict[str, list[int]]:
    import regex

    classes = {
        "grapheme_extend": r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]",
        "grapheme_prepend": r"\p{GCB=Prepend}",
        "grapheme_control": r"[\p{GCB=Control}\p{GCB=CR}\p{GCB=LF}]",
    }
    text = "".join(map(chr, EVERY))
    return {name: [ord(one) for one in regex.findall(pattern, text)] for name, pattern in classes.items()}


def table() -> dict[str, Any]:
    cleaner, chinese, stripper = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    accents = normalizers.StripAccents()
    split, words, punctuation = (
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Whitespace(),
        pre_tokenizers.Punctuation(),
    )
    bert_split, digits = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Digits()
    patterns = {name: rf"\p{{{name}}}" for name in CATEGORIES.split()}
    sets = by_patterns({**patterns, "regex_space": r"\s", "regex_word": r"\w"}) | {
        "space": where(count == 2 for count in pieces(split)),
        "word": where(count == 1 for count in pieces(words)),
        "punctuation": where(count == 3 for count in pieces(punctuation)),
        "numeric": where(count == 3 for count in pieces(digits)),
        "mark": where(text == "" for text in each(accents.normalize_str)),
        "bert_control": where(text == "" for text in each(cleaner.normalize_str, "a")),
        "bert_chinese": where(text.startswith(" ") and len(text) > 1 for text in each(chinese.normalize_str)),
        "bert_punctuation": where(count == 3 for count in pieces(bert_split)),
        "bert_accent": where(text == "" for text in each(stripper.normalize_str)),
        "unnormalized": unnormalized(),
        **graphemes(),
    }
    lowered, odd = lower()
    return {
        "source": f"tokenizers {tokenizers.__version__}, by tests/support/tasks/write_unicode_table.py",
        "sets": {name: runs(codes) for name, codes in sets.items()},
        "lower": lowered,
        "lower_odd": odd,
    }


def as_module(document: str) -> str:
    """Return the table as a module of the page."""
    return (
        "/** The table of `unicode-table.js`, written by write_unicode_table.py of the tests; do not edit. */\n\n"
        f"export const TABLE = {document};\n"
    )


def main() -> None:
    document = json.dumps(table(), separators=(",", ":"), ensure_ascii=True)
    TABLE.write_text(f"{document}\n", "utf-8")
    MODULE.write_text(as_module(document), "utf-8")


if __name__ == "__main__":
    main()
