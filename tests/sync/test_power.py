"""The power is cut between any two changes of the disk: the device has the old or the new version, whole."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import EdgeInferError
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.disk import Disk
from tests.support.soak import rounds
from tests.support.sync.power import CutDisk, PowerCut, quick, version_of
from tests.support.sync.publisher import Publisher, take

if TYPE_CHECKING:
    from pathlib import Path

#: How long `make soak` goes on killing, in seconds.
_KILLS_S = 1800.0


@pytest.fixture
def updated(publisher: Publisher, tmp_path: Path) -> Path:
    """A device's folder with version 1, beside a store that offers version 2."""
    publisher.publish(1)
    take(publisher.folder, DeviceStore(tmp_path / "before"))
    publisher.publish(2)
    return tmp_path / "before"


def test_a_cut_at_any_change_leaves_the_old_or_the_new_version(
    publisher: Publisher, updated: Path, tmp_path: Path
) -> None:
    seen = set()
    for after in range(1000):
        folder = tmp_path / f"cut{after}"
        shutil.copytree(updated, folder, symlinks=True)
        floor = DeviceStore(folder).record().floor
        disk = CutDisk(after)
        try:
            take(publisher.folder, DeviceStore(folder, disk), quick)
        except PowerCut:
            disk.lose(folder)
        else:
            break

        device = DeviceStore(folder)
        seen.add(version_of(device))
        assert all(new >= old for new, old in zip(device.record().floor[:-1], floor[:-1], strict=True))
        assert take(publisher.folder, device, quick).version == "2"
        assert device.verify() == []
        shutil.rmtree(folder)
    else:
        pytest.fail("the update never ended")
    assert seen == {"1", "2"}
    assert after > 30


def test_a_full_disk_at_any_change_leaves_the_old_version_and_heals(
    publisher: Publisher, updated: Path, tmp_path: Path
) -> None:
    for after in range(0, 1000, 3):
        folder = tmp_path / f"full{after}"
        shutil.copytree(updated, folder, symlinks=True)
        disk = CutDisk(after, lambda: OSError(errno.ENOSPC, "No space left on device"))
        try:
            take(publisher.folder, DeviceStore(folder, disk), quick)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            break
        device = DeviceStore(folder)
        assert version_of(device) in ("1", "2")
        assert take(publisher.folder, device, quick).version == "2"
        shutil.rmtree(folder)
    else:
        pytest.fail("the update never ended")


def test_bytes_that_the_disk_changed_are_found_before_they_are_used(publisher: Publisher, updated: Path) -> None:
    class Flipping(Disk):
        def sync(self, path: Path) -> None:
            if path.parent.name == "partial" and "." in path.name and path.stat().st_size > 10_000:
                data = bytearray(path.read_bytes())
                data[500] ^= 1
                path.write_bytes(data)
            super().sync(path)

    with pytest.raises(EdgeInferError, match="does not hold what was written"):
        take(publisher.folder, DeviceStore(updated, Flipping()), quick)

    assert version_of(DeviceStore(updated)) == "1"


_KILLED = """
import sys, itertools
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
print("ready", flush=True)
for _ in itertools.count():
    device = DeviceStore(sys.argv[2])
    pull(sys.argv[1], "linear", device, lambda path: None, retry=True)
    device.rollback()
"""


@pytest.mark.long
def test_killed_at_random_with_readers_nothing_is_torn(
    publisher: Publisher, updated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process is killed again and again while it swaps two versions; readers look all the time.

    A busy machine ends it after `_KILLS_S`; the kills are printed, fifty by fifty.
    """
    end = monotonic() + _KILLS_S
    stop, torn, reads = threading.Event(), list[str](), [0]

    def read() -> None:
        while not stop.is_set():
            device = DeviceStore(updated)
            active = device.record().active
            if active is None or active.version not in ("1", "2"):
                torn.append(repr(active))
            reads[0] += 1

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        for kill in range(rounds(4, 1000)):
            command = [sys.executable, "-c", _KILLED, str(publisher.folder), str(updated)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            with process:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.05 + 0.06 * (kill % 16))
                process.kill()
            assert version_of(DeviceStore(updated)) in ("1", "2")
            is_over = monotonic() > end and kill >= 3
            if is_over or kill % 50 == 49:
                with capsys.disabled():
                    print(f"{kill + 1} kills", flush=True)
            if is_over:
                break
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert torn == []
    assert reads[0] > 100
