"""Check memory and disk: room for a model, and a writable cache folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.platform.cpu import group_folders
from edge_infer.platform.host import cache_folder
from edge_infer.tools.doctor.files import ROOT, number_of, text_of
from edge_infer.tools.doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

_MIB = 2**20
# A small int8 model ran under a limit of 16 to 24 MiB, in a process that peaks at 40 to 60: below this it is killed.
_TIGHT_BYTES = 64 * _MIB
_LOW_DISK_BYTES = 200 * _MIB


def read_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Return the bytes that are available, and the limit of this process's control groups; None where nothing says.

    The limit is the smallest of this group's and its parents'.
    """
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
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        places = [Path(folder, name) for folder in group_folders(str(mount), path)]
        limits += [number for place in places if (number := number_of(place)) is not None]
    limit = min(limits, default=None)
    # Version 1 writes "no limit" as the largest multiple of a page in 63 bits.
    return available, None if limit is None or limit > 2**60 else limit


def examine_room(
    root: Path = ROOT,
    folder: Path | None = None,
    free_bytes: Callable[[Path], int] | None = None,
    can_write: Callable[[Path], bool] | None = None,
) -> list[Finding]:
    """Look at memory and at the disk.

    Args:
        root: Where facts are read.
        folder: What is written to; None for the cache folder, or for the whole of another root, whose users and their
            cache folders are not known.
        free_bytes: Tells the free bytes at a path.
        can_write: Tells whether this process can make files in a folder.
    """
    return [*_memory(root), _disk(root, folder, free_bytes or _free_bytes, can_write or _can_write)]


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


def _disk(
    root: Path, folder: Path | None, free_bytes: Callable[[Path], int], can_write: Callable[[Path], bool]
) -> Finding:
    if folder is None and root != ROOT:
        return _read_only(root, ROOT) or _free(free_bytes(root), root, "make room on it")
    folder = Path(os.path.realpath(folder or cache_folder()))
    there = next((place for place in (folder, *folder.parents) if os.access(place, os.F_OK)), ROOT)
    if can_write(there):
        hint = f"make room, or set EDGE_INFER_CACHE; what lies in `{folder}` can be removed"
        return _free(free_bytes(there), there, hint)
    return _read_only(root, folder) or Finding(
        "disk.writable",
        "problem",
        f"`{there}` is not a folder that this user can write: nothing can be fetched or remembered in `{folder}`",
        f"ls -ld {there}; set EDGE_INFER_CACHE to a folder that can be written",
    )


def _read_only(root: Path, folder: Path) -> Finding | None:
    mount, options = _mount_of(root, folder)
    if "ro" not in options:
        return None
    return Finding(
        "disk.writable",
        "problem",
        f"`{folder}` lies on `{mount}`, which is mounted read-only: nothing can be fetched or remembered",
        f"sudo mount -o remount,rw {mount}, or set EDGE_INFER_CACHE to a folder that can be written",
    )


def _free(free: int, place: Path, hint: str) -> Finding:
    if free >= _LOW_DISK_BYTES:
        return Finding("disk.free", "ok", f"{free // _MIB} MiB are free at `{place}`")
    return Finding(
        "disk.free",
        "problem" if free < _LOW_DISK_BYTES // 10 else "warning",
        f"{free // _MIB} MiB are free at `{place}`: an update of a model needs its size twice",
        hint,
    )


def _can_write(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


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
