"""The memory that the bodies of all requests take together, with the answers that their clients have not read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import OverShare, PayloadTooLarge, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_infer.errors import ServingError

#: The most bytes, unless the caller says otherwise: eight bodies of the largest size.
MAX_BODIES_BYTES = 512 * 2**20
#: The part of the bytes that a tenant may have once half of them are taken.
_PART = 8


class BodyMemory:
    """Counts the bytes of bodies that are read, wait or run, and of unsent answers, in the event loop's thread.

    A body counts as it arrives, not as it is announced.

    Args:
        most: The most bytes. A body that is alone is taken though it has more: its own limit is another.
        bounds: The most bytes of tenants that have a bound of their own, by name.

    Attributes:
        part: The most bytes of a tenant once half of all are taken. Its only request may have more: a small limit
            refuses no body that its own limit lets in.
        taken: The bytes now.
        relieve: Lets slow clients go, to free so many bytes; returns whether it could. None where nobody can.
    """

    def __init__(self, most: int = MAX_BODIES_BYTES, bounds: Mapping[str, int] | None = None) -> None:
        self._most = most
        self.part = most // _PART
        self._bounds = dict(bounds or {})
        self.taken = 0
        self.relieve: Callable[[int], bool] | None = None
        self._of_tenants: dict[str, int] = {}

    def refusal(self, size: int, tenant: str = "", own: int = 0) -> ServingError | None:
        """Return the error for bytes for which there is no room now, even without the slowest clients; else None.

        Args:
            size: How many they are.
            tenant: Whose they are; empty for anybody's.
            own: How many bytes their request has already: one that is alone has room.
        """
        taken = self.taken + size
        if tenant in self._bounds and self._of_tenants.get(tenant, 0) + size > self._bounds[tenant]:
            return _over_bound(tenant, size + own, self._bounds[tenant])
        if tenant and 2 * taken > self._most and self.taken > own:
            held = self._of_tenants.get(tenant, 0)
            if held > own and held + size > self.part:
                return QueueFull(
                    f"The requests and answers of `{tenant}` fill the {self.part} bytes that there are for a tenant",
                    hint="come back after `Retry-After`, or send smaller batches",
                    expected=self.part,
                )
        if taken <= self._most or self.taken <= own:
            return None
        if self.relieve is not None and self.relieve(taken - self._most):
            return None
        return QueueFull(
            f"Requests that wait and answers that nobody reads fill the {self._most} bytes that there are for them",
            hint="come back after `Retry-After`, or send smaller batches",
            expected=self._most,
        )

    def take(self, size: int, tenant: str = "") -> None:
        """Count so many bytes more, or less where they are negative."""
        self.taken += size
        if tenant:
            self._of_tenants[tenant] = self._of_tenants.get(tenant, 0) + size

    @property
    def is_short(self) -> bool:
        """Whether more than half of the bytes are taken."""
        return 2 * self.taken > self._most


def _over_bound(tenant: str, size: int, most: int) -> ServingError:
    """Make the error for more bytes than a tenant may have; it is final for a request that has too many by itself."""
    if size > most:
        return PayloadTooLarge(
            f"The request and its answer have {size} bytes, `{tenant}` may have {most}",
            hint="send smaller batches",
            expected=most,
            got=size,
        )
    return OverShare(
        f"The requests and answers of `{tenant}` fill the {most} bytes that it may have",
        hint="come back after `Retry-After`, or send smaller batches",
        expected=most,
    )
