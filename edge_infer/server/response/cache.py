"""ResultCache: answers to requests that were asked before, word for word. Off unless it is given room."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from edge_infer.server.response.parts import size_of

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.response.parts import Parts
    from edge_infer.server.response.writing import Headers

T = TypeVar("T")
#: What an answer takes beside its bytes, with its key, and each of its headers (measured with tracemalloc).
ENTRY_BYTES = 312
HEADER_BYTES = 100


class Kept(NamedTuple):
    """An answer as it was sent, and until when it may be sent again."""

    parts: Parts
    headers: Headers
    until: float

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return (
            ENTRY_BYTES
            + size_of(self.parts)
            + sum(HEADER_BYTES + len(name) + len(value) for name, value in self.headers)
        )


class ResultCache(Generic[T]):
    """The least recently used answers go first; each is forgotten after a time.

    Args:
        max_bytes: The most bytes of answers, with what it takes to keep them.
        ttl_s: How long an answer may be sent again.
        clock: Returns the time in seconds.

    Attributes:
        in_flight: What is being computed now, by key: an identical request waits for it instead of running. In the end
            it is the answer, or an error that each of them would get; None where it failed for a reason of its own.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._bytes = 0
        self.in_flight: dict[bytes, Future[T | EdgeInferError | None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @staticmethod
    def key(body: bytes, *form: object) -> bytes:
        """Return what stands for a request: a digest of its body, and of whatever else shapes its answer."""
        digest = blake2b(repr(form).encode(), digest_size=16)
        digest.update(body)
        return digest.digest()

    def get(self, key: bytes) -> Kept | None:
        """Return an answer that may be sent again."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept

    def put(self, key: bytes, parts: Parts, headers: Headers) -> None:
        """Keep an answer, if there is room for it at all."""
        kept = Kept(parts, headers, self._clock() + self._ttl_s)
        if kept.size > self._max_bytes:
            return
        if key in self._kept:
            self._drop(key)
        self._kept[key] = kept
        self._bytes += kept.size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._kept.pop(key).size
