"""Packs, revisions and records that lie: each is refused with one clear error, and nothing is written outside."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import DeltaError, EdgeInferError, StoreError
from edge_infer.sync.device import DeviceStore, Record
from edge_infer.sync.pack import MAGIC, unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.revision import File, Revision

DATA = b"weights" * 100
FILES = {"a.bin": File("a.bin", len(DATA), hashlib.sha256(DATA).hexdigest())}


def pack(header: Any, frames: bytes = b"") -> bytes:
    packed = zstandard.ZstdCompressor().compress(json.dumps(header).encode())
    return MAGIC + struct.pack("<I", len(packed)) + packed + frames


def opened(data: bytes, base: Path = Path("/nonexistent")) -> bytes:
    result = bytearray()
    unpack(io.BytesIO(data), FILES, lambda _digest: base, lambda _path: result.extend)
    return bytes(result)


FRAME = zstandard.ZstdCompressor().compress(DATA)
GOOD: dict[str, Any] = {
    "files": [{"path": "a.bin", "steps": [[1, len(DATA), 1, -1, 0]]}],
    "bases": [],
    "frames": [[len(FRAME), len(DATA), -1, 1]],
}


def test_the_honest_pack_is_read() -> None:
    assert opened(pack(GOOD, FRAME)) == DATA


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"path": "../a.bin", "steps": [[1, 700, 1, -1, 0]]}]},
        {"files": [{"path": "/a.bin", "steps": [[1, 700, 1, -1, 0]]}]},
        {"files": [{"path": "b.bin", "steps": [[1, 700, 1, -1, 0]]}]},
        {"files": []},
        {"files": [*GOOD["files"], *GOOD["files"]]},
        {"files": [{"path": "a.bin", "steps": [[1, 699, 1, -1, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[1, -700, 1, -1, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[1, 2**40, 1, -1, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[0, 700, 1, 0, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[9, 700, 1, -1, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[2, 700, 3, -1, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[1, 700.0, 1, -1, 0]]}]},
        {"files": [{"path": "a.bin", "steps": [[1, 700]]}]},
        {"frames": []},
        {"frames": [[len(FRAME), len(DATA), 0, 1]]},
        {"frames": [[len(FRAME), 2**31, -1, 1]]},
        {"frames": [[len(FRAME), len(DATA) - 1, -1, 1]]},
        {"frames": [[len(FRAME), len(DATA), -1, 7]]},
        {"frames": [[2**40, len(DATA), -1, 1]]},
        {"frames": "many"},
        {"bases": None},
    ],
    ids=repr,
)
def test_a_lying_header_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DeltaError):
        opened(pack({**GOOD, **change}, FRAME))


def test_a_frame_that_unpacks_to_more_than_it_says_is_refused() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))

    with pytest.raises(DeltaError, match="expected"):
        opened(pack({**GOOD, "frames": [[len(bomb), len(DATA), -1, 1]]}, bomb))


def test_a_header_that_is_a_bomb_is_refused() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(70 * 2**20))

    with pytest.raises(DeltaError, match="expected"):
        opened(MAGIC + struct.pack("<I", len(bomb)) + bomb)


def test_a_copy_past_the_end_of_its_base_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.write_bytes(DATA)
    header = {**GOOD, "files": [{"path": "a.bin", "steps": [[0, 700, 1, 0, 1]]}], "bases": ["0" * 64]}

    with pytest.raises(DeltaError, match="past the end"):
        opened(pack(header, FRAME), base)


def test_another_base_than_the_right_one_gives_no_file(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.write_bytes(b"other!!" * 100)
    header = {**GOOD, "files": [{"path": "a.bin", "steps": [[0, 700, 1, 0, 0]]}], "bases": ["0" * 64]}

    with pytest.raises(DeltaError, match="does not give"):
        opened(pack(header, FRAME), base)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_a_changed_or_cut_pack_never_gives_another_file(at: int, change: int, is_cut: bool) -> None:
    data = bytearray(write_pack({"a.bin": DATA}))
    at %= len(data)
    if is_cut:
        del data[at:]
    else:
        data[at] ^= change
    try:
        result = opened(bytes(data))
    except DeltaError:
        return
    assert result == DATA


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_nonsense_is_no_revision(data: bytes | str) -> None:
    with pytest.raises(StoreError):
        Revision.from_bytes(data if isinstance(data, bytes) else data.encode())


@pytest.mark.parametrize("path", ["../x", "/x", "a\\b", "C:x", "a//b", "."])
def test_a_revision_cannot_name_a_path_outside(path: str) -> None:
    file = {"path": path, "size": 1, "sha256": "0" * 64}
    one = {"sha256": "0" * 64, "size": 1, "parts": ["0" * 64]}
    document = {"format": 1, "model": "m", "version": "1", "sequence": 1, "created": 1, "files": [file], "pack": one}

    with pytest.raises(StoreError, match="leaves the bundle"):
        Revision.from_bytes(json.dumps({**document, "deltas": []}).encode())


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_a_changed_record_is_read_from_its_copy_or_refused(at: int, change: int, has_copy: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        device = DeviceStore(folder)
        record = Record("m", refused=("0" * 64,))
        device.write(record)
        for name in ("active.json", "active.copy.json")[: 1 if has_copy else 2]:
            path = Path(folder, name)
            data = bytearray(path.read_bytes())
            data[at % len(data)] ^= change
            path.write_bytes(data)

        try:
            assert device.record() == record
        except StoreError as error:
            assert isinstance(error, EdgeInferError)
            assert "damaged" in error.message
            assert not has_copy


def test_a_download_through_a_planted_link_does_not_leave_the_folder(tmp_path: Path) -> None:
    from edge_infer.sync.disk import Disk

    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (tmp_path / "link").symlink_to(outside)

    with pytest.raises(OSError, match="symbolic"):
        Disk().write(tmp_path / "link", b"theirs")

    assert outside.read_bytes() == b"mine"
