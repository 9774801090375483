"""A disk that loses its power at a chosen change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.sync.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer.sync.device import DeviceStore


class PowerCut(BaseException):
    """Not an Exception: nothing tidies up after it."""


class CutDisk(Disk):
    """A disk that stops before its change number `after`; what was not synced is then lost.

    Attributes:
        changes: How many changes were made.
    """

    def __init__(self, after: int, stop: Callable[[], BaseException] = PowerCut) -> None:
        self.changes = 0
        self._after = after
        self._stop = stop
        self._unsynced: dict[tuple[int, int], None] = {}

    def _count(self) -> None:
        if self.changes == self._after:
            raise self._stop()
        self.changes += 1

    def write(self, path: Path, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        self._count()
        super().write(path, data, offset)
        self._unsynced[path.stat().st_dev, path.stat().st_ino] = None

    def sync(self, path: Path) -> None:
        self._count()
        super().sync(path)
        self._unsynced.pop((path.stat().st_dev, path.stat().st_ino), None)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        self._count()
        super().link(old, new)

    def protect(self, path: Path) -> None:
        self._count()
        super().protect(path)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def lose(self, folder: Path) -> None:
        """Empty every file that was written and not synced, under whatever name it has now."""
        for path in folder.rglob("*"):
            state = path.lstat()
            if (state.st_dev, state.st_ino) in self._unsynced:
                path.chmod(0o644)
                path.write_bytes(b"")


def quick(path: Path) -> None:
    """A trial that costs nothing: the model's bytes are there."""
    assert (path / "onnx/model.onnx").stat().st_size > 0


def version_of(device: DeviceStore) -> str:
    active = device.record().active
    assert active is not None
    assert device.damaged(active.files) == []
    assert all((device.active() / file.path).stat().st_size == file.size for file in active.files)
    return active.version
