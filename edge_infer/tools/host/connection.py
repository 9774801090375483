"""Run commands on another machine by the OpenSSH client, with keys, and say what is wrong where that fails."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import PIPE
from threading import Event, Timer
from typing import IO, NamedTuple

from edge_infer.errors import BackendUnavailable, ExecutionError, InputError

#: `pi@address`, a name of `~/.ssh/config`, or `ssh://pi@address:2222`; never an option of ssh.
_DESTINATION = re.compile(r"(ssh://)?([A-Za-z0-9_][\w.@+-]*@)?[A-Za-z0-9_\[][\w.:%\[\]-]*")
_CONNECT_S = 10
#: The most bytes that a command writes: outputs of a model, and what it says of itself.
_MOST_OUTPUT, _MOST_SAID = 2**30, 2**20
#: ssh's own status for what is wrong with the connection, and not with the command.
_NO_CONNECTION = 255
_SAID = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "`{host}` shows another host key than before: it was set up again, or another machine answers",
        "if you know why: ssh-keygen -R {name}, then ssh {host} to see the new key",
    ),
    ("Host key verification failed", "The host key of `{host}` is not known here", "ssh {host} once, and look at it"),
    ("Permission denied", "`{host}` does not take a key of yours", "ssh-copy-id {host}"),
    ("", "`{host}` cannot be reached: {said}", "ssh {host}"),
)


class Answer(NamedTuple):
    """What a command gave: its status, and what it wrote."""

    status: int
    output: bytes
    said: str


class Connection:
    """A machine that the OpenSSH client reaches.

    Args:
        destination: As ssh takes it: `pi@address`, `ssh://pi@address:2222`, or a name of the client's configuration.

    Raises:
        InputError: It is written otherwise.
    """

    def __init__(self, destination: str) -> None:
        if not _DESTINATION.fullmatch(destination):
            raise InputError(
                f"`{destination}` is not a host, expected USER@ADDRESS or ssh://USER@ADDRESS:PORT",
                hint="--host pi@raspberrypi.local",
                got=destination,
            )
        self.destination = destination

    def run(self, command: str, *, given: bytes = b"", timeout_s: float = 600) -> Answer:
        """Run a command of the other machine's shell.

        Args:
            command: The command.
            given: What it reads.
            timeout_s: After how many seconds it is given up.

        Raises:
            BackendUnavailable: There is no ssh here, or no connection; the message says which, and what to type.
            ExecutionError: It took longer, or wrote more than 1 GiB.
        """
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}", "-o", "ServerAliveInterval=15", "-T"]
        try:
            process = subprocess.Popen(
                ["ssh", *options, "--", self.destination, command], stdin=PIPE, stdout=PIPE, stderr=PIPE
            )
        except FileNotFoundError as error:
            raise BackendUnavailable("There is no ssh here", hint="apt install openssh-client") from error
        with process, ThreadPoolExecutor(3) as threads:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            is_late = Event()

            def end() -> None:
                is_late.set()
                process.kill()

            timer = Timer(timeout_s, end)
            timer.start()
            try:
                threads.submit(_write, process.stdin, given)
                said = threads.submit(_read, process.stderr, _MOST_SAID, process)
                output = _read(process.stdout, _MOST_OUTPUT, process)
                status = process.wait()
            finally:
                timer.cancel()
                process.kill()
        if is_late.is_set():
            raise ExecutionError(
                f"`{self.destination}` did not answer within {timeout_s:.0f} s", hint=f"ssh {self.destination} uptime"
            )
        for what, most, got in (("output", _MOST_OUTPUT, output), ("errors", _MOST_SAID, said.result())):
            if len(got) > most:
                raise ExecutionError(
                    f"`{self.destination}` writes more than {most / 2**20:.0f} MiB of {what}",
                    hint=f"does its shell greet? `ssh {self.destination} true` has to print nothing",
                )
        told = said.result().decode("utf-8", "replace").strip()
        if status == _NO_CONNECTION:
            raise self._error(told)
        return Answer(status, output, told)

    def _error(self, said: str) -> BackendUnavailable:
        message, hint = next((message, hint) for mark, message, hint in _SAID if mark in said)
        last = said.splitlines()[-1] if said else "ssh ended with 255"
        address, _, port = self.destination.removeprefix("ssh://").rpartition("@")[2].partition(":")
        name = f"'[{address}]:{port}'" if port else address
        texts = {"host": self.destination, "name": name, "said": last}
        return BackendUnavailable(message.format(**texts), hint=hint.format(**texts))


def _write(stream: IO[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError), stream:
        stream.write(data)


def _read(stream: IO[bytes], most: int, process: subprocess.Popen[bytes]) -> bytes:
    """Read what a process writes; where it is more than so many bytes, end the process and return one byte more."""
    data = stream.read(most + 1)
    if len(data) > most:
        process.kill()
    return data
