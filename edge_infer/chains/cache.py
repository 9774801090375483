"""Results of steps that are kept by the digest of what the step read: in memory, or in a folder."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.chains.plain_values import read, written
from edge_infer.errors import InputError
from edge_infer.platform.atomic_write import write_file
from edge_infer.platform.hashing import sha256

if TYPE_CHECKING:
    from typing import Any

MAX_BYTES = 64 * 2**20
_SUFFIX = ".step"
_DIGEST = 64


class StepCache:
    """Results of the steps of chains that are marked `cache`; chains may share one.

    A result is found again by the revision of the step's bundle, what the step was told, and the digest of what it
    read.

    Args:
        folder: Where results are kept, also for other processes and later ones; None for this process's memory.
        max_bytes: The most that is kept; what was used least lately goes first.

    Raises:
        InputError: The bound is not a number from 1 on.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, max_bytes: int = MAX_BYTES) -> None:
        if type(max_bytes) is not int or max_bytes < 1:
            raise InputError(f"`max_bytes` is {max_bytes!r}, expected a number from 1 on", hint="max_bytes=2**26")
        self.max_bytes = max_bytes
        self._folder = None if folder is None else Path(folder)
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held) if self._folder is None else len(self._files(self._folder))

    def get(self, key: str) -> tuple[bool, Any]:
        """Return whether there is a result, and the result.

        Args:
            key: 64 hexadecimal digits.
        """
        data = self._from_memory(key) if self._folder is None else self._from_file(self._folder / f"{key}{_SUFFIX}")
        if data is None:
            return False, None
        try:
            return True, read(data)
        except ValueError:
            return False, None

    def put(self, key: str, value: Any) -> None:
        """Keep a result; one that is larger than all the room, or of a kind that cannot be kept, is left out."""
        try:
            data = written(value)
        except TypeError:
            return
        if len(data) > self.max_bytes:
            return
        if self._folder is not None:
            with suppress(OSError):  # a folder that is full or read-only keeps nothing more
                self._to_file(self._folder, key, data)
            return
        with self._lock:
            self._bytes += len(data) - len(self._held.pop(key, b""))
            self._held[key] = data
            while self._bytes > self.max_bytes:
                self._bytes -= len(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._held.clear()
            self._bytes = 0
        if self._folder is not None:
            for path, _, _ in self._files(self._folder):
                path.unlink(missing_ok=True)

    def _from_memory(self, key: str) -> bytes | None:
        with self._lock:
            data = self._held.get(key)
            if data is not None:
                self._held.move_to_end(key)
            return data

    def _from_file(self, path: Path) -> bytes | None:
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = data[_DIGEST:]
        if sha256(content).encode() != data[:_DIGEST]:  # cut short, or somebody else's
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):  # a folder that is read-only: results go in the order of their writing
            os.utime(path)
        return content

    def _to_file(self, folder: Path, key: str, data: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / f"{key}{_SUFFIX}", sha256(data).encode() + data)
        files = sorted(self._files(folder), key=lambda one: one[2])
        total = sum(size for _, size, _ in files)
        for path, size, _ in files:
            if total <= self.max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size

    @staticmethod
    def _files(folder: Path) -> list[tuple[Path, int, int]]:
        """Return the results in a folder with their sizes and when they were used."""
        found = []
        for path in folder.glob(f"*{_SUFFIX}"):
            try:
                status = path.stat()
            except OSError:  # another process removed it
                continue
            found.append((path, status.st_size, status.st_mtime_ns))
        return found


#: The cache of chains that are given no other: the memory of this process.
IN_MEMORY = StepCache()
