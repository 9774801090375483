"""The systemd unit of a service: started at boot, watched, restarted, held to its memory, shut off from the rest.

The settings are those of systemd.service(5), systemd.exec(5) and systemd.resource-control(5), as of version 247, which
Debian 11 has; later ones read them too.
"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.keys import CREDENTIAL
from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_USER = r"[a-z_][a-z0-9_-]{0,31}"
_MEMORY = r"[1-9][0-9]{0,11}[KMG]?|infinity"

_UNIT = """\
[Unit]
Description=edge-infer: {name}
Wants=network-online.target
After=network-online.target time-sync.target
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
Restart=always
RestartSec=5
WatchdogSec={watchdog_s}
TimeoutStartSec=180
TimeoutStopSec=60
{user}
StateDirectory=edge-infer
CacheDirectory=edge-infer
Environment=EDGE_INFER_CACHE=%C/edge-infer
Environment=PYTHONUNBUFFERED=1
UMask=0027
{key}
MemoryMax={memory_max}
TasksMax=64

NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices={private_devices}
ProtectClock={private_devices}
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""


class Service(NamedTuple):
    """The settings of a unit.

    Attributes:
        name: The unit is called `edge-infer-NAME.service`.
        arguments: The arguments of `edge-infer`, such as `serve /srv/digits.bundle`.
        user: The user to run as; None for one that systemd makes for the service alone.
        memory_max: The most memory, as systemd writes it: `256M`; the kernel ends the service beyond it.
        watchdog_s: After how many seconds without a sign of life it is restarted.
        needs_devices: Whether it may open devices: a camera, a GPU.
        key_file: The key file of encrypted weights, which systemd reads as root and gives to the service alone.
    """

    name: str
    arguments: tuple[str, ...]
    user: str | None = None
    memory_max: str = "256M"
    watchdog_s: int = 60
    needs_devices: bool = False
    key_file: Path | None = None

    @property
    def unit(self) -> str:
        """The name of the unit."""
        return f"edge-infer-{self.name}.service"


def unit_text(service: Service, program: Sequence[str] | None = None) -> str:
    """Write the unit of a service.

    Args:
        service: What it is made of.
        program: The command before the arguments; None for this installation's `edge-infer`.

    Raises:
        InputError: A name, user or size is not one that systemd takes, or a path has a line break.
    """
    for what, value, pattern in (
        ("name", service.name, _NAME),
        ("user", service.user or "root", _USER),
        ("memory limit", service.memory_max, _MEMORY),
    ):
        if not re.fullmatch(pattern, value):
            raise InputError(f"The service's {what} is {value!r}, which systemd does not take", got=value)
    if service.watchdog_s < 5:
        raise InputError(f"`watchdog_s` is {service.watchdog_s}, expected at least 5", got=service.watchdog_s)
    return _UNIT.format(
        name=service.name,
        command=" ".join(_quoted(word) for word in [*(program or own_program()), *service.arguments]),
        watchdog_s=service.watchdog_s,
        user="DynamicUser=yes" if service.user is None else f"User={service.user}",
        memory_max=service.memory_max,
        private_devices="no" if service.needs_devices else "yes",
        key="" if service.key_file is None else f"LoadCredential={CREDENTIAL}:{_credential_path(service.key_file)}\n",
    )


def _credential_path(path: Path) -> str:
    """Write a path as `LoadCredential` reads it."""
    text = str(path.absolute())
    if re.search(r"[\s\"'\\]", text):
        raise InputError(
            f"The path {text!r} has a space, a quote or a backslash, which `LoadCredential` cannot hold",
            hint="sudo install -m 600 KEYFILE /etc/edge-infer.key",
            got=text,
        )
    return text.replace("%", "%%")


def own_program() -> list[str]:
    """Return the command that starts this installation's `edge-infer`."""
    beside = shutil.which("edge-infer", path=sys.prefix + "/bin")
    return [beside] if beside is not None else [sys.executable, "-m", "edge_infer"]


def _quoted(word: str) -> str:
    """Write a word of a command line as systemd.service(5) reads it: `%` and `$` doubled, quoted where needed."""
    if any(character in word for character in "\n\r\0"):
        raise InputError(f"{word!r} has a line break, which a unit cannot hold", got=word)
    plain = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./$-]+", plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
