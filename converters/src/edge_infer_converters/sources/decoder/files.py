"""The files of a Hugging Face folder: read up to a limit, and JSON read as an object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from pathlib import Path

#: The largest configuration file that is read: published ones have a few kB, an index of shards up to 1 MB.
_MAX_BYTES = 64 * 2**20


def read_bytes(path: Path, most: int = _MAX_BYTES) -> bytes:
    """Read a file.

    Raises:
        ConversionError: It cannot be read, or is larger than `most`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ConversionError(
            f"`{path}` cannot be read: {error.strerror or error}", hint="download the folder again, with all its files"
        ) from error
    if len(data) > most:
        raise ConversionError(f"`{path}` has more than {most} bytes", hint="is it a file of the Hub?", expected=most)
    return data


def read_object(path: Path, most: int = _MAX_BYTES) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        ConversionError: It cannot be read, is too large, is not JSON or holds something else.
    """
    try:
        value = json.loads(read_bytes(path, most))
    except (ValueError, RecursionError) as error:
        raise ConversionError(
            f"`{path}` is not JSON: {error}", hint="download it again: a page of an error may lie in its place"
        ) from error
    if not isinstance(value, dict):
        raise ConversionError(f"`{path}` holds {type(value).__name__}, expected a JSON object")
    return value


def optional_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; one that is not there is empty.

    Raises:
        ConversionError: The errors of `read_object`.
    """
    return read_object(path) if path.is_file() else {}
