"""The unit of a service, and how the service tells that it is alive."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from edge_infer.bundle.keys import KeyRing, write_key
from edge_infer.cli import cli
from edge_infer.errors import EncryptedError, InputError
from edge_infer.platform.systemd import Watchdog, answers, notify, watchdog_s
from edge_infer.tools.device.service import Service, unit_text
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.model_files import WriteModel


def checked(tmp_path: Path, service: Service) -> str:
    """Let systemd check a unit; return what it complains about."""
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None, "tests/setup.sh installs systemd"
    path = tmp_path / service.unit
    path.write_text(unit_text(service))
    done = subprocess.run([analyze, "verify", str(path)], capture_output=True, text=True, timeout=60)
    return f"{done.returncode} {done.stdout}{done.stderr}".strip()


@pytest.mark.parametrize(
    "service",
    [
        Service("digits", ("serve", "/srv/digits.bundle")),
        Service("cam-1", ("serve", '/srv/my "models" at 100%/$x/current', "--port", "80"), "pi", "1G", 30, True),
        Service("digits", ("serve", "/srv/digits.bundle"), key_file=Path("/etc/weights-100%.key")),
        Service("digits", ("watch", "https://example.org/store/digits", "--into", "/var/lib/edge-infer/digits")),
    ],
    ids=["plain", "odd-path", "key", "store"],
)
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, service: Service) -> None:
    assert checked(tmp_path, service) == "0"


def test_systemd_would_complain_of_a_wrong_unit(tmp_path: Path) -> None:
    """What the test above relies on."""
    service = Service("digits", ("serve",))
    path = tmp_path / service.unit
    path.write_text(unit_text(service, ["/no/such/program"]).replace("MemoryMax=256M", "MemoryMax=much"))

    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)

    assert "Invalid memory limit" in done.stderr
    assert "/no/such/program" in done.stderr


def test_systemd_rates_the_sandbox_as_safe(tmp_path: Path) -> None:
    """Below 3.0 of 10 is what it calls OK; a unit without a sandbox has 9.6."""
    path = tmp_path / "edge-infer-x.service"
    path.write_text(unit_text(Service("x", ("serve",))))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", str(path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize(
    "service",
    [
        Service("di gits", ("serve",)),
        Service("../digits", ("serve",)),
        Service("digits", ("serve",), user="root\nExecStart=/bin/sh"),
        Service("digits", ("serve",), memory_max="lots"),
        Service("digits", ("serve", "a\nExecStart=/bin/sh")),
        Service("digits", ("serve",), watchdog_s=1),
        Service("digits", ("serve",), key_file=Path("/etc/a\nExecStart=/bin/sh")),
        Service("digits", ("serve",), key_file=Path("/etc/a key")),
    ],
)
def test_what_would_break_out_of_its_line_is_refused(service: Service) -> None:
    with pytest.raises(InputError):
        unit_text(service)


def test_the_command_writes_the_unit_and_says_what_to_type(tmp_path: Path, write_model: WriteModel) -> None:
    model = write_model(zoo.mlp())

    done = CliRunner().invoke(
        cli,
        ["device", "install-service", str(model), "--unit-dir", str(tmp_path), "--user", "pi", "--memory-max", "128M"],
    )

    unit = tmp_path / "edge-infer-model.service"
    assert done.stdout.strip() == str(unit)
    assert "systemctl enable --now edge-infer-model.service" in done.stderr
    text = unit.read_text()
    assert f"serve {model} --host 127.0.0.1 --port 8080" in text
    assert "\nUser=pi\n" in text
    assert "\nMemoryMax=128M\n" in text


def test_a_key_file_is_a_credential_that_the_service_finds(
    tmp_path: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, written = write_model(zoo.mlp()), tmp_path / "weights.key"
    key = write_key(written)
    words = ["device", "install-service", str(model), "--key", str(written), "--dry-run"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert f"\nLoadCredential=edge-infer.key:{written}\n" in done.output
    given = tmp_path / "credentials"  # what systemd makes of that line
    given.mkdir()
    (given / "edge-infer.key").write_bytes(written.read_bytes())
    (given / "edge-infer.key").chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given))
    assert [one.name for one in KeyRing.of(None).keys] == [key.name]
    written.chmod(0o440)
    with pytest.raises(EncryptedError, match="read by others"):
        KeyRing.of(written)


def test_a_dry_run_prints_the_unit_of_a_store_and_writes_nothing(tmp_path: Path) -> None:
    arguments = ["https://models.example.org/store/digits", "--dry-run", "--unit-dir", str(tmp_path)]

    done = CliRunner().invoke(cli, ["device", "install-service", *arguments])

    assert "watch https://models.example.org/store/digits --into /var/lib/edge-infer/digits" in done.stdout
    assert "\nDynamicUser=yes\n" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link_so_that_its_target_may_change(tmp_path: Path, write_model: WriteModel) -> None:
    (tmp_path / "current.onnx").symlink_to(write_model(zoo.mlp()))

    done = CliRunner().invoke(cli, ["device", "install-service", str(tmp_path / "current.onnx"), "--dry-run"])

    assert f"serve {tmp_path}/current.onnx " in done.stdout


@pytest.mark.parametrize("source", ["no-such.bundle", "ftp://x/y"])
def test_a_source_that_is_not_there_is_refused(source: str) -> None:
    done = CliRunner().invoke(cli, ["device", "install-service", source, "--dry-run"])

    assert done.exit_code == 1
    assert "There is no bundle" in str(done.exception)


# -- signs of life --


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """What systemd listens on, and what it tells the service."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening, {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"}


def test_a_state_reaches_the_supervisor(supervisor: tuple[socket.socket, dict[str, str]]) -> None:
    listening, environment = supervisor

    assert notify("READY=1", environment)
    assert listening.recv(100) == b"READY=1"


def test_without_a_supervisor_nothing_is_sent() -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "/no/such/socket"})


def test_a_socket_without_a_file_is_found() -> None:
    name = f"edge-infer-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")

        assert notify("READY=1", {"NOTIFY_SOCKET": f"@{name}"})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_time_is_that_of_this_process(variables: dict[str, str], expected: float | None) -> None:
    assert watchdog_s(variables) == expected


def test_a_process_that_is_not_alive_sends_no_sign_of_life(supervisor: tuple[socket.socket, dict[str, str]]) -> None:
    listening, environment = supervisor
    asked = Event()

    def dead() -> bool:
        asked.set()
        return False

    watchdog = Watchdog(dead, environment)
    assert asked.wait(30)
    watchdog.close()

    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        listening.recv(100)


def test_nobody_answers_where_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))

        assert not answers(f"http://127.0.0.1:{free.getsockname()[1]}/v2/health/live", 1)


def test_a_served_bundle_is_ready_beats_and_says_that_it_stops(
    supervisor: tuple[socket.socket, dict[str, str]], write_model: WriteModel
) -> None:
    """A sign of life is sent only after its own event loop has answered a request."""
    listening, environment = supervisor
    command = [sys.executable, "-m", "edge_infer", "serve", str(write_model(zoo.mlp())), "--port", "0"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        assert listening.recv(100) == b"READY=1"
        assert listening.recv(100) == b"WATCHDOG=1"
        process.send_signal(signal.SIGTERM)
        said = b""
        while said != b"STOPPING=1":
            said = listening.recv(100)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "arguments", [["device", "watch-folder", "DIR"], ["watch", "DIR/store/digits", "--into", "DIR"]]
)
def test_what_watches_is_ready_beats_and_ends_in_order(
    supervisor: tuple[socket.socket, dict[str, str]], tmp_path: Path, arguments: list[str]
) -> None:
    """A store that cannot be reached is no reason to be dead: the look at it has ended."""
    listening, environment = supervisor
    command = [sys.executable, "-m", "edge_infer", *(one.replace("DIR", str(tmp_path / "models")) for one in arguments)]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        assert {listening.recv(100), listening.recv(100)} == {b"READY=1", b"WATCHDOG=1"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
