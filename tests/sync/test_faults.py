"""Faults of servers, clocks and disks, each to a device and, where it has the like, to a page: old or new, whole."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.bundle.manifest import PART_SIZE
from edge_infer.errors import ExpiredError, FetchError, RollbackError, SignatureError
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.repository import Repository
from tests.support.mutations import with_last_byte_changed
from tests.support.sync.host import Answer, Host
from tests.support.sync.javascript import in_javascript
from tests.support.sync.power import CutDisk, PowerCut, quick, version_of
from tests.support.sync.publisher import Publisher, take

if TYPE_CHECKING:
    from collections.abc import Callable

WEB = Path(__file__).parents[2] / "web"
#: What a network without a login answers with.
LOGIN = Answer(200, {"Content-Type": "text/html"}, b"<html>log in</html>")


@pytest.fixture
def device(publisher: Publisher, tmp_path: Path) -> DeviceStore:
    """A device with version 1."""
    publisher.publish(1)
    made = DeviceStore(tmp_path / "device")
    take(publisher.folder, made, quick)
    return made


def pulled_by_page(host: Host, fault: str = "none", *, first: str = "") -> list[dict[str, Any]]:
    """Pull as a page does, in Node: what was active after a fault at each write to its storage."""
    given = {"address": f"{host.url}/linear", "root": f"{WEB.as_uri()}/", "fault": fault, "first": first}
    words = ["node", str(Path(__file__).with_name("pull.mjs")), json.dumps(given)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


class TestMetadata:
    """Attacks of who holds no key: what was signed once, at the wrong place or time, and what never ends."""

    @pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
    def test_an_older_file_of_one_role_is_refused(self, publisher: Publisher, device: DeviceStore, role: str) -> None:
        """Rollback and mix-and-match: all else is as it should be."""
        tuf = publisher.folder / "tuf"
        root, old = (tuf / "1.root.json").read_text(), (tuf / "timestamp.json").read_bytes()
        publisher.publish(2)
        seen = in_javascript(publisher.folder, root=root)
        take(publisher.folder, device, quick)
        publisher.publish(3)
        newest = max(tuf.glob(f"*.{role}.json"), default=tuf / "timestamp.json", key=lambda path: path.name)
        newest.write_bytes(old if role == "timestamp" else (tuf / f"2.{role}.json").read_bytes())

        with pytest.raises((RollbackError, SignatureError)):
            take(publisher.folder, device, quick)
        answer = in_javascript(publisher.folder, root=root, floor=seen["floor"])

        assert version_of(device) == "2"
        assert answer["code"] in ("rollback_refused", "signature_error")

    @pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
    def test_versions_that_a_stranger_counts_up_are_refused(
        self, publisher: Publisher, device: DeviceStore, role: str
    ) -> None:
        """Fast-forward: a stranger's signature would block all that comes later."""
        tuf = publisher.folder / "tuf"
        root = (tuf / "1.root.json").read_text()
        publisher.publish(2)
        path = max(tuf.glob(f"*.{role}.json"), default=tuf / "timestamp.json", key=lambda path: path.name)
        before, document = path.read_bytes(), json.loads(path.read_bytes())
        document["signed"]["version"] = 2**31
        path.write_text(json.dumps(document))

        with pytest.raises(SignatureError):
            take(publisher.folder, device, quick)
        assert in_javascript(publisher.folder, root=root)["code"] == "signature_error"

        path.write_bytes(before)
        assert take(publisher.folder, device, quick).version == "2"

    @pytest.mark.parametrize(
        ("pattern", "limit"),
        [("2.root", 512_000), ("timestamp", 16_384), (".snapshot", 2_000_000), (".targets", 5_000_000)],
    )
    def test_what_has_no_end_is_cut_off(
        self, publisher: Publisher, host: Host, device: DeviceStore, pattern: str, limit: int
    ) -> None:
        publisher.publish(2)
        host.change = lambda path, answer: (
            Answer(200, {}, b" " * (limit + 70_000)) if path.startswith("tuf/") and pattern in path else answer
        )

        with pytest.raises(FetchError):
            take(host.url, device, quick)
        assert version_of(device) == "1"
        (page,) = pulled_by_page(host)
        assert (page["how"], page["active"]) == ("fetch_error", None)

    def test_a_revision_without_end_is_cut_off_at_its_signed_length(
        self, publisher: Publisher, host: Host, device: DeviceStore
    ) -> None:
        publisher.publish(2)
        host.change = lambda path, answer: (
            answer._replace(body=answer.body + bytes(100_000)) if path.startswith("revisions/") else answer
        )

        with pytest.raises(FetchError, match="has more than"):
            take(host.url, device, quick)
        assert pulled_by_page(host)[0]["how"] == "fetch_error"

    def test_ten_years_later_nothing_is_installed_and_all_runs(
        self, publisher: Publisher, device: DeviceStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publisher.publish(2)
        import tuf.ngclient._internal.trusted_metadata_set as clocked

        year = datetime.datetime.now(datetime.UTC).year + 10

        class Late(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Late:
                return cls(year, 1, 2, tzinfo=tz)

        monkeypatch.setattr(clocked.datetime, "datetime", Late)
        with pytest.raises(ExpiredError):
            take(publisher.folder, device, quick)

        assert version_of(device) == "1"

    @pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\x00" * 500], ids=repr)
    @pytest.mark.parametrize("name", ["root.json", "timestamp.json", "snapshot.json", "targets.json"])
    def test_local_metadata_that_a_power_cut_spoilt_is_fetched_again_and_old_stores_stay_refused(
        self, publisher: Publisher, device: DeviceStore, tmp_path: Path, name: str, content: bytes | None
    ) -> None:
        old = shutil.copytree(publisher.folder, tmp_path / "old")
        publisher.publish(2)
        take(publisher.folder, device, quick)
        path = device.folder / "tuf" / name
        path.unlink()
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(RollbackError):
            take(old, device, quick)
        publisher.publish(3)
        assert take(publisher.folder, device, quick).version == "3"


class TestPacks:
    """Bytes that are not those that were published."""

    BIG = 800  # 2.6 MB: three parts

    def test_a_file_that_changes_while_it_is_fetched_is_not_mixed(
        self, publisher: Publisher, host: Host, tmp_path: Path
    ) -> None:
        """The first answer breaks off, and the server, or a proxy, goes on with another file under another ETag."""
        publisher.publish(1, size=self.BIG)
        answers: list[str] = []

        def change(path: str, answer: Answer) -> Answer:
            if not path.startswith("packs/"):
                return answer
            answers.append(path)
            if len(answers) == 1:
                said = {**answer.headers, "ETag": '"one"', "Content-Length": str(len(answer.body))}
                return Answer(answer.status, said, answer.body[: PART_SIZE + 1000])
            return answer._replace(headers={**answer.headers, "ETag": '"two"'}, body=bytes(len(answer.body)))

        host.change = change
        device = DeviceStore(tmp_path / "device")
        with pytest.raises(FetchError, match="not the one that was published"):
            take(host.url, device, quick)
        assert device.record().active is None

        host.change = lambda _path, answer: answer
        assert take(host.url, device, quick).bytes_moved < 2 * PART_SIZE, "the first part was kept"

    @pytest.mark.parametrize("where", ["the download", "a blob", "a file of the version"])
    def test_a_file_of_the_right_length_and_name_with_other_bytes_is_not_taken(
        self, publisher: Publisher, device: DeviceStore, where: str
    ) -> None:
        """What file systems leave that reserve room at once, and what other tools take for a whole download."""
        revision = publisher.publish(2, size=self.BIG).revision
        model = next(file for file in revision.files if file.path == "onnx/model.onnx")
        place = {
            "the download": device.partial / revision.pack.sha256,
            "a blob": device.blob(model.sha256),
            "a file of the version": device.version_path(revision.bundle) / model.path,
        }[where]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes(revision.pack.size if where == "the download" else model.size))

        assert take(publisher.folder, device).version == "2"
        assert device.verify() == []

    @pytest.mark.parametrize("at", [0, 9, 40, -1], ids=["magic", "length", "header", "last frame"])
    def test_a_delta_with_a_changed_byte_costs_a_full_download(
        self, publisher: Publisher, device: DeviceStore, at: int
    ) -> None:
        delta = publisher.publish(2).revision.deltas[0]
        path = publisher.folder / delta.path
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)

        pulled = take(publisher.folder, device, quick)

        assert (pulled.version, pulled.method) == ("2", "full")
        assert "delta given up" in pulled.note
        assert device.verify() == []

    def test_a_base_that_changes_while_a_delta_is_fetched_costs_a_full_download(
        self, publisher: Publisher, host: Host, device: DeviceStore
    ) -> None:
        delta = publisher.publish(2).revision.deltas[0]
        active = device.record().active
        assert active is not None
        (blob,) = [device.blob(file.sha256) for file in active.files if file.path == "onnx/model.onnx"]

        def change(path: str, answer: Answer) -> Answer:
            if path == delta.path:
                blob.chmod(0o644)
                data = bytearray(blob.read_bytes())
                data[len(data) // 2] ^= 1
                blob.write_bytes(data)
            return answer

        host.change = change
        pulled = take(host.url, device, quick)

        assert (pulled.version, pulled.method) == ("2", "full")
        assert "delta given up" in pulled.note


class TestDisk:
    """The power is cut, or no room is left, at each step of what is not an update."""

    @pytest.mark.parametrize("what", ["first install", "rollback", "repair"])
    def test_a_cut_at_any_change_heals(
        self, publisher: Publisher, device: DeviceStore, tmp_path: Path, what: str
    ) -> None:
        publisher.publish(2)
        if what == "first install":
            shutil.rmtree(device.folder)
            device.folder.mkdir()
        else:
            take(publisher.folder, device, quick)
        for after in range(1000):
            folder = shutil.copytree(device.folder, tmp_path / f"cut{after}", symlinks=True)
            if what == "repair":
                next((folder / "blobs").iterdir()).unlink()
            disk = CutDisk(after)
            cut = DeviceStore(folder, disk)
            try:
                if what == "rollback":
                    cut.rollback()
                else:
                    take(publisher.folder, cut, quick)
            except PowerCut:
                disk.lose(folder)
            else:
                break
            whole = DeviceStore(folder)
            record = whole.record()
            if what == "rollback":
                assert version_of(whole) in ("1", "2")
            elif what == "first install" and record.active is not None:
                assert version_of(whole) == "2"
            assert take(publisher.folder, whole, quick, retry=True).version == "2"
            assert whole.verify() == []
            shutil.rmtree(folder)
        assert after > 5

    @pytest.mark.parametrize("fault", ["quota", "cut"])
    def test_a_page_has_the_old_or_the_new_version_wherever_its_storage_fails(
        self, publisher: Publisher, host: Host, fault: str
    ) -> None:
        publisher.publish(1)
        shutil.copytree(publisher.folder, publisher.folder / "first")
        publisher.publish(2)

        seen = pulled_by_page(host, fault, first=f"{host.url}/first/linear")

        assert {one["active"] for one in seen} <= {"1", "2"}
        assert {one["healed"] for one in seen} == {"2"}
        assert len(seen) > 8
        if fault == "quota":
            assert {one["version"] for one in seen} == {"2"}, "without room it runs from memory"
        else:
            assert {one["how"] for one in seen} == {"cut", "through"}


class TestPages:
    """Servers that are not what a page takes them for."""

    @pytest.mark.parametrize(
        ("where", "change"),
        [
            ("tuf/timestamp", lambda _answer: LOGIN),
            ("packs/", lambda _answer: LOGIN),
            ("packs/", lambda answer: answer._replace(body=bytes(len(answer.body)))),
            ("packs/", lambda answer: answer._replace(body=answer.body[:-1])),
            ("packs/", lambda answer: Answer(206, {"Content-Range": "bytes 5-9/10"}, answer.body)),
            ("packs/", lambda answer: answer._replace(status=403)),
            ("revisions/", lambda answer: answer._replace(body=answer.body.replace(b"linear", b"lineaR"))),
        ],
        ids=["login page", "login page as pack", "right length", "cut short", "wrong range", "forbidden", "revision"],
    )  # fmt: skip
    def test_a_bad_server_installs_nothing(
        self, publisher: Publisher, host: Host, where: str, change: Callable[[Answer], Answer]
    ) -> None:
        publisher.publish(1)
        host.change = lambda path, answer: change(answer) if path.startswith(where) else answer

        (found,) = pulled_by_page(host)

        assert found["how"] in ("fetch_error", "integrity_error", "signature_error")
        assert found["active"] is None

    def test_a_delta_with_a_changed_byte_costs_a_full_download(self, publisher: Publisher, host: Host) -> None:
        publisher.publish(1)
        shutil.copytree(publisher.folder, publisher.folder / "first")
        delta = publisher.publish(2).revision.deltas[0]
        host.change = lambda path, answer: (
            answer._replace(body=with_last_byte_changed(answer.body)) if path == delta.path else answer
        )

        (found,) = pulled_by_page(host, first=f"{host.url}/first/linear")

        assert (found["active"], found["method"]) == ("2", "full")
        assert "delta given up" in found["note"]


def test_a_canary_keeps_its_version_while_the_next_one_is_not_its_turn(publisher: Publisher, tmp_path: Path) -> None:
    """It took version 2 alone; version 3 is for nobody yet, and what it is offered is older than what it runs."""
    from edge_infer.errors import NotReleasedError
    from edge_infer.sync.publish import publish
    from tests.support.sync.publisher import write_version

    publisher.publish(1)
    canary = DeviceStore(tmp_path / "canary")
    for version, share in ((2, 9999), (3, 0)):
        bundle = write_version(publisher.bundles / str(version), version)
        publish(bundle, Repository(publisher.folder), publisher.keys, share=share)
        if version == 2:
            root = (publisher.folder / "tuf/1.root.json").read_text()
            seen = in_javascript(publisher.folder, root=root, device="page")
            assert take(publisher.folder, canary, quick).version == "2"

    with pytest.raises(NotReleasedError, match="No newer version"):
        take(publisher.folder, canary, quick)
    assert in_javascript(publisher.folder, root=root, device="page", floor=seen["floor"])["code"] == "not_released"
    assert version_of(canary) == "2"
