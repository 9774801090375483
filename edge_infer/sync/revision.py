"""A revision: the signed document that names every file of one published version, and the packs that bring it."""

from __future__ import annotations

import json
from re import fullmatch
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.bundle.manifest import MANIFEST_NAME, PART_SIZE, check_path
from edge_infer.errors import ManifestError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 1
#: That of a revision whose files are encrypted, which a client that cannot open them has to refuse.
FORMAT_ENCRYPTED = 2
#: A larger document is refused unread.
MAX_REVISION_BYTES = 16 * 2**20
#: What files and packs are encrypted by: the format of `edge_infer.bundle.sealed`.
CIPHER = "EISEAL01"
#: The file that names all others: that of a bundle, or of an index.
HEADS = (MANIFEST_NAME, "index.json")
_HEX = r"[0-9a-f]{64}"


class File(NamedTuple):
    """A file of the bundle as it lies on a device: path inside it, size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str


class Object(NamedTuple):
    """A file of the store that is fetched in parts of 1 MiB, each with its sha256.

    Attributes:
        sha256: Its name.
        size: Its bytes.
        parts: The sha256 of each part.
        base: The bundle revision that it is a difference to, empty for a full pack.
    """

    sha256: str
    size: int
    parts: tuple[str, ...]
    base: str = ""

    @property
    def path(self) -> str:
        """Where it lies in the store."""
        return f"packs/{self.sha256[:2]}/{self.sha256}"


class Revision(NamedTuple):
    """One published version of a model.

    Attributes:
        model: The model's name.
        version: The publisher's word for it.
        sequence: 1 for the first published, one more for each after it; a device never goes back by itself.
        created: When it was published, in seconds since 1970.
        files: Its files, `manifest.json` among them.
        pack: The full pack.
        deltas: The packs that make it from older revisions.
        key: The name of the key that packs and files are encrypted for; empty where they are in clear.
    """

    model: str
    version: str
    sequence: int
    created: int
    files: tuple[File, ...]
    pack: Object
    deltas: tuple[Object, ...] = ()
    key: str = ""

    @property
    def bundle(self) -> str:
        """The bundle's revision: the sha256 of its `manifest.json`, or of the `index.json` of an index."""
        return head_of(self.files).sha256

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Write the document: the same revision always gives the same bytes."""
        document: dict[str, Any] = {
            "format": FORMAT_ENCRYPTED if self.key else FORMAT,
            "model": self.model,
            "version": self.version,
            "sequence": self.sequence,
            "created": self.created,
            "files": [file._asdict() for file in self.files],
            "pack": _object_json(self.pack),
            "deltas": [_object_json(delta) for delta in self.deltas],
        }
        if self.key:
            document["encryption"] = {"cipher": CIPHER, "key": self.key}
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Revision:
        """Parse and check a document.

        Raises:
            StoreError: It is none, or of another format.
        """
        try:
            document = json.loads(data)
            if document["format"] not in (FORMAT, FORMAT_ENCRYPTED):
                raise StoreError(
                    f"The revision has format {document['format']!r}, this edge-infer reads {FORMAT_ENCRYPTED}",
                    hint="pip install --upgrade edge-infer",
                )
            files = tuple(
                File(check_path(_text(one["path"]), "revision"), _number(one["size"]), _digest(one["sha256"]))
                for one in document["files"]
            )
            revision = cls(
                _text(document["model"]),
                _text(document["version"]),
                _number(document["sequence"]),
                _number(document["created"]),
                files,
                _object(document["pack"]),
                tuple(_object(one) for one in document["deltas"]),
                _key(document["encryption"]) if document["format"] == FORMAT_ENCRYPTED else "",
            )
        except (ValueError, KeyError, TypeError, RecursionError, ManifestError) as error:
            raise StoreError(f"The revision is malformed: {error}", hint="publish the model again") from error
        paths = [file.path for file in files]
        if len(set(paths)) != len(paths) or not set(HEADS) & set(paths) or revision.pack.base:
            raise StoreError("The revision names a file twice, or has no manifest or no full pack")
        return revision


def head_of(files: Iterable[File]) -> File:
    """Return the file that names all others; those of a revision have one."""
    return min((file for file in files if file.path in HEADS), key=lambda file: HEADS.index(file.path))


def _object_json(one: Object) -> dict[str, Any]:
    entry: dict[str, Any] = {"sha256": one.sha256, "size": one.size, "parts": list(one.parts)}
    return entry | ({"base": one.base} if one.base else {})


def _object(entry: Any) -> Object:
    base = _digest(entry["base"]) if "base" in entry else ""
    parts = tuple(_digest(part) for part in entry["parts"])
    one = Object(_digest(entry["sha256"]), _number(entry["size"]), parts, base)
    if len(one.parts) != -(-one.size // PART_SIZE):
        raise ValueError(f"{len(one.parts)} part hashes for {one.size} bytes")
    return one


def _key(entry: Any) -> str:
    if entry["cipher"] != CIPHER:
        raise ValueError(f"{entry['cipher']!r} is not a cipher that this edge-infer reads")
    if not isinstance(entry["key"], str) or not fullmatch(r"[0-9a-f]{16}", entry["key"]):
        raise ValueError(f"{entry['key']!r} is not the name of a key")
    name: str = entry["key"]
    return name


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a text")
    value.encode()  # half of a surrogate pair is none either, and could not be a path
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{value!r} is not a number")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not fullmatch(_HEX, value):
        raise ValueError(f"{value!r} is not a sha256")
    return value
