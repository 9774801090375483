"""Class names: read from a file, written as the bundle's JSON list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import InputError

if TYPE_CHECKING:
    import os

    from edge_infer.tensors.tensor import TensorSpec


def read_labels(path: str | os.PathLike[str], output: TensorSpec) -> bytes:
    """Read class names, check that there is one for each class, and return the bundle's `labels.json`.

    Args:
        path: A JSON list of texts (`.json`), or a text file with one name on each line.
        output: The spec whose last dimension counts the classes.

    Raises:
        InputError: The file cannot be read, or names another number of classes.
    """
    names = read_names(path)
    classes = output.shape[-1] if output.shape else None
    if isinstance(classes, int) and classes != len(names):
        raise InputError(
            f"Labels `{Path(path)}` name {len(names)} classes, output `{output.name}` has {classes}",
            hint="write one name for each class, in the order of the output",
            expected=classes,
            got=len(names),
        )
    return (json.dumps(names, ensure_ascii=False) + "\n").encode()


def read_names(path: str | os.PathLike[str]) -> list[str]:
    """Read class names.

    Args:
        path: A JSON list of texts (`.json`), or a text file with one name on each line.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    place = Path(path)
    try:
        text = place.read_text("utf-8")
        names = json.loads(text) if place.suffix == ".json" else text.splitlines()
    except OSError as error:
        raise InputError(
            f"Labels `{place}` cannot be read: {error.strerror}", hint="name a .json or .txt file"
        ) from error
    except ValueError as error:
        raise InputError(f"Labels `{place}` cannot be read: {error}", hint='write ["cat", "dog"], in UTF-8') from error
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"Labels `{place}` are not a list of texts", hint='write ["cat", "dog"]')
    return names
