"""The keys of sealed files, and the files that hold them: 64 hexadecimal digits on each line, the first one seals.

A key seals and opens the chunks of `edge_infer.bundle.sealed`, which says how.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from functools import cached_property
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BackendUnavailable, EncryptedError, IntegrityError
from edge_infer.platform.atomic_write import write_file
from edge_infer.platform.posix import give_to, is_root

if TYPE_CHECKING:
    from typing import TypeAlias

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    #: A key, as callers name it: the path of its file, the text in it, or a ring; None for the environment's.
    KeySource: TypeAlias = "str | os.PathLike[str] | bytes | KeyRing | None"

ENVIRONMENT = "EDGE_INFER_KEY_FILE"
#: Where systemd says in which folder a service's credentials lie (systemd.exec(5)), and the name of a key file there.
CREDENTIALS, CREDENTIAL = "CREDENTIALS_DIRECTORY", "edge-infer.key"
_NONCE, _TAG = 12, 16
#: The bytes that a sealed chunk is longer than the clear one.
OVERHEAD = _NONCE + _TAG
_KEY_BYTES = 32
_MAX_KEYS_BYTES = 2**16


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
