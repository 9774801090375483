"""A listening socket, and uvicorn serving an application on it."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from edge_infer.errors import ServingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

_BACKLOG = 512
#: How long a stopping server waits for answers that are under way.
_GRACE_S = 3


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one.

    Raises:
        ServingError: The port is in use, may not be used, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ServingError(
            f"`{host}` is no address of this machine: {error}", hint="--host 127.0.0.1", host=host
        ) from error
    found = socket.socket(family, kind, protocol)
    try:
        # On Windows this option would let two servers share the port.
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        raise _refused(host, port, error) from error
    return found


def _refused(host: str, port: int, error: OSError) -> ServingError:
    other = port + 1 if 1024 <= port < 65535 else 8080
    reasons = {
        errno.EADDRINUSE: (f"Port {port} is in use", f"--port {other}"),
        errno.EACCES: (f"Port {port} needs the rights of an administrator", f"--port {other}"),
        errno.EADDRNOTAVAIL: (f"`{host}` is no address of this machine", "--host 127.0.0.1"),
    }
    message, hint = reasons.get(error.errno or 0, (f"Cannot listen on {host}:{port}: {error}", f"--port {other}"))
    return ServingError(message, hint=hint, host=host, port=port)


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket; one that listens on every address is named by the loopback one."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Uvicorn with a call when it answers.

    Args:
        app: The application.
        on_ready: Called once requests are answered.
    """

    def __init__(self, app: Starlette, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def serve(app: Starlette, listening: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until Ctrl-C; call it in the main thread.

    Args:
        app: The application.
        listening: From `listen`; it is closed in the end.
        on_ready: Called once requests are answered.
    """
    with listening, suppress(KeyboardInterrupt):  # which uvicorn raises again once it has shut down
        Server(app, on_ready).run(sockets=[listening])
