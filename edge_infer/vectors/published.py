"""An index as a version of a store: published like a bundle, tried before it is taken."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from edge_infer.bundle.manifest import MANIFEST_NAME, is_name
from edge_infer.errors import InputError, IntegrityError
from edge_infer.platform.hashing import sha256
from edge_infer.sync.publish import Contents
from edge_infer.vectors.catalogue import NAME
from edge_infer.vectors.folder import IndexFolder
from edge_infer.vectors.index import Index

if TYPE_CHECKING:
    from pathlib import Path


def is_index(folder: Path) -> bool:
    """Tell whether a folder is that of an index."""
    return (folder / NAME).is_file() and not (folder / MANIFEST_NAME).is_file()


def contents_of(folder: Path) -> Contents:
    """Return the files of an index, checked. Its name is the folder's without `.index`; its version begins its SHA-256.

    Raises:
        BundleError: There is no index, or it is wrong.
        InputError: The folder's name cannot be that of an index in a store.
        IntegrityError: A file of it is missing or damaged.
    """
    name = folder.resolve().name.removesuffix(".index")
    if not is_name(name):
        raise InputError(
            f"The index would be called {name!r}, expected letters, digits, `.`, `_` and `-`",
            hint=f"rename the folder: mv {quote(str(folder))} notes.index",
            got=name,
        )
    catalogue = IndexFolder(folder).read()
    files = {NAME: catalogue.to_bytes()}
    for entry in catalogue.files:
        path = folder / entry.path
        try:
            files[entry.path] = path.read_bytes()
        except OSError as error:
            raise IntegrityError(f"`{path}` cannot be read: {error.strerror}", path=entry.path) from error
        if sha256(files[entry.path]) != entry.sha256:
            raise IntegrityError(f"`{path}` is not the file that `{NAME}` names", path=entry.path)
    return Contents(name, sha256(files[NAME])[:12], files, "is an index, which is read in place")


def index_trial(folder: Path) -> None:
    """Open an index, and look for its first entry.

    Raises:
        BundleError: A file is damaged, or of a later edge-infer.
        IntegrityError: A file is missing or another.
    """
    index = Index.open(folder)
    if len(index):
        index.search([1.0] * index.view.catalogue.dimension, 1)
