"""Memory and disk: is there room for a model, and can what is fetched be written?"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from edge_infer.doctor.files import ROOT, number_of, text_of
from edge_infer.doctor.findings import Finding
from edge_infer.platform import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MIB = 2**20
# A small int8 model ran under a limit of 16 to 24 MiB, in a process that peaks at 40 to 60: below this it is killed.
_TIGHT_BYTES = 64 * _MIB
_LOW_DISK_BYTES = 200 * _MIB


def read_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Return the bytes that are available, and the limit of this process's control group; None where nothing says."""
    available = None
    for line in text_of(root / "proc/meminfo").splitlines():
        key, _, rest = line.partition(":")
        amount = rest.split()
        if key == "MemAvailable" and amount and amount[0].isdecimal():
            available = int(amount[0]) * 1024
    limits = []
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = root / "sys/fs/cgroup"
        if controllers == "":
            places = [base / path.strip("/") / "memory.max", base / "memory.max"]
        elif "memory" in controllers.split(","):
            base = base / "memory"
            places = [base / path.strip("/") / "memory.limit_in_bytes", base / "memory.limit_in_bytes"]
        else:
            continue
        limits += [number for place in places if (number := number_of(place)) is not None]
    limit = min(limits, default=None)
    # Version 1 writes "no limit" as the largest multiple of a page in 63 bits.
    return available, None if limit is None or limit > 2**60 else limit


def examine_room(root: Path = ROOT, free_bytes: Callable[[Path], int] | None = None) -> list[Finding]:
    """Look at memory and at the disk of the cache folder.

    Args:
        root: Where facts are read.
        free_bytes: Tells the free bytes at a path.
    """
    return [*_memory(root), *_disk(root, free_bytes or _free_bytes)]


def _memory(root: Path) -> list[Finding]:
    available, limit = read_memory(root)
    findings = []
    if limit is not None and limit < _TIGHT_BYTES:
        findings.append(
            Finding(
                "memory.limit",
                "warning",
                f"the control group allows {limit // _MIB} MiB: an engine and a model may be killed without a word",
                "raise it (systemd: MemoryMax=128M, docker: --memory 128m)",
            )
        )
    elif limit is not None:
        findings.append(Finding("memory.limit", "ok", f"the control group allows {limit // _MIB} MiB"))
    if available is not None and available < _TIGHT_BYTES:
        findings.append(
            Finding(
                "memory.available",
                "problem",
                f"{available // _MIB} MiB of memory are available: too little to load an engine and a model",
                "stop other programs, or add swap in RAM: sudo apt-get install zram-tools",
            )
        )
    elif available is not None:
        findings.append(Finding("memory.available", "ok", f"{available // _MIB} MiB are available"))
    return findings or [Finding("memory", "note", "nothing tells the memory here")]


def _disk(root: Path, free_bytes: Callable[[Path], int]) -> list[Finding]:
    folder = cache_folder()
    mount, options = _mount_of(root, folder)
    if "ro" in options:
        return [
            Finding(
                "disk.writable",
                "problem",
                f"`{folder}` lies on `{mount}`, which is mounted read-only: nothing can be fetched or remembered",
                f"sudo mount -o remount,rw {mount}, or set EDGE_INFER_CACHE to a folder that can be written",
            )
        ]
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = free_bytes(there)
    if free < _LOW_DISK_BYTES:
        return [
            Finding(
                "disk.free",
                "problem" if free < _LOW_DISK_BYTES // 10 else "warning",
                f"{free // _MIB} MiB are free at `{there}`: an update of a model needs its size twice",
                f"make room, or set EDGE_INFER_CACHE; what lies in `{folder}` can be removed",
            )
        ]
    return [Finding("disk.free", "ok", f"{free // _MIB} MiB are free at `{there}`")]


def _free_bytes(place: Path) -> int:
    return shutil.disk_usage(place).free


def _mount_of(root: Path, folder: Path) -> tuple[str, list[str]]:
    """Return the mount point that a folder lies on, and its options."""
    best: tuple[str, list[str]] = ("", [])
    for line in text_of(root / "proc/self/mounts").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            point = fields[1].replace("\\040", " ")
            if folder.is_relative_to(point) and len(point) >= len(best[0]):
                best = (point, fields[3].split(","))
    return best
