"""The headers of an answer that tell where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_infer.server.scheduling.request import Timings


def server_timing(timings: Timings, serialization_s: float, total_s: float) -> bytes:
    """Write the `Server-Timing` header (https://www.w3.org/TR/server-timing), which browsers show; in milliseconds.

    >>> from edge_infer.server.scheduling.request import Timings
    >>> server_timing(Timings(0.001, 0.0, 0.02, 4), 0.0001, 0.022)
    b'queue;dur=1.000, batch;dur=0.000, compute;dur=20.000, serialization;dur=0.100, total;dur=22.000'
    """
    return (
        f"queue;dur={timings.queue * 1000:.3f}, batch;dur={timings.batch_wait * 1000:.3f}, "
        f"compute;dur={timings.compute * 1000:.3f}, serialization;dur={serialization_s * 1000:.3f}, "
        f"total;dur={total_s * 1000:.3f}"
    ).encode()
