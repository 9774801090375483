"""Publish a bundle or an index into a store: full pack, deltas from the last versions where worth it, signatures."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.keys import KeyRing
from edge_infer.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, PART_SIZE, Manifest
from edge_infer.bundle.sealed import MAGIC, opened, seal
from edge_infer.errors import BundleError, DeltaError, IntegrityError, StoreError
from edge_infer.sync.pack import unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.revision import File, Object, Revision, head_of
from edge_infer.sync.stage import WHOLE

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.bundle.keys import Key, KeySource
    from edge_infer.sync.repository import Repository

#: A delta is kept only where it is smaller than this share of the full pack.
MAX_SHARE = 0.6


#: What is named by the file that names all others.
_KINDS = {MANIFEST_NAME: "a model", "index.json": "an index"}


class Contents(NamedTuple):
    """What becomes a version.

    Attributes:
        name: The model's name in the store.
        version: What it is called where nobody says.
        files: Every file by its path, checked.
        why_clear: Why it cannot be encrypted; empty where it can.
    """

    name: str
    version: str
    files: dict[str, bytes]
    why_clear: str = ""


class Published(NamedTuple):
    """The result of publishing.

    Attributes:
        revision: The revision.
        deltas: For each older version its name and the delta's bytes; None where the full pack is as good.
    """

    revision: Revision
    deltas: tuple[tuple[str, int | None], ...]


def publish(
    bundle: Path | Contents,
    store: Repository,
    keys: Path,
    *,
    version: str | None = None,
    share: int = WHOLE,
    encrypt_to: KeySource = None,
    in_clear: bool = False,
) -> Published:
    """Publish a bundle folder as the newest revision of its model.

    Args:
        bundle: The bundle's folder; or the contents of something else, such as of an index.
        store: The store.
        keys: The folder of the keys of targets, snapshot and timestamp.
        version: What to call it; None for the manifest's word.
        share: How many of 10 000 devices take it now.
        encrypt_to: The key file whose first key packs and files are encrypted for, and whose others open the versions
            before; None for weights in clear.
        in_clear: Whether a model whose last version was encrypted may be published in clear.

    Raises:
        BundleError: The bundle's files are not what its manifest says, or cannot be encrypted.
        EncryptedError: The key file is none.
        StoreError: The store or a key is missing or damaged, this very bundle is the newest already, or what the store
            has of this name is an index and this a model, or the other way.
    """
    contents = bundle if isinstance(bundle, Contents) else contents_of(bundle)
    name, files = contents.name, contents.files
    ring = KeyRing() if encrypt_to is None else KeyRing.of(encrypt_to)
    key = None if encrypt_to is None else ring.first
    if key is not None and contents.why_clear:
        raise BundleError(
            f"`{name}` {contents.why_clear}: it cannot be encrypted",
            hint="publish it in clear; a model with external data can be converted into one file",
        )
    sealed = files if key is None else {path: seal(data, key) for path, data in files.items()}
    listed = tuple(File(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(sealed.items()))
    before = store.offered(name)
    older = [] if before is None else [store.revision(digest) for digest in before.bases]
    if older and older[0].files == listed:
        raise StoreError(
            f"This bundle is the newest of `{name}` already: version {older[0].version}",
            hint="edge-infer store refresh STORE signs it again",
        )
    if older and head_of(older[0].files).path != head_of(listed).path:
        raise StoreError(
            f"`{name}` of the store is {_KINDS[head_of(older[0].files).path]}, this is {_KINDS[head_of(listed).path]}",
            hint="give it another name: devices would take the one for the other",
        )
    if older and older[0].key and key is None and not in_clear:
        raise StoreError(
            f"The version of `{name}` before is encrypted, this one would lie in the store in clear",
            hint="--encrypt-to KEYFILE, or --in-clear",
        )
    pack = _kept(store, _sealed(write_pack(files), key))
    deltas: list[Object] = []
    said: list[tuple[str, int | None]] = []
    for old in older:
        before_it = _unpacked(store, old, ring)
        if before_it is None:
            said.append((old.version, None))
            continue
        data = _sealed(write_pack(files, before_it, {file.path: file.sha256 for file in old.files}), key)
        if len(data) < MAX_SHARE * pack.size and all(delta.base != old.bundle for delta in deltas):
            deltas.append(_kept(store, data, old.bundle))
            said.append((old.version, len(data)))
        else:
            said.append((old.version, None))
    revision = Revision(
        name,
        version or contents.version,
        older[0].sequence + 1 if older else 1,
        store.now_s,
        listed,
        pack,
        tuple(deltas),
        "" if key is None else key.name,
    )
    store.offer(revision, keys, share)
    return Published(revision, tuple(said))


def contents_of(folder: Path) -> Contents:
    """Return what a bundle folder is published as.

    Raises:
        BundleError: It is not a bundle folder, or an encrypted one, or a file is not the one the manifest names.
    """
    files, manifest = read_bundle(folder)
    has_external = any(variant.external for variant in manifest.variants)
    why_clear = "has external data, which engines read from files in clear" if has_external else ""
    return Contents(manifest.name, manifest.version, files, why_clear)


def read_bundle(folder: Path) -> tuple[dict[str, bytes], Manifest]:
    """Return the files of a bundle by path, checked, and its manifest.

    Raises:
        BundleError: It is not a bundle folder, or an encrypted one, or a file is not the one the manifest names.
    """
    try:
        with (folder / MANIFEST_NAME).open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise BundleError(
            f"`{folder}` is not a bundle folder", hint="edge-infer convert model.onnx -o model.bundle"
        ) from error
    if data.startswith(MAGIC):
        raise BundleError(f"`{folder}` is encrypted, as devices keep it", hint="publish the bundle that it was made of")
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


def _sealed(data: bytes, key: Key | None) -> bytes:
    return data if key is None else seal(data, key)


def _unpacked(store: Repository, revision: Revision, ring: KeyRing) -> dict[str, bytes] | None:
    """Return the files of an older revision in clear, made from its full pack; None where no key opens that."""
    if revision.key and all(key.name != revision.key for key in ring.keys):
        return None

    def no_base(digest: str) -> Path:
        raise DeltaError(f"A full pack refers to {digest[:12]}")

    pack = store.file(revision.pack.path).read_bytes()
    key = ring.get(revision.key, "the version before") if revision.key else None
    clear = opened(pack, ring, revision.pack.path) if revision.key else pack
    made = {file.path: io.BytesIO() for file in revision.files}
    unpack(io.BytesIO(clear), {one.path: one for one in revision.files}, no_base, lambda name: made[name].write, key)
    found = {name: file.getvalue() for name, file in made.items()}
    return found if key is None else {name: opened(data, ring, name) for name, data in found.items()}
