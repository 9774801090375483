"""The publisher's side of a store: signed metadata over immutable files, all static.

    tuf/N.root.json  tuf/N.targets.json  tuf/N.snapshot.json  tuf/timestamp.json
    revisions/<sha256>.json
    packs/<first two digits>/<sha256>

Everything but `tuf/timestamp.json` is immutable. It is written last, so that a client that reads meanwhile sees the old
state.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from edge_infer.errors import StoreError
from edge_infer.sync.disk import Disk
from edge_infer.sync.keys import load_keys, make_key, make_keys, retire_key
from edge_infer.sync.revision import Revision
from edge_infer.sync.stage import WHOLE, Stage, stage_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

#: How long each role's signature holds. A device that sees none newer than a week installs nothing any more.
LIFETIME_DAYS = {"root": 365, "targets": 365, "snapshot": 30, "timestamp": 7}
# Whoever read the timestamp a moment ago may still ask for the metadata that it names.
_KEPT_METADATA = 8
#: How many older revisions a delta is made from.
MAX_HISTORY = 3


class Offered(NamedTuple):
    """The versions of a model in a store.

    Attributes:
        revision: Its newest revision document.
        history: The ones before, the newest first.
        stage: The step of its roll-out; None where it is for all.
        sequence: Its number.
    """

    revision: str
    history: tuple[str, ...]
    stage: Stage | None
    sequence: int

    @property
    def bases(self) -> list[str]:
        """The revisions that devices may have now, which deltas are made from."""
        known = [self.revision, *self.history]
        fallback = self.stage.fallback if self.stage is not None else ""
        if fallback and fallback not in known[:MAX_HISTORY]:
            return [*known[: MAX_HISTORY - 1], fallback]
        return known[:MAX_HISTORY]


class Repository:
    """A store to publish into.

    Args:
        folder: Where the store lies.
        now: The time, for tests; None for the clock's.
        missing: Brings a file of the store that is not in the folder, by its path.
    """

    def __init__(
        self, folder: Path, *, now: datetime.datetime | None = None, missing: Callable[[str], None] | None = None
    ) -> None:
        self.folder = folder
        self._missing = missing
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
        self._write("1.root.json", root, [signers["root"]])
        self._sign("1.targets.json", Targets(1, expires=self._expires("targets")), keys, "targets")
        self._commit(1, Snapshot(1, expires=self._expires("snapshot")), keys, timestamp=1)

    def rotate(self, role: str, keys: Path) -> str:
        """Replace the keys of a role that lie in the folder by a new one; return the new key's id.

        Devices follow: the new root metadata is signed by the old root keys and by its own.

        Raises:
            StoreError: A key is missing, or too few of the root's keys are here.
        """
        root = self._root()
        here = {signer.public_key.keyid for signer in load_keys(keys, role)}
        old = [keyid for keyid in root.roles[role].keyids if keyid in here]
        threshold = root.roles[role].threshold
        if len(root.roles[role].keyids) - len(old) + 1 < threshold:
            raise StoreError(
                f"{threshold} keys of the role {role} must sign, and these {len(old)} keys would become one",
                hint=f"edge-infer store keys add STORE {role}, then rotate",
            )
        return self._change_root(role, keys, threshold, old)

    def add_key(self, role: str, keys: Path, threshold: int | None = None) -> str:
        """Give a role one more key; return its id.

        Args:
            role: `root`, `targets`, `snapshot` or `timestamp`.
            keys: The folder of the keys.
            threshold: How many keys of the role must sign from now on; None for as many as before.

        Raises:
            StoreError: The threshold is higher than the number of keys.
        """
        known = self._root().roles[role]
        wanted = known.threshold if threshold is None else threshold
        if not 1 <= wanted <= len(known.keyids) + 1:
            raise StoreError(
                f"The role {role} will have {len(known.keyids) + 1} keys, {wanted} of them cannot be asked to sign",
                hint=f"--threshold {len(known.keyids) + 1}",
            )
        return self._change_root(role, keys, wanted, [])

    def _change_root(self, role: str, keys: Path, threshold: int, old: list[str]) -> str:
        root = self._root()
        by_role = {name: load_keys(keys, name) for name in ("root", "targets", "snapshot", "timestamp")}
        signer = make_key(keys, role)
        # Signed by old and new keys before the root changes: whoever comes in between trusts one of them.
        number, targets = self._targets()
        if role == "targets":
            self._replace_targets(number, targets, keys)
        else:
            self._resign(keys)
        root.add_key(signer.public_key, role)
        for keyid in old:
            root.revoke_key(keyid, role)
        root.roles[role].threshold = threshold
        root.version, root.expires = root.version + 1, self._expires("root")
        signers = by_role["root"] + ([signer] if role == "root" else [])
        self._write(f"{root.version}.root.json", root, signers)
        for keyid in old:
            retire_key(keys, role, keyid)
        return signer.public_key.keyid

    def _root(self) -> Root:
        signed: Root = self._read(f"{self._newest('root')}.root.json", Root)
        return signed

    def offered(self, model: str) -> Offered | None:
        """Return what is offered of a model, None where it was never published."""
        target = self._targets()[1].targets.get(model)
        if target is None:
            return None
        custom: Any = target.unrecognized_fields.get("custom", {})
        history = tuple(custom.get("history", ()))
        return Offered(target.hashes["sha256"], history, stage_of(custom), int(custom.get("sequence", 0)))

    def models(self) -> list[str]:
        """List the models that are offered."""
        return sorted(self._targets()[1].targets)

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

    def file(self, path: str) -> Path:
        """Return where an immutable file of the store lies.

        Raises:
            StoreError: It is missing.
        """
        place = self.folder / path
        if not place.is_file() and self._missing is not None:
            self._missing(path)
        if not place.is_file():
            raise StoreError(f"The store has no `{path}`", hint="restore the store's files")
        return place

    def keep(self, path: str, data: bytes) -> None:
        """Write an immutable file of the store."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != data:
            self._disk.replace(target, data)

    def offer(self, revision: Revision, keys: Path, share: int = WHOLE) -> None:
        """Sign a revision as the newest of its model; its packs must be there.

        Args:
            revision: The revision.
            keys: The folder of the keys.
            share: How many of 10 000 devices take it now; the others take what they took before.
        """
        data = revision.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self.keep(f"revisions/{digest}.json", data)
        before = self.offered(revision.model)
        history = [] if before is None else before.bases
        custom: dict[str, Any] = {"version": revision.version, "sequence": revision.sequence, "history": history}
        if share < WHOLE:
            fallback = ""
            if before is not None:
                fallback = before.revision if before.stage is None else before.stage.fallback
            custom["stage"] = {"number": 1, "share": share} | ({"fallback": fallback} if fallback else {})
        number, targets = self._targets()
        targets.targets[revision.model] = TargetFile(len(data), {"sha256": digest}, revision.model, {"custom": custom})
        self._replace_targets(number, targets, keys)

    def stage(self, model: str, share: int, keys: Path) -> None:
        """Sign the next step of a roll-out: how many of 10 000 devices take the newest version of a model.

        Raises:
            StoreError: The model was never published, or its newest version is for all already.
        """
        before = self.offered(model)
        if before is None:
            raise StoreError(f"The store has no model `{model}`", hint="edge-infer publish BUNDLE STORE --stage 10%")
        if before.stage is None:
            raise StoreError(
                f"The newest version of `{model}` is released to all devices already",
                hint="devices do not go back by themselves: publish the bundle before it as a new version",
            )
        number, targets = self._targets()
        custom: Any = targets.targets[model].unrecognized_fields["custom"]
        if share == WHOLE:
            del custom["stage"]
        else:
            custom["stage"] |= {"number": before.stage.number + 1, "share": share}
        self._replace_targets(number, targets, keys)

    def _replace_targets(self, number: int, targets: Targets, keys: Path) -> None:
        targets.version, targets.expires = number + 1, self._expires("targets")
        self._sign(f"{number + 1}.targets.json", targets, keys, "targets")
        self._resign(keys)

    def refresh(self, keys: Path) -> datetime.datetime:
        """Sign the snapshot and the timestamp again, so that they do not expire; return until when they hold."""
        self._resign(keys)
        return self._expires("timestamp")

    def collect(self) -> int:
        """Remove revisions and packs that no device is offered any more, and old metadata; return the bytes freed.

        A device that has slept through more versions than deltas are kept of fetches the full pack, as before.
        """
        kept: set[str] = set()
        for model in self.models():
            offered = self.offered(model)
            for digest in offered.bases if offered is not None else ():
                kept.add(f"revisions/{digest}.json")
                revision = self.revision(digest)
                kept |= {one.path for one in (revision.pack, *revision.deltas)}
        numbers = {"targets": self._load("snapshot", Snapshot).meta["targets.json"].version}
        numbers["snapshot"] = self._timestamp().snapshot_meta.version
        freed = 0
        for path in [
            *self.folder.glob("revisions/*.json"),
            *self.folder.glob("packs/*/*"),
            *self.folder.glob("tuf/*.json"),
        ]:
            name = path.relative_to(self.folder).as_posix()
            number, _, role = path.name.removesuffix(".json").partition(".")
            is_old = role in numbers and number.isdecimal() and int(number) <= numbers[role] - _KEPT_METADATA
            if is_old if name.startswith("tuf/") else name not in kept:
                freed += path.stat().st_size
                self._disk.remove(path)
        return freed

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

    def _sign(self, name: str, signed: Targets | Snapshot | Timestamp, keys: Path, role: str) -> None:
        signers = load_keys(keys, role)
        known = self._root().roles[role]
        here = len({signer.public_key.keyid for signer in signers} & set(known.keyids))
        if here < known.threshold:
            raise StoreError(
                f"`{keys}` has {here} of the keys of the role {role}, {known.threshold} of them must sign",
                hint="bring the other keys into this folder; are these the keys of this store?",
            )
        self._write(name, signed, signers)

    def _write(self, name: str, signed: Root | Targets | Snapshot | Timestamp, signers: list[CryptoSigner]) -> None:
        metadata: Metadata[Any] = Metadata(signed)
        for signer in signers:
            metadata.sign(signer, append=True)
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
                f"`{self.folder}` is not a store: tuf/{name} cannot be read",
                hint=f"edge-infer store keys init {self.folder} --keys DIR",
            ) from error
        if not isinstance(signed, kind):
            raise StoreError(f"`{self.folder}` is damaged: tuf/{name} does not hold a {kind.__name__}")
        return signed

    def _expires(self, role: str) -> datetime.datetime:
        return (self._now + datetime.timedelta(days=LIFETIME_DAYS[role])).replace(microsecond=0)
