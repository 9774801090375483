"""A hosted store: its files, its events, what devices report, and the page that shows it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from hashlib import sha256
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from edge_infer.errors import InputError, QueueFull, StoreError
from edge_infer.server.app import create_app
from edge_infer.server.config import Settings
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.protocol.reports import Report
from edge_infer.server.scheduling.shares import Tenant
from edge_infer.server.store import events
from edge_infer.server.store.fleet import MAX_MODELS, Fleet
from edge_infer.server.store.page import render
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.repository import Repository
from tests.support.sync.publisher import Publisher, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "store", tmp_path / "keys", tmp_path / "bundles")
    Repository(made.folder).create(made.keys)
    made.publish(1)
    return made


@pytest.fixture
def host(publisher: Publisher, tmp_path: Path) -> Iterator[str]:
    hosted = HostedStore(publisher.folder, tmp_path / "fleet.sqlite")
    with ServerThread(create_app({}, store=hosted)) as server:
        yield server.url


def test_a_server_that_others_reach_takes_no_reports_without_a_token(publisher: Publisher) -> None:
    hosted = HostedStore(publisher.folder, is_open=False)
    with ServerThread(create_app({}, store=hosted)) as server:
        status, document = post(server.url, b"{}")
        assert (status, document["hint"][:31]) == (401, "start it with --report-token TO")
        for path in ("/fleet", "/sync/v1/fleet"):
            with pytest.raises(HTTPError) as caught:
                urlopen(f"{server.url}{path}")
            with caught.value as refused:
                assert refused.code == 401
        assert get(f"{server.url}/sync/v1/advice") == {"halts": []}


def post(url: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    request = Request(f"{url}/sync/v1/report", body, {"Content-Type": "application/json", **headers})
    try:
        with urlopen(request) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def get(url: str) -> Any:
    with urlopen(url) as response:
        return json.load(response)


def test_devices_need_no_tenants_key(publisher: Publisher, tmp_path: Path) -> None:
    tenants = {Tenant("shop"): [sha256(b"k").digest()]}
    hosted = HostedStore(publisher.folder, token="t0k3n")
    with ServerThread(create_app({}, store=hosted, settings=Settings(tenants=tenants))) as server:
        assert take(f"{server.url}/store", DeviceStore(tmp_path / "device")).version == "1"
        assert get(f"{server.url}/sync/v1/advice") == {"halts": []}
        assert post(server.url, report(), Authorization="Bearer t0k3n")[0] == 200
        assert post(server.url, report())[0] == 401
        with pytest.raises(HTTPError, match="401"):
            get(f"{server.url}/sync/v1/fleet")


@pytest.mark.parametrize("path", ["fleet", "sync/v1/fleet"])
def test_beside_tenants_the_report_token_opens_the_fleet_to_a_browser(publisher: Publisher, path: str) -> None:
    settings = Settings(tenants={Tenant("shop"): [sha256(b"k").digest()]})

    def status(url: str, **headers: str) -> int:
        try:
            with urlopen(Request(f"{url}/{path}", headers=headers)) as response:
                return int(response.status)
        except HTTPError as error:
            with error:
                return error.code

    password, wrong = (f"Basic {base64.b64encode(b'me:' + word).decode()}" for word in (b"t0k3n", b"k"))
    with ServerThread(create_app({}, store=HostedStore(publisher.folder, token="t0k3n"), settings=settings)) as server:
        assert status(server.url, Authorization=password) == 200
        assert status(server.url, **{"X-Api-Key": "k", "Authorization": "Bearer t0k3n"}) == 200
        assert status(server.url) == 401
        assert status(server.url, Authorization=wrong) == 401
        assert status(server.url, **{"X-Api-Key": "k"}) == 401
    with ServerThread(create_app({}, store=HostedStore(publisher.folder), settings=settings)) as server:
        assert status(server.url) == 401
        assert status(server.url, Authorization=password) == 401
        assert status(server.url, **{"X-Api-Key": "k"}) == 200


def report(**changes: Any) -> bytes:
    return json.dumps({"device": "d1", "model": "linear", "version": "1", "sequence": 1, **changes}).encode()


def test_a_device_pulls_from_the_server(host: str, publisher: Publisher, tmp_path: Path) -> None:
    device = DeviceStore(tmp_path / "device")

    assert take(f"{host}/store", device).method == "full"
    publisher.publish(2)
    assert take(f"{host}/store", device).method == "delta"


def test_only_the_timestamp_is_asked_for_again(host: str, publisher: Publisher) -> None:
    with urlopen(f"{host}/store/tuf/timestamp.json") as timestamp, urlopen(f"{host}/store/tuf/1.root.json") as root:
        assert timestamp.headers["Cache-Control"] == "no-cache"
        assert "immutable" in root.headers["Cache-Control"]
        assert root.headers["Access-Control-Allow-Origin"] == "*"
    with pytest.raises(HTTPError) as caught:
        urlopen(f"{host}/store/tuf/2.root.json")
    with caught.value as missing:
        assert (missing.status, missing.headers["Access-Control-Allow-Origin"]) == (404, "*"), "a page may read it, too"


@pytest.mark.parametrize("path", ["../keys/root.pem", "tuf/../../keys/root.pem", "", "active.json", "tuf/.hidden"])
def test_nothing_else_is_sent(host: str, publisher: Publisher, path: str) -> None:
    place = urlsplit(host)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    connection.request("GET", f"/store/{path}")
    assert connection.getresponse().status == 404
    connection.close()


def test_listeners_hear_of_what_is_published(host: str, publisher: Publisher) -> None:
    with urlopen(f"{host}/sync/v1/events") as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")

        def next_version() -> int:
            while not (line := stream.readline().decode()).startswith("data:"):
                pass
            return int(json.loads(line.removeprefix("data:"))["version"])

        before = next_version()
        publisher.publish(2)
        assert next_version() == before + 1


def test_a_listener_that_takes_nothing_is_let_go_and_the_others_hear(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_SLOW_S", 0.05)
    monkeypatch.setattr(events, "_BEAT_S", 0.0)
    heard: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never leaves

    async def listens(message: Any) -> None:
        heard.append(message["body"])

    async def deaf(message: Any) -> None:
        if b"retry" not in message["body"]:
            await receive()

    async def run() -> None:
        hub = events.Events(publisher.folder, lambda: False)
        slow = asyncio.create_task(hub.listen(receive, deaf))
        well = asyncio.create_task(hub.listen(receive, listens))
        await slow  # it is let go
        while heard.count(b": still here\n\n") < 2:
            await asyncio.sleep(0)
        assert hub.listeners == 1
        well.cancel()

    asyncio.run(run())


def test_who_was_let_in_but_told_nothing_yet_counts_as_a_listener(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_LISTENERS", 1)

    async def never(*_: Any) -> Any:
        return await asyncio.get_running_loop().create_future()

    async def run() -> None:
        hub = events.Events(publisher.folder, lambda: False)
        first = asyncio.ensure_future(hub.answer()({"type": "http", "method": "GET"}, never, never))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="1 devices listen already"):
            hub.answer()
        first.cancel()
        await asyncio.wait([first])
        hub.answer()

    asyncio.run(run())


def test_a_server_that_stops_lets_listeners_go(publisher: Publisher) -> None:
    with ServerThread(create_app({}, store=HostedStore(publisher.folder))) as server:
        stream = urlopen(f"{server.url}/sync/v1/events")
        stream.readline()
    with stream:
        assert b"timestamp" in stream.read()


def test_a_report_is_on_the_fleet_page_and_survives_the_server(host: str, publisher: Publisher, tmp_path: Path) -> None:
    assert post(host, report(method="delta", bytes_moved=10, bytes_full=100))[0] == 200
    assert post(host, report(device="d2", result="trial_failed", error="<b>bad</b>", wanted=1))[0] == 200

    fleet = get(f"{host}/sync/v1/fleet")
    with urlopen(f"{host}/fleet") as response:
        page = response.read().decode()

    assert fleet["devices"] == 2
    assert fleet["totals"] == [{"model": "linear", "updates": 1, "bytes_moved": 10, "bytes_full": 100, "failures": 1}]
    assert [one["device"] for one in fleet["failing"]] == ["d2"]
    assert "self-test failed" in page
    assert "<b>bad</b>" not in page
    assert len(Fleet(tmp_path / "fleet.sqlite")) == 2


def test_a_token_keeps_strangers_out(publisher: Publisher) -> None:
    with ServerThread(create_app({}, store=HostedStore(publisher.folder, token="secret"))) as server:
        assert post(server.url, report())[0] == 401
        assert post(server.url, report(), Authorization="Bearer secre")[0] == 401
        assert post(server.url, report(), Authorization="Bearer secret")[0] == 200
        for path in ("fleet", "sync/v1/fleet"):
            with pytest.raises(HTTPError, match="401"):
                urlopen(f"{server.url}/{path}")
            for shown in ("Bearer secret", f"Basic {base64.b64encode(b'me:secret').decode()}"):
                with urlopen(Request(f"{server.url}/{path}", headers={"Authorization": shown})) as response:
                    assert b"d1" in response.read()


def test_reports_of_what_the_store_never_published_are_refused(host: str) -> None:
    assert post(host, report(model="other"))[0] == 400
    assert post(host, report(wanted=2))[0] == 400
    assert post(host, report(sequence=2**53 - 1))[0] == 400
    assert get(f"{host}/sync/v1/fleet")["devices"] == 0


def test_one_device_neither_fills_the_database_nor_erases_the_trials_of_others() -> None:
    fleet = Fleet()
    for number in range(3):
        fleet.add(Report(f"d{number}", "linear", wanted=2, stage=1, result="trial_failed"))
    for step in range(1, 40):
        fleet.add(Report("d9", "linear", wanted=2, stage=step))
        fleet.add(Report("d9", "linear", wanted=2**53 - step))

    assert [(halt.failed, halt.tried) for halt in fleet.halts()] == [(3, 3)]
    assert fleet._database.execute("SELECT count(*) FROM trials WHERE device = 'd9'").fetchone()[0] == 8


def test_the_overview_of_a_fleet_is_of_one_moment() -> None:
    fleet = Fleet()

    def report_all() -> None:
        for number in range(2000):
            fleet.add(Report(f"d{number}", "linear", result="ok"))

    writer = Thread(target=report_all)
    writer.start()
    seen = []
    while writer.is_alive():
        seen.append(fleet.overview())
    writer.join()

    assert all(found.devices == sum(row["updates"] for row in found.totals) for found in seen)
    assert all(found.devices == sum(row["devices"] for row in found.versions) for found in seen)
    assert len({found.devices for found in seen}) > 1


def test_reports_name_a_bounded_number_of_models() -> None:
    fleet = Fleet()
    for number in range(MAX_MODELS):
        fleet.add(Report("d1", f"model{number}"))

    with pytest.raises(InputError, match="1000 other models"):
        fleet.add(Report("d1", "one-more"))
    fleet.add(Report("d2", "model1"))
    assert len(fleet) == MAX_MODELS + 1


def test_what_is_no_database_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 9)

    for path in (tmp_path / "text", tmp_path / "none" / "fleet.sqlite"):
        with pytest.raises(StoreError, match="cannot keep what devices report"):
            Fleet(path)


def test_a_roll_out_that_fails_is_halted_by_stage(host: str, publisher: Publisher) -> None:
    publisher.publish(2)
    for number in range(20):
        post(host, report(device=f"good{number}", wanted=2, stage=1, sequence=2))
    for number in range(2):
        post(host, report(device=f"bad{number}", wanted=2, stage=1, result="trial_failed"))
    assert get(f"{host}/sync/v1/advice?model=linear")["halts"] == []

    _, answer = post(host, report(device="bad2", wanted=2, stage=1, result="trial_failed"))

    assert answer["halts"] == [{"model": "linear", "sequence": 2, "stage": 1, "failed": 3, "tried": 23}]
    assert get(f"{host}/sync/v1/advice?model=other")["halts"] == []
    with urlopen(f"{host}/sync/v1/advice") as response:
        assert response.headers["Access-Control-Allow-Origin"] == "*", "pages of other origins ask, too"


def test_the_fleet_forgets_who_was_not_heard_of_for_longest() -> None:
    fleet = Fleet(max_devices=100)
    for number in range(150):
        fleet.add(Report(f"d{number}", "linear"), now_s=number)

    assert len(fleet) <= 100
    assert fleet.latest(1)[0]["device"] == "d149"
    assert "d149" in render(fleet)


def test_without_a_store_there_are_reports_and_no_files() -> None:
    with ServerThread(create_app({})) as server:
        assert post(server.url, report())[0] == 200
        for path in ("store/tuf/timestamp.json", "sync/v1/events"):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"{server.url}/{path}")
