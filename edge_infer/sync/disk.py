"""The changes that sync makes to a disk, one function for each, so that a test can cut the power between any two."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edge_infer.platform.posix import NO_FOLLOW

if TYPE_CHECKING:
    from pathlib import Path


class Disk:
    """Changes a file system; nothing is safe from a power cut before `sync` or `replace` returned."""

    def write(self, path: Path, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Write bytes at an offset of a file, which is made where there is none."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | NO_FOLLOW, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.seek(offset)
            file.write(data)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to a size."""
        os.truncate(path, size)

    def sync(self, path: Path) -> None:
        """Return when the bytes of a file or the entries of a folder are on the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file over another one, atomically."""
        old.replace(new)

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name; where the file system cannot, copy it."""
        try:
            os.link(old, new)
        except FileExistsError:
            pass
        except OSError:
            import shutil

            shutil.copyfile(old, new)
            self.sync(new)

    def protect(self, path: Path) -> None:
        """Take away the permission to write."""
        path.chmod(0o444)

    def remove(self, path: Path) -> None:
        """Remove a file where there is one."""
        path.unlink(missing_ok=True)

    def replace(self, path: Path, data: bytes) -> None:
        """Write a small file whole or not at all: a temporary name, sync, rename, sync of the folder."""
        temporary = path.with_name(f".{path.name}.new")
        self.remove(temporary)
        self.write(temporary, data)
        self.sync(temporary)
        self.rename(temporary, path)
        self.sync(path.parent)
