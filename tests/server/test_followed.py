"""A server that takes its models from a store, and devices that listen and report to it."""

from __future__ import annotations

import json
import queue
import subprocess
import warnings
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

import edge_infer
from edge_infer.errors import EdgeInferError, FetchError, NotReleasedError, TrialError
from edge_infer.runtime.live import LiveSession
from edge_infer.runtime.loader import trial
from edge_infer.server.app import create_app
from edge_infer.server.execution.repository import ModelRepository
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.store.followed import Followed, is_store, models_of
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.follow import Server, follow, server_of
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from tests.support.server.linear import infer
from tests.support.sync.host import Answer, Host
from tests.support.sync.publisher import SIZE, Publisher, weights, write_version
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.sync.client import Pulled

PAGE = Path(__file__).parents[1] / "sync/pull.mjs"


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "store", tmp_path / "keys", tmp_path / "bundles")
    Repository(made.folder).create(made.keys)
    made.publish(1)
    return made


@pytest.fixture
def host(publisher: Publisher) -> Iterator[str]:
    with ServerThread(create_app({}, store=HostedStore(publisher.folder))) as server:
        yield server.url


def get(url: str) -> Any:
    with urlopen(url) as response:
        return json.load(response)


def test_servers_that_share_a_folder_all_take_what_one_of_them_brings(
    publisher: Publisher, host: str, tmp_path: Path
) -> None:
    both = [Followed([f"{host}/store"], root=tmp_path / "cache") for _ in range(2)]
    apps = [create_app({name: [path] for name, path in one.bring().items()}) for one in both]
    try:
        for one, app in zip(both, apps, strict=True):
            one.start(app.engine.repository)
        wanted = publisher.publish(2).revision.bundle
        wait_until(lambda: {app.engine.repository.versions("linear")[0].path.name for app in apps} == {wanted})
    finally:
        for one in both:
            one.stop()
        for app in apps:
            app.engine.close()


def test_a_server_starts_on_the_newest_version_and_follows_it(publisher: Publisher, host: str, tmp_path: Path) -> None:
    followed = Followed([f"{host}/store"], root=tmp_path / "cache")
    app = create_app({name: [path] for name, path in followed.bring().items()})
    with ServerThread(app) as server:
        followed.start(app.engine.repository)
        try:
            assert infer(server.url) == pytest.approx(float(weights(1)[:, 0].sum()), rel=1e-5)
            publisher.publish(2)
            wanted, answers = float(weights(2)[:, 0].sum()), []
            deadline = Event()
            for _ in range(600):
                answers.append(infer(server.url))
                if answers[-1] == pytest.approx(wanted, rel=1e-6):
                    break
                deadline.wait(0.05)
            else:
                pytest.fail(f"the server stayed on {answers[-1]}, expected {wanted}")
        finally:
            followed.stop()
    fleet = get(f"{host}/sync/v1/fleet")
    assert [(one["kind"], one["version"]) for one in fleet["latest"]] == [("server", "2")]


def test_without_its_store_a_server_starts_on_what_it_has(publisher: Publisher, tmp_path: Path) -> None:
    Followed([str(publisher.folder)], root=tmp_path / "cache").bring()
    publisher.folder.rename(tmp_path / "gone")

    assert list(Followed([str(publisher.folder / "linear")], root=tmp_path / "cache").bring()) == ["linear"]
    with pytest.raises(FetchError):
        Followed([str(publisher.folder / "linear")], root=tmp_path / "empty").bring()


def test_a_store_is_told_from_a_bundle(publisher: Publisher) -> None:
    assert is_store(str(publisher.folder))
    assert not is_store(str(publisher.bundles / "1"))
    assert models_of(str(publisher.folder)) == ["linear"]


def test_a_device_hears_of_a_version_and_reports_it(publisher: Publisher, host: str, tmp_path: Path) -> None:
    """The interval is an hour: only the event brings the second version."""
    pull(f"{host}/store", "linear", device := DeviceStore(tmp_path / "device"), trial)
    device.rename("pi-kitchen")
    news: queue.Queue[Pulled | EdgeInferError] = queue.Queue()
    with LiveSession(device.folder) as live:
        live.follow(f"{host}/store/linear", interval_s=3600, on_update=news.put, on_error=news.put)
        publish_when_it_listens(host, publisher, 2)
        pulled = news.get(timeout=30)

    assert not isinstance(pulled, EdgeInferError)
    assert (pulled.version, pulled.method) == ("2", "delta")
    [seen] = get(f"{host}/sync/v1/fleet")["latest"]
    assert (seen["device"], seen["result"], seen["version"]) == ("pi-kitchen", "ok", "2")
    assert seen["trial_s"] > 0


def publish_when_it_listens(host: str, publisher: Publisher, version: int) -> None:
    """Publish once a device has reported its first look; the event may come before or after it listens."""
    pause = Event()
    while not get(f"{host}/sync/v1/fleet")["latest"]:
        pause.wait(0.02)
    publisher.publish(version)


def test_a_roll_out_that_fails_on_the_first_devices_is_not_begun_by_others(
    publisher: Publisher, host: str, tmp_path: Path
) -> None:
    devices = [DeviceStore(tmp_path / f"device{i}") for i in range(5)]
    for one in devices:
        pull(f"{host}/store", "linear", one, trial)
    bundle = write_version(publisher.bundles / "2", 2, wrong=True)
    publish(bundle, Repository(publisher.folder), publisher.keys, share=9999)

    results: list[str] = []
    for one in devices:
        server = Server(host, one, "linear")
        try:
            pull(f"{host}/store", "linear", one, trial, is_halted=server.is_halted)
        except (TrialError, EdgeInferError) as error:
            results.append(error.code)
            assert server.report(error, 0.1)

    assert results == ["trial_failed"] * 3 + ["not_released"] * 2
    with urlopen(f"{host}/fleet") as response:
        assert "is halted" in response.read().decode()
    web = f"{(PAGE.parents[2] / 'web').as_uri()}/"
    address = {"address": f"{host}/store/linear", "root": web, "fault": "none"}
    assert [one["how"] for one in in_page(address)] == ["not_released"], "a page asks, too"
    served = Followed([f"{host}/store"], root=tmp_path / "served")
    with pytest.raises(NotReleasedError, match="is halted"):
        served.bring()

    publish(write_version(publisher.bundles / "3", 3), Repository(publisher.folder), publisher.keys)
    assert in_page(address)[0]["version"] == "3"
    pull(f"{host}/store", "linear", devices[0], trial)
    devices[0].rollback()
    server = Server(host, devices[0], "linear")
    again = pull(f"{host}/store", "linear", devices[0], trial, is_halted=server.is_halted)
    assert (again.version, again.rolled_back, again.changed) == ("1", "3", False)
    assert server.report(again, 0.1)
    with urlopen(f"{host}/fleet") as response:
        assert "rolled back by hand" in response.read().decode()
    with urlopen(f"{host}/sync/v1/fleet") as response:
        assert devices[0].name() not in [one["device"] for one in json.load(response)["failing"]]


def in_page(asked: dict[str, str]) -> Any:
    """Pull once as a page does, in Node."""
    done = subprocess.run(["node", str(PAGE), json.dumps(asked)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_host_of_plain_files_is_looked_at_in_intervals(publisher: Publisher, tmp_path: Path) -> None:
    with ServerThread(create_app({})) as server:  # it knows no events
        told = Server(server.url, DeviceStore(tmp_path / "device"), "linear")
        stop, wake = Event(), Event()
        thread = told.listen(wake, stop)
        thread.join(30)

        assert not told.has_events
        assert not told.is_halted(1, 1)


@pytest.mark.parametrize(("status", "has"), [(502, True), (504, True), (404, False), (501, False)])
def test_a_proxy_that_fails_once_does_not_end_events(
    publisher: Publisher, tmp_path: Path, status: int, has: bool
) -> None:
    stop, wake = Event(), Event()
    web = Host(publisher.folder)

    def change(_path: str, answer: Answer) -> Answer:
        stop.set()
        return answer._replace(status=status)

    web.change = change
    serving = Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    told = Server(web.url, DeviceStore(tmp_path / "device"), "linear")
    told.listen(wake, stop).join(30)
    web.server.shutdown()
    serving.join()
    web.server.server_close()

    assert told.has_events == has


def test_stopping_does_not_wait_for_a_pull_that_hangs(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_infer.server.store.followed.STOP_S", 0.1)
    followed = Followed([str(publisher.folder)], root=tmp_path / "kept")
    hung, go_on = Event(), Event()

    def hang(_model: object) -> Pulled:
        hung.set()
        go_on.wait()
        raise FetchError("late")

    monkeypatch.setattr(followed, "_pull", hang)
    followed.start(ModelRepository({}))
    hung.wait(30)
    ending = Thread(target=followed.stop, daemon=True)
    ending.start()
    ending.join(20)
    is_over = not ending.is_alive()
    go_on.set()

    assert is_over


def test_following_ends_at_once_while_it_listens(publisher: Publisher, host: str, tmp_path: Path) -> None:
    device = DeviceStore(tmp_path / "device")
    told = Server(host, device, "linear")
    stop, wake = Event(), Event()
    thread = Thread(
        target=follow,
        args=(lambda: pull(f"{host}/store", "linear", device, trial), told),
        kwargs={"interval_s": 3600, "stop": stop, "wake": wake},
    )
    thread.start()
    pause = Event()
    while not told.is_listening:
        pause.wait(0.02)
    stop.set()
    wake.set()
    thread.join(10)

    assert not thread.is_alive()


def test_load_takes_a_model_of_a_store_and_the_last_one_where_it_is_gone(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    ones = [[1.0] * SIZE]
    with ServerThread(create_app({}, store=HostedStore(publisher.folder))) as server:
        address = f"edge+{server.url}/store/linear"
        with edge_infer.load(address) as session:
            first = float(session.run({"x": ones})["y"][0][0])
        publisher.publish(2)
        with LiveSession.open(address) as live:
            assert live.revision != session.bundle.revision
    with pytest.warns(RuntimeWarning, match="the version of the last time is used"):
        again = edge_infer.load(address)

    assert first == pytest.approx(float(weights(1)[:, 0].sum()), rel=1e-5)
    assert float(again.run({"x": ones})["y"][0][0]) != first
    again.close()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(EdgeInferError, match="is not an address of a store"), warnings.catch_warnings():
        edge_infer.load("edge+ftp://host/store/model")


def test_a_folder_has_no_server() -> None:
    assert server_of("/srv/store") == ""
    assert server_of("https://models.example.org/a/store") == "https://models.example.org"
