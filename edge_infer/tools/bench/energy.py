"""Read the energy counters (RAPL) of the processor packages on Linux.

They count all that runs on the machine, and reading them takes root since they leak secrets (CVE-2020-8694). A
Raspberry Pi has none.
"""

from __future__ import annotations

from pathlib import Path

_ZONES = "sys/class/powercap"


def read_energy_uj(root: Path = Path("/")) -> dict[str, tuple[int, int]]:
    """Return each package's counter and the value at which it wraps, in microjoules; empty where nothing tells."""
    found = {}
    for zone in sorted((root / _ZONES).glob("intel-rapl:[0-9]*")):
        if zone.name.count(":") == 1:  # `intel-rapl:0:1` is a part of `intel-rapl:0`
            try:
                counter = int((zone / "energy_uj").read_text())
                found[zone.name] = (counter, int((zone / "max_energy_range_uj").read_text()))
            except (OSError, ValueError):
                continue
    return found


def used_uj(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> int | None:
    """Return the energy used between two readings, in microjoules; None where nothing tells. A counter wraps once."""
    if not before or before.keys() != after.keys():
        return None
    return sum((after[zone][0] - start) % (limit + 1) for zone, (start, limit) in before.items())
