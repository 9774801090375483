"""Files compressed once and kept: in memory, and by their sha256 in a folder that outlives the server.

Levels are chosen so that the first visitor waits less for the compressor than it saves: onnxruntime-web's 14.2 MB
take 0.6 s at brotli 6 (2.77 MB; level 9 takes 2.4 s for 2.69 MB) and 0.4 s at zstd 9 (2.86 MB).
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BROTLI_LEVEL = 6
_ZSTD_LEVEL = 9
_GZIP_LEVEL = 6
#: Smaller files are sent as they are: they fit in one packet either way.
MIN_BYTES = 1024
#: Larger files are sent as they are: weights of this size are big because they do not compress.
MAX_BYTES = 64 * 2**20
#: A compressed file must save this part, or the plain one is sent, which can also be fetched in ranges.
_WORTHWHILE = 0.92
_SAMPLE_BYTES = 64 * 2**10
_MEMORY_BYTES = 64 * 2**20
_FOLDER_BYTES = 512 * 2**20
_DIGEST_BYTES = 32


def _brotli() -> Callable[[bytes], bytes]:
    import brotli

    def compress(data: bytes) -> bytes:
        packed: bytes = brotli.compress(data, quality=_BROTLI_LEVEL)
        return packed

    return compress


def _zstd() -> Callable[[bytes], bytes]:
    from zstandard import ZstdCompressor

    # A compressor belongs to one thread; Chromium refuses windows over 8 MiB (RFC 9659), which this level keeps to.
    return lambda data: ZstdCompressor(level=_ZSTD_LEVEL).compress(data)


def _gzip() -> Callable[[bytes], bytes]:
    from gzip import compress

    return lambda data: compress(data, _GZIP_LEVEL, mtime=0)


_COMPRESSORS = {"br": _brotli, "zstd": _zstd, "gzip": _gzip}


def available_encodings() -> dict[str, Callable[[bytes], bytes]]:
    """Return a compressor for each content encoding whose library is installed, the preferred first."""
    found = {}
    for name, make in _COMPRESSORS.items():
        with suppress(ImportError):
            found[name] = make()
    return found


class EncodedFiles:
    """Compressed copies of files, made when first asked for.

    Args:
        folder: Where copies are kept for the next start; None to keep them in memory only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._compressors = available_encodings()
        self.names = tuple(self._compressors)
        self._lock = Lock()
        self._making: dict[str, Lock] = {}
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._kept_bytes = 0

    def get(self, sha256: str, encoding: str, read: Callable[[], bytes]) -> bytes | None:
        """Return a file's bytes in an encoding, or None where it is better sent uncompressed. It may take a second.

        Args:
            sha256: The file's, in hex.
            encoding: One of `names`.
            read: Returns the file's bytes.
        """
        key = f"{sha256}.{encoding}"
        with self._lock:
            making = self._making.setdefault(key, Lock())
        with making:  # whoever asks meanwhile waits for the same copy instead of making another
            try:
                return self._get(key, encoding, read)
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _get(self, key: str, encoding: str, read: Callable[[], bytes]) -> bytes | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        copy = self._load(key)
        if copy is None:
            data = read()
            if _is_worthwhile(data):
                copy = self._compressors[encoding](data)
                copy = copy if len(copy) <= _WORTHWHILE * len(data) else None
            if copy is not None:
                self._save(key, copy)
        self._keep(key, copy)
        return copy

    def _keep(self, key: str, copy: bytes | None) -> None:
        with self._lock:
            self._kept[key] = copy
            self._kept_bytes += len(copy or b"")
            while self._kept_bytes > _MEMORY_BYTES and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped or b"")

    def _load(self, key: str) -> bytes | None:
        """Read a copy from the folder; one that does not have the digest in front of it is as good as none."""
        if self._folder is None:
            return None
        try:
            data = (self._folder / key).read_bytes()
        except OSError:
            return None
        digest, copy = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return copy if hashlib.sha256(copy).digest() == digest else None

    def _save(self, key: str, copy: bytes) -> None:
        """Write a copy into the folder, whole or not at all; a full or read-only disk costs only time."""
        if self._folder is None:
            return
        partial = self._folder / f"{key}.{os.getpid()}.part"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(hashlib.sha256(copy).digest() + copy)
            partial.replace(self._folder / key)
            self._shrink()
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def _shrink(self) -> None:
        """Delete the oldest copies where the folder holds too many."""
        assert self._folder is not None
        files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.iterdir())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= _FOLDER_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= size


def _is_worthwhile(data: bytes) -> bool:
    """Tell from three samples whether a file shrinks; trained weights often do not."""
    if not MIN_BYTES <= len(data) <= MAX_BYTES:
        return False
    middle, size = len(data) // 2, _SAMPLE_BYTES
    sample = data if len(data) <= 3 * size else data[:size] + data[middle : middle + size] + data[-size:]
    return len(zlib.compress(sample, 1)) <= _WORTHWHILE * len(sample)
