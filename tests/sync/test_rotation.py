"""Keys that are replaced and thresholds that grow: devices and pages follow, by both clients; others do not come in."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import RollbackError, SignatureError, StoreError
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.repository import Repository
from tests.support.sync.javascript import in_javascript
from tests.support.sync.publisher import Publisher, take

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROLES = ["root", "targets", "snapshot", "timestamp"]


def quick(path: Path) -> None:
    assert path.is_dir()


@pytest.fixture
def device(publisher: Publisher, tmp_path: Path) -> DeviceStore:
    publisher.publish(1)
    made = DeviceStore(tmp_path / "device")
    take(publisher.folder, made, quick)
    return made


@pytest.mark.parametrize("role", ROLES)
def test_devices_and_pages_follow_a_key_that_is_replaced(publisher: Publisher, device: DeviceStore, role: str) -> None:
    root = (publisher.folder / "tuf/1.root.json").read_text()
    old = in_javascript(publisher.folder, root=root)
    Repository(publisher.folder).rotate(role, publisher.keys)
    publisher.publish(2)

    assert take(publisher.folder, device, quick).version == "2"
    assert in_javascript(publisher.folder, root=root, floor=old["floor"])["version"] == "2"
    fresh = DeviceStore(device.folder.with_name("fresh"))
    assert take(publisher.folder, fresh, quick).version == "2", "who trusts the first root follows the chain"


@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp"])
def test_a_key_that_was_replaced_signs_nothing_any_more(
    publisher: Publisher, device: DeviceStore, role: str, tmp_path: Path
) -> None:
    shutil.copytree(publisher.keys, tmp_path / "stolen")
    root = (publisher.folder / "tuf/1.root.json").read_text()
    Repository(publisher.folder).rotate(role, publisher.keys)
    newest = max((publisher.folder / "tuf").glob("*.root.json"), key=lambda path: int(path.name.split(".")[0]))
    thief = Publisher(publisher.folder, tmp_path / "stolen", publisher.bundles)
    kept = newest.read_bytes()
    newest.write_bytes((publisher.folder / "tuf/1.root.json").read_bytes())  # the thief's own view signs as before
    thief.publish(2)
    newest.write_bytes(kept)

    with pytest.raises(SignatureError):
        take(publisher.folder, device, quick)
    assert in_javascript(publisher.folder, root=root)["code"] == "signature_error"


def test_a_threshold_asks_for_both_keys(publisher: Publisher, device: DeviceStore, tmp_path: Path) -> None:
    root = (publisher.folder / "tuf/1.root.json").read_text()
    keyid = Repository(publisher.folder).add_key("targets", publisher.keys, threshold=2)
    publisher.publish(2)
    assert take(publisher.folder, device, quick).version == "2"
    assert in_javascript(publisher.folder, root=root)["version"] == "2"

    path = publisher.keys / f"targets-{keyid[:8]}.pem"
    path.rename(tmp_path / path.name)
    with pytest.raises(StoreError, match="has 1 of the keys of the role targets, 2 of them must sign"):
        publisher.publish(3)


def test_too_few_signatures_are_refused(publisher: Publisher, device: DeviceStore) -> None:
    root = (publisher.folder / "tuf/1.root.json").read_text()
    Repository(publisher.folder).add_key("targets", publisher.keys, threshold=2)
    publisher.publish(2)
    newest = max((publisher.folder / "tuf").glob("*.targets.json"), key=lambda path: int(path.name.split(".")[0]))
    document = json.loads(newest.read_text())
    document["signatures"] = [document["signatures"][0]] * 2  # one key twice is one key
    newest.write_text(json.dumps(document))

    with pytest.raises(SignatureError):
        take(publisher.folder, device, quick)
    assert in_javascript(publisher.folder, root=root)["code"] == "signature_error"


def test_a_threshold_above_the_number_of_keys_is_refused(publisher: Publisher) -> None:
    with pytest.raises(StoreError, match="will have 2 keys"):
        Repository(publisher.folder).add_key("root", publisher.keys, threshold=3)


def test_versions_that_a_thief_counted_up_end_with_his_key(publisher: Publisher, device: DeviceStore) -> None:
    """The fast-forward attack: whoever had the timestamp key signs a version that no other can follow."""
    repository = Repository(publisher.folder)
    kept = shutil.copytree(publisher.folder, publisher.folder.with_name("kept"))
    root = (publisher.folder / "tuf/1.root.json").read_text()
    for _ in range(20):
        repository.refresh(publisher.keys)
    take(publisher.folder, device, quick)
    seen = in_javascript(publisher.folder, root=root)
    high, before = {**seen["floor"], "targets": 90}, seen["kept"]
    record = device.record()
    device.write(record._replace(floor=record.floor._replace(targets=90)))
    shutil.rmtree(publisher.folder)
    shutil.copytree(kept, publisher.folder)
    with pytest.raises(RollbackError):
        take(publisher.folder, device, quick)
    assert in_javascript(publisher.folder, root=root, floor=high)["code"] == "rollback_refused"
    assert in_javascript(publisher.folder, root=root, kept=before)["code"] == "rollback_refused"

    repository = Repository(publisher.folder)
    repository.rotate("timestamp", publisher.keys)
    repository.rotate("snapshot", publisher.keys)
    publisher.publish(2)

    assert take(publisher.folder, device, quick).version == "2"
    assert in_javascript(publisher.folder, root=root, floor=high, kept=before)["version"] == "2"


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("timestamp.json", lambda _: b"<html>log in</html>", "signature_error"),
        ("timestamp.json", lambda _: b"", "signature_error"),
        ("timestamp.json", lambda _: bytes(20_000), "fetch_error"),
        ("timestamp.json", lambda data: data.replace(b'"expires":"2', b'"expires":"3'), "signature_error"),
        ("2.snapshot.json", lambda data: data.replace(b'"version":', b'"Version":', 1), "signature_error"),
        ("2.targets.json", lambda data: data.replace(b'"sequence":', b'"sequence":1'), "signature_error"),
        ("2.targets.json", lambda _: None, "fetch_error"),
    ],
)
def test_pages_refuse_what_is_not_signed(
    publisher: Publisher, name: str, change: Callable[[bytes], bytes | None], code: str
) -> None:
    publisher.publish(1)
    root = (publisher.folder / "tuf/1.root.json").read_text()
    assert in_javascript(publisher.folder, root=root)["version"] == "1"
    path = publisher.folder / "tuf" / name
    before = path.read_bytes()
    data = change(before)
    assert data != before
    path.unlink()
    if data is not None:
        path.write_bytes(data)

    assert in_javascript(publisher.folder, root=root)["code"] == code


def test_pages_know_old_copies_expired_ones_and_clocks_that_stand_still(publisher: Publisher) -> None:
    publisher.publish(1)
    old = shutil.copytree(publisher.folder, publisher.folder.with_name("old"))
    root = (publisher.folder / "tuf/1.root.json").read_text()
    publisher.publish(2)
    seen = in_javascript(publisher.folder, root=root)
    now_s = seen["floor"]["time_s"]

    assert in_javascript(old, root=root, floor=seen["floor"])["code"] == "rollback_refused"
    for role in ("timestamp", "snapshot", "targets", "sequence", "root"):
        floor = {**seen["floor"], role: seen["floor"][role] + 1}
        assert in_javascript(publisher.folder, root=root, floor=floor)["code"] == "rollback_refused", role
    ten_years = 10 * 365 * 86400
    assert in_javascript(publisher.folder, root=root, now_s=now_s + ten_years)["code"] == "metadata_expired"
    assert in_javascript(publisher.folder, root=root, now_s=0)["version"] == "2"
    later = {**seen["floor"], "time_s": now_s + 8 * 86400}
    assert in_javascript(publisher.folder, root=root, now_s=0, floor=later)["code"] == "metadata_expired"
    assert in_javascript(publisher.folder, root=root, model="toString")["code"] == "fetch_error"
