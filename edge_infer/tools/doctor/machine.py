"""Run all checks of a machine that need only its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tools.doctor.clock import examine_clock
from edge_infer.tools.doctor.files import ROOT
from edge_infer.tools.doctor.heat import examine_heat
from edge_infer.tools.doctor.packages import examine_packages
from edge_infer.tools.doctor.processor import examine_processor
from edge_infer.tools.doctor.room import examine_room

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.tools.doctor.findings import Finding


def examine_machine(root: Path = ROOT) -> list[Finding]:
    """Look at packages, processor, heat, memory, disk and clock.

    Args:
        root: Where facts are read: `/`, or the mounted system of a device.
    """
    return [
        *examine_packages(root),
        *examine_processor(root, environment={} if root != ROOT else None),
        *examine_heat(root),
        *examine_room(root),
        *examine_clock(root),
    ]
