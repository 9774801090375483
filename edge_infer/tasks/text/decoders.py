"""The decoders: what turns the tokens of a model's answer into text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.text.byte_alphabet import BYTES
from edge_infer.tasks.text.definition import malformed
from edge_infer.tasks.text.patterns import read_pattern
from edge_infer.tasks.text.pre_tokenizers import prepend_scheme, replacement

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from edge_infer.tasks.text.definition import Part

    #: Rewrites tokens; the text is what they are together.
    Decoder: TypeAlias = Callable[[list[str]], list[str]]

# English without the spaces that BERT's tokenizer puts in (`wordpiece::cleanup` of the package).
_CLEANED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def decoder(part: Part | None) -> Decoder | None:
    """Return the step that a part describes; None for none: the tokens are then words.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: There is no such decoder here.
    """
    if part is None:
        return None
    if part.kind not in _DECODERS:
        part.unknown("decoder", list(_DECODERS))
    return _DECODERS[part.kind](part)


def _sequence(part: Part) -> Decoder:
    steps = [step for one in part.parts("decoders") if (step := decoder(one))]

    def decode(tokens: list[str]) -> list[str]:
        for step in steps:
            tokens = step(tokens)
        return tokens

    return decode


def _bytes(tokens: list[str]) -> list[str]:
    """Read characters as bytes; a token with another character is not changed."""
    data = bytearray()
    for token in tokens:
        try:
            data += bytes(map(BYTES.__getitem__, token))
        except KeyError:
            data += token.encode()
    return [data.decode("utf-8", "replace")]


def _byte_fallback(tokens: list[str]) -> list[str]:
    """Read tokens such as `<0x0A>` as bytes. A run of them that is not UTF-8 becomes one U+FFFD for each."""
    found: list[str] = []
    run = bytearray()

    def end_run() -> None:
        try:
            found.extend([run.decode()] if run else [])
        except UnicodeDecodeError:
            found.extend("\ufffd" * len(run))
        run.clear()

    for token in tokens:
        is_byte = len(token.encode()) == 6 and token.startswith("<0x") and token.endswith(">")
        try:
            # As in Rust, a sign may stand in front of a number.
            byte = int(token[3:5], 16) if is_byte and not token[3:5].startswith((" ", "-", "_")) else None
        except ValueError:
            byte = None
        if byte is None:
            end_run()
            found.append(token)
        else:
            run.append(byte)
    end_run()
    return found


def _cleaned(text: str) -> str:
    for old, new in _CLEANED:
        text = text.replace(old, new)
    return text


def _wordpiece(part: Part) -> Decoder:
    prefix, is_cleaned = part.text("prefix", "##"), part.flag("cleanup", True)

    def decode(tokens: list[str]) -> list[str]:
        found = [
            token if not index else token[len(prefix) :] if token.startswith(prefix) else f" {token}"
            for index, token in enumerate(tokens)
        ]
        return [_cleaned(one) for one in found] if is_cleaned else found

    return decode


def _metaspace(part: Part) -> Decoder:
    mark, first = replacement(part), "" if prepend_scheme(part) != "never" else " "
    return lambda tokens: [one.replace(mark, " " if index else first) for index, one in enumerate(tokens)]


def _bpe(part: Part) -> Decoder:
    suffix = part.text("suffix", "</w>")

    def decode(tokens: list[str]) -> list[str]:
        return [one.replace(suffix, " " if index < len(tokens) else "") for index, one in enumerate(tokens, 1)]

    return decode


def _replace(part: Part) -> Decoder:
    find, new = read_pattern(part), part.text("content")

    def decode(tokens: list[str]) -> list[str]:
        found = []
        for token in tokens:
            at, parts = 0, []
            for start, end in find(token):
                parts += [token[at:start], new]
                at = end
            found.append("".join([*parts, token[at:]]))
        return found

    return decode


def _strip(part: Part) -> Decoder:
    content, start, stop = part.text("content"), part.whole("start", 0), part.whole("stop", 0)
    if len(content) != 1:
        malformed(f"`{part.where}.content`", "must be one character")

    def decode(tokens: list[str]) -> list[str]:
        found = []
        for token in tokens:
            begin = min(start, len(token) - len(token.lstrip(content)))
            end = len(token) - min(stop, len(token) - len(token.rstrip(content)))
            found.append(token[begin : max(begin, end)])
        return found

    return decode


def _ctc(part: Part) -> Decoder:
    """Connectionist temporal classification: repeated tokens are one (A. Graves et al., 2006)."""
    filler, delimiter = part.text("pad_token", "<pad>"), part.text("word_delimiter_token", "|")
    is_cleaned = part.flag("cleanup", True)

    def decode(tokens: list[str]) -> list[str]:
        found = []
        for index, token in enumerate(tokens):
            if not index or token != tokens[index - 1]:
                text = token.replace(filler, "")
                found.append(_cleaned(text).replace(delimiter, " ") if is_cleaned else text)
        return [one for one in found if one]

    return decode


_DECODERS: dict[str, Callable[[Part], Decoder]] = {
    "BPEDecoder": _bpe,
    "ByteFallback": lambda _: _byte_fallback,
    "ByteLevel": lambda _: _bytes,
    "CTC": _ctc,
    "Fuse": lambda _: lambda tokens: ["".join(tokens)],
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Sequence": _sequence,
    "Strip": _strip,
    "WordPiece": _wordpiece,
}
