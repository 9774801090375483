"""`verify --host` and `bench --host` against a real OpenSSH server on this machine."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from edge_infer.bundle.bundle import Bundle
from edge_infer.cli.judge import Judge
from edge_infer.cli.on_host import verify_there
from edge_infer.errors import BackendUnavailable, ExecutionError, InputError, UnsupportedError
from edge_infer.parity.verdict import Limits
from edge_infer.platform.cpu import is_emulated
from edge_infer.tools.host import connection as connection_file
from edge_infer.tools.host.connection import Connection
from edge_infer.tools.host.workplace import Workplace
from edge_infer_converters.measure.speed import read_device_times
from tests.support.ssh import SshFolder, write_ssh_folder
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SSHD = "/usr/sbin/sshd"
DIGITS = Path(__file__).parents[2] / "examples/digits/digits.onnx"

pytestmark = pytest.mark.skipif(not os.access(SSHD, os.X_OK), reason="no sshd: tests/setup.sh")


class Server(NamedTuple):
    """An OpenSSH server on a free port, with a key of its own, and the client's files."""

    files: SshFolder
    host: str

    def claim(self, answer: str | None) -> None:
        """Let its `python3` say that it is another machine; None lets it be the real one."""
        place = self.files.path / "path/python3"
        place.write_text(f"#!/bin/sh\necho {answer}\n" if answer else f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        place.chmod(0o755)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sshd")
    files = write_ssh_folder(folder, getpass.getuser(), f"ForceCommand {folder}/shell", keys=("other",))
    (folder / "path").mkdir()
    (folder / "shell").write_text(f'#!/bin/sh\nPATH={folder}/path:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    (folder / "shell").chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where the server of Debian shuts itself in
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        wait_until(lambda: b"listening" in (folder / "log").read_bytes() or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()
        yield Server(files, files.host)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def server(running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, known to the client, which is the real one with the test's own configuration."""
    running.files.write_client(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    running.files.show_key("host")
    running.claim(None)
    return running


def edge_infer(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "edge_infer", *arguments], capture_output=True, text=True, check=False)


def left_behind() -> set[Path]:
    return set(Path("/tmp").glob("edge-infer.????????"))


@pytest.mark.long
def test_another_machine_verifies_and_measures_a_bundle(server: Server, tmp_path: Path) -> None:
    examples, before = DIGITS.parent, left_behind()
    made = edge_infer(
        *("convert", str(DIGITS), "-o", str(tmp_path / "digits.bundle"), "--keep-all"),
        *("--calibration", str(examples / "calibration.npz")),
    )
    assert made.returncode == 0, made.stderr

    verified = edge_infer("verify", str(tmp_path / "digits.bundle"), "--host", server.host, "--json")
    assert verified.returncode == 0, verified.stderr
    rows = json.loads(verified.stdout)["rows"]
    ran = {row["variant"]: row for row in rows if row["verdict"] in ("ok", "warn")}
    assert ran.keys() >= {"onnx/fp32", "onnx/int8", "compiled/fp32"}
    assert all(row["backend"].endswith(f" at {server.host}") for row in ran.values())
    assert {row["verdict"] for row in rows if row["variant"].startswith("tflite/")} == {"skip"}

    benched = edge_infer(
        *("bench", str(tmp_path / "digits.bundle"), "--host", server.host, "--rounds", "1", "--seconds", "0.1"),
        *("--variant", "onnx/fp32", "--variant", "onnx/int8", "--json"),
    )
    assert benched.returncode == 0, benched.stderr
    (tmp_path / "pi.json").write_text(benched.stdout)
    speed = read_device_times(tmp_path / "pi.json").speed("onnx/int8", "onnx/fp32")
    assert speed is not None
    assert "pi.json" in speed.origin
    machine = json.loads(benched.stdout)["machine"]
    assert machine["host"] == server.host
    assert machine["is_emulated"] is is_emulated(platform.machine())
    assert left_behind() == before


def test_what_keeps_ssh_from_a_machine_is_told_with_what_to_type(server: Server) -> None:
    def refusal() -> str:
        with pytest.raises(BackendUnavailable) as caught:
            Connection(server.host).run("true")
        return f"{caught.value.message} | {caught.value.hint}"

    assert Connection(server.host).run("echo here").output == b"here\n"
    server.files.show_key("other")
    assert "shows another host key than before" in (said := refusal())
    assert f"ssh-keygen -R '[127.0.0.1]:{server.files.port}'" in said
    (server.files.path / "known").write_text("")
    assert "The host key of" in refusal()
    server.files.show_key("host")
    (server.files.path / "authorized").write_text((server.files.path / "other.pub").read_text())
    assert "does not take a key of yours | ssh-copy-id" in refusal()
    (server.files.path / "authorized").write_text((server.files.path / "user.pub").read_text())


def test_a_machine_that_is_not_there_is_told(server: Server) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(BackendUnavailable, match=r"cannot be reached: .*refused"):
            Connection(f"ssh://{getpass.getuser()}@127.0.0.1:{port}").run("true")


@pytest.mark.parametrize(
    "name",
    ["-oProxyCommand=touch x", "pi@a b", "", "pi@a;reboot", "pi@-oProxyCommand", "ssh://pi@-oProxyCommand:22", "a\n"],
)
def test_what_is_no_host_is_never_given_to_ssh(name: str) -> None:
    with pytest.raises(InputError, match="is not a host"):
        Connection(name)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("riscv64 64 3 11 2 glibc", "is riscv64 with glibc, expected x86_64"),
        ("aarch64 64 3 11 2 -", "another libc than glibc"),
        ("aarch64 64 3 9 2 glibc", "has Python 3.9.2, expected 3.11 or newer"),
    ],
)
def test_a_machine_that_cannot_run_the_runtime_is_told(server: Server, answer: str, says: str) -> None:
    server.claim(answer)

    with pytest.raises(UnsupportedError, match=says):
        Workplace(server.host)


@pytest.mark.parametrize("answer", ["nothing", "a b c d e f", "Hello, x86_64 64 3 11 2 glibc"])
def test_a_machine_that_says_something_else_is_told(server: Server, answer: str) -> None:
    server.claim(answer)

    with pytest.raises(ExecutionError, match=f"says `{answer}`") as caught:
        Workplace(server.host)
    assert "has to print nothing" in caught.value.hint


@pytest.mark.parametrize("times", ["", "[]", '{"rounds": [{"times_ms": []}], "machine": {}}', "\\033]0;title\\007"])
def test_what_a_machine_says_commands_neither_a_program_nor_a_terminal(tmp_path: Path, times: str) -> None:
    answers = {"*platform*": "x86_64 64 3 11 2 glibc", "mktemp*": "/tmp/edge-infer.abcdefgh", "*measure*": times}
    cases = " ".join(f"{mark}) printf '%b' '{said}';;" for mark, said in answers.items())
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\nfor last; do :; done\ncase "$last" in {cases} *) cat > /dev/null;; esac\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    words = ["bench", str(DIGITS), "--host", "pi@address"]
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    done = subprocess.run([sys.executable, "-m", "edge_infer", *words], capture_output=True, text=True, env=environment)

    assert done.returncode == 1
    assert "`pi@address` was asked for times and says" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("answer", "says", "hint"),
    [
        ("aarch64 64 3 11 2 glibc", "is for x86_64, not for aarch64", "--wheel wheels"),
        ("aarch64 32 3 11 2 glibc", "is armv7, for which there is no onnxruntime", "1 do not work"),
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it is about another machine than this one")
def test_a_machine_without_an_engine_gets_nothing(server: Server, answer: str, says: str, hint: str) -> None:
    server.claim(answer)
    before = left_behind()

    done = edge_infer("bench", str(DIGITS), "--host", server.host, "--json")

    assert done.returncode == 1
    assert says in done.stderr
    assert hint in done.stderr
    assert left_behind() == before


def test_a_machine_that_can_run_no_variant_is_told_what_it_could_run(server: Server) -> None:
    server.claim("aarch64 32 3 11 2 glibc")
    bundle = Bundle.open(DIGITS)
    judge = Judge(bundle, server.host, [], Limits(), is_given=False)

    with pytest.raises(UnsupportedError, match=r"can run none of the variants: .* is armv7, for which") as caught:
        verify_there(judge, server.host, None, bundle.manifest.variants)

    assert "--format compiled" in caught.value.hint


def test_a_machine_that_writes_without_an_end_is_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_file, "_MOST_OUTPUT", 2**20)
    there = Connection(server.host)
    for command in ("yes", "yes >&2"):
        with pytest.raises(ExecutionError, match="more than 1 MiB"):
            there.run(command)
    with pytest.raises(ExecutionError, match="within 1 s"):
        there.run("sleep 60", timeout_s=1)
