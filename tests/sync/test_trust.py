"""Who may publish: forged, old, mixed and endless metadata is refused, and what runs goes on running."""

from __future__ import annotations

import datetime
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import ExpiredError, FetchError, RollbackError, SignatureError, StoreError, SyncError
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.repository import Repository
from tests.support.sync.delegated import delegate
from tests.support.sync.host import Answer, Host
from tests.support.sync.javascript import in_javascript
from tests.support.sync.publisher import Publisher, take

if TYPE_CHECKING:
    from pathlib import Path


def quick(path: Path) -> None:
    assert path.is_dir()


@pytest.fixture
def device(publisher: Publisher, tmp_path: Path) -> DeviceStore:
    """A device with version 1."""
    publisher.publish(1)
    made = DeviceStore(tmp_path / "device")
    take(publisher.folder, made, quick)
    return made


def still_runs(device: DeviceStore, version: str = "1") -> bool:
    active = device.record().active
    return active is not None and active.version == version and device.verify() == []


def replay(publisher: Publisher, into: Path) -> Path:
    """Copy the store as it is now, to be shown later."""
    shutil.copytree(publisher.folder, into)
    return into


def test_another_publisher_is_refused(publisher: Publisher, device: DeviceStore, tmp_path: Path) -> None:
    other = Publisher(tmp_path / "other", tmp_path / "other keys", tmp_path / "other bundles")
    Repository(other.folder).create(other.keys)
    other.publish(2)
    other.publish(3)

    with pytest.raises(SignatureError, match="refused"):
        take(other.folder, device, quick)

    assert still_runs(device)


def test_the_root_that_was_brought_by_hand_is_the_one_that_counts(
    publisher: Publisher, device: DeviceStore, tmp_path: Path
) -> None:
    Repository(tmp_path / "other").create(tmp_path / "other keys")
    root = (tmp_path / "other/tuf/1.root.json").read_bytes()

    with pytest.raises(SignatureError):
        pull(str(publisher.folder), "linear", DeviceStore(tmp_path / "new"), quick, root=root)
    root = (publisher.folder / "tuf/1.root.json").read_bytes()
    assert pull(str(publisher.folder), "linear", DeviceStore(tmp_path / "new2"), quick, root=root).changed


@pytest.mark.parametrize("name", ["timestamp.json", "3.snapshot.json", "3.targets.json"])
def test_one_changed_word_of_any_role_is_refused(publisher: Publisher, device: DeviceStore, name: str) -> None:
    publisher.publish(2)
    path = publisher.folder / "tuf" / name
    document: dict[str, Any] = json.loads(path.read_text())
    document["signed"]["expires"] = "2099-01-01T00:00:00Z"
    path.write_text(json.dumps(document))

    with pytest.raises(SignatureError):
        take(publisher.folder, device, quick)

    assert still_runs(device)


def test_a_revision_that_was_not_signed_is_refused(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(2)
    for path in (publisher.folder / "revisions").iterdir():
        path.write_bytes(path.read_bytes().replace(b'"model"', b'"Model"'))

    with pytest.raises(SignatureError, match="not the one that was signed"):
        take(publisher.folder, device, quick)

    assert still_runs(device)


@pytest.mark.parametrize("lost", [False, True], ids=["with its files", "after a power cut took python-tuf's files"])
def test_an_old_copy_of_the_store_is_refused(
    publisher: Publisher, device: DeviceStore, tmp_path: Path, lost: bool
) -> None:
    old = replay(publisher, tmp_path / "old")
    publisher.publish(2)
    take(publisher.folder, device, quick)
    if lost:
        for path in (device.folder / "tuf").glob("*.json"):
            path.unlink()
            path.write_bytes(b"")

    with pytest.raises(RollbackError):
        take(old, device, quick)

    assert still_runs(device, "2")


def test_a_revision_below_the_floor_is_refused_even_when_signed(publisher: Publisher, device: DeviceStore) -> None:
    record = device.record()
    assert record.active is not None
    device.write(record._replace(active=record.active._replace(sequence=7)))

    with pytest.raises(RollbackError, match="sequence 1, expected at least 7"):
        take(publisher.folder, device, quick)


def test_a_signed_revision_of_sequence_0_is_below_every_floor(publisher: Publisher, device: DeviceStore) -> None:
    revision = publisher.publish(2).revision
    Repository(publisher.folder).offer(revision._replace(sequence=0), publisher.keys)

    with pytest.raises(RollbackError, match="sequence 0, expected at least 1"):
        take(publisher.folder, device, quick)

    assert still_runs(device)


def test_a_store_that_is_frozen_expires_and_what_runs_goes_on(publisher: Publisher, device: DeviceStore) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=8)
    Repository(publisher.folder, now=past).refresh(publisher.keys)

    with pytest.raises(ExpiredError, match="expired"):
        take(publisher.folder, device, quick)

    assert still_runs(device)
    Repository(publisher.folder).refresh(publisher.keys)
    assert take(publisher.folder, device, quick).method == "none"


def test_a_clock_of_1970_does_not_make_old_metadata_new(
    publisher: Publisher, device: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """python-tuf sees the clock of a device that has just started; the last signed time is later than the expiry."""
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=30)
    Repository(publisher.folder, now=past).refresh(publisher.keys)
    import tuf.ngclient._internal.trusted_metadata_set as clocked

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Stopped:
            return cls(1970, 1, 2, tzinfo=tz)

    monkeypatch.setattr(clocked.datetime, "datetime", Stopped)
    with pytest.raises(ExpiredError, match="before the last time that was signed"):
        take(publisher.folder, device, quick)


@pytest.mark.parametrize("days", [300, -3])
def test_on_a_clock_of_1970_a_delegated_role_that_expired_is_refused_too(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    publisher.publish(1)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    delegate(publisher, expires=now + datetime.timedelta(days=days))
    import tuf.ngclient._internal.trusted_metadata_set as clocked

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Stopped:
            return cls(1970, 1, 2, tzinfo=tz)

    monkeypatch.setattr(clocked.datetime, "datetime", Stopped)
    device, root = DeviceStore(tmp_path / "device"), (publisher.folder / "tuf/1.root.json").read_text()
    in_page = in_javascript(publisher.folder, root=root, now_s=86400)
    if days > 0:
        assert take(publisher.folder, device, quick).version == in_page["version"] == "1"
        return
    with pytest.raises(ExpiredError, match="before the last time that was signed"):
        take(publisher.folder, device, quick)
    assert in_page["code"] == "metadata_expired"


def test_endless_metadata_is_cut_off(publisher: Publisher, host: Host, device: DeviceStore) -> None:
    host.change = lambda path, answer: answer._replace(body=bytes(20_000)) if path == "tuf/timestamp.json" else answer

    with pytest.raises(FetchError):
        take(host.url, device, quick)

    assert still_runs(device)


def test_a_store_without_metadata_says_what_is_missing(host: Host, device: DeviceStore) -> None:
    host.change = lambda _path, _answer: Answer(404, {}, b"")

    with pytest.raises(FetchError, match="404"):
        take(host.url, device, quick)


def test_a_model_that_was_never_published_is_named(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)

    with pytest.raises(FetchError, match="no model `other`"):
        pull(str(publisher.folder), "other", DeviceStore(tmp_path / "device"), quick)


def test_a_server_that_is_down_leaves_what_runs(device: DeviceStore, host: Host, publisher: Publisher) -> None:
    host.change = lambda _path, _answer: Answer(500, {}, b"")

    with pytest.raises(SyncError):
        take(host.url, device, quick)

    assert still_runs(device)


class TestKeys:
    def test_only_their_owner_may_read_them(self, publisher: Publisher) -> None:
        assert {path.stat().st_mode & 0o777 for path in publisher.keys.iterdir()} == {0o600}

    def test_a_key_that_others_may_read_is_not_used(self, publisher: Publisher) -> None:
        (publisher.keys / "targets.pem").chmod(0o644)

        with pytest.raises(StoreError, match="can be read by others"):
            publisher.publish(1)

    def test_keys_are_never_overwritten(self, publisher: Publisher, tmp_path: Path) -> None:
        before = {path.name: path.read_bytes() for path in publisher.keys.iterdir()}

        with pytest.raises(StoreError, match="there already"):
            Repository(tmp_path / "new store").create(publisher.keys)

        assert {path.name: path.read_bytes() for path in publisher.keys.iterdir()} == before

    def test_the_store_holds_no_private_key(self, publisher: Publisher) -> None:
        publisher.publish(1)

        assert not any(b"PRIVATE" in path.read_bytes() for path in publisher.folder.rglob("*") if path.is_file())
