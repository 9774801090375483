"""A device and its store's server: listen for news, ask whether a roll-out fails, report the result of a pull.

A store needs no server: any host of static files will do, and then all of this is left out. Nothing here is trusted: an
event only makes a device look, and advice can only make it wait, as whoever sits on the line can do anyway.
"""

from __future__ import annotations

import contextlib
import json
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from edge_infer.errors import (
    EdgeInferError,
    FetchError,
    NotReleasedError,
    RollbackError,
    SignatureError,
    TrialError,
)
from edge_infer.platform import fetch
from edge_infer.sync.watch import in_words, watch

if TYPE_CHECKING:
    from collections.abc import Callable

    import urllib3

    from edge_infer.sync.client import Pulled
    from edge_infer.sync.device import DeviceStore

_TIMEOUT_S = 10.0
#: A server sends a comment every 15 s; one that is silent for longer is gone.
_SILENCE_S = 45.0
_RETRY_S = 5.0
_MAX_ANSWER_BYTES = 2**20
#: Answers of a server, or of a proxy before it, that say nothing of whether there are events.
_PASSING = (429, 500, 502, 503, 504)


def server_of(store: str) -> str:
    """Return the server that has events and takes reports for a store: its origin; empty for a folder."""
    if not fetch.is_url(store):
        return ""
    parts = urlsplit(store)
    return f"{parts.scheme}://{parts.netloc}"


class Server:
    """The server of a store, as a device sees it; whatever it does, a device goes on.

    Args:
        url: Its origin.
        device: The device's folder, which has its name.
        model: The model's name.
        token: What it wants to be shown with reports.
        kind: `device` or `server`.

    Attributes:
        has_events: Whether it has events, as far as is known.
    """

    def __init__(self, url: str, device: DeviceStore, model: str, *, token: str = "", kind: str = "device") -> None:
        import urllib3

        self._url = f"{url}/sync/v1"
        self._device = device
        self._model = model
        self._kind = kind
        self._headers = {"User-Agent": "edge-infer"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._pool = urllib3.PoolManager(timeout=_TIMEOUT_S, retries=False)
        self._stream: urllib3.BaseHTTPResponse | None = None
        self._state = b""  # what the last event said; the first of a connection tells whether one was missed
        self.has_events = True

    @property
    def is_listening(self) -> bool:
        """Whether events come."""
        return self._stream is not None

    def is_halted(self, sequence: int, stage: int) -> bool:
        """Tell whether too many devices failed with a version in this step of its roll-out."""
        answer = self._json("GET", f"/advice?model={quote(self._model)}")
        halts = answer.get("halts", []) if isinstance(answer, dict) else []
        mine = {"model": self._model, "sequence": sequence, "stage": stage}
        return any(isinstance(halt, dict) and mine.items() <= halt.items() for halt in halts)

    def report(self, outcome: Pulled | EdgeInferError, seconds: float) -> bool:
        """Tell how a look ended; return whether it was taken."""
        record = self._device.record()
        active = record.active
        body: dict[str, Any] = {"device": self._device.name(), "model": self._model, "kind": self._kind}
        body |= {"seconds": round(seconds, 3)}
        if active is not None:
            body |= {"version": active.version, "sequence": active.sequence, "bundle": active.bundle}
        if isinstance(outcome, EdgeInferError):
            body |= {"result": _result(outcome), "error": outcome.message[:500]}
            body |= {"wanted": outcome.details.get("sequence", 0), "stage": outcome.details.get("stage", 0)}
        else:
            result = "ok" if outcome.changed else "rolled_back" if outcome.rolled_back else "current"
            body |= {"result": result, "method": outcome.method}
            body |= {"wanted": outcome.sequence, "stage": outcome.stage, "trial_s": round(outcome.trial_s, 4)}
            body |= {"bytes_moved": outcome.bytes_moved, "bytes_full": outcome.bytes_full}
        return self._json("POST", "/report", json.dumps(body).encode()) is not None

    def _json(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Ask; None where it cannot be asked or does not answer properly."""
        import urllib3

        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        try:
            response = self._pool.request(
                method, self._url + path, body=body, headers=headers, preload_content=False, redirect=False
            )
            try:
                data = response.read(_MAX_ANSWER_BYTES)
            finally:
                response.release_conn()
            return json.loads(data) if response.status == 200 else None
        except (urllib3.exceptions.HTTPError, OSError, ValueError, RecursionError):
            return None

    # -- events --

    def listen(self, wake: Event, stop: Event) -> Thread:
        """Set `wake` whenever the store changes, in a thread of its own, until `stop` is set and `leave` is called."""
        thread = Thread(target=self._listen, args=(wake, stop), name="edge-infer events", daemon=True)
        thread.start()
        return thread

    def leave(self) -> None:
        """End listening: the connection is shut."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # it ended by itself
                stream.shutdown()

    def _listen(self, wake: Event, stop: Event) -> None:
        import urllib3

        while not stop.is_set() and self.has_events:
            try:
                timeout = urllib3.Timeout(connect=_TIMEOUT_S, read=_SILENCE_S)
                stream = self._pool.request(
                    "GET", f"{self._url}/events", headers=self._headers, preload_content=False, timeout=timeout
                )
                kind = stream.headers.get("Content-Type", "")
                self.has_events = stream.status in _PASSING or (
                    stream.status == 200 and kind.startswith("text/event-stream")
                )
                if stream.status == 200 and self.has_events:
                    self._stream = stream
                    self._follow(stream, wake, stop)
                self._stream = None
                stream.close()
            except (urllib3.exceptions.HTTPError, OSError, ValueError):
                self._stream = None
            if self.has_events:
                stop.wait(_RETRY_S)

    def _follow(self, stream: urllib3.BaseHTTPResponse, wake: Event, stop: Event) -> None:
        rest = b""
        while not stop.is_set():
            piece = stream.read1(2**12)
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > 2**12:
                return  # no events, whatever it is
            for line in lines:
                if line.startswith(b"data:"):
                    state = line.strip()
                    if self._state != state:  # what was published before the first event is news too
                        wake.set()
                    self._state = state


def _result(error: EdgeInferError) -> str:
    kinds: list[tuple[type[EdgeInferError], str]] = [
        (NotReleasedError, "held"),
        (TrialError, "trial_failed"),
        (SignatureError, "refused"),
        (RollbackError, "refused"),
        (FetchError, "fetch_failed"),
    ]
    return next((word for kind, word in kinds if isinstance(error, kind)), "error")


def reported(look: Callable[[], Pulled], server: Server | None) -> Callable[[], Pulled]:
    """Return a look whose result the server is told: changes and failures at once, else at the first and each tenth."""
    count = 0

    def looked() -> Pulled:
        nonlocal count
        start = time.perf_counter()
        try:
            pulled = look()
        except Exception as error:
            if server is not None:
                server.report(in_words(error), time.perf_counter() - start)
            raise
        if server is not None and (pulled.changed or count % 10 == 0):
            server.report(pulled, time.perf_counter() - start)
        count += 1
        return pulled

    return looked


def follow(
    look: Callable[[], Pulled],
    server: Server | None,
    *,
    interval_s: float,
    stop: Event,
    wake: Event,
    on_update: Callable[[Pulled], None] | None = None,
    on_error: Callable[[EdgeInferError], None] | None = None,
) -> None:
    """Look again and again, at once when the server says so, and tell it how each look ended.

    Args:
        look: Looks once and takes what is new.
        server: The store's server; None where there is none.
        interval_s: The mean time between two looks.
        stop: Set, and then `wake`, to end.
        wake: Set to look soon.
        on_update: Told each change.
        on_error: Told each failure.
    """
    if server is not None:
        server.listen(wake, stop)
    try:
        watch(
            reported(look, server),
            interval_s=interval_s,
            stop=stop,
            wake=wake,
            on_update=on_update,
            on_error=on_error,
            is_listening=lambda: server is not None and server.is_listening,
        )
    finally:
        stop.set()
        if server is not None:
            server.leave()
