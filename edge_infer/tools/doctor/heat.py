"""Check heat and power: temperatures, and the throttling of a Raspberry Pi by heat or a weak supply."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.tools.doctor.files import ROOT, number_of, text_of
from edge_infer.tools.doctor.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

# The firmware's word of a Raspberry Pi: https://www.raspberrypi.com/documentation/computers/os.html#get_throttled
_THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
_NOW = {
    0: "the supply's voltage is too low",
    1: "the clock is capped",
    2: "it is throttled",
    3: "it is at its limit of heat",
}
_SINCE_START = {16: "too low a voltage", 17: "a capped clock", 18: "throttling", 19: "the limit of heat"}
# A Raspberry Pi begins to slow down at 80 degrees.
_HOT_C = 80.0


class Heat(NamedTuple):
    """The readings of heat and power.

    Attributes:
        temperature_c: Of the zone that is nearest to its limit or most above it, in degrees Celsius; None where
            nothing says.
        limit_c: Where that zone begins to slow down.
        throttled: The firmware's bits; None where this is not a Raspberry Pi.
    """

    temperature_c: float | None
    limit_c: float
    throttled: int | None


def read_heat(root: Path = ROOT) -> Heat:
    """Read the thermal zones, and the throttling bits of a Raspberry Pi."""
    zones = []
    for zone in sorted(root.glob("sys/class/thermal/thermal_zone*")):
        value = number_of(zone / "temp")
        if value is not None and -40_000 < value < 200_000:
            zones.append((value / 1000, _limit(zone)))
    temperature, limit = max(zones, key=lambda zone: zone[0] - zone[1], default=(None, _HOT_C))
    try:
        throttled: int | None = int(text_of(root / _THROTTLED), 16)  # it prints hexadecimal without `0x`
    except ValueError:
        throttled = None
    if throttled is None and root == ROOT:
        throttled = _ask_firmware()
    return Heat(temperature, limit, throttled)


def examine_heat(root: Path = ROOT) -> list[Finding]:
    """Look for heat and for what a Raspberry Pi's firmware has held against its supply."""
    temperature, limit, throttled = read_heat(root)
    findings = []
    if temperature is not None and temperature >= limit:
        findings.append(
            Finding(
                "heat.temperature",
                "warning",
                f"{temperature:.0f} degrees, at or above {limit:.0f}: the processor slows down",
                "add a heat sink or a fan; until then `edge-infer bench` measures the heat",
            )
        )
    elif temperature is not None:
        findings.append(Finding("heat.temperature", "ok", f"{temperature:.0f} degrees, slows down at {limit:.0f}"))
    if throttled is not None:
        now = [words for bit, words in _NOW.items() if throttled >> bit & 1]
        before = [words for bit, words in _SINCE_START.items() if throttled >> bit & 1]
        if now:
            hint = "use the official power supply and a short cable" if throttled & 1 else "cool it"
            findings.append(Finding("heat.throttled", "problem", f"right now {', and '.join(now)}", hint))
        elif before:
            hint = "use the official power supply" if throttled >> 16 & 1 else "cool it"
            findings.append(Finding("heat.throttled", "warning", f"since it started: {', '.join(before)}", hint))
        else:
            findings.append(Finding("heat.throttled", "ok", "never throttled since it started"))
    return findings or [Finding("heat", "note", "nothing tells the temperature here")]


def _limit(zone: Path) -> float:
    """Return where a zone begins to slow down: its lowest passive trip point, at least 60 degrees."""
    points = []
    for kind in zone.glob("trip_point_*_type"):
        value = number_of(zone / kind.name.replace("_type", "_temp"))
        if text_of(kind) == "passive" and value is not None and value >= 60_000:
            points.append(value / 1000)
    return min(points, default=_HOT_C)


def _ask_firmware() -> int | None:
    """Ask `vcgencmd`, where older kernels have no file for it: it prints `throttled=0x50005`."""
    command = shutil.which("vcgencmd")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "get_throttled"], capture_output=True, text=True, timeout=5, check=True)
        return int(done.stdout.strip().partition("=")[2], 16)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
