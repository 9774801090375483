"""The publisher's side of a store: signed metadata over immutable files, all static.

    tuf/N.root.json  tuf/N.targets.json  tuf/N.snapshot.json  tuf/timestamp.json
    revisions/<sha256>.json
    packs/<first two digits>/<sha256>

Everything but `tuf/timestamp.json` is immutable. It is written last, so that who reads meanwhile sees the old state.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from edge_infer.errors import StoreError
from edge_infer.sync.disk import Disk
from edge_infer.sync.keys import load_key, make_keys
from edge_infer.sync.revision import Revision

if TYPE_CHECKING:
    from pathlib import Path

#: How long each role's signature holds. A device that sees none newer than a week installs nothing any more.
LIFETIME_DAYS = {"root": 365, "targets": 365, "snapshot": 30, "timestamp": 7}
#: How many older revisions a delta is made from.
MAX_HISTORY = 3


class Offered(NamedTuple):
    """What a store offers of a model: the names of its revision and of the ones before, the newest first."""

    revision: str
    history: tuple[str, ...]


class Repository:
    """A store to publish into.

    Args:
        folder: Where the store lies.
        now: The time, for tests; None for the clock's.
    """

    def __init__(self, folder: Path, *, now: datetime.datetime | None = None) -> None:
        self.folder = folder
        self._disk = Disk()
        self._now = now or datetime.datetime.now(datetime.UTC)

    @property
    def now_s(self) -> int:
        """The time in seconds since 1970."""
        return int(self._now.timestamp())

    def create(self, keys: Path) -> None:
        """Make keys and an empty store.

        Raises:
            StoreError: There is a store or a key already.
        """
        if (self.folder / "tuf").exists():
            raise StoreError(f"`{self.folder}` is a store already")
        signers = make_keys(keys)
        (self.folder / "tuf").mkdir(parents=True)
        root = Root(version=1, expires=self._expires("root"), consistent_snapshot=True)
        for role, signer in signers.items():
            root.add_key(signer.public_key, role)
        self._sign("1.root.json", root, keys, "root")
        self._sign("1.targets.json", Targets(1, expires=self._expires("targets")), keys, "targets")
        self._commit(1, Snapshot(1, expires=self._expires("snapshot")), keys, timestamp=1)

    def offered(self, model: str) -> Offered | None:
        """Return what is offered of a model, None where it was never published."""
        target = self._targets()[1].targets.get(model)
        if target is None:
            return None
        custom: Any = target.unrecognized_fields.get("custom", {})
        return Offered(target.hashes["sha256"], tuple(custom.get("history", ())))

    def revision(self, digest: str) -> Revision:
        """Return a revision of the store.

        Raises:
            StoreError: It is missing or damaged.
        """
        path = self.folder / "revisions" / f"{digest}.json"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreError(f"The store has no `{path.name}`: {error}", hint="restore the store's files") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"`{path}` is damaged", hint="restore the store's files")
        return Revision.from_bytes(data)

    def keep(self, path: str, data: bytes) -> None:
        """Write an immutable file of the store."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != data:
            self._disk.replace(target, data)

    def offer(self, revision: Revision, keys: Path) -> None:
        """Sign a revision as the newest of its model; its packs must be there."""
        data = revision.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self.keep(f"revisions/{digest}.json", data)
        before = self.offered(revision.model)
        history = [] if before is None else [before.revision, *before.history][:MAX_HISTORY]
        custom = {"version": revision.version, "sequence": revision.sequence, "history": history}
        number, targets = self._targets()
        targets.targets[revision.model] = TargetFile(len(data), {"sha256": digest}, revision.model, {"custom": custom})
        targets.version, targets.expires = number + 1, self._expires("targets")
        self._sign(f"{number + 1}.targets.json", targets, keys, "targets")
        self._resign(keys)

    def refresh(self, keys: Path) -> datetime.datetime:
        """Sign the snapshot and the timestamp again, so that they do not expire; return until when they hold."""
        self._resign(keys)
        return self._expires("timestamp")

    # -- metadata --

    def _resign(self, keys: Path) -> None:
        snapshot = self._load("snapshot", Snapshot)
        snapshot.meta["targets.json"].version = self._newest("targets")
        snapshot.version, snapshot.expires = snapshot.version + 1, self._expires("snapshot")
        self._commit(snapshot.version, snapshot, keys, timestamp=self._timestamp().version + 1)

    def _commit(self, number: int, snapshot: Snapshot, keys: Path, *, timestamp: int) -> None:
        self._sign(f"{number}.snapshot.json", snapshot, keys, "snapshot")
        signed = Timestamp(timestamp, expires=self._expires("timestamp"), snapshot_meta=MetaFile(number))
        self._sign("timestamp.json", signed, keys, "timestamp")

    def _sign(self, name: str, signed: Root | Targets | Snapshot | Timestamp, keys: Path, role: str) -> None:
        metadata: Metadata[Any] = Metadata(signed)
        metadata.sign(load_key(keys, role))
        self._disk.replace(self.folder / "tuf" / name, metadata.to_bytes())

    def _targets(self) -> tuple[int, Targets]:
        # What the snapshot does not name was never offered: a publisher that was cut left it.
        number = self._load("snapshot", Snapshot).meta["targets.json"].version
        signed: Targets = self._read(f"{number}.targets.json", Targets)
        return self._newest("targets"), signed

    def _timestamp(self) -> Timestamp:
        signed: Timestamp = self._read("timestamp.json", Timestamp)
        return signed

    def _load(self, role: str, kind: type[Snapshot]) -> Snapshot:
        signed: Snapshot = self._read(f"{self._timestamp().snapshot_meta.version}.{role}.json", kind)
        return signed

    def _newest(self, role: str) -> int:
        """Return the highest version of a role that was written."""
        names = (self.folder / "tuf").glob(f"*.{role}.json")
        return max(int(path.name.partition(".")[0]) for path in names if path.name[0].isdigit())

    def _read(self, name: str, kind: type[Any]) -> Any:
        try:
            signed = Metadata.from_bytes((self.folder / "tuf" / name).read_bytes()).signed
        except (OSError, RepositoryError) as error:
            raise StoreError(
                f"`{self.folder}` is no store: tuf/{name} cannot be read",
                hint=f"edge-infer store keys init {self.folder} --keys DIR",
            ) from error
        if not isinstance(signed, kind):
            raise StoreError(f"`{self.folder}` is damaged: tuf/{name} is no {kind.__name__}")
        return signed

    def _expires(self, role: str) -> datetime.datetime:
        return (self._now + datetime.timedelta(days=LIFETIME_DAYS[role])).replace(microsecond=0)
