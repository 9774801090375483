"""A publisher's keys: one Ed25519 key for each role of The Update Framework, each in its own file."""

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
    paths = {role: folder / f"{role}.pem" for role in ROLES}
    for path in paths.values():
        if path.exists():
            raise StoreError(f"`{path}` is there already", hint="name another folder, or move the old keys away")
    signers = {}
    for role, path in paths.items():
        signer = CryptoSigner.generate_ed25519()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(signer.private_bytes)
            file.flush()
            os.fsync(file.fileno())
        signers[role] = signer
    return signers


def load_key(folder: Path, role: str) -> CryptoSigner:
    """Return the key of a role.

    Raises:
        StoreError: It is missing, no key, or others may read it.
    """
    path = folder / f"{role}.pem"
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise StoreError(f"`{path}` can be read by others", hint=f"chmod 600 {path}")
        return CryptoSigner(load_pem_private_key(path.read_bytes(), None))
    except FileNotFoundError as error:
        raise StoreError(f"There is no key `{path}`", hint=_HINT) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StoreError(f"`{path}` is no private key that can be used", hint=_HINT) from error
