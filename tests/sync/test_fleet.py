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

from edge_infer.sync.client import Pulled, pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.follow import Server
from tests.support.soak import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

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
