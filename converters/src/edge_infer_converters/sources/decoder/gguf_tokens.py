"""The tokenizer in a GGUF file's metadata, written as the `tokenizer.json` that the model was published with.

Sources: llama.cpp's `src/llama-vocab.cpp` for the patterns by their name (`tokenizer.ggml.pre`), and for the kinds of
tokens; `convert_slow_tokenizer.py` of transformers for the merges of a SentencePiece vocabulary: the pairs of tokens
that make a token, the best score first.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import UnsupportedModel, listed

if TYPE_CHECKING:
    from edge_infer_converters.sources.decoder.gguf_file import GgufFile

_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6
_SPACE = "\u2581"
# Longer tokens of a vocabulary are runs of spaces and the like; all pairs of their parts are looked up.
_MOST_TOKENS = 2**22
_MOST_TOKEN = 4096
# Squares of the tokens' lengths, in sum: a vocabulary of 256,000 tokens has some 20 million.
_MOST_SQUARES = 2**28
_LLAMA3, _QWEN2 = (
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
    for digits in (r"\p{N}{1,3}", r"\p{N}")
)


class _Split(NamedTuple):
    """How a text is cut before merges: by a pattern, or by GPT-2's with or without single digits before."""

    pattern: str = ""
    digits: bool = False
    normalizer: str = ""
    ignores_merges: bool = False


_GPT2 = _Split()
_DIGITS = _Split(digits=True)
#: By `tokenizer.ggml.pre`.
SPLITS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jina-es", "jina-de", "gigachat"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _Split(_LLAMA3, ignores_merges=True)),
    "smaug-bpe": _Split(_LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _Split(_QWEN2, normalizer="NFC")),
}


def tokenizer_of(file: GgufFile) -> bytes:
    """Return the tokenizer of a file as `tokenizer.json`.

    Raises:
        ConversionError: The metadata lacks a part of it, or the parts do not fit together.
        UnsupportedModel: It is of another kind, or cuts texts in a way that is not known.
    """
    kind = file.metadata.get("tokenizer.ggml.model")
    tokens, kinds = _tokens(file)
    if kind == "gpt2":
        document = _byte_pairs(file, tokens)
    elif kind == "llama":
        document = _sentence_pieces(file, tokens, kinds)
    else:
        raise UnsupportedModel(
            f"`{file.path}`: a tokenizer of the kind {kind!r} is not read; `gpt2` (byte pairs) and `llama` "
            "(SentencePiece) are",
            hint="convert the folder of the model, with its tokenizer.json",
            got=kind,
        )
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": one, **flags, "special": kinds[i] == _CONTROL}
        for i, one in enumerate(tokens)
        if kinds[i] in (_CONTROL, _USER_DEFINED) and one
    ]
    unknown = file.metadata.get("tokenizer.ggml.unknown_token_id")
    if kind == "llama" and type(unknown) is int and 0 <= unknown < len(tokens) and kinds[unknown] not in (3, 4):
        added.append({"id": unknown, "content": tokens[unknown], **flags, "special": True})
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **document}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def token_text(file: GgufFile, name: str) -> str | None:
    """Return the text of a special token, such as `bos`; None where the file names none."""
    number, tokens = file.metadata.get(f"tokenizer.ggml.{name}_token_id"), file.metadata.get("tokenizer.ggml.tokens")
    if type(number) is not int or not isinstance(tokens, list) or not 0 <= number < len(tokens):
        return None
    return str(tokens[number])


def begins_with_bos(file: GgufFile) -> bool:
    """Tell whether a text begins with the token `bos`: as the file says, or llama.cpp where it says nothing."""
    said = file.metadata.get("tokenizer.ggml.add_bos_token")
    is_piece = file.metadata.get("tokenizer.ggml.model") == "llama"
    is_llama3 = SPLITS.get(str(file.metadata.get("tokenizer.ggml.pre"))) == SPLITS["llama-bpe"]
    return bool(said) if isinstance(said, bool) else is_piece or is_llama3


def _tokens(file: GgufFile) -> tuple[list[str], list[int]]:
    """Return the tokens and their kinds."""
    tokens = _list(file, "tokens", str)
    if not tokens or len(tokens) > _MOST_TOKENS:
        raise file.wrong(f"`tokenizer.ggml.tokens` has {len(tokens)} tokens, expected 1 to {_MOST_TOKENS}")
    double, count = Counter(tokens).most_common(1)[0]
    if count > 1:
        raise file.wrong(f"`tokenizer.ggml.tokens` has {double!r} twice")
    kinds = _list(file, "token_type", int) if "tokenizer.ggml.token_type" in file.metadata else [_NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise file.wrong(f"`tokenizer.ggml.token_type` has {len(kinds)} entries for {len(tokens)} tokens")
    return tokens, kinds


def _list(file: GgufFile, name: str, kind: type) -> list[Any]:
    values = file.metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list) or (values and not isinstance(values[0], kind)):
        raise file.wrong(f"`tokenizer.ggml.{name}` is not a list of {'texts' if kind is str else 'numbers'}")
    return values


def _model(vocabulary: dict[str, int], merges: list[list[str]], **more: Any) -> dict[str, Any]:
    usual = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    flags = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"type": "BPE", **usual, **flags, **more, "vocab": vocabulary, "merges": merges}


def _byte_pairs(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    name = file.metadata.get("tokenizer.ggml.pre", "gpt-2")
    split = SPLITS.get(name) if isinstance(name, str) else None
    if split is None:
        raise UnsupportedModel(
            f"`{file.path}`: its tokenizer cuts texts as {name!r} (tokenizer.ggml.pre), which is not known; "
            f"{listed(list(SPLITS))} are",
            hint="convert the folder of the model, with its tokenizer.json",
            got=name,
        )
    vocabulary = {one: i for i, one in enumerate(tokens)}
    merges = []
    for one in _list(file, "merges", str):
        pair = one.split(" ")
        if len(pair) != 2 or pair[0] not in vocabulary or pair[1] not in vocabulary or "".join(pair) not in vocabulary:
            raise file.wrong(f"`tokenizer.ggml.merges` has {one[:80]!r}, expected two tokens that make a third")
        merges.append(pair)
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    parts: list[dict[str, Any]] = []
    if split.pattern:
        parts.append({"type": "Split", "pattern": {"Regex": split.pattern}, "behavior": "Isolated", "invert": False})
    if split.digits:
        parts.append({"type": "Digits", "individual_digits": True})
    parts.append({**bytes_, "use_regex": not split.pattern})
    return {
        "normalizer": {"type": split.normalizer} if split.normalizer else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts} if len(parts) > 1 else parts[0],
        "post_processor": _with_bos(file),
        "decoder": {**bytes_, "use_regex": True},
        "model": _model(vocabulary, merges, ignore_merges=split.ignores_merges),
    }


def _sentence_pieces(file: GgufFile, tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    scores = _list(file, "scores", float)
    if len(scores) != len(tokens):
        raise file.wrong(f"`tokenizer.ggml.scores` has {len(scores)} entries for {len(tokens)} tokens")
    vocabulary = {one: i for i, one in enumerate(tokens)}
    unknown = token_text(file, "unknown")
    begins = file.metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    replaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    before = [{"type": "Prepend", "prepend": _SPACE}] if begins else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if begins else []
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    falls_back = _BYTE in kinds
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, replaces]},
        "pre_tokenizer": None,
        "post_processor": _with_bos(file),
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *after]},
        "model": _model(
            vocabulary,
            _merges(file, vocabulary, kinds, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=falls_back,
        ),
    }


def _merges(file: GgufFile, vocabulary: dict[str, int], kinds: list[int], scores: list[float]) -> list[list[str]]:
    """Return the pairs of tokens that make a token, the best score first."""
    found: list[tuple[float, int, int, str, str]] = []
    squares = 0
    usual = {one: i for one, i in vocabulary.items() if kinds[i] in (_NORMAL, _USER_DEFINED)}
    for whole, number in usual.items():
        if len(whole) > _MOST_TOKEN or scores[number] != scores[number]:
            raise file.wrong(f"token {number} has {len(whole)} characters and the score {scores[number]}")
        squares += len(whole) ** 2
        if squares > _MOST_SQUARES:
            raise file.wrong(f"`tokenizer.ggml.tokens` has {len(usual)} tokens that are too long in sum")
        for cut in range(1, len(whole)):
            left, right = whole[:cut], whole[cut:]
            if left in usual and right in usual:
                found.append((-scores[number], usual[left], usual[right], left, right))
    # As in transformers: by score, then by the longer left part; the sort is stable.
    found.sort(key=lambda one: (one[0], -len(one[3]), -len(one[4])))
    return [[left, right] for *_, left, right in found]


def _with_bos(file: GgufFile) -> dict[str, Any] | None:
    """Return the part that puts the token `bos` before a text; None where it does not belong there."""
    text = token_text(file, "bos")
    if text is None or not begins_with_bos(file):
        return None
    number = file.metadata["tokenizer.ggml.bos_token_id"]
    first = {"SpecialToken": {"id": text, "type_id": 0}}
    pair = [first, {"Sequence": {"id": "A", "type_id": 0}}, first, {"Sequence": {"id": "B", "type_id": 1}}]
    special = {text: {"id": text, "ids": [number], "tokens": [text]}}
    return {"type": "TemplateProcessing", "single": pair[:2], "pair": pair, "special_tokens": special}
