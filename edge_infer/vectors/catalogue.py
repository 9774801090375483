"""`index.json`: what an index holds, by which model its vectors were made, and the files that it consists of."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import BundleError, InputError, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Another version of the format is refused.
VERSION = 1
FORMAT = "edge-infer-index"
NAME = "index.json"
MAX_BYTES = 16 * 2**20
METRICS = ("cosine", "dot")
#: What is kept of each vector besides its 8-bit row: nothing, or the vector itself.
ROWS = ("int8", "f16", "f32")
#: A sum of so many products of two 8-bit numbers stays below 2^31, and so many bits are counted in 16 bits.
MAX_DIMENSION = 32_768
#: The largest whole number that JavaScript holds exactly.
MAX_ID = 2**53 - 1
_FILE = re.compile(r"(segments|deleted)/[0-9a-f]{16}\.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_AGAIN = "edge-infer index build DOCS --model BUNDLE -o NAME.index"


class Embedding(NamedTuple):
    """The model that the vectors of an index come from.

    Attributes:
        name: The bundle's file name, such as `minilm.bundle`.
        revision: The bundle's revision: a query by other weights is refused.
        variant: The id of the variant that made the vectors of documents.
        pooling: How the vectors of tokens become one, as the bundle's steps say; empty where the model does it.
        normalized: Whether the bundle's steps give vectors of length 1.
        query_prefix: What stands in front of the text of a query.
        document_prefix: What stands in front of the text of a document.
    """

    name: str
    revision: str
    variant: str = ""
    pooling: str = ""
    normalized: bool = False
    query_prefix: str = ""
    document_prefix: str = ""


class FileEntry(NamedTuple):
    """A file of an index.

    Attributes:
        path: Its path in the index's folder.
        rows: How many entries it holds, or how many deleted ones it names.
        size: Its bytes.
        sha256: Their SHA-256 in hex.
    """

    path: str
    rows: int
    size: int
    sha256: str


class Catalogue(NamedTuple):
    """What `index.json` says.

    Attributes:
        metric: `cosine` or `dot`.
        dimension: The length of each vector.
        rows: What is kept of each vector besides its 8-bit row: `int8` for nothing, `f16` or `f32`.
        words: Whether the words of texts are counted, for searches by words.
        embedding: The model of the vectors; None where they come from elsewhere.
        next_id: The id that the next entry gets where none is given.
        segments: The files of the entries, in the order in which they were added.
        deleted: The file of the deleted entries; None where there are none.
    """

    metric: str
    dimension: int
    rows: str = "int8"
    words: bool = True
    embedding: Embedding | None = None
    next_id: int = 0
    segments: tuple[FileEntry, ...] = ()
    deleted: FileEntry | None = None

    @property
    def entries(self) -> int:
        """How many entries there are, without the deleted ones."""
        return sum(one.rows for one in self.segments) - (self.deleted.rows if self.deleted else 0)

    @property
    def files(self) -> list[FileEntry]:
        """Every file besides `index.json`."""
        return [*self.segments, *([self.deleted] if self.deleted else [])]

    def to_bytes(self) -> bytes:
        """Write `index.json`; the same catalogue always gives the same bytes."""
        document: dict[str, Any] = {"format": FORMAT, "version": VERSION, **self._asdict()}
        document["embedding"] = self.embedding and self.embedding._asdict()
        document["segments"] = [one._asdict() for one in self.segments]
        document["deleted"] = self.deleted and self.deleted._asdict()
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def check_choice(metric: str, dimension: object, rows: str) -> None:
    """Check what an index is to be.

    Raises:
        InputError: One of the three is not what it can be.
    """
    for name, value, allowed in (("metric", metric, METRICS), ("rows", rows, ROWS)):
        if value not in allowed:
            raise InputError(f"`{name}` is {value!r}", hint=f"choose from {listed([*allowed])}", allowed=[*allowed])
    if not isinstance(dimension, int) or isinstance(dimension, bool) or not 1 <= dimension <= MAX_DIMENSION:
        raise InputError(
            f"`dimension` is {dimension!r}, expected 1 to {MAX_DIMENSION:,}", hint="give the length of the vectors"
        )


def read_catalogue(data: bytes, where: str) -> Catalogue:
    """Read `index.json`.

    Args:
        data: Its bytes.
        where: The index, for errors.

    Raises:
        BundleError: It is not such a file, or of another version.
    """
    try:
        document = json.loads(data, parse_constant=lambda name: float(name))
    except (ValueError, RecursionError) as error:
        raise BundleError(f"`{where}/{NAME}` is not JSON: {error}", hint=_AGAIN) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BundleError(f"`{where}/{NAME}` does not describe an index", hint=_AGAIN)
    version = document.get("version")
    if version != VERSION:
        raise BundleError(
            f"`{where}` is an index of version {version!r}, this edge-infer reads {VERSION}",
            hint="pip install --upgrade edge-infer",
            is_newer=isinstance(version, int) and version > VERSION,
            got=version,
        )
    try:
        return _catalogue(document)
    except (KeyError, TypeError, ValueError) as error:
        said = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(getattr(error, "message", error))
        raise BundleError(f"`{where}/{NAME}`: {said}", hint=_AGAIN) from error


def _catalogue(document: Mapping[str, Any]) -> Catalogue:
    check_choice(document["metric"], document["dimension"], document["rows"])
    segments = tuple(_file(one, f"segments[{i}]") for i, one in enumerate(_list(document, "segments")))
    if len({one.path for one in segments}) < len(segments):
        raise ValueError("`segments` names a file twice")
    deleted = None if document.get("deleted") is None else _file(document["deleted"], "deleted")
    if deleted and deleted.rows > sum(one.rows for one in segments):
        raise ValueError(f"`deleted` has {deleted.rows} entries, more than there are")
    words = document["words"]
    if not isinstance(words, bool):
        raise TypeError(f"`words` is {words!r}, expected true or false")
    return Catalogue(
        document["metric"],
        document["dimension"],
        document["rows"],
        words,
        _embedding(document.get("embedding")),
        _whole(document["next_id"], "next_id", MAX_ID + 1),
        segments,
        deleted,
    )


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document[name]
    if not isinstance(value, list):
        raise TypeError(f"`{name}` is not a list")
    return value


def _whole(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"`{name}` is {value!r}, expected 0 to {most}")
    return value


def _file(document: Any, where: str) -> FileEntry:
    if not isinstance(document, dict):
        raise TypeError(f"`{where}` is not an object")
    path, digest = document["path"], document["sha256"]
    if not isinstance(path, str) or not _FILE.fullmatch(path):
        raise ValueError(f"`{where}.path` is {path!r}, expected `segments/0123456789abcdef.safetensors`")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise ValueError(f"`{where}.sha256` is {digest!r}, expected 64 digits in hex")
    rows = _whole(document["rows"], f"{where}.rows", 2**32 - 1)
    return FileEntry(path, rows, _whole(document["size"], f"{where}.size", 2**53), digest)


def _embedding(document: Any) -> Embedding | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise TypeError("`embedding` is not an object")
    found = Embedding(**{name: document[name] for name in Embedding._fields})
    for name, value in found._asdict().items():
        if not isinstance(value, bool if name == "normalized" else str):
            raise TypeError(f"`embedding.{name}` is {value!r}")
    return found
