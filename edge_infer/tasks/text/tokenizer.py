"""Text to the numbers of tokens and back, as a `tokenizer.json` says: `edge_infer.Tokenizer`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from edge_infer.errors import BundleError, InputError
from edge_infer.tasks.text.added_tokens import Matcher, read_added_tokens
from edge_infer.tasks.text.byte_alphabet import to_characters
from edge_infer.tasks.text.decoders import decoder
from edge_infer.tasks.text.definition import MAX_FILE_BYTES, Part, malformed, read_definition
from edge_infer.tasks.text.encoding import Encoding
from edge_infer.tasks.text.length import Cut, Padding, Truncation, pad, read_padding, read_truncation, truncate
from edge_infer.tasks.text.models.bpe import BPE
from edge_infer.tasks.text.models.unigram import Unigram
from edge_infer.tasks.text.models.wordlevel import WordLevel
from edge_infer.tasks.text.models.wordpiece import WordPiece
from edge_infer.tasks.text.normalizers import normalizer
from edge_infer.tasks.text.post_processors import PostProcessor
from edge_infer.tasks.text.pre_tokenizers import before_bytes, pre_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from edge_infer.tasks.text.alignment import Piece, Spans
    from edge_infer.tasks.text.models.base import Model, Token

#: The longest text, in characters: some ten seconds of work.
MAX_TEXT = 2**24
#: A longer word is not remembered; where the model allows it, it is cut first.
_LONG_WORD = 64
_MAX_REMEMBERED = 65_536
_MODELS: dict[str, Callable[[Part], Model]] = {
    "BPE": BPE,
    "Unigram": Unigram,
    "WordLevel": WordLevel,
    "WordPiece": WordPiece,
}


class Tokenizer:
    """Encodes text as a `tokenizer.json` says, with the same ids, offsets and texts as the package `tokenizers`.

    It needs the standard library alone and gives the same in every Python. It may be used by several threads at once.

        >>> tokenizer = Tokenizer.from_bytes(HELLO)
        >>> encoding = tokenizer.encode("Hello world", offsets=True)
        >>> encoding.ids, encoding.offsets
        ([1, 2], [(0, 5), (6, 11)])
        >>> tokenizer.decode(encoding.ids)
        'hello world'

    Attributes:
        truncation: What the file says about long texts; None for nothing. `encode` follows it unless told otherwise.
        padding: What the file says about short texts, likewise.
    """

    def __init__(self, definition: Part) -> None:
        model = definition.part("model")
        kind = model.text("type", None) or _untyped(model)
        if kind not in _MODELS:
            Part({**model.values, "type": kind}, model.where).unknown("model", list(_MODELS))
        self._model = _MODELS[kind](model)
        self._normalize = normalizer(definition.optional("normalizer"))
        parts = definition.optional("pre_tokenizer")
        self._pre_tokenize = pre_tokenizer(parts)
        self._words_of_bytes = before_bytes(parts)
        self._post_process = PostProcessor(definition.optional("post_processor"), self.id_to_token)
        self._decode = decoder(definition.optional("decoder"))
        self.truncation: Truncation | None = read_truncation(definition.optional("truncation"))
        self.padding: Padding | None = read_padding(definition.optional("padding"))
        added = read_added_tokens(definition, self._model.vocabulary)
        self._given = Matcher([one for one in added if not one.is_normalized], None)
        self._normalized = Matcher([one for one in added if one.is_normalized], self._normalize)
        self._special = {one.text for one in added if one.is_special}
        self._added = {one.text: one.number for one in added}
        self._tokens = {number: token for token, number in self._model.vocabulary.items()}
        self._tokens.update((one.number, one.text) for one in added if not one.is_normalized)
        self._tokens.update((one.number, text) for text, one in self._normalized.tokens.items())
        self._remembered: dict[str, tuple[int, ...]] = {}

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a file.

        Raises:
            BundleError: The file cannot be read, is not a `tokenizer.json`, is damaged, or has more than 128 MiB.
            UnsupportedModel: It has a part, or a pattern, that is not built here; the message names it.
        """
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than all of this
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            hint = "it is the file `tokenizer.json` of a model on the Hub"
            raise BundleError(f"cannot read `{os.fspath(path)}`: {error.strerror or error}", hint=hint) from error
        return cls.from_bytes(data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Tokenizer:
        """Read the bytes of a file.

        Raises:
            BundleError: They are not a `tokenizer.json`, are damaged, or more than 128 MiB.
            UnsupportedModel: There is a part, or a pattern, that is not built here; the message names it.
        """
        try:
            return cls(read_definition(data))
        except InputError as error:
            malformed("the file", error.message)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, the added ones included."""
        return len({*self._model.vocabulary, *self._added})

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token; None for a token that is not in the vocabulary."""
        return self._added.get(token, self._model.vocabulary.get(token))

    def id_to_token(self, number: int) -> str | None:
        """Return the token of an id; None for an id that is not in the vocabulary."""
        return self._tokens.get(number)

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        truncation: Truncation | Literal["file"] | None = "file",
        padding: Padding | Literal["file"] | None = "file",
        offsets: bool = False,
        overflow: bool = False,
    ) -> Encoding:
        """Encode a text, or a pair of texts.

        Args:
            text: At most 16,777,216 characters.
            pair: The second text.
            add_special_tokens: Whether to put the tokens of the template around it, such as `[CLS]`.
            truncation: How to cut what is too long, None not to, `"file"` as the file says.
            padding: How to fill up what is too short, None not to, `"file"` as the file says.
            offsets: Whether to tell where in its text each token is; it takes 2 to 12 times as long.
            overflow: Whether to keep what truncation cuts off.

        Raises:
            InputError: A text is too long, has half of a surrogate pair, or cannot be written in this vocabulary; or
                the truncation leaves no room.
        """
        cut = self.truncation if truncation == "file" else truncation
        fill = self.padding if padding == "file" else padding
        first = self._tokenize(text, offsets)
        second = None if pair is None else self._tokenize(pair, offsets)
        if cut is None:
            cuts = Cut(first, []), None if second is None else Cut(second, [])
        else:
            added = self._post_process.added(is_pair=second is not None) if add_special_tokens else 0
            cuts = truncate(first, second, cut, added, overflow=overflow)
        found = self._post_process.join(*cuts, add_special_tokens=add_special_tokens)
        if fill is not None:
            pad([found], fill)
        return found

    def encode_batch(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        add_special_tokens: bool = True,
        truncation: Truncation | Literal["file"] | None = "file",
        padding: Padding | Literal["file"] | None = "file",
        offsets: bool = False,
        overflow: bool = False,
    ) -> list[Encoding]:
        """Encode texts and pairs of texts; `Padding()` fills all of them up to the longest.

        The arguments and errors are those of `encode`.
        """
        if isinstance(texts, str):
            raise InputError("`texts` is one text", hint="encode(text), or encode_batch([text])")
        found = [
            self.encode(
                *((one,) if isinstance(one, str) else one),
                add_special_tokens=add_special_tokens,
                truncation=truncation,
                padding=None,
                offsets=offsets,
                overflow=overflow,
            )
            for one in texts
        ]
        fill = self.padding if padding == "file" else padding
        if fill is not None:
            pad(found, fill)
        return found

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens; ids that the vocabulary does not have are left out.

        Args:
            ids: The numbers of the tokens: any integers, numpy's as well.
            skip_special_tokens: Whether to leave out added tokens that are special, such as `[CLS]`.
        """
        tokens = [token for number in ids if (token := self._tokens.get(number)) is not None]
        if skip_special_tokens:
            tokens = [one for one in tokens if one not in self._special]
        return " ".join(tokens) if self._decode is None else "".join(self._decode(tokens))

    def decode_stream(self, *, skip_special_tokens: bool = True) -> DecodeStream:
        """Begin to decode tokens that arrive one by one.

        Args:
            skip_special_tokens: As in `decode`.
        """
        return DecodeStream(self, skip_special_tokens=skip_special_tokens)

    def _tokenize(self, text: str, offsets: bool) -> Encoding:
        """Return the tokens of one text alone."""
        _check(text)
        ids: list[int] = []
        spans: Spans | None = [(at, at + 1) for at in range(len(text))] if offsets else None
        found: Spans | None = [] if offsets else None
        spellings: dict[int, str] = {}
        for number, piece in self._pieces((text, spans, True)):
            if number is not None:
                ids.append(number)
                if found is not None and piece[1]:
                    spellings[len(found)] = piece[0]
                    found.append((piece[1][0][0], piece[1][-1][1]))
            elif found is None:
                self._add_ids(piece, ids)
            else:
                self._add_with_offsets(piece, ids, found)
        encoding = Encoding(self.id_to_token, ids, found)
        encoding.spellings = spellings
        return encoding

    def _pieces(self, piece: Piece) -> Iterator[tuple[int | None, Piece]]:
        """Cut a text at the added tokens, and normalize what is between them."""
        for number, part in self._given.split(piece):
            if number is not None:
                yield number, part
                continue
            if self._normalize is not None:
                part = (*self._normalize(part[0], part[1]), part[2])
            yield from self._normalized.split(part)

    def _add_ids(self, piece: Piece, ids: list[int]) -> None:
        remembered = self._remembered
        if self._words_of_bytes is not None:
            for word, _, _ in self._words_of_bytes([piece]):
                known = remembered.get(word)
                ids += self._remember(word, to_characters(word)) if known is None else known
            return
        for word, _, _ in [piece] if self._pre_tokenize is None else self._pre_tokenize([piece]):
            known = remembered.get(word)
            if known is not None:
                ids += known
            elif len(word) > _LONG_WORD and self._model.cut is not None:
                for part in self._model.cut.findall(word):
                    known = remembered.get(part)
                    ids += self._remember(part, part) if known is None else known
            elif word:
                ids += self._remember(word, word)

    def _remember(self, word: str, written: str) -> tuple[int, ...]:
        found = tuple(one[0] for one in self._model.split(written))
        if len(word) <= _LONG_WORD:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[word] = found
        return found

    def _add_with_offsets(self, piece: Piece, ids: list[int], offsets: Spans) -> None:
        for word, spans, _ in [piece] if self._pre_tokenize is None else self._pre_tokenize([piece]):
            assert spans is not None
            for number, start, end in self._split(word):
                ids.append(number)
                offsets.append((spans[start][0], spans[end - 1][1]) if start < end else (0, 0))

    def _split(self, word: str) -> Iterator[Token]:
        if not word:
            return
        if len(word) <= _LONG_WORD or self._model.cut is None:
            yield from self._model.split(word)
            return
        for part in self._model.cut.finditer(word):
            at = part.start()
            for number, start, end in self._model.split(part[0]):
                yield number, start + at, end + at


class DecodeStream:
    """Decodes tokens that arrive one by one, as `Tokenizer.decode_stream` begins it.

    A text is given as soon as no later token can change it: the parts together are what `decode` gives for all ids.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        #: The ids that the next text depends on; the first of them are those of the last text that was given.
        self._ids: list[int] = []
        self._given = 0
        self._prefix = ""

    def step(self, number: int) -> str | None:
        """Take the next id, and return the text that is now certain; None while it may still change.

        Raises:
            InputError: The tokens' text does not go on from the text before it, so that it cannot be given in parts.
        """
        if not self._prefix and self._ids:
            self._set_prefix()
        self._ids.append(number)
        text = self._text(self._ids)
        if len(text.encode()) <= len(self._prefix.encode()) or text.endswith("\ufffd"):
            return None
        if not text.startswith(self._prefix):
            raise InputError(f"the text changes behind {self._prefix[-20:]!r}", hint="decode all ids at once")
        new = text[len(self._prefix) :]
        count = len(self._ids) - self._given
        del self._ids[: self._given]
        self._prefix = self._text(self._ids)
        self._given = count
        return new

    def _set_prefix(self) -> None:
        text = self._text(self._ids)
        if not text.endswith("\ufffd"):
            self._prefix, self._given = text, len(self._ids)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)


def _untyped(model: Part) -> str:
    """Tell the model of an older file, which does not name it."""
    if "merges" in model.values:
        return "BPE"
    return "Unigram" if isinstance(model.values.get("vocab"), list) else "WordPiece"


def _check(text: object) -> None:
    if not isinstance(text, str):
        raise InputError(f"a text must be a str, not {type(text).__name__}", hint="decode bytes first")
    if len(text) > MAX_TEXT:
        raise InputError(
            f"a text of {len(text)} characters is longer than {MAX_TEXT}", hint="cut it, for example by line"
        )
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text has half of a surrogate pair at {error.start}",
            hint="text.encode('utf-16', 'surrogatepass').decode('utf-16')",
        ) from error
