"""Check publishers by the metadata of The Update Framework (theupdateframework.github.io/specification), by python-tuf.

python-tuf checks signatures, thresholds, expiry, and versions against its last files. Two things are added. It does not
sync its files to the disk, and begins anew where one is lost, so the versions that were seen are kept in our own record
too (`Floor`). And a device without a battery clock starts in 1970, where nothing has expired: the last signed time that
was seen is a lower bound of now.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from edge_infer.errors import ExpiredError, FetchError, RollbackError, SignatureError, SyncError
from edge_infer.sync.revision import MAX_REVISION_BYTES, Revision
from edge_infer.sync.stage import not_released, offered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.sync.source import Source

ROLES = ("root", "timestamp", "snapshot", "targets")
FIRST_ROOT = "tuf/1.root.json"
MAX_ROOT_BYTES = 512_000


class Floor(NamedTuple):
    """The highest versions that were seen already.

    The metadata's versions, the model's sequence (the caller puts the one that was taken there), the last signed time
    in s since 1970, and the keys that signed timestamps and snapshots then. Where these were replaced since, the
    versions of timestamp, snapshot, and of the targets that the snapshot names, do not count: whoever held the keys may
    have counted up to anything (TUF 1.0, 5.3.11, "fast-forward attack").
    """

    root: int = 0
    timestamp: int = 0
    snapshot: int = 0
    targets: int = 0
    sequence: int = 0
    time_s: int = 0
    online: str = ""

    def raised(self, other: Floor) -> Floor:
        """Return the higher of both, field by field, for the keys of the other."""
        least = self.under(other.online)
        higher = {name: max(getattr(least, name), getattr(other, name)) for name in Floor._fields[:-1]}
        return Floor(**higher, online=other.online)

    def under(self, online: str) -> Floor:
        """Return what counts of it under these keys."""
        return self if self.online in ("", online) else self._replace(timestamp=0, snapshot=0, targets=0)


class Proven(NamedTuple):
    """The offer of a store to a device: the revision, the floor with it, the number of the roll-out's step or 0."""

    revision: Revision
    floor: Floor
    stage: int


def newest(source: Source, model: str, folder: Path, root: bytes, floor: Floor, device: str = "") -> Proven:
    """Return the revision of a model that the store offers now, proven.

    Args:
        source: The store.
        model: The model's name.
        folder: Where python-tuf keeps its files.
        root: The root metadata that is trusted.
        floor: What was seen before, with the sequence that the device runs, 0 for none: it never goes below it.
        device: The device's name, which a roll-out in steps decides by.

    Raises:
        NotReleasedError: No version is for this device yet.
        SignatureError: The metadata is not signed as it must be, or does not fit together.
        ExpiredError: It is too old.
        RollbackError: It is older than what was seen.
        FetchError: It cannot be fetched.
    """
    with _in_our_words():
        updater, seen, expires = refreshed(source, folder, root, floor)
        target = updater.get_targetinfo(model)
        expires = min(expires, _expiry_of_search(folder, model))
    floor = floor.under(seen.online)
    if target is None:
        raise FetchError(f"The store `{source.location}` has no model `{model}`", status=404)
    offer = offered(target, model, device, floor.sequence)
    limit = MAX_REVISION_BYTES if offer.length is None else min(offer.length, MAX_REVISION_BYTES)
    data = source.read(f"revisions/{offer.sha256}.json", limit)
    if hashlib.sha256(data).hexdigest() != offer.sha256 or offer.length not in (None, len(data)):
        raise SignatureError(f"The revision of `{model}` is not the one that was signed")
    revision = Revision.from_bytes(data)
    if revision.model != model:
        raise SignatureError(f"The store gives model `{revision.model}` for `{model}`")
    if offer.is_fallback and revision.sequence < floor.sequence:
        raise not_released(
            model, "newer "
        )  # it took a version that was never for all, and the next one is not its turn
    seen = seen._replace(sequence=revision.sequence, time_s=revision.created)
    _refuse_older(seen._replace(time_s=floor.time_s), floor)
    bound = max(floor.time_s, revision.created)
    if expires < bound:
        raise ExpiredError(f"The store's metadata expired {bound - expires} s before the last time that was signed")
    return Proven(revision, floor.raised(seen), offer.stage)


def refreshed(
    source: Source, folder: Path, root: bytes | None, floor: Floor, prefix: str = "tuf/"
) -> tuple[Updater, Floor, int]:
    """Bring the metadata in a folder up to date.

    Args:
        source: The store.
        folder: Where python-tuf keeps its files.
        root: The root metadata that is trusted; None for the one in the folder.
        floor: What was seen before; its sequence does not count.
        prefix: Where the store has its metadata.

    Returns:
        What searches the targets, the versions that were found, and when the first file expires, in s since 1970.

    Raises:
        RollbackError: A version is older than what was seen.
        tuf.api.exceptions.RepositoryError, tuf.api.exceptions.DownloadError: It is refused, or cannot be fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = UpdaterConfig(prefix_targets_with_hash=False)
    updater = Updater(str(folder), prefix, fetcher=_Fetcher(source), config=config, bootstrap=root)
    updater.refresh()
    seen, expires = _seen(folder)
    least = floor.under(seen.online)
    _refuse_older(seen._replace(sequence=least.sequence), least)  # which revision is offered is not known yet
    return updater, seen, expires


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except exceptions.ExpiredMetadataError as error:
        raise ExpiredError(
            f"The store's metadata has expired: {error}", hint="on the publisher: edge-infer store refresh STORE"
        ) from error
    except (exceptions.BadVersionNumberError, exceptions.EqualVersionNumberError) as error:
        raise RollbackError(f"The store offers older metadata than was seen: {error}") from error
    except exceptions.DownloadError as error:
        cause = error.__cause__ or error.__context__
        raise FetchError(
            cause.message if isinstance(cause, SyncError) else f"The store's metadata cannot be fetched: {error}",
            hint=cause.hint if isinstance(cause, SyncError) else "",
            status=getattr(error, "status_code", 0),
        ) from error
    except SyncError:
        raise
    except (exceptions.RepositoryError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SignatureError(
            f"The store's metadata is refused: {error}", hint="is this the publisher whose root you trust?"
        ) from error


def _refuse_older(seen: Floor, floor: Floor) -> None:
    for name in (*ROLES, "sequence"):
        got, least = getattr(seen, name), getattr(floor, name)
        if got < least:
            raise RollbackError(
                f"The store offers {name} {got}, expected at least {least}: that was seen already",
                hint="the server holds an old copy, or somebody replays one",
                expected=least,
                got=got,
            )


def _seen(folder: Path) -> tuple[Floor, int]:
    """Return the versions of the metadata that python-tuf has just verified, and when the first of it expires."""
    found: dict[str, Root | Timestamp | Snapshot | Targets] = {
        "root": Metadata[Root].from_file(str(folder / "root.json")).signed,
        "timestamp": Metadata[Timestamp].from_file(str(folder / "timestamp.json")).signed,
        "snapshot": Metadata[Snapshot].from_file(str(folder / "snapshot.json")).signed,
        "targets": Metadata[Targets].from_file(str(folder / "targets.json")).signed,
    }
    roles = Metadata[Root].from_file(str(folder / "root.json")).signed.roles
    online = " ".join(sorted([*roles["timestamp"].keyids, *roles["snapshot"].keyids]))
    expires = min(one.expires.replace(tzinfo=datetime.UTC).timestamp() for one in found.values())
    return Floor(**{name: one.version for name, one in found.items()}, online=online), int(expires)


def _expiry_of_search(folder: Path, model: str) -> int:
    """Return when the first of the roles expires that python-tuf has just read to find a model, in s since 1970.

    Delegated ones too: it compares them with a clock that may stand in 1970. The order is that of its search (5.6.7).
    """
    found, open_, visited = [], ["targets"], set()
    while open_:
        role = open_.pop()
        path = folder / f"{quote(role, '')}.json"
        if role in visited or not path.is_file():
            continue
        visited.add(role)
        signed = Metadata[Targets].from_file(str(path)).signed
        found.append(signed.expires.replace(tzinfo=datetime.UTC).timestamp())
        if model in signed.targets:
            break
        children = []
        for name, is_last in signed.delegations.get_roles_for_target(model) if signed.delegations else ():
            children.append(name)
            if is_last:
                open_ = []
                break
        open_ += reversed(children)
    return int(min(found))


class _Fetcher(FetcherInterface):
    def __init__(self, source: Source) -> None:
        self._source = source

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            yield from self._source.stream(url.lstrip("/"), 0)  # python-tuf puts a `/` behind an empty prefix
        except FetchError as error:
            status = error.details.get("status", 0)
            if status in (403, 404):
                raise exceptions.DownloadHTTPError(error.message, status) from error
            raise exceptions.DownloadError(error.message) from error
