"""A publisher's keys: Ed25519 keys for each role of The Update Framework, each in its own file.

`ROLE.pem` is the first key of a role, `ROLE-<first digits of its id>.pem` are further ones.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner

from edge_infer.errors import StoreError
from edge_infer.sync.trust import ROLES

if TYPE_CHECKING:
    from pathlib import Path

_HINT = "edge-infer store keys init STORE --keys DIR"


def make_keys(folder: Path) -> dict[str, CryptoSigner]:
    """Make a key for each role, in files that only their owner may read.

    Raises:
        StoreError: The folder holds a key already: it is never overwritten.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for role in ROLES:
        if (folder / f"{role}.pem").exists():
            raise StoreError(
                f"`{folder / f'{role}.pem'}` is there already", hint="name another folder, or move the old keys away"
            )
    return {role: _kept(folder / f"{role}.pem", CryptoSigner.generate_ed25519()) for role in ROLES}


def make_key(folder: Path, role: str) -> CryptoSigner:
    """Make a further key for a role."""
    signer = CryptoSigner.generate_ed25519()
    return _kept(folder / f"{role}-{signer.public_key.keyid[:8]}.pem", signer)


def _kept(path: Path, signer: CryptoSigner) -> CryptoSigner:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(signer.private_bytes)
        file.flush()
        os.fsync(file.fileno())
    return signer


def retire_key(folder: Path, role: str, keyid: str) -> Path | None:
    """Rename the file of a key that counts no more, so that it signs nothing; return its new name."""
    for path in _paths(folder, role):
        if _load(path).public_key.keyid == keyid:
            return path.rename(path.with_name(f"{path.name}.retired-{keyid[:8]}"))
    return None


def load_keys(folder: Path, role: str) -> list[CryptoSigner]:
    """Return the keys of a role that lie in a folder.

    Raises:
        StoreError: There is none, or one is not a key, or others may read it.
    """
    paths = _paths(folder, role)
    if not paths:
        raise StoreError(f"There is no key `{folder / f'{role}.pem'}`", hint=_HINT)
    return [_load(path) for path in paths]


def _paths(folder: Path, role: str) -> list[Path]:
    return sorted([*folder.glob(f"{role}.pem"), *folder.glob(f"{role}-*.pem")])


def _load(path: Path) -> CryptoSigner:
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise StoreError(f"`{path}` can be read by others", hint=f"chmod 600 {path}")
        return CryptoSigner(load_pem_private_key(path.read_bytes(), None))
    except OSError as error:
        raise StoreError(f"`{path}` cannot be read: {error}", hint=_HINT) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StoreError(f"`{path}` is not a private key that can be used", hint=_HINT) from error
