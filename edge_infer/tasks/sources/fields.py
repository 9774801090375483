"""Reader of the JSON files of others: each field is checked for its type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edge_infer.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

#: The largest of these files; a list of labels is some 100 kB.
MAX_BYTES = 16 * 2**20
MAX_LABELS = 100_000


class Fields:
    """An object of a JSON file.

    Args:
        values: The object.
        where: The file's name, for errors.
    """

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        value = self.values.get(name)
        return default if value is None else value if isinstance(value, str) else self._refuse(name, "text")

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.values.get(name)
        return default if value is None else value if isinstance(value, bool) else self._refuse(name, "true or false")

    def whole(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number from 0 on; a float that is one counts."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return int(value) if is_whole else self._refuse(name, "a whole number")

    def real(self, name: str, default: float) -> float:
        """Return a finite number."""
        value = self.values.get(name)
        if value is None:
            return default
        return float(value) if is_number(value) else self._refuse(name, "a number")

    def numbers(self, name: str, default: list[float] | None = None) -> list[float] | None:
        """Return a list of 1 to 16 numbers."""
        value = self.values.get(name)
        if value is None:
            return default
        fits = isinstance(value, list) and 1 <= len(value) <= 16 and all(map(is_number, value))
        return [float(one) for one in value] if fits else self._refuse(name, "a list of numbers")

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty where there is none."""
        value = self.values.get(name)
        if value is None:
            return []
        fits = isinstance(value, list) and len(value) <= MAX_LABELS and all(isinstance(one, str) for one in value)
        return list(value) if fits else self._refuse(name, "a list of texts")

    def part(self, name: str) -> Fields | None:
        """Return an object, None where there is none."""
        value = self.values.get(name)
        if value is None:
            return None
        return Fields(value, f"{self.where} {name}") if isinstance(value, dict) else self._refuse(name, "an object")

    def labels(self, name: str) -> list[str]:
        """Return the labels of an object `{"0": "cat", "1": "dog"}`, empty where there is none."""
        part = self.part(name)
        return [] if part is None else numbered(part.values, f"`{self.where}`: `{name}`")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        shown = repr(self.values[name])
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise BundleError(
            f"`{self.where}`: `{name}` is {shown}, expected {expected}", hint="download the file again", field=name
        )


def is_number(value: object) -> bool:
    """Tell whether this is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def numbered(names: dict[Any, Any], where: str) -> list[str]:
    """Return the texts of an object whose keys are 0, 1, 2, ... in any order, as numbers or their digits.

    Raises:
        BundleError: The keys are others, or a value is not a text.
    """
    hint = 'write {"0": "cat", "1": "dog"}, a name for each class'
    if not names or len(names) > MAX_LABELS:
        raise BundleError(f"{where} has {len(names)} labels, expected 1 to {MAX_LABELS}", hint=hint)
    found: dict[int, str] = {}
    for key, label in names.items():
        is_key = (isinstance(key, int) and not isinstance(key, bool)) or (
            isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10
        )
        if not is_key or not isinstance(label, str):
            raise BundleError(
                f"{where} has {str(key)[:40]!r}: {str(label)[:40]!r}, expected names by number", hint=hint
            )
        found[int(key)] = label
    if sorted(found) != list(range(len(names))):
        raise BundleError(f"{where} does not number its {len(names)} labels from 0 on", hint=hint)
    return [found[i] for i in range(len(found))]


def read_beside(files: Mapping[str, bytes], name: str) -> Fields | None:
    """Return the object in a file of a folder; None where it is not among the files."""
    return read_json(files[name], name) if name in files else None


def read_json(data: bytes, where: str) -> Fields:
    """Read a file that holds an object.

    Raises:
        BundleError: It is too large, not JSON, or holds something else.
    """
    value = read_any(data, where)
    if not isinstance(value, dict):
        raise BundleError(f"`{where}` does not hold an object", hint="download the file again")
    return Fields(value, where)


def read_any(data: bytes, where: str) -> Any:
    """Read a file of JSON.

    Raises:
        BundleError: It is too large, or not JSON.
    """
    if len(data) > MAX_BYTES:
        raise BundleError(f"`{where}` has {len(data)} bytes, expected at most {MAX_BYTES}", hint="is it this file?")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"`{where}` is not JSON: {error}", hint="download the file again") from error
