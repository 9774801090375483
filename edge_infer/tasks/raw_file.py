"""Read the file of a raw input: a path, or in a page and elsewhere a URL."""

from __future__ import annotations

from edge_infer.errors import InputError
from edge_infer.platform import fetch


def read_raw(path: str, most: int, what: str) -> bytes:
    """Return the bytes of a file.

    Args:
        path: Its path or URL.
        most: The most bytes that it may have.
        what: What it holds, for errors: `image` or `sound`.

    Raises:
        InputError: It cannot be read, or is too large.
        FetchError: Its URL does not answer with it.
    """
    if fetch.is_url(path):
        return fetch.fetch(path, most)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot read the {what} `{path}`: {error.strerror or error}") from error
    if len(data) > most:
        raise InputError(f"the {what} `{path}` has more than {most} bytes", hint="give a smaller one")
    return data
