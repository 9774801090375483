"""The values that Python gives options: each of its declared type, or refused with what is wanted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple

from edge_infer.errors import InputError
from edge_infer_converters.options import OPTIONS, Option

_MOST_SHOWN = 60


class _Kind(NamedTuple):
    """What a type wants in words, an example of it, and what reads it: a `TypeError` where a value is of another."""

    words: str
    example: str
    read: Callable[[object], object]


def taken(given: Mapping[str, object]) -> dict[str, Any]:
    """Return options in their declared types.

    None stands for the default, a single file for a list of one; numbers become Python's own, lists become tuples.

    Args:
        given: The values by the names of the options, or as `model` and `output`.

    Raises:
        InputError: A value is of another type.

    >>> taken({"precision": ["fp32", "int8"], "goldens": None})
    {'precision': ('fp32', 'int8'), 'goldens': None}
    """
    return {name: _value(_BY_NAME[name], value) for name, value in given.items()}


def _value(one: Option, value: object) -> object:
    types = one.type.split(" | ")
    if value is None and (one.default is not None or "None" in types):
        return one.default
    kinds = [_KINDS[name] for name in types if name != "None"]
    for kind in kinds:
        try:
            read = kind.read(value)
            return (read,) if kind.read is _path and "Sequence[FilePath]" in types else read
        except (TypeError, ValueError, OverflowError):
            continue
    shown = repr(value)
    if len(shown) > _MOST_SHOWN or "\n" in shown:
        shown = f"of the type `{type(value).__name__}`"
    usual = one.choices[0] if one.choices else one.default
    example = f'"{usual}"' if usual and isinstance(usual, str) else kinds[0].example
    raise InputError(
        f"`{one.name}` is {shown}, expected {' or '.join(kind.words for kind in kinds)}",
        hint=one.name + "=" + example,
        option=one.name,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _path(value: object) -> str | os.PathLike[str]:
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise TypeError
    return value


def _number(value: object) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError
    return float(value)


def _whole(value: object) -> int:
    number = _number(value)
    if not number.is_integer():
        raise TypeError
    return int(number)


def _dimension(value: object) -> int | None:
    if value is None:
        return None
    size = _whole(value)
    if size < 1:
        raise TypeError
    return size


def _switch(value: object) -> bool:
    # A comparison in numpy gives its own kind of bool.
    if isinstance(value, bool) or (str(getattr(value, "dtype", "")) == "bool" and getattr(value, "shape", None) == ()):
        return bool(value)
    raise TypeError


def _anything(value: object) -> object:
    return value


def _several(read: Callable[[object], object]) -> Callable[[object], object]:
    def all_of(value: object) -> object:
        if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping)):
            raise TypeError
        return tuple(read(one) for one in value)

    return all_of


def _by_name(read: Callable[[object], object]) -> Callable[[object], object]:
    def all_of(value: object) -> object:
        if not isinstance(value, Mapping):
            raise TypeError
        return {_text(name): read(one) for name, one in value.items()}

    return all_of


#: By the types that options declare.
_KINDS = {
    "str": _Kind("a text", '"TEXT"', _text),
    "float": _Kind("a number", "0.5", _number),
    "int": _Kind("a whole number", "17", _whole),
    "bool": _Kind("True or False", "True", _switch),
    "FilePath": _Kind("a path (a text or a pathlib.Path)", '"FILE"', _path),
    "Sequence[str]": _Kind("a list of texts", '["TEXT"]', _several(_text)),
    "Sequence[FilePath]": _Kind("a list of paths", '["FILE"]', _several(_path)),
    "Mapping[str, Shape]": _Kind(
        "the sizes of dimensions by input, None for a free one",
        '{"INPUT": (1, 3, 224, 224)}',
        _by_name(_several(_dimension)),
    ),
    "Mapping[str, Any]": _Kind("values by input", '{"INPUT": 16000}', _by_name(_anything)),
}
_BY_NAME = {
    one.name: one for one in (*OPTIONS, *(Option(name=name, type="FilePath", help="") for name in ("model", "output")))
}
