"""`/sync/v1/events`: server-sent events, so that devices look when there is something to see."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from edge_infer.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from starlette.responses import Response

#: How often the store is looked at while somebody listens.
_LOOK_EVERY_S = 0.5
#: A comment keeps connections open through proxies, and finds those that are gone.
_BEAT_S = 15.0
MAX_LISTENERS = 4096


class Events:
    """Tells its listeners whenever a store's timestamp changes.

    Args:
        folder: The store.
        is_draining: Whether the server stops: listeners are let go.
    """

    def __init__(self, folder: Path, is_draining: Callable[[], bool]) -> None:
        self._path = folder / "tuf" / "timestamp.json"
        self._is_draining = is_draining
        self._changed = asyncio.Event()
        self._stamp: tuple[int, int] | None = None
        self._looking: asyncio.Task[None] | None = None
        self.listeners = 0

    def answer(self) -> Response:
        """Answer a listener.

        Raises:
            QueueFull: There are too many.
        """
        if self.listeners >= MAX_LISTENERS:
            raise QueueFull(
                f"{self.listeners} devices listen already", hint="poll instead: edge-infer watch --no-events"
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Access-Control-Allow-Origin": "*"}
        return StreamingResponse(self._stream(), headers=headers, media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        self.listeners += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            # What a client is to wait before it comes again, and the state now: it may have missed something.
            yield b"retry: 5000\n\n" + self._message()
            while not self._is_draining():
                try:
                    await asyncio.wait_for(self._changed.wait(), _BEAT_S)
                except TimeoutError:
                    yield b": still here\n\n"
                else:
                    if not self._is_draining():
                        yield self._message()
        finally:
            self.listeners -= 1

    async def _look(self) -> None:
        """Look at the file while somebody listens, and wake all when it changed."""
        self._stamp = self._stamp_now()
        while self.listeners:
            await asyncio.sleep(_LOOK_EVERY_S)
            stamp = self._stamp_now()
            if stamp != self._stamp or self._is_draining():
                self._stamp = stamp
                self._changed.set()
                self._changed = asyncio.Event()

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
