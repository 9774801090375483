"""`verify --host` and `bench --host` against an OpenSSH server in an emulated Raspberry Pi; part of `make pi`.

The server and all that it starts are programs of the other architecture. Python is started there without the folders
of packages (`-I -S`), so that the engine can only be what this machine has sent.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.ssh import SshFolder, write_ssh_folder
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
#: The user of `arm_root.py`'s roots, and the number: an unprivileged server lets in the user who started it.
_USER, _NUMBER = "pi", "1000"
#: Beyond these a hanging server, or command, is ended.
_START_S, _LIMIT_S = 300, 1200
#: What `--host` calls the machines.
_PLATFORMS = {"pi5": "aarch64", "pi2": "armv7"}
# The server gives its sessions an environment of their own, which has to name the CPU to the emulator again.
_SERVE = 'exec /usr/sbin/sshd -D -e -f "$1/sshd_config" -o "SetEnv=QEMU_CPU=$QEMU_CPU"'


class DisagreementError(Exception):
    """The machine does not do what it should; the text says what."""


def run_by_ssh(enter: Sequence[str], name: str, shared: Path, wheel: Path) -> tuple[int, str, float]:
    """Start a server on a machine, verify and measure the digits bundle there.

    Args:
        enter: The command that enters the machine, without what runs there.
        name: The machine.
        shared: The folder that it sees as `/tree`, with `digits.bundle`.
        wheel: The engine for a 64-bit machine.

    Returns:
        The exit status, what was found or went wrong, and the seconds.
    """
    start = time.monotonic()
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return 1, "no ssh or ssh-keygen here: apt install openssh-client", 0.0
    folder = shared / f"ssh-{name}"
    folder.mkdir()
    server = write_ssh_folder(folder, _USER, place=f"/tree/{folder.name}")
    server.write_client(folder)
    place = folder / "log"
    with place.open("wb") as log:
        process = subprocess.Popen(
            [*enter, "/bin/sh", "-c", _SERVE, "sh", f"/tree/{folder.name}"],
            stdout=log,
            stderr=log,
            env=os.environ | {"PI_USER": _NUMBER},
            start_new_session=True,
        )
    try:
        wait_until(lambda: b"listening" in place.read_bytes() or process.poll() is not None, _START_S)
        _must(process.poll() is None, "the server has ended")
        said = _use(server, _PLATFORMS[name], shared / "digits.bundle", wheel)
    except (DisagreementError, TimeoutError, subprocess.SubprocessError) as error:
        log_end = place.read_text("utf-8", "replace")[-2000:]
        return 1, f"the server's log:\n{log_end}\n{error}", time.monotonic() - start
    finally:
        _end(process)
    return 0, said, time.monotonic() - start


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server with the programs that have entered the machine for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(30)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _use(server: SshFolder, platform: str, bundle: Path, wheel: Path) -> str:
    """Verify and measure the bundle there, and return what was found in a line."""
    engine = ("--wheel", str(wheel)) if platform == "aarch64" else ()
    formats = {"onnx", "compiled"} if engine else {"compiled"}
    before = _ssh(server, "ls -A /tmp")

    rows = _asked(server, "verify", str(bundle), *engine)["rows"]
    ran = [row for row in rows if row["verdict"] in ("ok", "warn")]
    skipped = [row for row in rows if row["verdict"] == "skip"]
    _must(len(ran) + len(skipped) == len(rows), f"not all agree: {rows}")
    _must({_format(row) for row in ran} == formats, f"other formats than {formats} ran there: {ran}")
    _must({row["engine"] for row in ran} == {platform}, f"the report names another machine: {ran}")
    for row in skipped:
        reason = "needs numpy there" if _format(row) == "tflite" else "for which there is no onnxruntime"
        _must(_format(row) not in formats and reason in row["reason"], f"skipped with another reason: {row}")

    variant = "onnx/int8" if engine else ran[0]["variant"]
    few = ("--variant", variant, "--rounds", "1", "--seconds", "0.05")
    benched = _asked(server, "bench", str(bundle), *engine, *few)
    machine, timed = benched["machine"], {row["variant"] for row in benched["rows"] if row["p50_ms"] > 0}
    _must(timed == {variant}, f"not timed: {benched}")
    # Linux before 6.1 does not say what it runs on.
    _must(machine["is_emulated"] is Path("/proc/sys/kernel/arch").exists(), f"emulated or not? {machine}")
    if not engine:
        refused = _edge_infer(server, "verify", str(bundle), "--variant", "onnx/int8")
        told = f"{platform}, for which there is no onnxruntime" in refused.stderr
        _must(refused.returncode == 1 and told, f"an engine that does not exist is not refused: {refused.stderr}")
    after = _ssh(server, "ls -A /tmp")
    _must(after == before, f"`/tmp` holds {after.split()}, and before {before.split()}")
    return (
        f"{len(ran)} variants agree on {platform}, {len(skipped)} are told why they cannot run; "
        f"{variant} is timed on {machine['processor']}"
    )


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DisagreementError(otherwise)


def _format(row: dict[str, Any]) -> str:
    return str(row["variant"]).partition("/")[0]


def _asked(server: SshFolder, command: str, *arguments: str) -> dict[str, Any]:
    """Run a command that prints JSON, and return that."""
    run = _edge_infer(server, command, *arguments, "--json")
    _must(run.returncode == 0, f"edge-infer {command} --host ended with {run.returncode}: {run.stdout}\n{run.stderr}")
    return dict(json.loads(run.stdout))


def _edge_infer(server: SshFolder, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of this checkout, with `--host`."""
    environment = _environment(server) | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "converters/src")))}
    command = [sys.executable, "-m", "edge_infer", *arguments, "--host", server.host]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)


def _ssh(server: SshFolder, command: str) -> str:
    """Run a command there, and return what it prints."""
    environment = _environment(server)
    return subprocess.run(
        ["ssh", server.host, command],
        check=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_START_S,
    ).stdout


def _environment(server: SshFolder) -> dict[str, str]:
    return os.environ | {"PATH": f"{server.path}{os.pathsep}{os.environ['PATH']}"}
