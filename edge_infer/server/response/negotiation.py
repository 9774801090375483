"""Content negotiation (RFC 9110) in pure functions: media types, encodings, entity tags and byte ranges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TEXT = "; charset=utf-8"
#: Browsers refuse a module or a wasm file of another media type, so nothing is left to the system's own table.
MEDIA_TYPES = {
    ".css": f"text/css{_TEXT}",
    ".gif": "image/gif",
    ".htm": f"text/html{_TEXT}",
    ".html": f"text/html{_TEXT}",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": f"text/javascript{_TEXT}",
    ".json": "application/json",
    ".map": "application/json",
    ".md": f"text/markdown{_TEXT}",
    ".mjs": f"text/javascript{_TEXT}",
    ".onnx": "application/octet-stream",
    ".ort": "application/octet-stream",
    ".png": "image/png",
    ".py": f"text/x-python{_TEXT}",
    ".safetensors": "application/octet-stream",
    ".svg": "image/svg+xml",
    ".tflite": "application/octet-stream",
    ".toml": f"text/plain{_TEXT}",
    ".ts": f"text/plain{_TEXT}",
    ".txt": f"text/plain{_TEXT}",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".whl": "application/zip",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
_BINARY = "application/octet-stream"
_PACKED = ("image/", "font/", "application/zip")
_QVALUE = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
_RANGE = re.compile(r"(\d*)-(\d*)")
_ENTITY_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def media_type(name: str) -> str:
    """Return the media type of a file by its name; unknown ones are bytes."""
    _, dot, suffix = name.rpartition(".")
    return MEDIA_TYPES.get(f".{suffix.lower()}", _BINARY) if dot else _BINARY


def is_compressible(kind: str) -> bool:
    """Tell whether bytes of this media type may shrink: images, fonts and archives are packed already."""
    return kind.startswith("image/svg") or not kind.startswith(_PACKED)


def parse_accept(header: str) -> dict[str, float]:
    """Parse `Accept-Encoding` or `Accept` into a weight from 0 to 1 for each name; what is malformed counts as 0."""
    weights: dict[str, float] = {}
    for item in header.split(","):
        name, *parameters = (piece.strip() for piece in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                weight = float(value) if _QVALUE.fullmatch(value.strip()) else 0.0
        if name:
            weights[name.lower()] = weight
    return weights


def choose_encodings(header: str, offered: Sequence[str]) -> list[str]:
    """List the encodings that a client accepts, the best first, up to where it likes the plain bytes better.

    Args:
        header: The value of `Accept-Encoding`; empty where there is none.
        offered: What the server can do, its own preference first.
    """
    weights = parse_accept(header)
    rest = weights.get("*", 0.0)
    wanted = {name: weights.get(name, rest) for name in offered}
    # `identity` is acceptable unless it is refused by name; without a weight of its own it comes last.
    plain = weights.get("identity", 0.0)
    return sorted((n for n in offered if wanted[n] > 0 and wanted[n] >= plain), key=lambda name: -wanted[name])


def matches(header: str, tag: str, *, weak: bool) -> bool:
    """Tell whether an entity tag is in the value of `If-None-Match` (weak comparison) or `If-Range` (strong).

    Args:
        header: `*`, or a list of tags.
        tag: The strong tag of what would be sent, with its quotes.
        weak: Whether a `W/` in the header is overlooked.
    """
    if header.strip() == "*":
        return weak
    return any(found[1] == tag and (weak or not found[0].startswith("W/")) for found in _ENTITY_TAG.finditer(header))


class ByteRange(NamedTuple):
    """A part of a file: from the byte at `start` up to, not including, the one at `stop`."""

    start: int
    stop: int


class Unsatisfiable(NamedTuple):
    """A range that begins after the file's end."""

    size: int


def parse_range(header: str, size: int) -> ByteRange | Unsatisfiable | None:
    """Parse the value of `Range` for a file of `size` bytes.

    Returns:
        The part to send; `Unsatisfiable` for an answer of 416; or None where the header is to be ignored: it is
        malformed, of another unit, or asks for several parts, which a server may answer with the whole file.
    """
    unit, equals, spec = header.partition("=")
    found = _RANGE.fullmatch(spec.strip())
    if unit.strip().lower() != "bytes" or not equals or found is None or len(spec) > 64:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        length = min(int(last), size)
        return ByteRange(size - length, size) if length else Unsatisfiable(size)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        return Unsatisfiable(size)
    return ByteRange(start, min(int(last) + 1, size) if last else size)


def prefers_html(headers: Mapping[str, str]) -> bool:
    """Tell whether a client of the package index wants HTML rather than JSON: a browser does."""
    weights = parse_accept(headers.get("accept", ""))
    json_weight = weights.get("application/vnd.pypi.simple.v1+json", weights.get("application/json", 0.0))
    return weights.get("text/html", 0.0) > max(json_weight, weights.get("*/*", 0.0))
