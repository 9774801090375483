"""Sealed files: encrypted in chunks by AES-256-GCM, the same bytes for the same content and key.

    8 bytes   b"EISEAL01"
    8 bytes   the key's name
    chunks    12 bytes of nonce, up to 256 KiB of ciphertext, 16 bytes of tag; a file of no bytes has one, of none

A key is 32 random bytes K. Its parts are HMAC-SHA256(K, words): `edge-infer seal 1 data` encrypts, `edge-infer seal 1
nonce` makes nonces, and the first 8 bytes for `edge-infer seal 1 name` name it. The associated data of a chunk is its
number and the length of the whole clear file, 8 bytes each, little-endian. Its nonce is the first 12 bytes of the HMAC
of that data and of the sha256 of the clear chunk. So a nonce comes again only with the same chunk at the same place of
a file as long, which gives the same bytes (a synthetic nonce, as in RFC 5297); whoever sees two of them learns that
they are equal, and no more. A chunk that was changed, moved, left out or cut does not open.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from io import BytesIO
from typing import IO, TYPE_CHECKING

from edge_infer.bundle.keys import OVERHEAD
from edge_infer.bundle.source import Source
from edge_infer.errors import BundleError, IntegrityError

if TYPE_CHECKING:
    from typing import Self

    from edge_infer.bundle.keys import Key, KeyRing

MAGIC = b"EISEAL01"
CHUNK = 2**18
_HEAD = len(MAGIC) + 8
# What a reader of a pack goes back and forth between: a frame, and those of other codecs beside it.
_CACHED = 8


def _count(size: int) -> int:
    return max(1, -(-size // CHUNK))


def sealed_size(size: int) -> int:
    """Return how many bytes a file of a size has when it is sealed."""
    return _HEAD + size + OVERHEAD * _count(size)


def clear_size(size: int) -> int:
    """Return how many bytes a sealed file of a size has when it is opened; -1 where no sealed file has that size."""
    body = size - _HEAD
    clear = body - OVERHEAD * max(1, -(-body // (CHUNK + OVERHEAD)))
    return clear if clear >= 0 and sealed_size(clear) == size else -1


class Sealer:
    """Seals a file that comes in pieces; its memory is used again: fresh memory costs more than the encryption.

    Args:
        key: The key.
        size: The bytes of the whole clear file.
    """

    def __init__(self, key: Key, size: int) -> None:
        self._key = key
        self._size = size
        self._number = 0
        self._waiting = memoryview(bytearray(min(size, CHUNK)))
        self._filled = 0
        self._sealed = bytearray()
        self._head = MAGIC + bytes.fromhex(key.name)

    def feed(self, data: bytes | bytearray | memoryview) -> memoryview:
        """Take some bytes; return what is sealed by now, which the next call overwrites."""
        view = memoryview(data)
        if self._filled + len(view) > self._size - self._number * CHUNK:
            raise ValueError(f"more bytes are sealed than the {self._size} that were announced")
        count = max(0, self._filled + len(view) - 1) // CHUNK  # the last chunk waits for `end`
        target = self._room(count * (CHUNK + OVERHEAD))
        at = len(target) - count * (CHUNK + OVERHEAD)
        for _ in range(count):
            missing = CHUNK - self._filled
            if self._filled:
                self._waiting[self._filled :] = view[:missing]
            chunk = self._waiting if self._filled else view[:missing]
            self._key.seal_chunk(self._number, self._size, chunk, target[at : at + CHUNK + OVERHEAD])
            self._number, self._filled, view = self._number + 1, 0, view[missing:]
            at += CHUNK + OVERHEAD
        self._waiting[self._filled : self._filled + len(view)] = view
        self._filled += len(view)
        return target

    def end(self) -> memoryview:
        """Return the rest."""
        target = self._room(self._filled + OVERHEAD)
        at = len(target) - self._filled - OVERHEAD
        self._key.seal_chunk(self._number, self._size, self._waiting[: self._filled], target[at:])
        return target

    def _room(self, size: int) -> memoryview:
        """Return memory for so many sealed bytes, behind the file's head where that is not out yet."""
        head, self._head = self._head, b""
        size += len(head)
        if len(self._sealed) < size:
            self._sealed = bytearray(size)
        found = memoryview(self._sealed)[:size]
        found[: len(head)] = head
        return found


def seal(data: bytes, key: Key) -> bytes:
    """Return a file sealed."""
    sealer = Sealer(key, len(data))
    return bytes(sealer.feed(data)) + sealer.end()


class SealedFile:
    """A sealed file that is read in clear, at any offset. It is a context that closes the file.

    Args:
        file: The sealed file, opened for reading.
        ring: The keys.
        name: What to call it in errors.

    Raises:
        EncryptedError: None of the keys is its key.
        IntegrityError: It is no sealed file, or was cut.
    """

    def __init__(self, file: IO[bytes], ring: KeyRing, name: str) -> None:
        self._file = file
        self._name = name
        head = file.read(_HEAD)
        self._size = clear_size(file.seek(0, os.SEEK_END))
        if not head.startswith(MAGIC) or len(head) < _HEAD or self._size < 0:
            raise IntegrityError(f"`{name}` is no encrypted file, or was cut", hint="pull or copy it again")
        self._key = ring.get(head[len(MAGIC) :].hex(), f"`{name}`")
        self._at = 0
        self._sealed = memoryview(bytearray(min(CHUNK, self._size) + OVERHEAD))
        self._chunks: OrderedDict[int, memoryview] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset, from the start or from the end."""
        self._at = offset + (self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        if self._size == 0 and not self._chunks:
            self._chunk(0)
        found = BytesIO()
        while self._at < end:
            number, offset = divmod(self._at, CHUNK)
            self._at += found.write(self._chunk(number)[offset : offset + end - self._at])
        return found.getvalue()

    def _chunk(self, number: int) -> memoryview:
        found = self._chunks.get(number)
        if found is None:
            size = min(CHUNK, self._size - number * CHUNK)
            sealed = self._sealed[: size + OVERHEAD]
            self._file.seek(_HEAD + number * (CHUNK + OVERHEAD))
            if self._file.readinto(sealed) != len(sealed):  # type: ignore[attr-defined]  # IO has no such method
                raise IntegrityError(f"`{self._name}` was cut", hint="pull or copy it again")
            # Memory that is used again: fresh memory costs more than the decryption.
            free = self._chunks.popitem(last=False)[1] if len(self._chunks) >= _CACHED else None
            found = memoryview(bytearray(size)) if free is None or len(free) < size else free[:size]
            self._key.open_chunk(number, self._size, sealed, found)
            self._chunks[number] = found
        return found


def opened(data: bytes, ring: KeyRing, name: str) -> bytes:
    """Return a sealed file in clear; see `SealedFile`."""
    with SealedFile(BytesIO(data), ring, name) as file:
        return file.read()


class SealedSource(Source):
    """The files of a bundle that are sealed where they lie."""

    is_sealed = True

    def __init__(self, source: Source, ring: KeyRing) -> None:
        self._source = source
        self._ring = ring

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a file, in clear."""
        data = self._source.read(path, sealed_size(limit))
        if not data.startswith(MAGIC):
            raise BundleError(f"`{path}` lies in clear in a bundle that is encrypted", hint="pull it again", path=path)
        return opened(data, self._ring, path)

    def inside(self, folder: str) -> SealedSource:
        """Return a folder of it."""
        return SealedSource(self._source.inside(folder), self._ring)
