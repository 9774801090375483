"""A listening socket, and uvicorn serving an application on it."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
from contextlib import suppress
from ipaddress import ip_address
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

import uvicorn

from edge_infer.errors import ServingError
from edge_infer.server.http.connection import GuardedProtocol
from edge_infer.server.http.websocket import GuardedWebSocket

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from starlette.types import Receive, Scope, Send

    from edge_infer.server.execution.lifecycle import Engine

_BACKLOG = 2048
#: How long a stopping server waits for answers that are under way, on streams and otherwise.
GRACE_S = 30
#: How long idle connections are kept; longer than the 60 s of common load balancers, so that they hang up first.
_KEEP_ALIVE_S = 75
#: How many new objects there must be before the garbage collector looks at them: with Python's 700 it takes 2 % of the
#: time of a small request.
_COLLECT_EVERY = 10_000
#: Addresses of documentation (RFC 5737, RFC 3849), by what listens everywhere: the way to them is that to any other.
_OUTSIDE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}
_TLS_HINT = "--tls-cert chain.pem --tls-key key.pem"


class BodyLimit(Protocol):
    """The limits of an application, as far as the listener passes them on."""

    @property
    def max_body_bytes(self) -> int:
        """The longest body or message."""


class Served(Protocol):
    """An ASGI application that can be drained; `edge_infer.server.app.Application` is the one."""

    engine: Engine

    @property
    def limits(self) -> BodyLimit:
        """What it takes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    def drain(self) -> None:
        """Refuse new requests."""

    async def finish_streams(self) -> None:
        """Wait until what is in flight on WebSockets was sent, and close them."""


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
            f"`{host}` is not an address of this machine: {error}", hint="--host 127.0.0.1", host=host
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


def is_local(host: str) -> bool:
    """Tell whether an address is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refused(host: str, port: int, error: OSError) -> ServingError:
    other = port + 1 if 1024 <= port < 65535 else 8080
    reasons = {
        errno.EADDRINUSE: (f"Port {port} is in use", f"--port {other}"),
        errno.EACCES: (f"Port {port} needs the rights of an administrator", f"--port {other}"),
        errno.EADDRNOTAVAIL: (f"`{host}` is not an address of this machine", "--host 127.0.0.1"),
    }
    message, hint = reasons.get(error.errno or 0, (f"Cannot listen on {host}:{port}: {error}", f"--port {other}"))
    return ServingError(message, hint=hint, host=host, port=port)


class Tls(NamedTuple):
    """The certificate chain and the private key, PEM files."""

    certificate: Path
    key: Path


def url_of(listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL of a listening socket; one that listens on every address is named by the loopback one."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{host}:{port}"


def url_from_outside(listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL that other machines reach a listening socket by; empty where they do not, or none is known."""
    host, port = listening.getsockname()[:2]
    if host not in _OUTSIDE or not (found := _own_address(listening.family, _OUTSIDE[host])):
        return ""
    return f"{scheme}://{f'[{found}]' if ':' in found else found}:{port}"


def _own_address(family: int, outside: str) -> str:
    """Return this machine's address on the way to another; a datagram socket sends nothing when it connects."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((outside, 9))
        address: str = way.getsockname()[0]
        return "" if ip_address(address.partition("%")[0]).is_loopback else address
    return ""


class Server(uvicorn.Server):
    """Uvicorn with a call when it answers, and with an application that knows when it stops.

    Args:
        app: The application.
        on_ready: Called once requests are answered.
        grace_s: How long a stopping server waits for answers that are under way.
        tls: The certificate; None for unencrypted.

    Raises:
        ServingError: The certificate or its key cannot be used.
    """

    def __init__(
        self, app: Served, on_ready: Callable[[], None], grace_s: int = GRACE_S, tls: Tls | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws=GuardedWebSocket,  # `websockets-sansio` takes half the CPU of `websockets`: benchmarks/LOG.md
            ws_max_size=app.limits.max_body_bytes,
            ws_per_message_deflate=False,  # tensors do not shrink, and a small bomb stays small
            lifespan="on",
            server_header=False,
            proxy_headers=False,  # nothing here asks for the client's address
            timeout_graceful_shutdown=grace_s,
            timeout_keep_alive=_KEEP_ALIVE_S,
            http=GuardedProtocol,
            ssl_certfile=tls.certificate if tls is not None else None,
            ssl_keyfile=tls.key if tls is not None else None,
        )
        for path in tls or ():
            try:
                path.open("rb").close()
            except OSError as error:
                raise ServingError(f"`{path}` cannot be read: {error.strerror}", hint=_TLS_HINT) from error
        try:
            config.load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ServingError(f"The certificate or its key cannot be used: {error}", hint=_TLS_HINT) from error
        super().__init__(config)
        self._app = app
        self._grace_s = grace_s
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more, let listeners to events go, finish what is in flight on streams, and end."""
        for server in self.servers:
            server.close()
        self._app.drain()
        deadline = monotonic() + self._grace_s
        with suppress(TimeoutError):
            await asyncio.wait_for(self._app.finish_streams(), self._grace_s)
        self.config.timeout_graceful_shutdown = ceil(max(0.0, deadline - monotonic()))
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # those whose answers did not come in time
            connection.transport.abort()
        await asyncio.sleep(0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Be ready no more, refuse new requests, finish those that were accepted, exit."""
        self._app.drain()
        super().handle_exit(sig, frame)


def _spare_what_stays() -> None:
    """Let the garbage collector never look again at what is there now; else each full collection takes 16 ms."""
    gc.collect()
    gc.freeze()


def serve(app: Served, listening: socket.socket, on_ready: Callable[[], None], tls: Tls | None = None) -> None:
    """Serve until Ctrl-C or SIGTERM; call it in the main thread.

    Args:
        app: The application.
        listening: From `listen`; it is closed in the end.
        on_ready: Called once requests are answered.
        tls: The certificate; None for unencrypted.

    Raises:
        ServingError: The certificate or its key cannot be used.
    """
    _spare_what_stays()
    gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])

    def ready() -> None:
        on_ready()
        if (preloading := app.engine.preloading) is not None:
            preloading.add_done_callback(lambda _: _spare_what_stays())

    # Uvicorn raises the signal that stopped it once more in the end; having stopped in order is not a failure.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with listening, suppress(KeyboardInterrupt):
        Server(app, ready, tls=tls).run(sockets=[listening])
