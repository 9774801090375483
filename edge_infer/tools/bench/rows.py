"""A row of the benchmark, computed from the measurements of its rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.runtime.tuning import median_and_spread

if TYPE_CHECKING:
    from collections.abc import Sequence


class Row(NamedTuple):
    """How fast one way of running a bundle is.

    Attributes:
        variant: The variant's id.
        backend: The engine's name.
        version: The engine's version.
        device: Where it ran.
        threads: The threads of one operator; 0 where the engine decides.
        size_bytes: The variant's files.
        cold_ms: From the start of a process (or a page) to the first result, the median of the rounds.
        cold_spread: Half the distance of the quartiles over the median, of the rounds.
        p50_ms: The median time of a call: the median of the rounds' medians.
        spread: Half the distance of the quartiles over the median, of the rounds' medians.
        p99_ms: The 99th percentile of all calls.
        per_s: Calls in a second, one after another.
        rss_bytes: Memory of the process in RAM after the calls, the median of the rounds; None in a page.
        energy_mj: Energy of a call in millijoules, all else that ran on the machine included; None where unreadable.
        calls: The calls that were timed.
        rounds: The fresh processes, or in a page the blocks.
    """

    variant: str
    backend: str
    version: str
    device: str
    threads: int
    size_bytes: int
    cold_ms: float
    cold_spread: float
    p50_ms: float
    spread: float
    p99_ms: float
    per_s: float
    rss_bytes: int | None
    energy_mj: float | None
    calls: int
    rounds: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The facts that two rows must share to be compared."""
        return self.variant, self.backend, self.device, self.threads


class Round(NamedTuple):
    """The measurements of one process; the fields are those of `Row` and of the probe's answer."""

    cold_ms: float
    times_ms: tuple[float, ...]
    seconds: float
    version: str
    device: str
    threads: int
    rss_bytes: int | None
    energy_uj: int | None


def make_row(variant: str, backend: str, size_bytes: int, rounds: Sequence[Round]) -> Row:
    """Put the rounds of one way together."""
    medians = [median_and_spread(one.times_ms)[0] for one in rounds]
    p50, spread = median_and_spread(medians)
    cold, cold_spread = median_and_spread([one.cold_ms for one in rounds])
    times = sorted(time for one in rounds for time in one.times_ms)
    memory = [one.rss_bytes for one in rounds if one.rss_bytes is not None]
    energy = [one.energy_uj for one in rounds if one.energy_uj is not None]
    last = rounds[-1]
    return Row(
        variant,
        backend,
        last.version,
        last.device,
        last.threads,
        size_bytes,
        cold,
        cold_spread,
        p50,
        spread,
        times[min(len(times) - 1, int(len(times) * 0.99))],
        len(times) / sum(one.seconds for one in rounds),
        int(median_and_spread(memory)[0]) if memory else None,
        sum(energy) / 1000 / len(times) if len(energy) == len(rounds) else None,
        len(times),
        len(rounds),
    )


def row_from_json(entry: Any) -> Row:
    """Read a row back.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(entry, dict) or not set(Row._fields) <= set(entry):
        raise ValueError("a row lacks fields")
    numbers = [entry[field] for field in ("size_bytes", "cold_ms", "cold_spread", "p50_ms", "spread", "threads")]
    if not all(isinstance(number, (int, float)) and number >= 0 for number in numbers):
        raise ValueError("a row has a figure that cannot be")
    if not (entry["rss_bytes"] is None or isinstance(entry["rss_bytes"], int)):
        raise ValueError("a row has a figure that cannot be")
    if not all(isinstance(entry[field], str) for field in ("variant", "backend", "device")):
        raise ValueError("a row has a name that is not a text")
    return Row(**{field: entry[field] for field in Row._fields})
