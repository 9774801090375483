"""What the server does on a disk that is full: `python -m tests.support.server.full_disk CASE FOLDER`.

`test_full_disk` starts it where a tmpfs of `KIB` is mounted at FOLDER, seen by no other process.
"""

from __future__ import annotations

import errno
import gzip
import json
import logging
import queue
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import edge_infer
from edge_infer.errors import SyncError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.store import followed as following
from edge_infer.server.store.fleet import Fleet
from edge_infer.server.store.followed import Followed
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.repository import Repository
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask, row
from tests.support.server.linear import infer
from tests.support.sync.publisher import SIZE, Publisher, weights

if TYPE_CHECKING:
    from collections.abc import Callable

KIB = 400
TEXT = b"// the quick brown fox jumps over the lazy dog\n"


def fill(disk: Path) -> Path:
    """Take all the room that a disk has; return the file that has it."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return path


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def is_well(server: ServerThread) -> bool:
    """Tell whether the server is ready and a model that has nothing to do with the disk answers."""
    return Client(server.url)("/readyz").status == 200 and ask(server).body == row(1.0)


def compressed_copies(disk: Path, scratch: Path) -> None:
    """Files, and the archive of Python for pages, are sent compressed; only their copies are not kept."""
    sources = {f"src/{name}.js": name.encode() + TEXT * 5000 for name in ("first", "second")}
    web = write_bundle(scratch / "web", sources | {"studio/index.html": b"", "vendor/versions.json": b"{}"})
    models = {"tiny": write_bundle(scratch / "tiny", bundle_files())}
    cache = disk / "encoded"
    filler = fill(disk)
    for _ in range(2):  # the next start finds the same disk
        with ServerThread(create_app(models, web, cache_folder=cache)) as server:
            get = Client(server.url)
            for path in ("/src/first.js", f"/wheels/edge_infer-{edge_infer.__version__}-page.tar"):
                found = get(path, accept_encoding="gzip")
                assert (found.status, found.headers["content-encoding"]) == (200, "gzip")
            assert gzip.decompress(get("/src/first.js", accept_encoding="gzip").body) == sources["src/first.js"]
            assert is_well(server)
        assert files_in(disk) == {"filler"}
    with ServerThread(create_app(models, web, cache_folder=cache)) as server:
        filler.unlink()
        assert Client(server.url)("/src/second.js", accept_encoding="gzip").status == 200
    assert [path.suffix for path in cache.iterdir()] == [".gzip"]


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.put(record.getMessage())


def followed_store(disk: Path, scratch: Path) -> None:
    """A version that does not fit is not taken: the one before goes on, whole, until there is room."""
    publisher = Publisher(scratch / "store", scratch / "keys", scratch / "bundles")
    Repository(publisher.folder).create(publisher.keys)
    publisher.publish(1)
    tiny = write_bundle(scratch / "tiny", bundle_files())
    cache, kept = disk / "cache", DeviceStore(disk / "cache" / "linear")
    filler = fill(disk)
    try:
        Followed([str(publisher.folder)], root=cache).bring()
    except SyncError as error:
        assert "No space left" in error.message, error.message
    else:
        raise AssertionError("a model was pulled onto a full disk")
    filler.unlink()

    said = _Warnings()
    following.log.addHandler(said)
    following.LOOK_EVERY_S = 0.05
    followed = Followed([str(publisher.folder)], root=cache)
    models = {name: [path] for name, path in followed.bring().items()}
    app = create_app({**models, "tiny": tiny})
    with ServerThread(app) as server:
        first, second = (float(weights(version)[:, 0].sum()) for version in (1, 2))
        assert abs(infer(server.url) - first) < 1e-4
        before = files_in(cache / "linear" / "versions")
        filler = fill(disk)
        publisher.publish(2)
        followed.start(app.engine.repository)
        try:
            assert "No space left" in said.heard.get(timeout=60)
            assert "No space left" in said.heard.get(timeout=60)  # it looks again
            assert abs(infer(server.url) - first) < 1e-4
            assert is_well(server)
            record = kept.record()
            assert record.active is not None
            assert (record.active.version, kept.verify()) == ("1", [])
            assert files_in(cache / "linear" / "versions") == before
            filler.unlink()
            for _ in range(1200):
                if abs(infer(server.url) - second) < 1e-4:
                    break
                followed._stop.wait(0.05)
            else:
                raise AssertionError("the version was not taken when there was room")
        finally:
            followed.stop()
    assert kept.verify() == []
    assert not any((cache / "linear" / "partial").iterdir())


def fleet_database(disk: Path, scratch: Path) -> None:
    """Reports are refused in words, those that were taken stay, and the server goes on."""
    tiny = write_bundle(scratch / "tiny", bundle_files())
    database = disk / "fleet.sqlite"
    with ServerThread(create_app({"tiny": tiny}, store=HostedStore(fleet=database))) as server:
        send = Client(server.url)

        def report(device: int) -> tuple[int, dict[str, object]]:
            body = {"device": f"d{device}", "model": "linear", "result": "error", "error": "x" * 400}
            answer = send("/sync/v1/report", "POST", json.dumps(body).encode())
            return answer.status, json.loads(answer.body)

        statuses = [report(device)[0] for device in range(3)]
        filler = fill(disk)
        while (last := report(len(statuses)))[0] == 200:  # the journal may have room left
            statuses.append(200)
        assert set(statuses) == {200}
        assert (last[0], last[1]["code"]) == (507, "storage_failed")
        assert "disk is full" in str(last[1]["error"])
        assert "--fleet" in str(last[1]["hint"])
        assert is_well(server)
        state = json.loads(send("/sync/v1/fleet").body)
        assert (state["devices"], state["totals"][0]["failures"]) == (len(statuses), len(statuses))
        assert send("/fleet").status == send("/sync/v1/advice").status == 200
        filler.unlink()
        statuses.append(report(len(statuses))[0])
        assert statuses[-1] == 200
        assert json.loads(send("/sync/v1/fleet").body)["devices"] == len(statuses)
    again = Fleet(database)
    assert len(again) == len(statuses)
    again.close()
    with sqlite3.connect(database) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


CASES: dict[str, Callable[[Path, Path], None]] = {
    case.__name__: case for case in (compressed_copies, followed_store, fleet_database)
}

if __name__ == "__main__":
    assert SIZE * SIZE * 4 > 32 * 1024, "the model must not fit where a few blocks are left"
    with tempfile.TemporaryDirectory() as scratch:
        CASES[sys.argv[1]](Path(sys.argv[2]), Path(scratch))
    print("DONE")
