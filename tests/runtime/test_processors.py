"""How much of the machine this process may use, read from planted files of Linux."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from edge_infer.platform import cpu, host
from edge_infer.platform.cpu import (
    Processor,
    is_emulated,
    physical_cores,
    read_affinity,
    read_features,
    read_processor,
    read_quota,
)

if TYPE_CHECKING:
    from pathlib import Path


def plant(root: Path, **files: str) -> Path:
    """Write files, a `__` in a name being a `/`."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_quota_of_a_version_2_group_is_time_over_period(tmp_path: Path) -> None:
    root = plant(tmp_path, proc__self__cgroup="0::/app\n")
    (root / "sys/fs/cgroup/app").mkdir(parents=True)
    (root / "sys/fs/cgroup/app/cpu.max").write_text("50000 100000\n")

    assert read_quota(root) == 0.5


def test_a_parents_tighter_quota_holds(tmp_path: Path) -> None:
    root = plant(tmp_path, proc__self__cgroup="0::/slice/app\n")
    (root / "sys/fs/cgroup/slice/app").mkdir(parents=True)
    (root / "sys/fs/cgroup/slice/app/cpu.max").write_text("max 100000\n")
    (root / "sys/fs/cgroup/slice/cpu.max").write_text("150000 100000\n")

    assert read_quota(root) == 1.5


def test_inside_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    root = plant(tmp_path, proc__self__cgroup="4:memory:/x\n3:cpu,cpuacct:/docker/0123\n")
    folder = root / "sys/fs/cgroup/cpu"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")

    assert read_quota(root) == 2


@pytest.mark.parametrize("text", ["max 100000", "-1 100000", "", "fast 1", "1"])
def test_no_limit_and_nonsense_are_no_quota(tmp_path: Path, text: str) -> None:
    root = plant(tmp_path, proc__self__cgroup="0::/\n", sys__fs__cgroup__unused="")
    (root / "sys/fs/cgroup/cpu.max").write_text(text)

    assert read_quota(root) is None


def test_without_proc_and_sys_nothing_is_known(tmp_path: Path) -> None:
    assert read_quota(tmp_path) is None
    assert read_affinity(tmp_path) is None
    assert tuple(read_processor(tmp_path)) == ("", (), 0)
    assert read_features(tmp_path) == ()


def test_a_quota_of_half_a_core_leaves_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "read_quota", lambda: 0.5)

    assert host.available_cpus() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux has affinity")
def test_the_affinity_of_this_process_counts() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert host.available_cpus() == 1
        assert read_affinity() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_raspberry_pi_is_known_by_its_part_number_and_its_dot_product(tmp_path: Path) -> None:
    features = "fp asimd evtstrm aes asimdhp cpuid asimddp"
    info = f"processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: {features}\nCPU part\t: 0xd0b\n"
    root = plant(tmp_path, proc__cpuinfo=info + "\n" + info.replace(": 0\n", ": 1\n", 1))

    found = read_processor(root)

    assert tuple(found) == ("Cortex-A76", ("asimd", "asimdhp", "asimddp"), 2)
    assert read_features(root) == found.features
    assert found.has_dot_product
    assert not found._replace(features=("asimd",)).has_dot_product


@pytest.mark.parametrize(
    ("features", "saturates"),
    [
        (("avx2",), True),
        (("avx2", "avx512f"), True),
        (("avx2", "avx_vnni"), False),
        (("avx2", "avx512f", "avx512_vnni"), False),
        (("asimd",), False),
        ((), False),
    ],
)
def test_int8_saturates_on_x86_without_vnni(features: tuple[str, ...], saturates: bool) -> None:
    assert Processor("", features, 1).saturates is saturates


@pytest.mark.parametrize(
    ("kernel", "machine", "right"),
    [("x86_64", "aarch64", True), ("x86_64", "armv7l", True), ("aarch64", "armv7l", False), ("x86_64", "i686", False)],
)
def test_an_imitated_processor_is_told_by_what_the_kernel_runs_on(
    tmp_path: Path, kernel: str, machine: str, right: bool
) -> None:
    assert not is_emulated(machine, tmp_path)  # an old kernel says nothing
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/arch").write_text(kernel + "\n")

    assert is_emulated(machine, tmp_path) is right


def test_the_hyper_threads_of_a_core_count_once(tmp_path: Path) -> None:
    for number, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{siblings}\n")
    (tmp_path / "sys/devices/system/cpu/cpufreq").mkdir()

    assert physical_cores(tmp_path) == 2
    assert physical_cores(tmp_path / "missing") == 0
