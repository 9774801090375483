"""Check the clock: with a date in 1970 neither TLS certificates nor signed weights are valid."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import edge_infer
from edge_infer.tools.doctor.files import ROOT, text_of
from edge_infer.tools.doctor.findings import Finding

_DAY_S = 86_400
_FAR_S = 20 * 365 * _DAY_S
# No file of this package is older; ostree, Nix and reproducible images give theirs a time near 1970 or 1980.
_FIRST_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def examine_clock(root: Path = ROOT, now: float | None = None) -> list[Finding]:
    """Compare the clock with the date of this package's own files: it cannot be earlier, nor much later.

    Args:
        root: Where facts are read.
        now: Seconds since 1970; None for the clock of the root.
    """
    here = _now(root) if now is None else now
    if here is None:
        return [Finding("clock", "note", "nothing tells the time here")]
    day = datetime.fromtimestamp(here, UTC).date().isoformat()
    installed = max(Path(edge_infer.__file__).stat().st_mtime, _FIRST_S)
    if here < installed - _DAY_S:
        return [
            Finding(
                "clock.date",
                "problem",
                f"the clock says {day}, before edge-infer was installed: TLS certificates are not valid yet, and "
                "signed weights that have expired pass for fresh",
                "sudo timedatectl set-ntp true; a device without a network needs a clock with a battery",
            )
        ]
    if here > installed + _FAR_S:
        return [
            Finding(
                "clock.date",
                "problem",
                f"the clock says {day}: TLS certificates and the signatures of weights count as expired",
                "sudo timedatectl set-ntp true, or sudo date -s '...'",
            )
        ]
    has_systemd = (root / "run/systemd/timesync").is_dir()
    if has_systemd and not (root / "run/systemd/timesync/synchronized").exists():
        return [
            Finding(
                "clock.synchronized",
                "warning",
                f"the clock says {day}, but has not been set from the network since the start",
                "timedatectl timesync-status; sudo timedatectl set-ntp true",
            )
        ]
    return [Finding("clock.date", "ok", f"the clock says {day}")]


def _now(root: Path) -> float | None:
    """Return the time of a root: the kernel's start and how long it has run since."""
    if root == ROOT:
        return time.time()
    for line in text_of(root / "proc/stat").splitlines():
        if line.startswith("btime "):
            try:
                return int(line.split()[1]) + float(text_of(root / "proc/uptime").split()[0])
            except (ValueError, IndexError):
                return None
    return None
