"""Pull: bring a device's folder to the revision that a store offers, always the old or the new one, whole."""

from __future__ import annotations

import contextlib
import time
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.keys import KeyRing
from edge_infer.bundle.sealed import SealedFile
from edge_infer.errors import (
    BackendUnavailable,
    BundleError,
    DeltaError,
    DeviceLost,
    EncryptedError,
    FetchError,
    InputError,
    IntegrityError,
    NotReleasedError,
    OutOfMemory,
    StoreError,
    TrialError,
    UnsupportedError,
)
from edge_infer.sync.device import DeviceStore, Installed, Record, require_whole
from edge_infer.sync.download import download
from edge_infer.sync.pack import unpack
from edge_infer.sync.source import Source, open_source
from edge_infer.sync.trust import FIRST_ROOT, MAX_ROOT_BYTES, newest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Literal

    from edge_infer.bundle.keys import KeySource
    from edge_infer.sync.pack import Base
    from edge_infer.sync.revision import File, Object, Revision

#: What a trial raises for the fault of this machine or of who chose how to run, not of the version.
_NOT_THE_VERSION = (
    BackendUnavailable,
    UnsupportedError,
    InputError,
    OutOfMemory,
    DeviceLost,
    EncryptedError,
    OSError,
    MemoryError,
)
#: A revision during whose trial the process died so often is refused; once may have been the power.
MAX_TRIALS = 2


class Pulled(NamedTuple):
    """The result of a pull.

    Attributes:
        model: The model's name.
        version: The active version now.
        sequence: Its number in the store.
        stage: The number of the roll-out's step that it was offered in; 0 for none.
        bundle: Its bundle revision.
        changed: Whether it became active by this pull.
        method: `none`, `repair`, `local`, `delta` or `full`: what brought the files.
        bytes_moved: The bytes of packs that were fetched.
        bytes_full: The bytes of the full pack.
        path: The bundle's folder.
        note: Why a cheaper method was given up, or the newest version is not taken; else empty.
        trial_s: How long the trial took, in seconds.
        rolled_back: The newest version, where somebody took it back here by hand; else empty.
    """

    model: str
    version: str
    sequence: int
    stage: int
    bundle: str
    changed: bool
    method: str
    bytes_moved: int
    bytes_full: int
    path: Path
    note: str = ""
    trial_s: float = 0.0
    rolled_back: str = ""


def split_address(address: str) -> tuple[str, str]:
    """Split STORE/MODEL into the store's URL or folder and the model's name.

    Raises:
        StoreError: It has no `/`.
    """
    store, _, model = address.rstrip("/").rpartition("/")
    if not store or not model:
        raise StoreError(f"`{address}` names no model of a store", hint="edge-infer pull STORE/MODEL --into DIR")
    return store, model


def pull(
    store: str | Source,
    model: str,
    device: DeviceStore,
    trial: Callable[[Path], None],
    *,
    root: bytes | None = None,
    retry: bool = False,
    progress: Callable[[int], None] = lambda _bytes: None,
    is_halted: Callable[[int, int], bool] = lambda _sequence, _stage: False,
    key: KeySource = None,
) -> Pulled:
    """Bring a device to the newest revision of a model.

    Args:
        store: The store's URL or folder.
        model: The model's name.
        device: The folder to bring up to date.
        trial: Runs the new bundle, and raises where it does not work. A revision that fails is not tried again, unless
            the fault is the machine's or the caller's, or a newer edge-infer may run it.
        root: The root metadata to trust at the first pull; None takes the store's own.
        retry: Whether to try a revision that failed before.
        progress: Told the bytes that came, each time.
        is_halted: Told a version that comes in steps, by its sequence and the step's number; where it says so, the
            version is not taken now.
        key: The key file of versions that are encrypted; None for the one that `EDGE_INFER_KEY_FILE` names.

    Raises:
        EncryptedError: The version is encrypted, and the key is another or none.
        NotReleasedError: The version is not for this device, or its roll-out is halted.
        SyncError: It could not be fetched, proven, stored or run; the old version is active as before.
    """
    source = open_source(store) if isinstance(store, str) else store
    ring = KeyRing.of(key)
    with device.locked():
        return _Pull(source, model, device, trial, progress, is_halted, ring).run(root, retry=retry)


class _Pull:
    def __init__(
        self,
        source: Source,
        model: str,
        device: DeviceStore,
        trial: Callable[[Path], None],
        progress: Callable[[int], None],
        is_halted: Callable[[int, int], bool],
        ring: KeyRing,
    ) -> None:
        self._ring = ring
        self._source = source
        self._model = model
        self._device = device
        self._disk = device.disk
        self._trial = trial
        self._progress = progress
        self._is_halted = is_halted
        self._moved = self._stage = 0
        self._trial_s = 0.0

    def run(self, root: bytes | None, *, retry: bool) -> Pulled:
        device = self._device
        record = device.record()
        if record.model and record.model != self._model:
            raise StoreError(f"`{device.folder}` holds model `{record.model}`, not `{self._model}`")
        record = record._replace(model=self._model)
        folder, name = device.folder / "tuf", device.name()
        # A version that was seen and not taken does not count: a roll-out that ends offers the one before it again.
        least = record.floor._replace(sequence=record.active.sequence if record.active else 0)
        revision, floor, self._stage = newest(self._source, self._model, folder, self._root(root), least, name)
        if floor != record.floor:
            record = record._replace(floor=floor)
            device.write(record)
        record = self._judge_unfinished(record)
        wanted = Installed(revision.version, revision.sequence, revision.files, revision.key)
        if wanted.bundle in record.refused and not retry:
            raise TrialError(
                f"Version {wanted.version} of `{self._model}` failed its trial here before and is not taken",
                hint=f"{self._command()} --retry, or publish a better one",
                version=wanted.version,
            )
        if wanted.bundle in record.rolled_back and not retry and record.active is not None:
            note = f"version {wanted.version} was rolled back here and is not taken; {self._command()} --retry takes it"
            active = record.active
            revision = revision._replace(version=active.version, sequence=active.sequence, files=active.files)
            path = device.stage(active)
            found = self._result(revision, path, changed=False, method="none", note=note)
            return found._replace(rolled_back=wanted.version)
        is_active = record.active is not None and record.active.bundle == wanted.bundle
        if is_active and record.active != wanted:  # published again, by a new number
            record = record._replace(active=wanted)
            device.write(record)
        if is_active and not device.damaged(wanted.files):
            path = device.stage(wanted)
            return self._result(revision, path, changed=False, method="none")
        if self._stage and not is_active and self._is_halted(wanted.sequence, self._stage):
            raise NotReleasedError(
                f"The roll-out of version {wanted.version} of `{self._model}` is halted: it failed on other devices",
                hint="the old version is active as before" if record.active else "nothing is installed",
                version=wanted.version,
            )
        if revision.key:
            self._ring.get(revision.key, f"Version {wanted.version} of `{self._model}`")
        method, note = self._bring(revision, record)
        path = device.stage(wanted)
        if is_active:
            return self._result(revision, path, changed=False, method="repair", note=note)
        record = self._tried(record, wanted, path)
        refused, rolled_back = (
            tuple(one for one in bundles if one != wanted.bundle) for bundles in (record.refused, record.rolled_back)
        )
        taken = record._replace(active=wanted, previous=record.active, trial="", trials=0)
        device.write(taken._replace(refused=refused, rolled_back=rolled_back))
        device.collect_locked()
        return self._result(revision, path, changed=True, method=method, note=note)

    def _result(self, revision: Revision, path: Path, *, changed: bool, method: str, note: str = "") -> Pulled:
        return Pulled(
            self._model,
            revision.version,
            revision.sequence,
            self._stage,
            revision.bundle,
            changed,
            method,
            self._moved,
            revision.pack.size,
            path,
            note,
            self._trial_s,
        )

    def _command(self) -> str:
        """Return the command that does this pull."""
        address = f"{self._source.location}/{self._model}"
        return f"edge-infer pull {quote(address)} --into {quote(str(self._device.folder))}"

    def _root(self, given: bytes | None) -> bytes:
        """Return the root metadata that is trusted: the one of the first pull, for ever."""
        path = self._device.folder / "root.json"
        if path.is_file():
            return path.read_bytes()
        root = given if given is not None else self._source.read(FIRST_ROOT, MAX_ROOT_BYTES)
        self._disk.replace(path, root)
        return root

    def _judge_unfinished(self, record: Record) -> Record:
        """Refuse a revision during whose trial this process died too often."""
        if record.trial and record.trials >= MAX_TRIALS:
            record = record._replace(refused=(*record.refused, record.trial)[-16:], trial="", trials=0)
            self._device.write(record)
        return record

    def _tried(self, record: Record, wanted: Installed, path: Path) -> Record:
        """Run the trial; the record says so before, for the case that the process dies of it."""
        trials = record.trials + 1 if record.trial == wanted.bundle else 1
        record = record._replace(trial=wanted.bundle, trials=trials)
        self._device.write(record)
        ended = record._replace(trial="", trials=0)
        start = time.perf_counter()
        try:
            self._trial(path)
            self._trial_s = time.perf_counter() - start
        except _NOT_THE_VERSION:
            self._device.write(ended)
            raise
        except Exception as error:
            hint = "the old version is active as before" if record.active else "nothing is installed"
            if isinstance(error, BundleError) and error.details.get("is_newer"):
                hint = error.hint  # what a newer edge-infer may run is not refused for ever
            else:
                ended = ended._replace(refused=(*record.refused, wanted.bundle)[-16:])
            self._device.write(ended)
            raise TrialError(
                f"Version {wanted.version} of `{self._model}` failed its trial and is not taken: "
                f"{getattr(error, 'message', error)}",
                hint=hint,
                version=wanted.version,
                sequence=wanted.sequence,
                stage=self._stage,
            ) from error
        return ended

    # -- the files --

    def _bring(self, revision: Revision, record: Record) -> tuple[str, str]:
        """Bring the blobs of a revision; return by what, and why not by something cheaper."""
        missing = self._device.damaged(revision.files)
        if not missing:
            return "local", ""
        for file in missing:
            self._disk.remove(self._device.blob(file.sha256))
        note = ""
        for delta, base in self._usable(revision, record):
            try:
                self._from_pack(delta, revision, base)
            except (DeltaError, FetchError) as error:
                note = f"delta given up: {error.message}"
                self._disk.remove(self._device.partial / delta.sha256)
            else:
                return "delta", note
        self._from_pack(revision.pack, revision, None)
        return "full", note

    def _usable(self, revision: Revision, record: Record) -> list[tuple[Object, Installed]]:
        """Return the deltas whose base lies here whole, the smallest first."""
        here = {one.bundle: one for one in (record.active, record.previous) if one is not None}
        usable = [
            (delta, here[delta.base])
            for delta in revision.deltas
            if delta.base in here and delta.size < revision.pack.size and self._opens(here[delta.base])
        ]
        usable.sort(key=lambda one: one[0].size)
        return [(delta, base) for delta, base in usable if not self._device.damaged(base.files)]

    def _opens(self, version: Installed) -> bool:
        return not version.key or any(key.name == version.key for key in self._ring.keys)

    def _from_pack(self, pack: Object, revision: Revision, old: Installed | None) -> None:
        device, disk = self._device, self._disk
        target = device.partial / pack.sha256
        self._moved += download(self._source, pack, target, disk, self._progress)
        made = {file.path: device.partial / f"{pack.sha256}.{i}" for i, file in enumerate(revision.files)}

        key = self._ring.get(revision.key, f"Version {revision.version}") if revision.key else None
        bases = {file.sha256 for file in old.files} if old is not None else set()

        def base(digest: str) -> Base:
            if digest not in bases or old is None:
                raise DeltaError(f"The pack needs a base file {digest[:12]} that is not here")
            return _Sealed(device.blob(digest), self._ring) if old.key else device.blob(digest)

        def writer(path: str) -> Callable[[bytes | bytearray | memoryview], object]:
            offset = 0
            disk.remove(made[path])
            disk.write(made[path], b"")

            def write(data: bytes | bytearray | memoryview) -> None:
                nonlocal offset
                disk.write(made[path], data, offset)
                offset += len(data)

            return write

        place = target if key is None else _Sealed(target, self._ring)
        try:
            with contextlib.closing(place.open("rb")) as file:
                unpack(file, {one.path: one for one in revision.files}, base, writer, key)
        except IntegrityError as error:  # it has the sha256 that was signed, and yet does not open
            raise DeltaError(error.message, hint="publish the model again") from error
        for one in revision.files:
            self._keep(made[one.path], one)
        disk.sync(device.blobs)
        disk.remove(target)

    def _keep(self, path: Path, file: File) -> None:
        """Make a file a blob: on the disk, read back, read-only, under its name."""
        self._disk.sync(path)
        require_whole(path, file)
        self._disk.protect(path)
        self._disk.rename(path, self._device.blob(file.sha256))


class _Sealed(NamedTuple):
    """Where a sealed file lies, which is read in clear."""

    path: Path
    ring: KeyRing

    def open(self, mode: Literal["rb"], /) -> SealedFile:
        return SealedFile(self.path.open(mode), self.ring, self.path.name)
