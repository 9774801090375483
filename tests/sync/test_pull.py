"""Pull: the device has the old version or the new one, whole, and pays for what changed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import edge_infer
from edge_infer.bundle.manifest import PART_SIZE, Manifest
from edge_infer.errors import (
    BackendUnavailable,
    DeviceLost,
    FetchError,
    InputError,
    OutOfMemory,
    StoreError,
    TrialError,
    UnsupportedError,
)
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.source import may_follow, open_source
from tests.support.sync.host import Answer, Host
from tests.support.sync.publisher import SIZE, Publisher, take, weights

if TYPE_CHECKING:
    from pathlib import Path

# A process of its own: a fork of this one would inherit the locks of threads that it does not have.
_KILLED_BY_ITS_TRIAL = """
import os, sys
from pathlib import Path
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore

pull(sys.argv[1], "linear", DeviceStore(Path(sys.argv[2])), lambda path: os._exit(9))
"""


@pytest.fixture
def device(tmp_path: Path) -> DeviceStore:
    return DeviceStore(tmp_path / "device")


def answer_of(path: Path) -> Any:
    """Run the bundle on the row of ones."""
    with edge_infer.load(path) as session:
        return session.run({"x": np.ones((1, SIZE), np.float32)})["y"]


def test_the_first_pull_brings_a_bundle_that_runs(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)

    pulled = take(publisher.folder, device)

    assert (pulled.version, pulled.changed, pulled.method) == ("1", True, "full")
    assert pulled.bytes_moved == pulled.bytes_full
    np.testing.assert_allclose(answer_of(device.active()), weights(1).sum(0, keepdims=True), atol=1e-4)


def test_an_update_moves_a_delta_that_is_smaller(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    take(publisher.folder, device)
    publisher.publish(2)

    pulled = take(publisher.folder, device)

    assert (pulled.version, pulled.method) == ("2", "delta")
    assert pulled.bytes_moved < 0.6 * pulled.bytes_full
    assert device.verify() == []
    np.testing.assert_allclose(answer_of(device.active()), weights(2).sum(0, keepdims=True), atol=1e-4)


def test_a_device_that_slept_takes_the_delta_over_two_versions(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    take(publisher.folder, device)
    publisher.publish(2)
    published = publisher.publish(3)

    assert [name for name, _ in published.deltas] == ["2", "1"]
    assert take(publisher.folder, device).method == "delta"


def test_nothing_is_fetched_twice(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    take(publisher.folder, device)

    again = take(publisher.folder, device)

    assert (again.changed, again.method, again.bytes_moved) == (False, "none", 0)


def test_a_version_that_is_still_here_comes_from_the_disk(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    take(publisher.folder, device)
    publisher.publish(2)
    take(publisher.folder, device)
    publisher.publish(1)

    back = take(publisher.folder, device)

    assert (back.version, back.method, back.bytes_moved) == ("1", "local", 0)


def test_blobs_are_read_only_and_readers_keep_what_they_opened(publisher: Publisher, device: DeviceStore) -> None:
    for version in (1, 2, 3):
        publisher.publish(version)
        pulled = take(publisher.folder, device)
        if version == 1:
            reader = (pulled.path / "onnx/model.onnx").open("rb")

    assert all(path.stat().st_mode & 0o222 == 0 for path in device.blobs.iterdir())
    with reader:
        assert len(reader.read()) > SIZE * SIZE * 4
    assert len(list((device.folder / "versions").iterdir())) == 2


def test_damaged_files_are_found_and_repaired(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    path = take(publisher.folder, device).path / "onnx/model.onnx"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")

    assert str(path) in device.verify()
    assert take(publisher.folder, device).method == "repair"
    assert device.verify() == []


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "gone"])
def test_a_device_whose_record_the_disk_has_damaged_goes_on(
    publisher: Publisher, device: DeviceStore, content: bytes | None
) -> None:
    publisher.publish(1)
    take(publisher.folder, device)
    record, path = device.record(), device.folder / "active.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)

    assert device.record() == record
    assert (device.active() / "manifest.json").is_file()
    publisher.publish(2)
    assert take(publisher.folder, device).version == "2"
    assert path.read_bytes() == (device.folder / "active.copy.json").read_bytes()


def test_a_damaged_base_means_a_full_download(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    path = take(publisher.folder, device).path / "onnx/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"gone")
    publisher.publish(2)

    pulled = take(publisher.folder, device)

    assert (pulled.version, pulled.method) == ("2", "full")
    active = device.record().active
    assert active is not None
    assert device.damaged(active.files) == []


class TestTrial:
    def test_wrong_weights_are_not_taken_and_not_tried_again(self, publisher: Publisher, device: DeviceStore) -> None:
        publisher.publish(1)
        take(publisher.folder, device)
        publisher.publish(2, wrong=True)

        with pytest.raises(TrialError, match="not taken"):
            take(publisher.folder, device)
        with pytest.raises(TrialError, match="before"):
            take(publisher.folder, device, lambda _path: pytest.fail("tried again"))

        record = device.record()
        assert record.active is not None
        assert record.active.version == "1"
        np.testing.assert_allclose(answer_of(device.active()), weights(1).sum(0, keepdims=True), atol=1e-4)

    def test_a_better_version_after_a_wrong_one_is_taken(self, publisher: Publisher, device: DeviceStore) -> None:
        publisher.publish(1)
        take(publisher.folder, device)
        publisher.publish(2, wrong=True)
        with pytest.raises(TrialError):
            take(publisher.folder, device)
        publisher.publish(3)

        assert take(publisher.folder, device).version == "3"

    def test_retry_tries_a_refused_version(self, publisher: Publisher, device: DeviceStore) -> None:
        publisher.publish(1, wrong=True)
        with pytest.raises(TrialError, match="is not taken"):
            take(publisher.folder, device)

        assert take(publisher.folder, device, lambda _path: None, retry=True).changed

    def test_a_version_that_was_taken_at_last_is_refused_no_more(
        self, publisher: Publisher, device: DeviceStore
    ) -> None:
        publisher.publish(1, wrong=True)
        with pytest.raises(TrialError):
            take(publisher.folder, device)
        take(publisher.folder, device, lambda _path: None, retry=True)

        assert take(publisher.folder, device).method == "none"

    def test_what_a_refused_version_is_tried_again_with_can_be_typed(
        self, publisher: Publisher, device: DeviceStore
    ) -> None:
        publisher.publish(1, wrong=True)
        for _ in range(2):
            with pytest.raises(TrialError) as caught:
                take(publisher.folder, device)

        command = f"edge-infer pull {publisher.folder}/linear --into {device.folder} --retry"
        assert caught.value.hint.startswith(command)

    def test_a_version_for_a_newer_edge_infer_is_taken_after_the_upgrade(
        self, publisher: Publisher, device: DeviceStore
    ) -> None:
        publisher.publish(1)

        def needs_newer(_path: Path) -> None:
            Manifest.from_bytes(b'{"schema_version": "2.0"}')

        with pytest.raises(TrialError, match="this edge-infer reads 1") as caught:
            take(publisher.folder, device, needs_newer)

        assert caught.value.hint == "pip install --upgrade edge-infer"
        assert take(publisher.folder, device).changed

    @pytest.mark.parametrize("choice", [{"variant": "onnx/typo"}, {"backend": "litert"}, {"threads": 0}], ids=str)
    def test_a_choice_that_is_wrong_is_not_held_against_a_version(
        self, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, choice: dict[str, Any]
    ) -> None:
        monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
        address = f"edge+{publisher.folder}/linear"
        publisher.publish(1)

        with pytest.raises((InputError, BackendUnavailable)):
            edge_infer.load(address, **choice)

        edge_infer.load(address).close()

    @pytest.mark.parametrize(
        "fault",
        [
            BackendUnavailable("no engine"),
            OutOfMemory("not for this one"),
            DeviceLost("gone"),
            UnsupportedError("not here"),
            InputError("no such device"),
            MemoryError(),
            OSError("disk"),
        ],
        ids=repr,
    )
    def test_a_fault_of_the_machine_or_the_caller_is_not_the_models(
        self, publisher: Publisher, device: DeviceStore, fault: Exception
    ) -> None:
        publisher.publish(1)

        def fail(_path: Path) -> None:
            raise fault

        with pytest.raises(type(fault)):
            take(publisher.folder, device, fail)

        assert device.record().refused == ()
        assert take(publisher.folder, device).changed

    def test_a_version_that_kills_the_process_twice_is_refused(self, publisher: Publisher, device: DeviceStore) -> None:
        publisher.publish(1)
        take(publisher.folder, device)
        publisher.publish(2)

        for _ in range(2):
            command = [sys.executable, "-c", _KILLED_BY_ITS_TRIAL, str(publisher.folder), str(device.folder)]
            killed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
            assert killed.returncode == 9, killed.stderr

        with pytest.raises(TrialError, match="before"):
            take(publisher.folder, device)
        active = device.record().active
        assert active is not None
        assert active.version == "1"


def test_rollback_makes_the_previous_version_active_and_keeps_it(publisher: Publisher, device: DeviceStore) -> None:
    for version in (1, 2):
        publisher.publish(version)
        take(publisher.folder, device)

    record = device.rollback()

    assert record.active is not None
    assert record.active.version == "1"
    with pytest.raises(StoreError, match="no previous"):
        device.rollback()


def test_a_pull_after_a_rollback_leaves_the_version_alone_until_it_is_asked_for(
    publisher: Publisher, device: DeviceStore
) -> None:
    """Nothing has failed: a device that somebody rolled back must not report errors from then on."""
    for version in (1, 2):
        publisher.publish(version)
        take(publisher.folder, device)
    device.rollback()

    left = take(publisher.folder, device)
    taken = take(publisher.folder, device, retry=True)

    assert (left.version, left.changed) == ("1", False)
    assert left.path.name == left.bundle != taken.bundle
    assert "version 2 was rolled back here" in left.note
    assert "--retry" in left.note
    assert (taken.version, taken.changed) == ("2", True)
    assert device.record().rolled_back == ()
    assert not take(publisher.folder, device).note


def test_two_updates_at_once_do_not_meet(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)

    with device.locked(), pytest.raises(StoreError, match="in use"):
        take(publisher.folder, DeviceStore(device.folder))


def test_a_folder_holds_one_model(publisher: Publisher, device: DeviceStore) -> None:
    publisher.publish(1)
    take(publisher.folder, device)
    with pytest.raises(StoreError, match="holds model `linear`"):
        pull(str(publisher.folder), "other", device, lambda _path: None)


class TestOverHttp:
    BIG = 800  # 2.6 MB: three parts

    def cut(self, host: Host, keep: int) -> None:
        """Break the first answer of a pack off."""
        first = [True]

        def change(path: str, answer: Answer) -> Answer:
            if path.startswith("packs/") and first:
                first.clear()
                said = {**answer.headers, "Content-Length": str(len(answer.body))}
                return Answer(answer.status, said, answer.body[:keep])
            return answer

        host.change = change

    @pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
    def test_a_download_that_was_cut_goes_on_at_its_part(
        self, publisher: Publisher, host: Host, device: DeviceStore, ranges: bool
    ) -> None:
        publisher.publish(1, size=self.BIG)
        host.ranges = ranges
        self.cut(host, PART_SIZE + 1000)

        pulled = take(host.url, device)

        packs = [wanted for path, wanted in host.asked if path.startswith("packs/")]
        assert packs == ["", f"bytes={PART_SIZE}-"]
        assert pulled.bytes_moved <= pulled.bytes_full + 1000
        assert device.verify() == []

    def test_the_next_pull_uses_the_parts_that_came(
        self, publisher: Publisher, host: Host, device: DeviceStore
    ) -> None:
        publisher.publish(1, size=self.BIG)
        host.change = lambda path, answer: Answer(503, {}, b"") if path.startswith("packs/") else answer
        with pytest.raises(FetchError, match="503"):
            take(host.url, device)
        self.cut(host, PART_SIZE + 1000)
        original = host.change
        host.change = lambda path, answer: (
            original(path, answer) if not any(wanted for _, wanted in host.asked) else Answer(503, {}, b"")
        )
        host.asked.clear()
        with pytest.raises(FetchError):
            take(host.url, device)
        host.change = lambda _path, answer: answer
        host.asked.clear()

        pulled = take(host.url, device)

        assert [wanted for path, wanted in host.asked if path.startswith("packs/")] == [f"bytes={PART_SIZE}-"]
        assert pulled.bytes_moved == pulled.bytes_full - PART_SIZE

    def test_a_garbled_part_is_fetched_again_and_alone(
        self, publisher: Publisher, host: Host, device: DeviceStore
    ) -> None:
        publisher.publish(1, size=self.BIG)
        first = [True]

        def change(path: str, answer: Answer) -> Answer:
            if path.startswith("packs/") and first:
                first.clear()
                body = bytearray(answer.body)
                body[PART_SIZE + 7] ^= 1
                return answer._replace(body=bytes(body))
            return answer

        host.change = change
        take(host.url, device)

        assert [wanted for path, wanted in host.asked if path.startswith("packs/")] == ["", f"bytes={PART_SIZE}-"]
        assert device.verify() == []

    @pytest.mark.parametrize(
        "change",
        [
            lambda answer: answer._replace(body=b"<html>Please log in</html>"),
            lambda answer: answer._replace(body=bytes(len(answer.body))),
            lambda answer: answer._replace(headers={**answer.headers, "Content-Encoding": "gzip"}),
            lambda answer: Answer(206, {"Content-Range": "bytes 5-9/10"}, answer.body),
            lambda answer: answer._replace(status=403),
        ],
        ids=["captive portal", "right length, wrong bytes", "re-encoded", "wrong range", "forbidden"],
    )
    def test_a_bad_server_changes_nothing(
        self, publisher: Publisher, host: Host, device: DeviceStore, change: object
    ) -> None:
        assert callable(change)
        publisher.publish(1)
        take(host.url, device)
        publisher.publish(2)
        host.change = lambda path, answer: change(answer) if path.startswith("packs/") else answer

        with pytest.raises(FetchError):
            take(host.url, device)

        active = device.record().active
        assert active is not None
        assert active.version == "1"
        assert device.verify() == []

    def test_a_delta_that_is_missing_means_a_full_download_and_says_so(
        self, publisher: Publisher, host: Host, device: DeviceStore
    ) -> None:
        publisher.publish(1)
        take(host.url, device)
        delta = publisher.publish(2).revision.deltas[0]
        (publisher.folder / delta.path).unlink()

        pulled = take(host.url, device)

        assert (pulled.version, pulled.method) == ("2", "full")
        assert "404" in pulled.note

    def test_a_redirect_to_another_place_is_followed(
        self, publisher: Publisher, host: Host, device: DeviceStore
    ) -> None:
        publisher.publish(1)
        shutil.copytree(publisher.folder / "packs", publisher.folder / "cdn")
        host.change = lambda path, answer: (
            Answer(302, {"Location": f"{host.url}/cdn/{path.removeprefix('packs/')}"}, b"")
            if path.startswith("packs/")
            else answer
        )

        assert take(host.url, device).changed

    def test_a_server_that_is_not_there_is_told_in_plain_words(self, device: DeviceStore) -> None:
        with socket.socket() as held:  # bound, so that nobody else listens there
            held.bind(("127.0.0.1", 0))
            with pytest.raises(FetchError) as caught:
                take(f"http://127.0.0.1:{held.getsockname()[1]}", device)

        assert caught.value.message.endswith("/tuf/1.root.json cannot be fetched: Connection refused")

    def test_a_redirect_in_a_circle_is_given_up(self, host: Host, device: DeviceStore) -> None:
        host.change = lambda path, _answer: Answer(302, {"Location": f"{host.url}/{path}"}, b"")

        with pytest.raises(FetchError, match="redirects more than 3 times"):
            take(host.url, device)

    def test_a_redirect_to_another_host_is_followed_where_it_is_allowed(
        self, publisher: Publisher, host: Host, device: DeviceStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publisher.publish(1)
        shutil.copytree(publisher.folder / "packs", publisher.folder / "cdn")
        other = host.url.replace("127.0.0.1", "localhost")
        host.change = lambda path, answer: (
            Answer(302, {"Location": f"{other}/cdn/{path.removeprefix('packs/')}"}, b"")
            if path.startswith("packs/")
            else answer
        )
        with pytest.raises(FetchError, match="redirects to localhost by http, which is not its own host") as caught:
            take(host.url, device)
        assert not [path for path, _ in host.asked if path.startswith("cdn/")]

        hint = caught.value.hint.partition(" ")[0]
        monkeypatch.setenv(*hint.split("="))
        assert take(host.url, device).changed

    @pytest.mark.parametrize(
        ("before", "after", "may"),
        [
            ("http://a.example/x", "https://a.example/x", True),
            ("http://a.example:80/x", "http://a.example:81/x", False),
            ("https://a.example/x", "http://a.example/x", False),
            ("http://a.example/x", "file:///etc/passwd", False),
            ("https://a.example/x", "https://a.example.evil.example/x", False),
            ("https://a.example/x", "https://A.example:443/y", True),
            ("https://a.example/x", "https://cdn.example/x", True),
            ("https://a.example/x", "https://CDN.example:8443/x", True),
            ("https://a.example/x", "https://other.example:8080/x", True),
            ("https://a.example/x", "https://other.example/x", False),
            ("https://a.example/x", "https://cdn.example@a.evil.example/x", False),
            ("https://a.example/x", "http://cdn.example/x", False),
        ],
    )
    def test_where_a_redirect_may_lead(
        self, before: str, after: str, may: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EDGE_INFER_REDIRECT_HOSTS", "cdn.example, other.example:8080")

        assert may_follow(urlsplit(before), urlsplit(after)) is may

    def test_a_server_that_stalls_is_given_up(self, publisher: Publisher, host: Host, device: DeviceStore) -> None:
        publisher.publish(1)
        ended = threading.Event()

        def stall(path: str, answer: Answer) -> Answer:
            if path.startswith("packs/"):
                ended.wait(30)
            return answer

        host.change = stall
        try:
            with pytest.raises(FetchError, match="timed out"):
                pull(open_source(host.url, stall_timeout_s=0.1), "linear", device, lambda _path: None)
        finally:
            ended.set()
        assert device.record().active is None


def test_a_second_process_waits_for_the_first_one_s_update(tmp_path: Path) -> None:
    from threading import Timer

    first, second = DeviceStore(tmp_path / "d"), DeviceStore(tmp_path / "d", patience_s=60)
    with (
        pytest.raises(StoreError, match="in use by another update"),
        first.locked(),
        DeviceStore(tmp_path / "d").locked(),
    ):
        pass

    held = first.locked()
    held.__enter__()
    Timer(0.2, lambda: held.__exit__(None, None, None)).start()
    with second.locked():
        pass
