"""Publish a bundle into a store: its full pack, the deltas from the last versions that are worth it, and signatures."""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, PART_SIZE, Manifest
from edge_infer.errors import BundleError, DeltaError, IntegrityError, StoreError
from edge_infer.sync.pack import unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.revision import File, Object, Revision
from edge_infer.sync.stage import WHOLE

if TYPE_CHECKING:
    from edge_infer.sync.repository import Repository

#: A delta is kept only where it is smaller than this share of the full pack.
MAX_SHARE = 0.6


class Published(NamedTuple):
    """The result of publishing.

    Attributes:
        revision: The revision.
        deltas: For each older version its name and the delta's bytes; None where the full pack is as good.
    """

    revision: Revision
    deltas: tuple[tuple[str, int | None], ...]


def publish(
    bundle: Path, store: Repository, keys: Path, *, version: str | None = None, share: int = WHOLE
) -> Published:
    """Publish a bundle folder as the newest revision of its model.

    Args:
        bundle: The bundle's folder.
        store: The store.
        keys: The folder of the keys of targets, snapshot and timestamp.
        version: What to call it; None for the manifest's word.
        share: How many of 10 000 devices take it now.

    Raises:
        BundleError: The bundle's files are not what its manifest says.
        StoreError: The store or a key is missing or damaged, or this very bundle is the newest already.
    """
    files, manifest = read_bundle(bundle)
    listed = tuple(File(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(files.items()))
    before = store.offered(manifest.name)
    older = [] if before is None else [store.revision(digest) for digest in before.bases]
    if older and older[0].files == listed:
        raise StoreError(
            f"This bundle is the newest of `{manifest.name}` already: version {older[0].version}",
            hint="edge-infer store refresh STORE signs it again",
        )
    pack = _kept(store, write_pack(files))
    deltas: list[Object] = []
    said: list[tuple[str, int | None]] = []
    for old in older:
        data = write_pack(files, _unpacked(store, old))
        if len(data) < MAX_SHARE * pack.size and all(delta.base != old.bundle for delta in deltas):
            deltas.append(_kept(store, data, old.bundle))
            said.append((old.version, len(data)))
        else:
            said.append((old.version, None))
    revision = Revision(
        manifest.name,
        version or manifest.version,
        older[0].sequence + 1 if older else 1,
        store.now_s,
        listed,
        pack,
        tuple(deltas),
    )
    store.offer(revision, keys, share)
    return Published(revision, tuple(said))


def read_bundle(folder: Path) -> tuple[dict[str, bytes], Manifest]:
    """Return the files of a bundle by path, checked, and its manifest.

    Raises:
        BundleError: It is not a bundle folder, or a file is not the one the manifest names.
    """
    try:
        with (folder / MANIFEST_NAME).open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise BundleError(
            f"`{folder}` is not a bundle folder", hint="edge-infer convert model.onnx -o model.bundle"
        ) from error
    manifest = Manifest.from_bytes(data)
    files = {MANIFEST_NAME: data}
    for entry in manifest.files.values():
        path = folder / entry.path
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            raise BundleError(f"`{folder}` has no file `{entry.path}`", path=entry.path)
        files[entry.path] = path.read_bytes()
        if hashlib.sha256(files[entry.path]).hexdigest() != entry.sha256:
            raise IntegrityError(f"`{path}` is not the file that the manifest names", path=entry.path)
    return files, manifest


def _kept(store: Repository, data: bytes, base: str = "") -> Object:
    parts = tuple(hashlib.sha256(data[at : at + PART_SIZE]).hexdigest() for at in range(0, len(data), PART_SIZE))
    one = Object(hashlib.sha256(data).hexdigest(), len(data), parts, base)
    store.keep(one.path, data)
    return one


def _unpacked(store: Repository, revision: Revision) -> dict[str, bytes]:
    """Return the files of an older revision, made from its full pack."""

    def no_base(digest: str) -> Path:
        raise DeltaError(f"A full pack refers to {digest[:12]}")

    path = store.file(revision.pack.path)
    with tempfile.TemporaryDirectory() as folder:
        made = {file.path: Path(folder, str(i)) for i, file in enumerate(revision.files)}
        opened = {name: where.open("wb") for name, where in made.items()}
        try:
            unpack(
                io.BytesIO(path.read_bytes()),
                {file.path: file for file in revision.files},
                no_base,
                lambda name: opened[name].write,
            )
        finally:
            for file in opened.values():
                file.close()
        return {name: where.read_bytes() for name, where in made.items()}
