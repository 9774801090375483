from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import brotli

from edge_infer.server.static import encodings
from edge_infer.server.static.encodings import EncodedFiles

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DATA = b"the quick brown fox " * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()


def not_called() -> bytes:
    raise AssertionError("the copy was made again")


def test_a_copy_is_made_once_however_many_ask() -> None:
    files, reads = EncodedFiles(), []

    def read() -> bytes:
        reads.append(1)
        return DATA

    with ThreadPoolExecutor(8) as threads:
        copies = list(threads.map(lambda _: files.get(SHA256, "br", read), range(32)))
    assert len(reads) == 1
    assert copies[0] is not None
    assert all(copy is copies[0] for copy in copies)
    assert brotli.decompress(copies[0]) == DATA


def test_a_copy_outlives_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = EncodedFiles(folder).get(SHA256, "zstd", lambda: DATA)
    assert EncodedFiles(folder).get(SHA256, "zstd", not_called) == first


def test_a_damaged_copy_is_made_again(tmp_path: Path) -> None:
    first = EncodedFiles(tmp_path).get(SHA256, "gzip", lambda: DATA)
    (kept,) = tmp_path.iterdir()
    for damage in (b"", kept.read_bytes()[:-1], b"\0" * kept.stat().st_size):
        kept.write_bytes(damage)
        assert EncodedFiles(tmp_path).get(SHA256, "gzip", lambda: DATA) == first


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert EncodedFiles(tmp_path / "file").get(SHA256, "br", lambda: DATA) is not None


def test_that_a_file_does_not_shrink_is_remembered() -> None:
    files = EncodedFiles()
    noise = hashlib.shake_256(b"seed").digest(50_000)
    assert files.get("noise", "br", lambda: noise) is None
    assert files.get("noise", "br", not_called) is None


def test_memory_and_folder_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "_MEMORY_BYTES", 3000)
    monkeypatch.setattr(encodings, "_FOLDER_BYTES", 3000)
    files = EncodedFiles(tmp_path)
    text = [hashlib.shake_256(bytes([i])).digest(1000) * 4 for i in range(8)]
    for i, data in enumerate(text):
        assert files.get(f"{i}", "gzip", lambda data=data: data) is not None  # type: ignore[misc]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
    assert len(files._kept) < 4
