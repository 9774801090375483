"""A session that follows the versions of a store: its weights are swapped while it runs."""

from __future__ import annotations

import contextlib
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from edge_infer.errors import EdgeInferError, ExecutionError, InputError
from edge_infer.runtime.load import load_with
from edge_infer.runtime.loader import trial
from edge_infer.runtime.options import LoadOptions
from edge_infer.sync.client import Pulled, pull, split_address
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.follow import Server, follow, server_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Self

    from edge_infer.runtime.session import Report, Session
    from edge_infer.tensors.tensor import Array


class LiveSession:
    """A session on the active version of a device's folder, which follows it.

    `run` and `run_async` are those of `Session`. A call that is under way ends on the weights that it began with.

    Args:
        folder: The device's folder, as `edge-infer pull --into` fills it.
        **options: What `edge_infer.load` takes: `device`, `backend`, `variant`, `arrays`, `key`.

    >>> live = LiveSession("device/digits")  # doctest: +SKIP
    >>> live.follow("https://models.example.org/store/digits")  # doctest: +SKIP
    >>> live.run({"image": image})  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        self._device = DeviceStore(folder)
        self._asked = LoadOptions(**options)
        self._lock = Lock()
        self._current = _Counted(load_with(self._device.active(), self._asked))
        self._stop, self._wake = Event(), Event()
        self._thread: Thread | None = None

    @classmethod
    def open(cls, address: str, *, interval_s: float = 60.0, **options: Any) -> Self:
        """Open the newest version of a model of a store, and follow it.

        Args:
            address: `edge+https://HOST/STORE/MODEL`; the weights lie in the user's cache folder.
            interval_s: The mean time between two looks.
            **options: What `edge_infer.load` takes.

        Raises:
            SyncError: It cannot be had, and no version of it lies here.
        """
        from edge_infer.sync.cache import bring, plain_address

        device = bring(address, lambda path: trial(path, LoadOptions(**options)), options.get("key"))
        session = cls(device.folder, **options)
        session.follow(plain_address(address), interval_s=interval_s)
        return session

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        into: Mapping[str, Array] | None = None,
        keep: Collection[str] = (),
    ) -> dict[str, Array]:
        """Run the model once, as `Session.run` does."""
        with self._held() as session:
            return session.run(inputs, outputs, into=into, keep=keep)

    async def run_async(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        into: Mapping[str, Array] | None = None,
        keep: Collection[str] = (),
    ) -> dict[str, Array]:
        """Run the model once, as `Session.run_async` does."""
        with self._held() as session:
            return await session.run_async(inputs, outputs, into=into, keep=keep)

    @property
    def revision(self) -> str:
        """The bundle revision of the weights that the next call runs on."""
        return self._current.session.bundle.revision

    def report(self) -> Report:
        """Tell what the session really runs on."""
        with self._held() as session:
            return session.report()

    def refresh(self) -> bool:
        """Load the active version if it is another than the one that runs; tell whether it was."""
        path = self._device.active()
        if path.name == self.revision:
            return False
        new = _Counted(load_with(path, self._asked))
        with self._lock:
            old, self._current = self._current, new
            old.retired = True
            idle = old.users == 0
        if idle:
            old.session.close()
        return True

    def update(
        self, address: str, *, is_halted: Callable[[int, int], bool] = lambda _sequence, _stage: False
    ) -> Pulled:
        """Pull the newest version of STORE/MODEL, try it, and run on it from the next call on.

        Args:
            address: STORE/MODEL.
            is_halted: Told a version that comes in steps; where it says so, the version is not taken now.

        Raises:
            SyncError: It could not be taken; the old weights go on running.
        """
        store, model = split_address(address)
        asked = self._asked
        pulled = pull(store, model, self._device, lambda path: trial(path, asked), is_halted=is_halted, key=asked.key)
        self.refresh()
        return pulled

    def follow(
        self,
        address: str,
        *,
        interval_s: float = 60.0,
        server: str | None = None,
        token: str = "",
        on_update: Callable[[Pulled], None] | None = None,
        on_error: Callable[[EdgeInferError], None] | None = None,
    ) -> None:
        """Update in a thread of its own, again and again, until the session is closed.

        Args:
            address: STORE/MODEL.
            interval_s: The mean time between two looks.
            server: The `edge-infer serve` that has events and takes reports; None for the store's own host, if it does;
                empty for none.
            token: What that server wants to be shown with reports.
            on_update: Told each change, in that thread.
            on_error: Told each failure, in that thread.

        Raises:
            InputError: It follows already.
        """
        if self._thread is not None:
            raise InputError("This session follows a store already", hint="make another LiveSession")
        store, model = split_address(address)
        url = server_of(store) if server is None else server.rstrip("/")
        told = Server(url, self._device, model, token=token) if url else None
        self._thread = Thread(
            target=follow,
            args=(lambda: self.update(address, **({} if told is None else {"is_halted": told.is_halted})), told),
            kwargs={
                "interval_s": interval_s,
                "stop": self._stop,
                "wake": self._wake,
                "on_update": on_update,
                "on_error": on_error,
            },
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop following and free the engine, after the calls that are under way."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            current = self._current
            if current.retired:
                return
            current.retired = True
            idle = current.users == 0
        if idle:
            current.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _held(self) -> Iterator[Session]:
        with self._lock:
            held = self._current
            if held.retired:
                raise ExecutionError("This live session is closed")
            held.users += 1
        try:
            yield held.session
        finally:
            with self._lock:
                held.users -= 1
                last = held.retired and held.users == 0
            if last:
                held.session.close()


class _Counted:
    """A session, and how many calls run on it: it is closed after the last one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.users = 0
        self.retired = False
