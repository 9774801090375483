"""A store whose targets delegate a model to a role of its own, as other tools of The Update Framework make it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import DelegatedRole, Delegations, Metadata, MetaFile, Snapshot, Targets, Timestamp

from edge_infer.sync.keys import load_keys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sync.publisher import Publisher

TEAM = CryptoSigner.generate_ed25519()


def number_of(folder: Path, role: str) -> int:
    """Return the newest version of a role in a store."""
    return max(int(path.name.split(".")[0]) for path in (folder / "tuf").glob(f"*.{role}.json"))


def write(publisher: Publisher, name: str, role: str, signed: Any) -> None:
    """Sign metadata of a role of the top, and write it."""
    metadata: Metadata[Any] = Metadata(signed)
    for signer in load_keys(publisher.keys, role):
        metadata.sign(signer, append=True)
    (publisher.folder / "tuf" / name).write_bytes(metadata.to_bytes())


def delegate(publisher: Publisher, model: str = "linear", *, expires: datetime.datetime | None = None) -> None:
    """Let the role `team` say what is offered of a model."""
    tuf = publisher.folder / "tuf"
    until = expires or datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(days=300)
    number = number_of(publisher.folder, "targets")
    targets = Metadata[Targets].from_file(str(tuf / f"{number}.targets.json")).signed
    team = Metadata(Targets(1, expires=until, targets={model: targets.targets.pop(model)}))
    team.sign(TEAM)
    (tuf / "1.team.json").write_bytes(team.to_bytes())
    role = DelegatedRole("team", [TEAM.public_key.keyid], 1, terminating=True, paths=[model])
    targets.delegations = Delegations({TEAM.public_key.keyid: TEAM.public_key}, {"team": role})
    targets.version = number + 1
    write(publisher, f"{number + 1}.targets.json", "targets", targets)
    again = number_of(publisher.folder, "snapshot")
    snapshot = Metadata[Snapshot].from_file(str(tuf / f"{again}.snapshot.json")).signed
    snapshot.version = again + 1
    snapshot.meta |= {"targets.json": MetaFile(number + 1), "team.json": MetaFile(1)}
    write(publisher, f"{again + 1}.snapshot.json", "snapshot", snapshot)
    timestamp = Metadata[Timestamp].from_file(str(tuf / "timestamp.json")).signed
    timestamp.version += 1
    timestamp.snapshot_meta = MetaFile(again + 1)
    write(publisher, "timestamp.json", "timestamp", timestamp)
