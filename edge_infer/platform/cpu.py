"""The processor: its model and features, and the CPUs that this process may use.

Containers and services are held back in two ways: by affinity, the CPUs that they may run on, and by a quota, the time
that they may use of all of them. An engine that starts a thread for each CPU of the machine then works against itself.
All facts are read under a root folder, `/` on the machine itself.
"""

from __future__ import annotations

import os
import sys
from math import ceil

from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# What int8 and float kernels look for, as Linux spells it on x86 and on ARM.
_FEATURES = (
    *("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8"),
    *("neon", "asimd", "asimdhp", "asimddp", "i8mm", "sve"),
)
# Those by which one instruction sums products of 8-bit numbers into 32 bits without saturation.
_DOT_PRODUCT = ("avx512_vnni", "avx_vnni", "asimddp", "i8mm", "amx_int8")
_ROOT = "/"
_CGROUPS = "sys/fs/cgroup"
_CPUS = "sys/devices/system/cpu"


class Processor(Record):
    """The processor of the machine.

    Attributes:
        model: Its name, such as `Cortex-A76` or what an x86 processor calls itself; empty where nothing says.
        features: Those of its instruction sets that matter for models, as Linux spells them.
        cpus: The CPUs of the machine; 0 where nothing says.
    """

    model: str
    features: tuple[str, ...]
    cpus: int

    @property
    def has_dot_product(self) -> bool:
        """Whether int8 products are summed in one exact instruction: VNNI on x86, dotprod on ARM."""
        return any(feature in _DOT_PRODUCT for feature in self.features)

    @property
    def saturates(self) -> bool:
        """Whether plain int8 kernels sum two products in 16 bits, which overflow: x86 without VNNI."""
        return ("avx2" in self.features or "avx512f" in self.features) and not self.has_dot_product


# MIDR part numbers of ARM's own cores (Linux, arch/arm64/include/asm/cputype.h); those of the Raspberry Pi and like.
_ARM_PARTS = {
    "0xb76": "ARM1176",
    "0xc07": "Cortex-A7",
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd49": "Neoverse-N2",
}


def read_processor(root: Path | str = _ROOT) -> Processor:
    """Read `/proc/cpuinfo`; where there is none, know nothing."""
    fields: dict[str, str] = {}
    count = 0
    for line in _text(f"{root}/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        key = key.strip().lower()
        count += key == "processor"
        fields.setdefault(key, value.strip())
    model = fields.get("model name") or _ARM_PARTS.get(fields.get("cpu part", ""), "")
    return Processor(model, _known(fields.get("flags", fields.get("features", ""))), count)


def read_features(root: Path | str = _ROOT) -> tuple[str, ...]:
    """Return the features of the first CPU as `read_processor` does; of the others Linux then writes nothing."""
    try:
        with open(f"{root}/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip().lower() in ("flags", "features"):
                    return _known(value)
    except OSError:
        pass
    return ()


def _known(text: str) -> tuple[str, ...]:
    words = set(text.split())
    return tuple(feature for feature in _FEATURES if feature in words)


def read_quota(root: Path | str = _ROOT) -> float | None:
    """Return how many CPUs' time the control groups of this process grant, such as 0.5; None where nothing limits it.

    It is the smallest of this group's and its parents': `cpu.max` in version 2, `cpu.cfs_quota_us` in version 1.
    """
    found = []
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            found += [_quota_v2(folder) for folder in group_folders(f"{root}/{_CGROUPS}", path)]
        elif "cpu" in controllers.split(","):
            found += [_quota_v1(folder) for folder in group_folders(f"{root}/{_CGROUPS}/cpu", path)]
    limits = [quota for quota in found if quota is not None]
    return min(limits) if limits else None


def read_affinity(root: Path | str = _ROOT) -> int | None:
    """Count the CPUs that this process may run on, from `/proc/self/status`; None where it does not say."""
    for line in _text(f"{root}/proc/self/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            ranges = [part.partition("-") for part in line.partition(":")[2].strip().split(",")]
            try:
                return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
            except ValueError:
                return None
    return None


def physical_cores(root: Path | str = _ROOT) -> int:
    """Count the cores of all CPUs that are there, whatever this process may use; 0 where Linux' `/sys` does not say."""
    folder = f"{root}/{_CPUS}"
    try:
        names = [name for name in os.listdir(folder) if name[:3] == "cpu" and name[3:].isdecimal()]
    except OSError:
        return 0
    siblings = {_text(f"{folder}/{name}/topology/thread_siblings_list").strip() for name in names}
    return len(siblings - {""})


def group_folders(mount: str, path: str) -> list[str]:
    """Return a group's folder and its parents' up to the mount; inside a container the mount is the group itself."""
    pieces = [piece for piece in path.split("/") if piece not in ("", "..")]
    return ["/".join([mount, *pieces[:length]]) for length in range(len(pieces), -1, -1)]


def is_emulated(machine: str, root: Path | str = _ROOT) -> bool:
    """Tell whether another kind of processor imitates the one that this process runs on, as qemu-user does.

    The kernel says what it runs on itself (`kernel.arch`, Linux 6.1 and later; an older one says nothing).

    Args:
        machine: What the process is told, as `platform.machine()` says.
        root: Where `/proc` is.
    """
    kernel = _text(f"{root}/proc/sys/kernel/arch").strip()
    return bool(kernel) and _family(kernel) != _family(machine)


def _family(machine: str) -> str:
    """Return the name that 32- and 64-bit processors of a kind share."""
    if machine.startswith(("arm", "aarch64")):
        return "arm"
    return "x86" if machine in ("x86_64", "amd64", "i386", "i486", "i586", "i686") else machine


def usable_cpus() -> int:
    """Count the threads that can compute at once here: the affinity, or the quota where that is less; at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = read_quota() if sys.platform == "linux" else None
    return count if quota is None else max(1, min(count, ceil(quota)))


def _quota_v2(folder: str) -> float | None:
    quota, _, period = _text(f"{folder}/cpu.max").strip().partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: str) -> float | None:
    quota = _text(f"{folder}/cpu.cfs_quota_us").strip()
    return _ratio(quota, _text(f"{folder}/cpu.cfs_period_us").strip()) if quota else None


def _ratio(quota: str, period: str) -> float | None:
    try:
        limit, whole = int(quota), int(period)
    except ValueError:
        return None  # `max`, or no such file
    return limit / whole if limit > 0 and whole > 0 else None


def _text(path: str) -> str:
    """Return a file's text; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
