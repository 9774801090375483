"""The folder of one model on a device: the weights, and the one record that says which of them are active.

active.json            the record: replaced by one atomic rename, never changed
active.copy.json       the same, written after it: read where the disk has damaged the first
blobs/<sha256>         files, read-only
versions/<revision>/   bundles to load, hard links to blobs
partial/               downloads that were cut
root.json tuf/         who is trusted, what was verified
name                   what the device is called in roll-outs and reports
lock                   held by whoever changes the folder
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.bundle.manifest import check_path
from edge_infer.errors import InputError, IntegrityError, StoreError
from edge_infer.platform.posix import lock_alone
from edge_infer.sync.disk import Disk
from edge_infer.sync.revision import File, head_of
from edge_infer.sync.trust import Floor

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

log = logging.getLogger(__name__)
FORMAT = 1
_RECORDS = ("active.json", "active.copy.json")
_LOCK_POLL_S = 0.05
_NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"


class Installed(NamedTuple):
    """A version that lies on the device; encrypted for the key of that name, where it has one."""

    version: str
    sequence: int
    files: tuple[File, ...]
    key: str = ""

    @property
    def bundle(self) -> str:
        """The bundle's revision: the sha256 of its `manifest.json`, or of the `index.json` of an index."""
        return head_of(self.files).sha256


class Record(NamedTuple):
    """The contents of `active.json`.

    Attributes:
        model: The model's name.
        active: The version that readers load; None before the first install.
        previous: The version before it.
        floor: The least that a store may offer.
        trial: The bundle revision whose trial has begun and not ended, else empty.
        trials: How often it has begun.
        refused: Bundle revisions that failed their trial.
        rolled_back: Bundle revisions that somebody took back by hand.
    """

    model: str = ""
    active: Installed | None = None
    previous: Installed | None = None
    floor: Floor = Floor()
    trial: str = ""
    trials: int = 0
    refused: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()


class DeviceStore:
    """The folder of one model on a device.

    Args:
        folder: Where it lies; made when first written to.
        disk: How it is changed; tests cut the power there.
        patience_s: How long to wait for another process that updates it.
    """

    def __init__(self, folder: str | os.PathLike[str], disk: Disk | None = None, *, patience_s: float = 0.0) -> None:
        self.folder = Path(folder)
        self.patience_s = patience_s
        self.disk = disk or Disk()
        self.blobs = self.folder / "blobs"
        self.partial = self.folder / "partial"

    # -- reading: no lock is needed --

    def record(self) -> Record:
        """Return what is active now; an empty record where nothing was installed yet.

        Where the disk has damaged it, the copy counts, which the next write makes two again.

        Raises:
            StoreError: Both are damaged.
        """
        damage: ValueError | KeyError | TypeError | RecursionError | None = None
        for name in _RECORDS:
            try:
                found = _parsed((self.folder / name).read_bytes())
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                damage = damage or error
                continue
            if damage is not None:
                log.warning("`%s` is damaged (%s): its copy is read", self.folder / _RECORDS[0], damage)
            return found
        if damage is None:
            return Record()
        raise StoreError(
            f"`{self.folder / _RECORDS[0]}` is damaged, and so is its copy: {damage}",
            hint=f"the disk changed them; remove `{self.folder}` and pull again",
        ) from damage

    def active(self) -> Path:
        """Return the folder of the active bundle, to be loaded.

        Raises:
            StoreError: Nothing is installed.
        """
        record = self.record()
        if record.active is None:
            raise StoreError(f"Nothing is installed in `{self.folder}`", hint="edge-infer pull STORE/MODEL --into DIR")
        return self.version_path(record.active.bundle)

    def version_path(self, bundle: str) -> Path:
        """Return where a version lies."""
        return self.folder / "versions" / bundle

    def blob(self, digest: str) -> Path:
        """Return where the file of a sha256 lies."""
        return self.blobs / digest

    def damaged(self, files: tuple[File, ...]) -> list[File]:
        """Return those of some files that are missing or have other bytes than their name says."""
        return [file for file in files if not _is_whole(self.blob(file.sha256), file)]

    # -- changing: under the lock --

    def name(self) -> str:
        """Return what the device is called: a random word, made once, unless its owner gave it another."""
        path = self.folder / "name"
        try:
            name = path.read_text("utf-8").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            name = ""
        if not fullmatch(_NAME, name):
            name = secrets.token_hex(16)
            self.rename(name)
        return name

    def rename(self, name: str) -> None:
        """Give the device another name.

        Raises:
            InputError: It has other characters than letters, digits, `.`, `_`, `:` and `-`, or more than 128.
        """
        if not fullmatch(_NAME, name):
            raise InputError(
                f"`{name[:128]}` is not a name for a device", hint="letters, digits, `.`, `_`, `:` and `-`"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.disk.replace(self.folder / "name", f"{name}\n".encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder alone; the lock goes with the process, however it ends.

        Raises:
            StoreError: Another process holds it, for longer than `patience_s`.
        """
        from time import monotonic, sleep

        for folder in (self.folder, self.blobs, self.partial, self.folder / "versions"):
            folder.mkdir(parents=True, exist_ok=True)
        deadline = monotonic() + self.patience_s
        with (self.folder / "lock").open("ab") as file:
            while True:
                try:
                    lock_alone(file)
                except OSError as error:
                    if monotonic() < deadline:
                        sleep(_LOCK_POLL_S)
                        continue
                    message = f"`{self.folder}` is in use by another update"
                    raise StoreError(message, hint="wait for it to end") from error
                break
            yield

    def write(self, record: Record) -> None:
        """Make a record the one that is read, at once or not at all."""
        body = record._asdict()
        for name in ("active", "previous"):
            one: Installed | None = body[name]
            body[name] = one and {**one._asdict(), "files": [file._asdict() for file in one.files]}
        body["floor"] = record.floor._asdict()
        body["refused"], body["rolled_back"] = list(record.refused), list(record.rolled_back)
        document = {"format": FORMAT, "sha256": _digest(body), "record": body}
        for name in _RECORDS:
            self.disk.replace(self.folder / name, (json.dumps(document, indent=1) + "\n").encode())

    def stage(self, version: Installed) -> Path:
        """Lay out a version as a bundle folder; its blobs must be there."""
        place = self.version_path(version.bundle)
        folders = {place}
        for file in version.files:
            target = place.joinpath(*check_path(file.path, "revision").split("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
            if target.is_symlink() or (target.exists() and not _is_whole(target, file)):
                self.disk.remove(target)
            self.disk.link(self.blob(file.sha256), target)
        for folder in sorted(folders, reverse=True):
            self.disk.sync(folder)
        self.disk.sync(place.parent)
        return place

    def rollback(self) -> Record:
        """Make the previous version the active one; the other is not taken again unless it is asked for.

        Raises:
            StoreError: There is no previous version, or its files are damaged.
        """
        with self.locked():
            record = self.record()
            if record.active is None or record.previous is None:
                raise StoreError(f"`{self.folder}` has no previous version")
            if self.damaged(record.previous.files):
                raise StoreError(f"The files of version {record.previous.version} are damaged: it cannot be taken")
            self.stage(record.previous)
            rolled_back = (*record.rolled_back, record.active.bundle)[-16:]
            record = record._replace(active=record.previous, previous=None, rolled_back=rolled_back)
            self.write(record)
            return record

    def collect(self) -> int:
        """Remove what neither the active nor the previous version needs; return the bytes freed."""
        with self.locked():
            return self.collect_locked()

    def collect_locked(self) -> int:
        """Collect as `collect` does, by who holds the lock."""
        record = self.record()
        kept = [one for one in (record.active, record.previous) if one is not None]
        wanted = {file.sha256 for one in kept for file in one.files}
        versions = {one.bundle for one in kept}
        freed = 0
        for folder in (self.folder / "versions").iterdir():
            if folder.name not in versions:
                for path in sorted(folder.rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() and not path.is_symlink() else self.disk.remove(path)
                folder.rmdir()
        for path in [*self.blobs.iterdir(), *self.partial.iterdir()]:
            if path.parent == self.partial or path.name not in wanted:
                freed += path.lstat().st_size
                self.disk.remove(path)
        return freed

    def verify(self) -> list[str]:
        """Read every file of the active and the previous version again; return what is damaged, in words."""
        record = self.record()
        wrong = []
        for one in (record.active, record.previous):
            for file in one.files if one is not None else ():
                place = self.version_path(one.bundle) / file.path if one is not None else Path()
                wrong += [str(path) for path in (self.blob(file.sha256), place) if not _is_whole(path, file)]
        return sorted(set(wrong))


def require_whole(path: Path, file: File) -> None:
    """Check a file by reading it back.

    Raises:
        IntegrityError: It has other bytes than its sha256 says.
    """
    if not _is_whole(path, file):
        raise IntegrityError(f"`{path}` does not hold what was written: the disk is failing or full", path=str(path))


def _is_whole(path: Path, file: File) -> bool:
    try:
        if path.is_symlink() or path.stat().st_size != file.size:
            return False
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def _parsed(data: bytes) -> Record:
    """Read a record.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: It is not what was written.
    """
    document = json.loads(data)
    body = document["record"]
    if document["format"] != FORMAT or document["sha256"] != _digest(body):
        raise ValueError("it is not what was written")
    return Record(
        body["model"],
        _installed(body["active"]),
        _installed(body["previous"]),
        Floor(**body["floor"]),
        body["trial"],
        body["trials"],
        tuple(body["refused"]),
        tuple(body.get("rolled_back", ())),  # records of before have none
    )


def _installed(entry: Any) -> Installed | None:
    if entry is None:
        return None
    return Installed(
        entry["version"], entry["sequence"], tuple(File(**file) for file in entry["files"]), entry.get("key", "")
    )


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
