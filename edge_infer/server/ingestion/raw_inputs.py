"""The raw inputs of a request: texts, and the base64 text of files, which name no file of this server."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

from edge_infer.errors import InputError
from edge_infer.server.ingestion.embeddings import parsed
from edge_infer.tasks.image.decode import pixels_of

#: An image of more pixels is refused before it is decoded: 25 million take 75 MB.
MAX_PIXELS = 25_000_000
#: The most raw inputs of a request, and the most characters of a text.
MAX_INPUTS, MAX_CHARACTERS = 256, 200_000


def json_of(body: bytes) -> dict[str, Any]:
    """Return a body of JSON that has `inputs`.

    Raises:
        InputError: It is no JSON, or has none.
        PayloadTooLarge: It has too many values.
    """
    hint = '{"inputs": "a text, or the base64 text of a file", "parameters": {"top_k": 3}}'
    document = parsed(body, hint)
    if not isinstance(document, dict) or "inputs" not in document:
        raise InputError("The body has no `inputs`", hint=hint)
    return document


def raw_input(value: Any, takes: str) -> Any:
    """Return a raw input that names no file of this server.

    Raises:
        InputError: It is not what the task takes.
    """
    if takes == "text":
        if sum(map(len, _texts(value))) > MAX_CHARACTERS:
            raise InputError(f"A text has more than {MAX_CHARACTERS} characters", hint="send it in parts")
        return value
    if isinstance(value, str):
        try:
            value = b64decode(value.partition("base64,")[2] if value.startswith("data:") else value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"An input is not the base64 text of a file: {error}", hint="base64 -w0 FILE") from error
    if takes == "image":
        if not isinstance(value, bytes):
            raise InputError("An image is not the base64 text of a file", hint="base64 -w0 cat.jpg")
        if pixels_of(value) > MAX_PIXELS:
            raise InputError(f"An image has more than {MAX_PIXELS} pixels", hint="send a smaller one")
    return value


def _texts(value: Any) -> list[str]:
    """Return all texts inside a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]
