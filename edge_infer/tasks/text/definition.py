"""The JSON of a `tokenizer.json`, read by type: what is not there or of another type is an error that says where.

The file is made by the package `tokenizers` (https://github.com/huggingface/tokenizers): an object with the keys
`added_tokens`, `normalizer`, `pre_tokenizer`, `post_processor`, `decoder`, `model`, `truncation` and `padding`. Most of
them are a part: an object whose `type` names it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, NoReturn, overload

from edge_infer.errors import BundleError, UnsupportedModel, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: The largest file that is read. The largest one in use, of 262,000 tokens, has 33 MB.
MAX_FILE_BYTES = 128 * 2**20
#: The most objects inside one another; the package writes 4.
_MAX_DEPTH = 32
_HINT = "save it again with the package tokenizers: `tokenizer.save('tokenizer.json')`"
_MISSING = object()
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_MAX_U64 = 0xFFFF_FFFF_FFFF_FFFF


def malformed(where: str, what: str) -> NoReturn:
    """Raise the error of a file that is damaged.

    Raises:
        BundleError: Always.
    """
    raise BundleError(f"tokenizer.json: {where} {what}", hint=_HINT, where=where)


def unsupported(where: str, what: str, hint: str = "") -> NoReturn:
    """Raise the error of a file that asks for something that is not built.

    Raises:
        UnsupportedModel: Always.
    """
    raise UnsupportedModel(f"tokenizer.json: {where}: {what} is not supported", hint=hint, where=where)


class Part:
    """One object of the file, and where it stands in it.

    Args:
        value: What the JSON has there.
        where: Its path in the file, such as `normalizer.normalizers[1]`.

    Raises:
        BundleError: It is not an object, or inside too many.
    """

    __slots__ = ("values", "where")

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            malformed(f"`{where}`" if where else "the file", f"must be an object, not {_kind(value)}")
        if where.count(".") > _MAX_DEPTH:
            malformed("the file", "is nested too deeply")
        self.values: Mapping[str, object] = value
        self.where = where

    @property
    def kind(self) -> str:
        """Its `type`."""
        return self.text("type")

    def inside(self, key: str) -> str:
        """Return the path of what is inside."""
        return f"{self.where}.{key}" if self.where else key

    def _value(self, key: str, wanted: type, name: str, default: object) -> object:
        value = self.values.get(key)
        if value is None:
            if default is _MISSING:
                malformed(f"`{self.where}`" if self.where else "the file", f"has no `{key}`")
            return default
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            malformed(f"`{self.inside(key)}`", f"must be {name}, not {_kind(value)}")
        return value

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: str) -> str: ...
    @overload
    def text(self, key: str, default: None) -> str | None: ...
    def text(self, key: str, default: object = _MISSING) -> object:
        """Return a text; `default` where it is absent or null."""
        return self._value(key, str, "a text", default)

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        return bool(self._value(key, bool, "true or false", default))

    @overload
    def whole(self, key: str) -> int: ...
    @overload
    def whole(self, key: str, default: int) -> int: ...
    @overload
    def whole(self, key: str, default: None) -> int | None: ...
    def whole(self, key: str, default: object = _MISSING) -> object:
        """Return a whole number from 0 to 2**32 - 1."""
        value = self._value(key, int, "a whole number", default)
        if isinstance(value, int) and not 0 <= value < 2**32:
            malformed(f"`{self.inside(key)}`", "must be from 0 to 4294967295")
        return value

    def items(self, key: str) -> list[object]:
        """Return a list."""
        value = self._value(key, list, "a list", _MISSING)
        assert isinstance(value, list)
        return value

    def part(self, key: str) -> Part:
        """Return an object inside."""
        return Part(self._value(key, dict, "an object", _MISSING), self.inside(key))

    def parts(self, key: str) -> list[Part]:
        """Return a list of objects."""
        return [Part(one, f"{self.inside(key)}[{index}]") for index, one in enumerate(self.items(key))]

    def optional(self, key: str) -> Part | None:
        """Return an object inside, or None where it is absent or null."""
        return None if self.values.get(key) is None else self.part(key)

    def choice(self, key: str, choices: Collection[str], default: str | None = None) -> str:
        """Return one of some words, however it is capitalised, in the spelling of `choices`."""
        value = self.text(key) if default is None else self.text(key, default)
        for one in choices:
            if one.lower().replace("_", "") == value.lower().replace("_", ""):
                return one
        malformed(f"`{self.inside(key)}`", f"must be one of {listed(list(choices))}, not `{value[:40]}`")

    def vocabulary(self, key: str) -> dict[str, int]:
        """Return a mapping of tokens to their ids."""
        found = self._value(key, dict, "an object", _MISSING)
        assert isinstance(found, dict)
        for token, number in found.items():
            if type(number) is not int or not 0 <= number < 2**32:
                malformed(f"`{self.inside(key)}`", f"must give ids, not {_kind(number)} for `{token[:40]}`")
        return found

    def unknown(self, what: str, known: Collection[str]) -> NoReturn:
        """Refuse this part by its name.

        Raises:
            UnsupportedModel: Always.
        """
        unsupported(f"`{self.where}`", f"the {what} `{self.kind[:40]}`", did_you_mean(self.kind[:40], list(known)))


def _kind(value: object) -> Literal["null", "true or false", "a number", "a text", "a list", "an object"]:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"


def read_definition(data: bytes) -> Part:
    """Read the bytes of a file.

    Raises:
        BundleError: It is not JSON, is nested too deeply, or is larger than 128 MiB.
    """
    if len(data) > MAX_FILE_BYTES:
        malformed("the file", f"has {len(data)} bytes, more than {MAX_FILE_BYTES}")
    try:
        document = json.loads(data, parse_float=as_the_package_reads, parse_constant=_no_constant)
    except RecursionError:
        malformed("the file", "is nested too deeply")
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are such
        raise BundleError(f"tokenizer.json is not JSON: {error}", hint=_HINT) from error
    return Part(document, "")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def as_the_package_reads(text: str) -> float:
    """Read a decimal number as the package's JSON reader does (serde_json without `float_roundtrip`).

    It takes the digits as one integer, leaves those past 64 bits out, and multiplies or divides once by a power of ten.
    That is up to one unit in the last place off, and where two ways through a text have equal scores, it decides.
    """
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > 1000:
        raise ValueError(f"{text[:40]} is not a number")
    significand, exponent, is_full = 0, max(min(int(found[4] or 0), 10_000), -10_000), False
    for digit in found[2]:
        if is_full or significand * 10 + int(digit) > _MAX_U64:
            is_full, exponent = True, exponent + 1
        else:
            significand = significand * 10 + int(digit)
    for digit in found[3] or "":
        if is_full or significand * 10 + int(digit) > _MAX_U64:
            break
        significand, exponent = significand * 10 + int(digit), exponent - 1
    value = float(significand)
    while exponent < -308 and value:
        value, exponent = value / 1e308, exponent + 308
    if value and exponent > 308:
        raise ValueError(f"{text[:40]} is too large")
    if value:
        value = value * float(f"1e{exponent}") if exponent >= 0 else value / float(f"1e{-exponent}")
    return -value if found[1] else value
