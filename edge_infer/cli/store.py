"""`edge-infer store`: manage the keys and signatures of a store and the versions on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_infer.cli import options, output
from edge_infer.errors import SyncError

if TYPE_CHECKING:
    from edge_infer.sync.device import Installed

keys_option = click.option(
    "--keys",
    default=Path("edge-infer-keys"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="The folder of the publisher's private keys; never inside the store.",
)
_role = click.argument("role", type=click.Choice(["root", "targets", "snapshot", "timestamp"]))
_store = click.argument("location", metavar="STORE")
_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.group()
def store() -> None:
    """Keys and signatures of a store, versions on a device."""
    options.require_extra("sync")


@store.group()
def keys() -> None:
    """The publisher's keys."""


@keys.command()
@_store
@keys_option
def init(location: str, keys: Path) -> None:
    """Make an empty STORE and its four keys (root, targets, snapshot, timestamp).

    Keep root.pem offline: it is needed only to replace the others.
    """
    from edge_infer.sync.publisher import published

    with published(location) as repository:
        if keys.resolve().is_relative_to(repository.folder.resolve()):
            raise click.UsageError(f"--keys {keys} lies inside the store, which is public")
        repository.create(keys)
        output.data(str(repository.folder / "tuf" / "1.root.json"))
    output.talk(f"Made the store {location} and 4 keys in {keys}; give devices this root.json by hand to trust it")


@keys.command()
@_store
@_role
@keys_option
def rotate(location: str, role: str, keys: Path) -> None:
    """Replace the keys of a ROLE by a new one; devices follow, and the old ones sign nothing any more.

    Needs the root keys. The files of the old keys are kept under another name. Rotating `root` also extends its year.
    """
    from edge_infer.sync.publisher import published

    with published(location) as repository:
        keyid = repository.rotate(role, keys)
    output.talk(f"The role {role} of {location} has the new key {keyid[:8]}; back up {keys}")


@keys.command()
@_store
@_role
@click.option(
    "--threshold", type=click.IntRange(1), metavar="N", help="How many keys of the role must sign. Default: as before."
)
@keys_option
def add(location: str, role: str, threshold: int | None, keys: Path) -> None:
    """Give a ROLE one more key, and say how many must sign.

    All of them are needed in --keys when something is signed; keep them apart in between.
    """
    from edge_infer.sync.publisher import published

    with published(location) as repository:
        keyid = repository.add_key(role, keys, threshold)
    said = "" if threshold is None else f"; {threshold} must sign"
    output.talk(f"The role {role} of {location} has one more key, {keys / f'{role}-{keyid[:8]}.pem'}{said}")


@keys.command()
@click.argument("file", metavar="KEYFILE", type=click.Path(path_type=Path, dir_okay=False))
def encryption(file: Path) -> None:
    """Put a new key for `publish --encrypt-to` into KEYFILE, before those that are there.

    The first key encrypts, all of them decrypt: give devices the new file before you publish with it. Whoever has the
    file has the weights, and without it nobody has them: back it up.
    """
    from edge_infer.bundle.keys import write_key

    key = write_key(file)
    output.talk(f"{file} has the new key {key.name} in front; only its owner may read it. Back it up")


@store.command()
@_store
@click.argument("model")
@click.argument("share")
@keys_option
def stage(location: str, model: str, share: str, keys: Path) -> None:
    """Sign the next step of a roll-out: the SHARE of the devices that take the newest version of MODEL.

    SHARE is 50%, all or halt. With halt no more devices take it; those that have it keep it.
    """
    from edge_infer.sync.publisher import published
    from edge_infer.sync.stage import WHOLE, parse_share

    part = parse_share(share)
    with published(location) as repository:
        repository.stage(model, part, keys)
    said = "is halted" if part == 0 else "is for all devices" if part == WHOLE else f"is for {part / WHOLE:.2%} of them"
    output.talk(f"The newest version of {model} {said}")


@store.command()
@_store
@keys_option
def refresh(location: str, keys: Path) -> None:
    """Sign a STORE again, so that it does not expire: at least once a week."""
    from edge_infer.sync.publisher import published

    with published(location) as repository:
        until = repository.refresh(keys)
    output.talk(f"Signed {location} until {until:%Y-%m-%d}")


@store.command()
@_folder
@options.as_json
def status(folder: Path, as_json: bool) -> None:
    """Show what is active on a device, what was before, and what was refused."""
    from edge_infer.sync.device import DeviceStore

    device = DeviceStore(folder)
    record = device.record()

    def described(one: Installed | None) -> dict[str, object] | None:
        if one is None:
            return None
        path = str(device.version_path(one.bundle))
        return {"version": one.version, "sequence": one.sequence, "bundle": one.bundle, "path": path}

    if as_json:
        document = {
            "model": record.model,
            "active": described(record.active),
            "previous": described(record.previous),
            "trial": record.trial,
            "refused": list(record.refused),
            "rolled_back": list(record.rolled_back),
            "floor": record.floor._asdict(),
        }
        output.data_json(document)
        return
    for name, one in (("active", record.active), ("previous", record.previous)):
        said = described(one)
        output.data(f"{name:9} nothing" if said is None else f"{name:9} {said['version']}  {said['path']}")
    for bundle in record.refused:
        output.data(f"refused   {bundle[:12]}")
    for bundle in record.rolled_back:
        output.data(f"rolled back {bundle[:12]}")
    if record.trial:
        output.data(f"trial     {record.trial[:12]} did not end, {record.trials} time(s)")


@store.command()
@_folder
def rollback(folder: Path) -> None:
    """Make the previous version on a device the active one; the other is taken again by `pull --retry` only."""
    from edge_infer.sync.device import DeviceStore

    active = DeviceStore(folder).rollback().active
    output.talk(f"Version {active.version if active else ''} is active again")


@store.command()
@_folder
def gc(folder: Path) -> None:
    """Remove what is not needed any more, from a device's folder or from a STORE in a folder.

    Of a device: all but the active and the previous version. Of a store: versions that no delta is made from.
    """
    if (folder / "tuf/timestamp.json").is_file() and (folder / "revisions").is_dir():
        from edge_infer.sync.repository import Repository

        output.talk(f"Freed {output.size(Repository(folder).collect())}")
        return
    from edge_infer.sync.device import DeviceStore

    output.talk(f"Freed {output.size(DeviceStore(folder).collect())}")


@store.command()
@_folder
def verify(folder: Path) -> None:
    """Read every file on a device again and compare its sha256; exit with 1 where one is damaged."""
    from edge_infer.sync.device import DeviceStore

    wrong = DeviceStore(folder).verify()
    for path in wrong:
        output.data(path)
    if wrong:
        raise SyncError(f"{len(wrong)} damaged files", hint="edge-infer pull STORE/MODEL --into DIR repairs them")
    output.talk("Every file is whole")
