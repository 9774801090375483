"""`/sync/v1/events`: server-sent events, so that devices look when there is something to see.

A listener is one task that waits until its client leaves; what is sent to all of them one task sends, a few at a time,
so that ten thousand listeners neither cost much nor hold up a request when something is published.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import takewhile
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from edge_infer.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

#: How often the store is looked at while somebody listens.
_LOOK_EVERY_S = 0.5
#: A comment keeps connections open through proxies, and finds those that are gone.
_BEAT_S = 15.0
_BEAT = b": still here\n\n"
#: To how many is sent before others have their turn, and how long one may take nothing until it is let go.
_AT_ONCE = 8
_SLOW_S = 5.0
MAX_LISTENERS = 16384


class _Listener:
    """A client that listens."""

    __slots__ = ("heard", "is_slow", "send", "waiting")

    def __init__(self, send: Send, waiting: asyncio.Task[Any] | None) -> None:
        self.send = send
        self.waiting = waiting
        self.is_slow = False
        self.heard = monotonic()


class Events:
    """Tells its listeners whenever a store's timestamp changes.

    Args:
        folder: The store.
        is_draining: Whether the server stops: listeners are let go.
    """

    def __init__(self, folder: Path, is_draining: Callable[[], bool]) -> None:
        self._path = folder / "tuf" / "timestamp.json"
        self._is_draining = is_draining
        #: In the order in which they last heard something.
        self._listeners: dict[_Listener, None] = {}
        #: How many answers are open: one is open before its listener is added.
        self.answers = 0
        self._looking: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def answer(self) -> Response:
        """Answer a listener.

        Raises:
            QueueFull: There are too many.
        """
        if self.answers >= MAX_LISTENERS:
            raise QueueFull(f"{self.answers} devices listen already", hint="poll instead: edge-infer watch --no-events")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Access-Control-Allow-Origin": "*"}
        return _EventStream(self, headers)

    async def listen(self, receive: Receive, send: Send) -> None:
        """Keep a client until it leaves, or the server stops; its answer is begun."""
        # What a client is to wait before it comes again, and the state now: it may have missed something.
        stamp = self._stamp_now()
        await send(_piece(b"retry: 5000\n\n" + self._message()))
        listener = _Listener(send, asyncio.current_task())
        self._listeners[listener] = None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(stamp))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if not listener.is_slow:
                raise
        finally:
            self._listeners.pop(listener, None)

    async def _look(self, stamp: tuple[int, int] | None) -> None:
        """Look at the file while somebody listens, and tell all when it changed."""
        while self._listeners:
            await asyncio.sleep(_LOOK_EVERY_S)
            before, now = stamp, monotonic()
            stamp = self._stamp_now()
            if self._is_draining():
                await self._tell(list(self._listeners), b"", is_last=True)
                return
            if stamp != before:
                await self._tell(list(self._listeners), self._message())
            else:
                await self._tell(self._silent_since(now - _BEAT_S), _BEAT)

    def _silent_since(self, then: float) -> list[_Listener]:
        """Return who heard nothing for so long: they are in front."""
        return list(takewhile(lambda one: one.heard <= then, self._listeners))

    async def _tell(self, listeners: list[_Listener], text: bytes, *, is_last: bool = False) -> None:
        """Send to some of the listeners; who takes nothing is let go, and comes again."""
        for start in range(0, len(listeners), _AT_ONCE):
            some = listeners[start : start + _AT_ONCE]
            sending = {asyncio.ensure_future(one.send(_piece(text, is_last=is_last))): one for one in some}
            done, slow = await asyncio.wait(sending, timeout=_SLOW_S)
            for task in done:
                task.exception()  # it left meanwhile
                listener = sending[task]
                if listener in self._listeners:
                    listener.heard = monotonic()
                    del self._listeners[listener]
                    self._listeners[listener] = None
            for task in slow:
                task.cancel()
                listener = sending[task]
                listener.is_slow = True
                if listener.waiting is not None:
                    listener.waiting.cancel()

    def _stamp_now(self) -> tuple[int, int] | None:
        with suppress(OSError):
            status = self._path.stat()
            return status.st_ino, status.st_mtime_ns
        return None

    def _message(self) -> bytes:
        version: Any = 0
        with suppress(OSError, ValueError, KeyError, TypeError):
            version = json.loads(self._path.read_bytes())["signed"]["version"]
        return f"event: timestamp\ndata: {json.dumps({'version': version})}\n\n".encode()


class _EventStream(Response):
    """The answer to a listener: it has no end but the client's or the server's."""

    media_type = "text/event-stream"

    def __init__(self, events: Events, headers: dict[str, str]) -> None:
        super().__init__(None, headers=headers)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin the answer, and listen."""
        self._events.answers += 1
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send(_piece(b"", is_last=True))
                return
            await self._events.listen(receive, send)
        finally:
            self._events.answers -= 1


def _piece(text: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": not is_last}
