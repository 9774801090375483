"""Many devices against one server: all are updated, and the server does not grow. `make soak` makes them 1000."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from edge_infer.errors import ExecutionError, NotReleasedError, TrialError
from edge_infer.sync.client import Pulled, pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.follow import Server, reported
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from tests.support.soak import rounds
from tests.support.sync.publisher import write_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.sync.publisher import Publisher

DEVICES = rounds(24, 1000)
_AT_ONCE = 16


@pytest.fixture
def serving(publisher: Publisher) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, as it is started by hand, and its URL."""
    publisher.publish(1)
    command = [
        sys.executable,
        "-m",
        "edge_infer",
        "serve",
        str(publisher.folder),
        "--port",
        "0",
        "--log-format",
        "none",
    ]
    environment = {"EDGE_INFER_CACHE": str(publisher.folder.parent / "cache")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**_environment(), **environment})
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Serving http"):
            yield process, line.split()[1]
            break
    else:
        pytest.fail("the server did not start")
    process.terminate()
    process.wait(30)
    process.stderr.close()


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def memory_mb(process: subprocess.Popen[str]) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def test_every_device_of_a_fleet_is_updated_and_the_server_stays_small(
    publisher: Publisher, serving: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, url = serving

    def update(number: int) -> Pulled:
        device = DeviceStore(tmp_path / f"devices/{number}")
        server = Server(url, device, "linear")
        start = time.perf_counter()
        pulled = pull(f"{url}/store", "linear", device, lambda _path: None, is_halted=server.is_halted)
        assert server.report(pulled, time.perf_counter() - start)
        return pulled

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        first = list(pool.map(update, range(DEVICES)))
        before = memory_mb(process)
        publisher.publish(2)
        second = list(pool.map(update, range(DEVICES)))
    after = memory_mb(process)

    assert {one.method for one in first} == {"full"}
    assert {(one.version, one.method) for one in second} == {("2", "delta")}
    with urlopen(f"{url}/sync/v1/fleet") as response:
        fleet: dict[str, Any] = json.load(response)
    assert [(one["version"], one["devices"]) for one in fleet["versions"] if one["devices"] > 1] == [("2", DEVICES)]
    assert fleet["totals"][0]["updates"] >= 2 * DEVICES
    assert after - before < 20
    print(f"{DEVICES} devices: the server has {before:.0f} MB after the first round, {after:.0f} MB after the second")


def test_a_fleet_whose_first_devices_fail_is_halted_before_its_second_look(
    publisher: Publisher, serving: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    """Every device is in the roll-out's first step: those that look after the halt take nothing, then or later."""
    _, url = serving
    tried: list[int] = []

    def failing(number: int) -> None:
        tried.append(number)
        raise ExecutionError("this version does not run here")

    def look(number: int, check: Callable[[], None]) -> str:
        device = DeviceStore(tmp_path / f"devices/{number}")
        server = Server(url, device, "linear")
        one = reported(
            lambda: pull(f"{url}/store", "linear", device, lambda _path: check(), is_halted=server.is_halted), server
        )
        try:
            return one().version
        except NotReleasedError:
            return "held"
        except TrialError:
            return "failed"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        assert set(pool.map(lambda number: look(number, lambda: None), range(DEVICES))) == {"1"}
        bundle = write_version(publisher.bundles / "2", 2)
        publish(bundle, Repository(publisher.folder), publisher.keys, share=9999)  # all but one of 10,000
        first = list(pool.map(lambda number: look(number, lambda: failing(number)), range(DEVICES)))
        so_far = len(tried)
        second = list(pool.map(lambda number: look(number, lambda: failing(number)), range(DEVICES)))
    assert first.count("failed") == so_far
    assert 3 <= so_far < DEVICES
    assert len(tried) == so_far, "a device took a version after the halt"
    assert "2" not in {*first, *second}
    print(f"{DEVICES} devices: {so_far} tried the version before the halt, none at the second look")
