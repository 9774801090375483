"""Serve an application on a listening socket until it is told to stop, and then stop in order."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import contextmanager, suppress
from functools import partial
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from edge_infer.server.http.connection import Connection
from edge_infer.server.http.connections import Connections
from edge_infer.server.http.free_memory import FreeMemory
from edge_infer.server.http.front import Front

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.server.http.limits import DoorLimits
    from edge_infer.server.http.listener import Tls

#: How long a stopping server waits for answers that are under way, on streams and otherwise.
GRACE_S = 30
#: How many new objects there must be before the garbage collector looks at them: with Python's 700 it takes 2 % of the
#: time of a small request.
_COLLECT_EVERY = 10_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Served(Front, Protocol):
    """An application that can be served and drained; `edge_infer.server.app.Application` is the one.

    Attributes:
        engine: The models.
        door: What a connection may take.
    """

    engine: Engine
    door: DoorLimits

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start what the application needs, and end it."""

    def drain(self) -> None:
        """Refuse new requests."""

    async def finish_streams(self) -> None:
        """Wait until what is in flight on WebSockets was sent, and close them."""


class Server:
    """A server of one application.

    Args:
        app: The application.
        on_ready: Called once requests are answered.
        grace_s: How long a stopping server waits for answers that are under way.
        tls: The certificate; None for unencrypted.
        drain_delay_s: How long a stopping server goes on to take connections and to answer 503, until whoever sends
            it clients has seen that it is not ready; a closed port resets those that wait to be taken.

    Attributes:
        connections: Those of its clients.
        is_started: Whether it answers, or has answered.
        loop: Its event loop, once it runs.

    Raises:
        ServingError: The certificate or its key cannot be used.
    """

    def __init__(
        self,
        app: Served,
        on_ready: Callable[[], None],
        grace_s: float = GRACE_S,
        tls: Tls | None = None,
        drain_delay_s: float = 0.0,
    ) -> None:
        self._app = app
        self._on_ready = on_ready
        self._grace_s = grace_s
        self._tls = None if tls is None else tls.context()
        self._drain_delay_s = drain_delay_s
        self.connections = Connections(app.door)
        app.direct.context.memory.relieve = self.connections.relieve
        self.is_started = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._deadline: float | None = None
        self._timeout: asyncio.Timeout | None = None

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop` is called; in the main thread, until Ctrl-C or SIGTERM too.

        Args:
            listening: From `listener.listen`.
        """
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve(listening))

    def stop(self) -> None:
        """Be ready no more, refuse new requests, finish those that were accepted; from any thread.

        Once more cuts the waits short.
        """
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        assert self._stopping is not None
        self._app.drain()
        if self._stopping.is_set():
            self._deadline = 0.0
            if self._timeout is not None and not self._timeout.expired():
                self._timeout.reschedule(0.0)
        self._stopping.set()

    async def _serve(self, listening: socket.socket) -> None:
        self.loop = loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        with _signals(loop, self._stop):
            async with self._app.lifespan():
                self.connections.sweep()
                context = self._app.direct.context
                free = FreeMemory(lambda: context.memory.taken, context.engine.each_worker)
                watching = loop.create_task(free.watch())
                front = partial(Connection, self.connections, self._app)
                server = await loop.create_server(front, sock=listening, ssl=self._tls)
                self.is_started = True
                self._on_ready()
                try:
                    await self._stopping.wait()
                    self.connections.is_stopping = True  # each answer closes its connection
                    if self._deadline is None:
                        await self._within(partial(asyncio.sleep, self._drain_delay_s))
                finally:
                    server.close()
                    await self._finish()
                    watching.cancel()

    async def _finish(self) -> None:
        """Finish what is in flight on streams, then on connections, within one time; cut what is left."""
        self._app.drain()
        if self._deadline is None:
            self._deadline = monotonic() + self._grace_s
        await self._within(self._app.finish_streams)
        self.connections.shutdown()
        await self._within(self.connections.wait)
        await self.connections.close()

    async def _within(self, wait: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait, but not beyond the deadline, where there is one yet, nor after a second call of `stop`."""
        left_s = None if self._deadline is None else max(0.0, self._deadline - monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s) as self._timeout:
                await wait()
        self._timeout = None


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """Stop on Ctrl-C and SIGTERM, in the main thread."""
    if current_thread() is not main_thread():
        yield
        return
    before = {}
    for one in _SIGNALS:
        # Not `add_signal_handler`: Windows has none.
        before[one] = signal.signal(one, lambda *_: loop.call_soon_threadsafe(stop))
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes an event loop: that of uvloop where it is installed, which Windows has not."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _spare_what_stays() -> None:
    """Let the garbage collector never look again at what is there now; else each full collection takes 16 ms."""
    gc.collect()
    gc.freeze()


def serve(
    app: Served,
    listening: socket.socket,
    on_ready: Callable[[], None],
    tls: Tls | None = None,
    drain_delay_s: float = 0.0,
) -> None:
    """Serve until Ctrl-C or SIGTERM; call it in the main thread.

    Args:
        app: The application.
        listening: From `listener.listen`; it is closed in the end.
        on_ready: Called once requests are answered.
        tls: The certificate; None for unencrypted.
        drain_delay_s: See `Server`.

    Raises:
        ServingError: The certificate or its key cannot be used.
    """
    _spare_what_stays()
    gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])

    def ready() -> None:
        on_ready()
        if (preloading := app.engine.preloading) is not None:
            preloading.add_done_callback(lambda _: _spare_what_stays())

    with listening, suppress(KeyboardInterrupt):
        Server(app, ready, tls=tls, drain_delay_s=drain_delay_s).run(listening)
