"""A service that is terminated again and again: it exits in order each time, and its files are whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from threading import Event
from typing import TYPE_CHECKING

import pytest

from edge_infer.runtime.loader import trial
from edge_infer.sync.device import DeviceStore
from edge_infer.tools.device.drop_folder import DropFolder
from tests.support.sync.power import version_of
from tests.support.sync.publisher import Publisher, write_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.sync.host import Answer, Host


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def started(supervisor: socket.socket, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a service; return it when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edge_infer", *arguments],
        env={**os.environ, "NOTIFY_SOCKET": supervisor.getsockname()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert supervisor.recv(100) == b"READY=1"
    return process


@pytest.mark.parametrize("command", ["watch store/linear --into device --no-server", "device watch-folder drop"])
def test_a_service_is_ready_before_it_says_that_it_lives(
    supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATCHDOG_USEC", "600000000")

    process = started(supervisor, *command.split())

    assert supervisor.recv(100) == b"WATCHDOG=1"
    process.terminate()
    assert ended(process, supervisor) == 0


def ended(process: subprocess.Popen[bytes], supervisor: socket.socket) -> int:
    """Wait for the end of a service that says that it stops."""
    try:
        assert supervisor.recv(100) == b"STOPPING=1"
        return process.wait(60)
    finally:
        process.kill()
        process.wait()


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Terminate it as somebody does who does not wait: the later signals come while it stops."""
    for _ in range(3):
        process.send_signal(signal.SIGTERM)


@pytest.mark.long
def test_a_watch_that_is_terminated_at_any_request_of_its_pull_ends_the_pull_first(
    publisher: Publisher, host: Host, supervisor: socket.socket, tmp_path: Path
) -> None:
    device = DeviceStore(tmp_path / "device")
    running: dict[int, subprocess.Popen[bytes]] = {}
    is_ready = Event()
    at, requests = 0, 1

    def change(_path: str, answer: Answer) -> Answer:
        assert is_ready.wait(60)
        if len(host.asked) == at:
            terminate(running[at])
        return answer

    host.change = change
    while at < requests:
        at += 1
        publisher.publish(at)
        host.asked.clear()
        is_ready.clear()
        arguments = (f"{host.url}/linear", "--into", str(device.folder), "--no-server", "--interval-s", "3600")
        running[at] = started(supervisor, "watch", *arguments)
        is_ready.set()

        assert ended(running[at], supervisor) == 0

        assert version_of(device) == str(at)
        trial(device.active())
        requests = len(host.asked)
    assert requests > 4


@pytest.mark.long
def test_a_watched_folder_that_is_terminated_again_and_again_has_whole_versions_only(
    supervisor: socket.socket, tmp_path: Path
) -> None:
    drop = DropFolder(tmp_path / "drop")
    for version in range(1, 6):
        write_version(drop.folder / "incoming" / str(version), version)
        process = started(supervisor, "device", "watch-folder", str(drop.folder), "--interval-s", "0.01")
        terminate(process)

        assert ended(process, supervisor) == 0

        for whole in drop.folder.glob("versions/*"):
            trial(whole)
        if drop.current.is_symlink():
            trial(drop.current)
    drop.look()
    drop.look()  # what was left when it ended
    trial(drop.current)
    assert list((drop.folder / "incoming").iterdir()) == list((drop.folder / "refused").iterdir()) == []


@pytest.mark.long
def test_a_server_that_is_terminated_again_and_again_stops_in_order(supervisor: socket.socket, tmp_path: Path) -> None:
    bundle = write_version(tmp_path / "linear.bundle", 1)
    for _ in range(4):
        process = started(supervisor, "serve", str(bundle), "--port", "0", "--log-format", "none")
        terminate(process)

        assert ended(process, supervisor) == 0
