"""A model that runs here, with the same model on a server as fallback: `load(bundle, fallback=URL)`.

A call that fails for want of memory is sent to the server; so are all calls once three in a row were slower than the
time that a call may take, unless the server turns out to be slower still. Prepared calls and runs that keep tensors
stay here.
"""

from __future__ import annotations

from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.backends.base import Runnable
from edge_infer.errors import BundleError, EdgeInferError, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edge_infer.backends.base import Call, Placement
    from edge_infer.tensors.tensor import Array

#: So many calls in a row over the budget are not an accident; the first of all is not counted, it warms up.
_SLOW_CALLS = 3


class FallbackModel(Runnable):
    """A model here, and the same one on a server.

    Args:
        local: The model here.
        url: The model on the server.
        connect: Opens it; called when it is first needed.
        budget_s: The seconds that a call may take; None for as long as it likes.
    """

    def __init__(
        self,
        local: Runnable,
        url: str,
        connect: Callable[[str], Runnable],
        budget_s: float | None = None,
    ) -> None:
        self._local = local
        self._url = url
        self._connect = connect
        self._budget_s = budget_s
        self._remote: Runnable | None = None
        self._calls = self._calls_there = 0
        self._slow: list[float] = []
        self._is_remote = False
        self._is_settled = budget_s is None
        self._notes: dict[str, tuple[int, str]] = {}
        self._way_back = ""
        self._counting = Lock()
        self._connecting = Lock()
        self.inputs = local.inputs
        self.outputs = local.outputs
        self.is_thread_safe = local.is_thread_safe
        self.has_hidden_state = local.has_hidden_state
        self.adopt = local.adopt

    @property
    def placement(self) -> Placement:  # type: ignore[override]  # it changes with each call
        """Where it runs, and what was sent to the server for which reason."""
        found = self._local.placement
        with self._counting:
            sent = [f"{count} calls at {self._url}: {reason}" for count, reason in self._notes.values()]
        if self._way_back:
            sent.append(f"then here again: {self._way_back}")
        if self._is_remote:
            found = found._replace(device="remote", providers=(self._url,))
        return found._replace(fallbacks=(*found.fallbacks, *sent))

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        if self._is_remote and not keep:
            return self._run_there(feeds, outputs, into)
        start = perf_counter()
        try:
            results = self._local.run(feeds, outputs, into, keep)
        except (OutOfMemory, MemoryError) as error:
            if keep:
                raise
            reason = f"too little memory here ({_first_line(error)})"
            return self._send(feeds, outputs, into, type(error).__name__, reason)
        if not self._is_settled:
            self._watch(perf_counter() - start)
        return results

    def _watch(self, seconds: float) -> None:
        """Go over to the server after some slow calls in a row."""
        assert self._budget_s is not None
        with self._counting:
            self._calls += 1
            if self._is_remote:
                return  # a call that began here before the others went over
            if self._calls == 1 or seconds <= self._budget_s:
                self._slow.clear()
                return
            self._slow.append(seconds)
            self._is_remote = len(self._slow) >= _SLOW_CALLS

    def _run_there(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Run on the server because here it is too slow; where the server is slower, or fails, come back for good."""
        assert self._budget_s is not None
        here_s = min(self._slow)
        start = perf_counter()
        try:
            reason = f"{here_s * 1000:.3g} ms here, more than {self._budget_s * 1000:g} ms"
            results = self._send(feeds, outputs, into, "slow", reason)
        except EdgeInferError as error:
            self._come_back(f"the server failed ({_first_line(error)})")
            return self._local.run(feeds, outputs, into, ())
        seconds = perf_counter() - start
        with self._counting:
            if not self._is_settled:
                self._calls_there += 1
                if self._calls_there > 1:  # the first call there opens the connection
                    self._is_settled = True
                    if seconds > here_s:
                        self._come_back(f"the server took {seconds * 1000:.3g} ms")
        return results

    def _come_back(self, reason: str) -> None:
        self._is_remote, self._is_settled = False, True
        self._way_back = reason

    def _send(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], kind: str, reason: str
    ) -> dict[str, Array]:
        """Run on the server; the reasons of one kind, which may differ in a figure, are counted under the first."""
        results = self._there().run(feeds, outputs, into, ())
        with self._counting:
            count, first = self._notes.get(kind, (0, reason))
            self._notes[kind] = (count + 1, first)
        return results

    def _there(self) -> Runnable:
        with self._connecting:
            if self._remote is None:
                remote = self._connect(self._url)
                own = {spec.name: spec.dtype for spec in (*self.inputs, *self.outputs)}
                other = {spec.name: spec.dtype for spec in (*remote.inputs, *remote.outputs)}
                if own != other:
                    remote.close()
                    raise BundleError(
                        f"{self._url} is another model: it has {list(other)}, this one {list(own)}",
                        hint="name the same model in `fallback`",
                    )
                self._remote = remote
            return self._remote

    def keeping_state(self) -> Runnable:
        """Make a model that keeps its hidden state, here: a server keeps none; see `Runnable.keeping_state`."""
        return self._local.keeping_state()

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> Call:
        """Make a call with buffers of these shapes, which stays here: it is not timed, and not sent to the server."""
        return self._local.bind(shapes)

    def close(self) -> None:
        """Give back the memory here, and the connections."""
        self._local.close()
        if self._remote is not None:
            self._remote.close()


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
