"""A folder with all that an OpenSSH server and the client that may reach it need, with keys made for one run."""

from __future__ import annotations

import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class SshFolder(NamedTuple):
    """The files of a server on a free port of this machine, and the client's.

    Attributes:
        user: Whom the server lets in, by the key `user` alone.
        port: The port on the loopback address.
        path: The folder.
    """

    user: str
    port: int
    path: Path

    @property
    def host(self) -> str:
        """The server as `--host` takes it."""
        return f"ssh://{self.user}@127.0.0.1:{self.port}"

    def show_key(self, name: str) -> None:
        """Let the client know this key as the server's."""
        kind, key = (self.path / f"{name}.pub").read_text().split()[:2]
        (self.path / "known").write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def write_client(self, folder: Path) -> None:
        """Write a program `ssh`, which is this machine's client with the configuration of this folder."""
        client = shutil.which("ssh")
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {client} -F {self.path}/config "$@"\n')
        (folder / "ssh").chmod(0o755)


def write_ssh_folder(path: Path, user: str, *settings: str, place: str = "", keys: tuple[str, ...] = ()) -> SshFolder:
    """Write keys and the two configurations; the client knows the server's key.

    Args:
        path: The folder, which is there.
        user: Whom the server lets in.
        settings: More lines of the server's configuration.
        place: The folder's name where the server runs, if that is another.
        keys: Names of more keys, which neither side knows.
    """
    for name in ("host", "user", *keys):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path / name], check=True)
    shutil.copy(path / "user.pub", path / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = SshFolder(user, free.getsockname()[1], path)
    there = place or path
    lines = (
        f"Port {found.port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {there}/host",
        f"AuthorizedKeysFile {there}/authorized",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        *settings,
    )
    (path / "sshd_config").write_text("".join(f"{line}\n" for line in lines))
    (path / "config").write_text(
        f"Host *\n  IdentityFile {path}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {path}/known\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )
    found.show_key("host")
    return found
