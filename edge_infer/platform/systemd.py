"""Tell systemd that a service is ready and alive, by the datagrams of sd_notify(3).

Outside a service, where `NOTIFY_SOCKET` is not set, nothing happens.
"""

from __future__ import annotations

import os
import socket
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def notify(state: str, environment: Mapping[str, str] | None = None) -> bool:
    """Send a state such as `READY=1`, `WATCHDOG=1` or `STOPPING=1`; return whether there was anybody to tell.

    Args:
        state: Assignments, one to a line.
        environment: The variables; None for those of this process.
    """
    address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # a name without a file
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.sendall(state.encode())
    except OSError:
        return False  # a service goes on working when its supervisor does not listen
    return True


def watchdog_s(environment: Mapping[str, str] | None = None) -> float | None:
    """Return after how many seconds without a word systemd restarts this process; None where it does not watch it."""
    variables = os.environ if environment is None else environment
    microseconds, process = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or not int(microseconds) or (process and process != str(os.getpid())):
        return None
    return int(microseconds) / 1e6


class Watchdog:
    """Tells systemd that this process is alive, until `close`.

    Args:
        is_alive: Asked at each beat, in a thread of its own; while it says no, or does not answer, nothing is sent, and
            systemd restarts the service.
        environment: The variables; None for those of this process.
    """

    def __init__(self, is_alive: Callable[[], bool], environment: Mapping[str, str] | None = None) -> None:
        self._is_alive = is_alive
        self._environment = environment
        self._stop = Event()
        self._thread: Thread | None = None
        limit = watchdog_s(environment)
        if limit is not None:
            self._thread = Thread(target=self._beat, args=(limit / 3,), name="watchdog", daemon=True)
            self._thread.start()

    def _beat(self, interval_s: float) -> None:
        while not self._stop.is_set():
            if self._is_alive():
                notify("WATCHDOG=1", self._environment)
            self._stop.wait(interval_s)

    def close(self) -> None:
        """Stop the beats."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1)


def answers(url: str, timeout_s: float = 10.0) -> bool:
    """Tell whether a server on this machine answers a GET with 200: its event loop turns.

    Its certificate is not checked: it names the service, not the address of this machine that is asked.
    """
    import ssl
    from urllib.request import HTTPSHandler, ProxyHandler, build_opener

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with build_opener(ProxyHandler({}), HTTPSHandler(context=context)).open(url, timeout=timeout_s) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
