"""The length of an encoding: truncation and padding.

The rules are those of https://github.com/huggingface/tokenizers (tokenizers/src/utils/truncation.rs and padding.rs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from edge_infer.errors import InputError, listed

if TYPE_CHECKING:
    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.encoding import Encoding

Strategy = Literal["longest_first", "only_first", "only_second"]
Side = Literal["right", "left"]
_STRATEGIES, _SIDES = ("longest_first", "only_first", "only_second"), ("right", "left")
#: The longest encoding that padding makes.
_MAX_LENGTH = 2**20
#: The most encodings that one text may overflow into.
_MAX_OVERFLOWING = 100_000


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut what is longer.

    Attributes:
        max_length: The most tokens, those that the template adds included.
        stride: How many tokens an overflowing part repeats of the one before it.
        strategy: Which text of a pair is cut.
        side: Where it is cut.

    Raises:
        InputError: A number is below 0, or a word is not one of these.
    """

    max_length: int
    stride: int = 0
    strategy: Strategy = "longest_first"
    side: Side = "right"

    def __post_init__(self) -> None:
        _check_number("max_length", self.max_length, 0, 2**32)
        _check_number("stride", self.stride, 0, 2**32)
        _check_word("strategy", self.strategy, _STRATEGIES)
        _check_word("side", self.side, _SIDES)


@dataclass(frozen=True, slots=True)
class Padding:
    """Fill up what is shorter.

    Attributes:
        length: How many tokens to fill up to; None for the most of the batch.
        multiple_of: Round the length up to a multiple of this; None for no rounding.
        side: Where it is filled.
        pad_id: The id of what fills.
        pad_type_id: Its type id.

    Raises:
        InputError: A number is out of range (lengths end at 1,048,576), or a word is not one of these.
    """

    length: int | None = None
    multiple_of: int | None = None
    side: Side = "right"
    pad_id: int = 0
    pad_type_id: int = 0

    def __post_init__(self) -> None:
        _check_number("length", self.length or 0, 0, _MAX_LENGTH)
        _check_number("multiple_of", self.multiple_of or 0, 0, _MAX_LENGTH)
        _check_number("pad_id", self.pad_id, 0, 2**32)
        _check_number("pad_type_id", self.pad_type_id, 0, 2**32)
        _check_word("side", self.side, _SIDES)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        near = min(max(value, least), most) if isinstance(value, int) else least
        message = f"`{name}` must be a whole number from {least} to {most}, not {value!r}"
        raise InputError(message, hint=f"{name}={near}", got=repr(value))


def _check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        message = f"`{name}` must be one of {listed(list(words))}, not {value!r}"
        raise InputError(message, hint=f'{name}="{words[0]}"', got=repr(value))


def read_truncation(part: Part | None) -> Truncation | None:
    """Return the truncation that a file asks for.

    Raises:
        BundleError: The part is malformed.
    """
    if part is None:
        return None
    return Truncation(
        part.whole("max_length"),
        part.whole("stride", 0),
        part.choice("strategy", _STRATEGIES, "longest_first"),  # type: ignore[arg-type]
        part.choice("direction", _SIDES, "right"),  # type: ignore[arg-type]
    )


def read_padding(part: Part | None) -> Padding | None:
    """Return the padding that a file asks for.

    Raises:
        BundleError: The part is malformed.
        InputError: It fills up to more than 1,048,576 tokens.
    """
    if part is None:
        return None
    is_fixed = isinstance(part.values.get("strategy"), dict)
    if not is_fixed:
        part.choice("strategy", ("batch_longest",), "batch_longest")
    return Padding(
        part.part("strategy").whole("Fixed") if is_fixed else None,
        part.whole("pad_to_multiple_of", None),
        part.choice("direction", _SIDES, "right"),  # type: ignore[arg-type]
        part.whole("pad_id", 0),
        part.whole("pad_type_id", 0),
    )


class Cut(NamedTuple):
    """One text after truncation: what is kept, and what overflows."""

    kept: Encoding
    overflowing: list[Encoding]


def truncate(
    first: Encoding, second: Encoding | None, how: Truncation, added: int, *, overflow: bool
) -> tuple[Cut, Cut | None]:
    """Cut one text or a pair of them.

    Args:
        first: The tokens of the text.
        second: Those of the second one of a pair.
        how: What to cut.
        added: How many tokens the template will add.
        overflow: Whether what is cut off is wanted.

    Raises:
        InputError: The template alone is longer, the stride leaves no step, or the text to cut is too short.
    """
    room = how.max_length - added
    if room < 0:
        raise InputError(
            f"max_length {how.max_length} is less than the {added} tokens that the template adds",
            hint="raise it, or encode with add_special_tokens=False",
        )
    lengths = len(first), 0 if second is None else len(second)
    excess = sum(lengths) - room
    rooms = lengths
    if room == 0:
        rooms = 0, 0
    elif excess > 0 and how.strategy == "longest_first":
        rooms = (room, 0) if second is None else _shared(*lengths, room)
    elif excess > 0:
        at = 0 if how.strategy == "only_first" else 1
        if lengths[at] <= excess:
            raise InputError(
                f"the {'first' if at == 0 else 'second'} text has {lengths[at]} tokens: too few to cut {excess} off",
                hint="strategy longest_first cuts both",
            )
        rooms = (lengths[0] - excess, lengths[1]) if at == 0 else (lengths[0], lengths[1] - excess)
    cut = _cut(first, rooms[0], how, overflow=overflow)
    return cut, None if second is None else _cut(second, rooms[1], how, overflow=overflow)


def _shared(first: int, second: int, room: int) -> tuple[int, int]:
    """Share the room between two texts: the shorter one is cut only where it has more than half of it."""
    shorter = min(first, second)
    longer = shorter if shorter > room else max(shorter, room - shorter)
    if shorter + longer > room:
        shorter = room // 2
        longer = shorter + room % 2
    return (longer, shorter) if first > second else (shorter, longer)


def _cut(text: Encoding, room: int, how: Truncation, *, overflow: bool) -> Cut:
    length = len(text)
    if length <= room:
        return Cut(text, [])
    if room == 0:
        return Cut(text.part(0, 0), [text] if overflow else [])
    step = room - how.stride
    if step <= 0:
        raise InputError(
            f"stride {how.stride} is not less than the {room} tokens that are left for the text",
            hint="make it smaller, or raise max_length",
        )
    if length // step > _MAX_OVERFLOWING and overflow:
        raise InputError(
            f"{length} tokens overflow into more than {_MAX_OVERFLOWING} parts of {room}",
            hint="raise max_length, or cut the text",
        )
    if how.side == "right":
        parts = [(at, min(at + room, length)) for at in range(0, max(length - how.stride, 1), step)]
    else:
        parts = [(max(at - room, 0), at) for at in range(length, min(how.stride, length - 1), -step)]
    kept, *rest = [text.part(*one) for one in (parts if overflow else parts[:1])]
    return Cut(kept, rest)


def pad(encodings: list[Encoding], how: Padding) -> None:
    """Fill encodings up in place, and what overflows from them."""
    target = max(map(len, encodings), default=0) if how.length is None else how.length
    if how.multiple_of:
        target += -target % how.multiple_of
    for one in encodings:
        for each in (one, *one.overflowing):
            _fill(each, target - len(each), how)


def _fill(encoding: Encoding, count: int, how: Padding) -> None:
    if count <= 0:
        return
    is_right = how.side == "right"
    for name, value in (
        ("ids", how.pad_id),
        ("type_ids", how.pad_type_id),
        ("special_tokens_mask", 1),
        ("attention_mask", 0),
        ("offsets", (0, 0)),
    ):
        values = getattr(encoding, name)
        if values is not None:
            setattr(encoding, name, values + [value] * count if is_right else [value] * count + values)
