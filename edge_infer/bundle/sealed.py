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

import hashlib
import hmac
import os
from collections import OrderedDict
from functools import cached_property
from io import BytesIO
from pathlib import Path
from re import fullmatch
from typing import IO, TYPE_CHECKING, NamedTuple

from edge_infer.bundle.source import Source
from edge_infer.errors import BackendUnavailable, BundleError, EncryptedError, IntegrityError
from edge_infer.platform.atomic_write import write_file
from edge_infer.platform.posix import give_to, is_root

if TYPE_CHECKING:
    from typing import Self, TypeAlias

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    #: A key, as callers name it: the path of its file, the text in it, or a ring; None for the environment's.
    KeySource: TypeAlias = "str | os.PathLike[str] | bytes | KeyRing | None"


MAGIC = b"EISEAL01"
CHUNK = 2**18
ENVIRONMENT = "EDGE_INFER_KEY_FILE"
#: Where systemd says in which folder a service's credentials lie (systemd.exec(5)), and the name of a key file there.
CREDENTIALS, CREDENTIAL = "CREDENTIALS_DIRECTORY", "edge-infer.key"
_HEAD = len(MAGIC) + 8
_NONCE, _TAG = 12, 16
_OVERHEAD = _NONCE + _TAG
_KEY_BYTES = 32
_MAX_KEYS_BYTES = 2**16
# What a reader of a pack goes back and forth between: a frame, and those of other codecs beside it.
_CACHED = 8


class Key:
    """A key; only its name is ever shown."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.name = self._part("name")[:8].hex()

    def __repr__(self) -> str:
        return f"Key({self.name})"

    def _part(self, word: str) -> bytes:
        return hmac.digest(self._secret, f"edge-infer seal 1 {word}".encode(), "sha256")

    @cached_property
    def _cipher(self) -> AESGCM:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise BackendUnavailable(
                "Encrypted weights need the package cryptography", hint="pip install 'edge-infer[sync]'"
            ) from error
        return AESGCM(self._part("data"))

    @cached_property
    def _nonces(self) -> bytes:
        return self._part("nonce")

    def seal_chunk(self, number: int, size: int, clear: memoryview, target: memoryview) -> None:
        """Seal the chunk of a number, of a file of a size, into memory that is 28 bytes longer."""
        about = _about(number, size)
        nonce = hmac.digest(self._nonces, about + hashlib.sha256(clear).digest(), "sha256")[:_NONCE]
        target[:_NONCE] = nonce
        if hasattr(self._cipher, "encrypt_into"):
            self._cipher.encrypt_into(nonce, clear, about, target[_NONCE:])
        else:  # cryptography before 47
            target[_NONCE:] = self._cipher.encrypt(nonce, clear, about)

    def open_chunk(self, number: int, size: int, sealed: memoryview, target: memoryview) -> None:
        """Open a sealed chunk into memory that is 28 bytes shorter.

        Raises:
            IntegrityError: It was changed, moved or cut.
        """
        from cryptography.exceptions import InvalidTag

        about = _about(number, size)
        try:
            if hasattr(self._cipher, "decrypt_into"):
                self._cipher.decrypt_into(sealed[:_NONCE], sealed[_NONCE:], about, target)
            else:
                target[:] = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], about)
        except (InvalidTag, ValueError, OverflowError) as error:
            raise IntegrityError(
                f"Chunk {number} of encrypted weights does not open with the key {self.name}: it was changed",
                hint="edge-infer pull STORE/MODEL --into DIR --key KEYFILE repairs it",
            ) from error


class KeyRing(NamedTuple):
    """The keys of a key file: the first one seals, each opens what it sealed."""

    keys: tuple[Key, ...] = ()

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(key.name for key in self.keys)})"

    @classmethod
    def of(cls, source: KeySource) -> KeyRing:
        """Return the keys that a caller names; for None those of the file in `EDGE_INFER_KEY_FILE`, or of systemd's.

        Raises:
            EncryptedError: It is not a key file, or one that others may read.
        """
        if isinstance(source, KeyRing):
            return source
        if isinstance(source, bytes):
            return cls._parsed(source, "the key")
        if source is not None and not isinstance(source, (str, os.PathLike)):
            raise EncryptedError(
                f"The key is of the type {type(source).__name__}, expected the path of its file, or its text as bytes",
                hint="key='weights.key'",
            )
        path = _given_path() if source is None else os.fspath(source)
        if not path:
            return cls()
        if any(_is_key(line.strip()) for line in path.splitlines()):  # no message may show it
            raise EncryptedError(
                "The text of a key stands where the path of its file is expected",
                hint="key='weights.key', or the text as bytes: key=text.encode()",
            )
        try:
            # systemd lets the service's user read it by an access list, which shows as rights of a group.
            is_credential = CREDENTIALS in os.environ and Path(path).parent == Path(os.environ[CREDENTIALS])
            if os.name == "posix" and not is_credential and Path(path).stat().st_mode & 0o077:
                raise EncryptedError(f"`{path}` can be read by others", hint=f"chmod 600 {path}")
            with Path(path).open("rb") as file:
                return cls._parsed(file.read(_MAX_KEYS_BYTES), f"`{path}`")
        except (OSError, ValueError) as error:
            raise EncryptedError(
                f"The key file `{path}` cannot be read: {error}", hint="edge-infer store keys encryption KEYFILE"
            ) from error

    @classmethod
    def _parsed(cls, text: bytes, name: str) -> KeyRing:
        lines = [line.strip() for line in text.decode("latin-1").splitlines()]
        found = []
        for number, line in enumerate(lines, 1):
            if not line or line.startswith("#"):
                continue
            if not _is_key(line):
                raise EncryptedError(
                    f"Line {number} of {name} is no key: it has {len(line)} characters, expected {2 * _KEY_BYTES} "
                    "hexadecimal digits",
                    hint="edge-infer store keys encryption KEYFILE",
                )
            found.append(Key(bytes.fromhex(line)))
        if not found:
            raise EncryptedError(f"There is no key in {name}", hint="edge-infer store keys encryption KEYFILE")
        return cls(tuple(found))

    @property
    def first(self) -> Key:
        """The key that seals.

        Raises:
            EncryptedError: There is none.
        """
        if not self.keys:
            raise _no_key("something", self)
        return self.keys[0]

    def get(self, name: str, what: str) -> Key:
        """Return the key of a name.

        Args:
            name: The key's name.
            what: What it opens, in words.

        Raises:
            EncryptedError: It is not among these.
        """
        for key in self.keys:
            if key.name == name:
                return key
        raise _no_key(what, self, name)


def _given_path() -> str:
    """Return the key file that the environment names, or that systemd gives the service; empty for none."""
    path = os.environ.get(ENVIRONMENT, "")
    if not path and CREDENTIALS in os.environ:
        credential = Path(os.environ[CREDENTIALS], CREDENTIAL)
        path = str(credential) if credential.exists() else ""
    return path


def _is_key(line: str) -> bool:
    return fullmatch(f"[0-9a-fA-F]{{{2 * _KEY_BYTES}}}", line) is not None


def _no_key(what: str, ring: KeyRing, name: str = "") -> EncryptedError:
    given = f"the keys here are {', '.join(key.name for key in ring.keys)}" if ring.keys else "no key was given"
    return EncryptedError(
        f"{what} is encrypted for the key {name}; {given}",
        hint=f"--key KEYFILE, load(..., key=KEYFILE) or {ENVIRONMENT}=KEYFILE, with the file that the publisher has",
        expected=name,
    )


def write_key(path: Path) -> Key:
    """Put a new key into a file that only its owner may read, before those that are there.

    Raises:
        EncryptedError: There is a file that is not one of keys.
    """
    import secrets

    path = path.resolve()  # a link stays one
    old, owner = b"", None
    if path.exists():
        KeyRing.of(path)
        old, owner = path.read_bytes(), path.stat()
    secret = secrets.token_bytes(_KEY_BYTES)
    key = Key(secret)
    write_file(path, f"# edge-infer key {key.name}\n{secret.hex()}\n".encode() + old, 0o600)
    if owner is not None and is_root():
        give_to(path, owner.st_uid, owner.st_gid)
    return key


def _about(number: int, size: int) -> bytes:
    return number.to_bytes(8, "little") + size.to_bytes(8, "little")


def _count(size: int) -> int:
    return max(1, -(-size // CHUNK))


def sealed_size(size: int) -> int:
    """Return how many bytes a file of a size has when it is sealed."""
    return _HEAD + size + _OVERHEAD * _count(size)


def clear_size(size: int) -> int:
    """Return how many bytes a sealed file of a size has when it is opened; -1 where no sealed file has that size."""
    body = size - _HEAD
    clear = body - _OVERHEAD * max(1, -(-body // (CHUNK + _OVERHEAD)))
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
        target = self._room(count * (CHUNK + _OVERHEAD))
        at = len(target) - count * (CHUNK + _OVERHEAD)
        for _ in range(count):
            missing = CHUNK - self._filled
            if self._filled:
                self._waiting[self._filled :] = view[:missing]
            chunk = self._waiting if self._filled else view[:missing]
            self._key.seal_chunk(self._number, self._size, chunk, target[at : at + CHUNK + _OVERHEAD])
            self._number, self._filled, view = self._number + 1, 0, view[missing:]
            at += CHUNK + _OVERHEAD
        self._waiting[self._filled : self._filled + len(view)] = view
        self._filled += len(view)
        return target

    def end(self) -> memoryview:
        """Return the rest."""
        target = self._room(self._filled + _OVERHEAD)
        at = len(target) - self._filled - _OVERHEAD
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
        self._sealed = memoryview(bytearray(min(CHUNK, self._size) + _OVERHEAD))
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
            sealed = self._sealed[: size + _OVERHEAD]
            self._file.seek(_HEAD + number * (CHUNK + _OVERHEAD))
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
