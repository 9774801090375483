"""The fields of a `config.json`, read by type and range: a wrong value is an error that names the field."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where null is an answer: none, whatever the family has unless told otherwise.
_NONE_BY_NULL = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
_HINT = "download config.json again, or correct it"


class Fields:
    """The fields of a JSON object.

    Args:
        values: The object.
        defaults: What a missing field means; null is missing too, but of windows and caps, where it means none.
        names: By the word that this package uses, how the family spells it.
        where: The file, for errors.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        where: str = "config.json",
    ) -> None:
        self.values = values
        self._defaults = defaults or {}
        self._names = names or {}
        self._where = where

    def name(self, word: str) -> str:
        """Return how the file spells a field."""
        return self._names.get(word, word)

    def get(self, word: str) -> Any:
        """Return a field as it stands there, or what its absence means."""
        value = self.values.get(self.name(word))
        if value is None and word in _NONE_BY_NULL and self.name(word) in self.values:
            return None
        return self._defaults.get(word) if value is None else value

    def size(self, word: str, most: int, least: int = 1) -> int:
        """Return a whole number in a range.

        Raises:
            ConversionError: It is none, or outside.
        """
        value = self.get(word)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(word, value, f"a whole number from {least} to {most}")
        return value

    def number(self, word: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Return a finite number in a range.

        Raises:
            ConversionError: It is none, or outside.
        """
        value = self.get(word)
        is_number = isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)
        if not is_number or not math.isfinite(value) or not least <= value <= most:
            expected = "a number" if math.isinf(least) else f"a number of at least {least:g}"
            raise self.wrong(word, value, expected if math.isinf(most) else f"{expected} and at most {most:g}")
        return float(value)

    def flag(self, word: str) -> bool:
        """Return a truth value; a missing one is false.

        Raises:
            ConversionError: It is something else.
        """
        value = self.get(word)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(word, value, "true or false")
        return bool(value)

    def part(self, word: str) -> Fields | None:
        """Return an object inside this one; None where it is missing or empty.

        Raises:
            ConversionError: It is something else.
        """
        value = self.get(word)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(word, value, "an object")
        return Fields(value, where=f"{self._where}: {self.name(word)}") if value else None

    def wrong(self, word: str, value: Any, expected: str, hint: str = _HINT) -> ConversionError:
        """Return the error of a field."""
        text = repr(value)
        shown = "missing" if value is None else text if len(text) <= 60 else f"{text[:57]}..."
        field = self.name(word)
        return ConversionError(
            f"{self._where}: `{field}` is {shown}, expected {expected}", hint=hint, field=field, expected=expected
        )
