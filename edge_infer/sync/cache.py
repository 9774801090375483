"""Models of stores in the user's cache folder: for callers that name an address and no folder."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from warnings import warn

from edge_infer.errors import BackendError, EdgeInferError, InputError, SyncError
from edge_infer.platform.host import cache_folder
from edge_infer.sync.device import DeviceStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer.bundle.keys import KeySource

_SCHEME = "edge+"
# Two processes that start at once bring the same model: the second waits for what the first brings.
_PATIENCE_S = 60.0


def plain_address(address: str) -> str:
    """Return the STORE/MODEL that an `edge+` address names.

    Raises:
        InputError: It is none.
    """
    plain = address.removeprefix(_SCHEME)
    if not address.startswith(_SCHEME) or not plain.startswith(("https://", "http://", "/")):
        raise InputError(f"`{address}` is not an address of a store", hint="edge+https://HOST/STORE/MODEL")
    return plain


def folder_of(address: str) -> Path:
    """Return where a model of a store is kept."""
    model = "".join(one if one.isalnum() or one in "._-" else "_" for one in address.rpartition("/")[2])[:64]
    return cache_folder() / "stores" / f"{model}-{hashlib.sha256(address.encode()).hexdigest()[:16]}"


def bring(address: str, trial: Callable[[Path], None], key: KeySource = None) -> DeviceStore:
    """Bring the newest version of a model of a store.

    Args:
        address: `edge+https://HOST/STORE/MODEL`.
        trial: Runs the new bundle, and raises where it does not work.
        key: The key file of versions that are encrypted.

    Returns:
        The folder, with an active version.

    Raises:
        SyncError: It cannot be had, and no version of it lies here; where one does, this is a warning.
        BackendUnavailable: The `sync` extra is not installed.
    """
    plain = plain_address(address).rstrip("/")
    from importlib.util import find_spec

    if find_spec("tuf") is None or find_spec("zstandard") is None:
        from edge_infer.errors import BackendUnavailable

        raise BackendUnavailable("Signed stores need what is not installed", hint="pip install 'edge-infer[sync]'")
    from edge_infer.sync.client import pull, split_address

    device = DeviceStore(folder_of(plain), patience_s=_PATIENCE_S)
    store, model = split_address(plain)
    try:
        pull(store, model, device, trial, key=key)
    except (SyncError, BackendError, OSError) as error:
        if device.record().active is None:
            raise
        said = error.message if isinstance(error, EdgeInferError) else str(error)
        warn(f"{said}; the version of the last time is used", RuntimeWarning, stacklevel=4)
    return device
