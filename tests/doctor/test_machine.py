"""Planted faults: each is found in the files of a machine, explained, and comes with the thing to type."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.tools.doctor.clock import examine_clock
from edge_infer.tools.doctor.imports import examine_imports
from edge_infer.tools.doctor.machine import examine_machine
from edge_infer.tools.doctor.processor import examine_processor
from edge_infer.tools.doctor.room import examine_room

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.tools.doctor.findings import Finding

SITE = "usr/lib/python3.11/site-packages"
VENV = "home/pi/edge/lib/python3.11/site-packages"
CPU = "processor\t: {}\nFeatures\t: fp asimd asimdhp asimddp\nCPU part\t: 0xd0b\n\n"


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little") + bytes(44)


class Machine:
    """The files of a healthy Raspberry Pi 5, into which faults are planted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/cpuinfo", "".join(CPU.format(i) for i in range(4)))
        self.write("proc/self/status", "Name:\tpython3\nCpus_allowed_list:\t0-3\n")
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n")
        self.write("proc/self/mounts", "/dev/mmcblk0p2 / ext4 rw,noatime 0 0\n")
        self.write("proc/stat", f"cpu 1 2 3\nbtime {int(time.time()) - 3600}\n")
        self.write("proc/uptime", "3600.00 9000.00\n")
        self.write("sys/class/thermal/thermal_zone0/temp", "48300\n")
        self.write("sys/devices/platform/soc/soc:firmware/get_throttled", "0\n")
        self.write("run/systemd/timesync/synchronized", "")
        self.write("usr/bin/python3", elf(183))
        self.install("numpy", "1.26.4")
        self.install("onnxruntime", "1.31.1")
        self.write(f"{SITE}/onnxruntime/capi/libonnxruntime.so.1", elf(183))

    def write(self, path: str, content: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def install(self, name: str, version: str, site: str = SITE) -> None:
        folder = f"{site}/{name.replace('-', '_')}-{version}.dist-info"
        self.write(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def complaints(self) -> dict[str, Finding]:
        return {finding.check: finding for finding in examine_machine(self.root) if finding.level != "ok"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "root")


def test_nothing_is_held_against_a_healthy_raspberry_pi(machine: Machine) -> None:
    assert machine.complaints() == {}


def plant_two_onnxruntimes(machine: Machine) -> None:
    machine.install("onnxruntime-gpu", "1.31.1")


def plant_a_library_of_another_processor(machine: Machine) -> None:
    machine.write(f"{SITE}/onnxruntime/capi/libonnxruntime.so.1", elf(62))


def plant_two_onnxruntimes_in_a_virtual_environment(machine: Machine) -> None:
    machine.install("onnxruntime", "1.31.1", VENV)
    machine.install("onnxruntime-gpu", "1.31.1", VENV)


def plant_a_library_of_another_processor_in_a_virtual_environment(machine: Machine) -> None:
    (machine.root / "home/pi/edge/bin").mkdir(parents=True)
    (machine.root / "home/pi/edge/bin/python3").symlink_to("/usr/bin/python3")
    machine.write(f"{VENV}/onnxruntime/capi/libonnxruntime.so.1", elf(62))


def plant_numpy_2_under_tflite_runtime(machine: Machine) -> None:
    machine.install("tflite-runtime", "2.14.0")
    (machine.root / SITE / "numpy-1.26.4.dist-info/METADATA").unlink()
    machine.install("numpy", "2.4.6")


def plant_a_32_bit_python(machine: Machine) -> None:
    machine.write("usr/bin/python3", elf(40))
    machine.write(f"{SITE}/onnxruntime/capi/libonnxruntime.so.1", elf(40))


def plant_a_managed_python(machine: Machine) -> None:
    machine.write("usr/lib/python3.11/EXTERNALLY-MANAGED", "[externally-managed]\n")


def plant_a_processor_without_dotprod(machine: Machine) -> None:
    machine.write("proc/cpuinfo", "processor: 0\nFeatures: fp asimd\nCPU part: 0xd08\n")
    machine.write("proc/self/status", "Cpus_allowed_list: 0\n")


def plant_a_processor_without_vnni(machine: Machine) -> None:
    machine.write("proc/cpuinfo", "processor: 0\nmodel name: Old Core\nflags: sse4_2 avx2\n")
    machine.write("proc/self/status", "Cpus_allowed_list: 0\n")


def plant_half_a_core(machine: Machine) -> None:
    machine.write("sys/fs/cgroup/cpu.max", "50000 100000\n")


def plant_two_allowed_cpus(machine: Machine) -> None:
    machine.write("proc/self/status", "Cpus_allowed_list:\t0,3\n")


def plant_the_powersave_governor(machine: Machine) -> None:
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")


def plant_heat(machine: Machine) -> None:
    machine.write("sys/class/thermal/thermal_zone1/temp", "84200\n")


def plant_heat_beside_a_hotter_zone_that_stands_more(machine: Machine) -> None:
    for zone, (temperature, limit) in enumerate([(76_000, 70_000), (78_000, 105_000)]):
        machine.write(f"sys/class/thermal/thermal_zone{zone}/temp", str(temperature))
        machine.write(f"sys/class/thermal/thermal_zone{zone}/trip_point_0_type", "passive")
        machine.write(f"sys/class/thermal/thermal_zone{zone}/trip_point_0_temp", str(limit))


def plant_a_weak_supply(machine: Machine) -> None:
    machine.write("sys/devices/platform/soc/soc:firmware/get_throttled", "50005\n")


def plant_past_throttling(machine: Machine) -> None:
    machine.write("sys/devices/platform/soc/soc:firmware/get_throttled", "50000\n")


def plant_a_tight_memory_limit(machine: Machine) -> None:
    machine.write("sys/fs/cgroup/memory.max", str(32 * 2**20))


def plant_a_tight_memory_limit_of_a_parent_group(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/system.slice/app.slice/model.service\n")
    machine.write("sys/fs/cgroup/system.slice/app.slice/memory.max", str(32 * 2**20))
    machine.write("sys/fs/cgroup/system.slice/app.slice/model.service/memory.max", "max")


def plant_full_memory(machine: Machine) -> None:
    machine.write("proc/meminfo", "MemAvailable: 20000 kB\n")


def plant_a_read_only_disk(machine: Machine) -> None:
    machine.write("proc/self/mounts", "/dev/mmcblk0p2 / ext4 ro,noatime 0 0\n")


def plant_the_year_1970(machine: Machine) -> None:
    machine.write("proc/stat", "btime 12\n")


def plant_the_far_future(machine: Machine) -> None:
    machine.write("proc/stat", "btime 4102444800\n")


def plant_a_clock_that_nobody_set(machine: Machine) -> None:
    (machine.root / "run/systemd/timesync/synchronized").unlink()


FAULTS = [
    (plant_two_onnxruntimes, "packages.onnxruntime", "problem", "overwrite each other", "pip uninstall -y onnxruntime"),
    (plant_a_library_of_another_processor, "packages.onnxruntime", "problem", "built for x86_64", "--force-reinstall"),
    (
        plant_two_onnxruntimes_in_a_virtual_environment,
        "packages.onnxruntime",
        "problem",
        "in `/home/pi/edge` onnxruntime 1.31.1 and onnxruntime-gpu 1.31.1",
        "pip uninstall -y onnxruntime",
    ),
    (
        plant_a_library_of_another_processor_in_a_virtual_environment,
        "packages.onnxruntime",
        "problem",
        "in `/home/pi/edge` `libonnxruntime.so.1` is built for x86_64, this Python is aarch64",
        "--force-reinstall",
    ),
    (plant_numpy_2_under_tflite_runtime, "packages.tflite-runtime", "problem", "numpy 2.4.6", "'numpy<2'"),
    (plant_a_32_bit_python, "python.architecture", "warning", "32-bit ARM", "tflite-runtime"),
    (plant_a_managed_python, "python.environment", "note", "PEP 668", "python3 -m venv"),
    (plant_a_processor_without_dotprod, "cpu.int8", "note", "no dotprod", "edge-infer tune"),
    (plant_a_processor_without_vnni, "cpu.int8", "warning", "no VNNI", "edge-infer tune"),
    (plant_half_a_core, "cpu.threads", "warning", "0.5 of 4 CPUs, by its control group's quota", "CPUQuota="),
    (
        plant_two_allowed_cpus,
        "cpu.threads",
        "note",
        "2 of 4 CPUs, by its affinity; edge-infer uses 2",
        "OMP_NUM_THREADS=2",
    ),
    (plant_the_powersave_governor, "cpu.governor", "warning", "powersave", "scaling_governor"),
    (plant_heat, "heat.temperature", "warning", "84 degrees", "heat sink"),
    (
        plant_heat_beside_a_hotter_zone_that_stands_more,
        "heat.temperature",
        "warning",
        "76 degrees, at or above 70",
        "heat sink",
    ),
    (plant_a_weak_supply, "heat.throttled", "problem", "voltage is too low, and it is throttled", "power supply"),
    (
        plant_past_throttling,
        "heat.throttled",
        "warning",
        "since it started: too low a voltage, throttling",
        "power supply",
    ),
    (plant_a_tight_memory_limit, "memory.limit", "warning", "32 MiB", "MemoryMax=128M"),
    (plant_a_tight_memory_limit_of_a_parent_group, "memory.limit", "warning", "32 MiB", "MemoryMax=128M"),
    (plant_full_memory, "memory.available", "problem", "19 MiB", "stop other programs"),
    (plant_a_read_only_disk, "disk.writable", "problem", "read-only", "remount,rw /"),
    (plant_the_year_1970, "clock.date", "problem", "1970-01-01", "set-ntp true"),
    (plant_the_far_future, "clock.date", "problem", "2100-01-01", "set-ntp true"),
    (plant_a_clock_that_nobody_set, "clock.synchronized", "warning", "not been set from the network", "timedatectl"),
]


@pytest.mark.parametrize(
    ("plant", "check", "level", "said", "typed"), FAULTS, ids=[fault[0].__name__[6:] for fault in FAULTS]
)
def test_a_planted_fault_is_the_only_complaint_and_is_explained(
    machine: Machine, plant: object, check: str, level: str, said: str, typed: str
) -> None:
    assert callable(plant)
    plant(machine)

    found = machine.complaints()

    assert list(found) == [check]
    assert found[check].level == level
    assert said in found[check].what
    assert typed in found[check].hint


def test_packages_of_two_environments_do_not_overwrite_each_other(machine: Machine) -> None:
    machine.install("onnxruntime-gpu", "1.31.1", VENV)

    assert machine.complaints() == {}


@pytest.mark.parametrize("link", ["/opt/python/bin/python3", "../../opt/python/bin/python3", "/etc/alternatives/py"])
def test_a_linked_python_of_a_device_is_the_device_s_and_not_this_machine_s(machine: Machine, link: str) -> None:
    machine.write("opt/python/bin/python3", elf(183))
    machine.write("etc/alternatives/README", "")
    (machine.root / "etc/alternatives/py").symlink_to("/opt/python/bin/python3")
    (machine.root / "usr/bin/python3").unlink()
    (machine.root / "usr/bin/python3").symlink_to(link)
    plant_a_library_of_another_processor(machine)

    assert machine.complaints()["packages.onnxruntime"].what.endswith("built for x86_64, this Python is aarch64")


def test_links_in_a_circle_stop_nothing(machine: Machine) -> None:
    (machine.root / "usr/bin/python3").unlink()
    (machine.root / "usr/bin/python3").symlink_to("/usr/bin/python3")

    assert machine.complaints() == {}


def test_metadata_that_cannot_be_read_hides_only_its_own_package(machine: Machine) -> None:
    machine.write(f"{SITE}/broken-1.0.dist-info/METADATA", b"Name: caf\xe9\nVersion: 1.0\n")
    plant_two_onnxruntimes(machine)

    assert list(machine.complaints()) == ["packages.onnxruntime"]


@pytest.mark.parametrize(("version", "found"), [("v2", ["packages.tflite-runtime"]), ("two", [])])
def test_an_odd_version_of_numpy_stops_nothing(machine: Machine, version: str, found: list[str]) -> None:
    machine.install("tflite-runtime", "2.14.0")
    (machine.root / SITE / "numpy-1.26.4.dist-info/METADATA").unlink()
    machine.install("numpy", version)

    assert list(machine.complaints()) == found


def disk(machine: Machine, folder: Path | None = None, **told: Any) -> Finding:
    """What is said of the disk of a folder, in which the functions of `told` tell of room and of rights."""
    (found,) = [one for one in examine_room(machine.root, folder, **told) if one.check.startswith("disk")]
    return found


def test_threads_set_against_the_quota_are_found(machine: Machine) -> None:
    plant_half_a_core(machine)

    found = {finding.check: finding for finding in examine_processor(machine.root, {"OMP_NUM_THREADS": "4"})}

    assert found["cpu.variables"].hint == "export OMP_NUM_THREADS=1"


def test_a_full_disk_is_found(machine: Machine) -> None:
    found = disk(machine, free_bytes=lambda _: 3 * 2**20)

    assert (found.check, found.level, found.what[:6]) == ("disk.free", "problem", "3 MiB ")


def test_another_root_is_asked_for_its_own_room_and_not_for_this_machine_s_cache(machine: Machine) -> None:
    found = disk(machine, free_bytes=lambda place: 3 * 2**20 if place == machine.root else 2**40)

    assert found.what.startswith(f"3 MiB are free at `{machine.root}`")
    assert "removed" not in found.hint


def test_a_cache_folder_that_this_user_cannot_write_is_found(machine: Machine, tmp_path: Path) -> None:
    found = disk(machine, tmp_path / "home/cache", can_write=lambda place: place != tmp_path)

    assert (found.check, found.level) == ("disk.writable", "problem")
    assert f"`{tmp_path}` is not a folder that this user can write" in found.what
    assert "set EDGE_INFER_CACHE" in found.hint


def test_a_cache_folder_under_a_file_cannot_be_written(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "home").touch()

    assert disk(machine, tmp_path / "home/cache").check == "disk.writable"


def test_a_cache_folder_on_a_read_only_mount_is_found_through_its_link(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "var")
    machine.write("proc/self/mounts", f"overlay / overlay rw 0 0\n/dev/sda {tmp_path}/var ext4 ro 0 0\n")

    found = disk(machine, tmp_path / "home/cache", can_write=lambda _: False)

    assert f"lies on `{tmp_path}/var`, which is mounted read-only" in found.what


def test_a_link_from_a_read_only_system_to_a_disk_that_can_be_written_is_no_fault(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "var")
    machine.write("proc/self/mounts", f"overlay / overlay ro 0 0\n/dev/sda {tmp_path}/var ext4 rw 0 0\n")

    assert disk(machine, tmp_path / "home/cache", free_bytes=lambda _: 2**40).level == "ok"


def test_a_machine_without_proc_and_sys_is_described_by_notes(tmp_path: Path) -> None:
    findings = examine_machine(tmp_path)

    assert {finding.level for finding in findings} <= {"ok", "note"}
    assert {"cpu", "heat", "memory", "clock"} <= {finding.check for finding in findings}


@pytest.mark.parametrize("text", ["", "\0\0\0", "-", "MemAvailable: x kB", "\xff" * 50, "9" * 5000])
def test_files_with_nonsense_in_them_stop_nothing(machine: Machine, text: str) -> None:
    for path in machine.root.rglob("*"):
        if path.is_file():
            path.write_text(text)

    assert examine_machine(machine.root)


def test_the_clock_of_this_machine_is_right() -> None:
    assert [finding.level for finding in examine_clock(now=time.time())] != ["problem"]


@pytest.mark.parametrize("written", [0, 1, 315_532_800], ids=["ostree", "Nix", "a reproducible image"])
def test_the_clock_is_not_held_to_the_old_time_that_an_image_gives_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    (tmp_path / "__init__.py").touch()
    os.utime(tmp_path / "__init__.py", (written, written))
    monkeypatch.setattr(edge_infer, "__file__", str(tmp_path / "__init__.py"))
    year_s = 365.25 * 86_400

    levels = {year: examine_clock(tmp_path, (year - 1970) * year_s)[0].level for year in (1971, 2024, 2027, 2099)}

    assert levels == {1971: "problem", 2024: "problem", 2027: "ok", 2099: "problem"}


def fake_python(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "said", "typed"),
    [
        ("kill -ILL $$", "SIGILL: it uses instructions that this processor lacks", "--force-reinstall onnxruntime"),
        (
            "echo 'ImportError: libgomp.so.1: cannot open shared object file: No such file' >&2; exit 1",
            "libgomp.so.1",
            "apt-file search libgomp.so.1",
        ),
        ("echo 'ImportError: numpy.core failed' >&2; exit 1", "numpy.core", "pip install --upgrade numpy"),
    ],
)
def test_an_engine_that_does_not_start_is_a_problem(tmp_path: Path, script: str, said: str, typed: str) -> None:
    found = {finding.check: finding for finding in examine_imports(fake_python(tmp_path, script))}

    assert found["import.onnxruntime"].level == "problem"
    assert said in found["import.onnxruntime"].what
    assert typed in found["import.onnxruntime"].hint


def test_the_command_looks_at_a_mounted_device_and_exits_with_1_on_a_problem(machine: Machine) -> None:
    plant_the_year_1970(machine)

    done = CliRunner().invoke(cli, ["doctor", "--root", str(machine.root)])

    assert done.exit_code == 1
    assert "-> sudo timedatectl set-ntp true" in done.stdout
    assert "1 problem" in done.stderr


def test_the_command_on_a_healthy_machine_exits_with_0(machine: Machine) -> None:
    done = CliRunner().invoke(cli, ["doctor", "--root", str(machine.root), "--json"])

    assert done.exit_code == 0
    assert {finding["level"] for finding in json.loads(done.stdout)["findings"]} == {"ok"}
