"""Packed bodies: whatever is packed in one or more parts comes out whole, and nothing else comes out."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import InputError, PayloadTooLarge
from edge_infer.server.ingestion import bodies
from edge_infer.server.ingestion.bodies import unpack, unpacked
from edge_infer.server.protocol.requests import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 10_000
PARTS = st.lists(st.binary(max_size=300) | st.binary(min_size=1, max_size=20).map(lambda data: data * 50), min_size=1)


def zstd_stream(data: bytes) -> bytes:
    """A frame in several blocks that does not say its size, with a checksum."""
    stream = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    packed = b"".join(
        stream.compress(data[at : at + 40]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, len(data), 40)
    )
    return packed + stream.flush()


SKIPPABLE = b"\x57\x2a\x4d\x18\x03\0\0\0abc"
PACKERS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"gzip", gzip.compress),
    "zstd": (b"zstd", zstandard.compress),
    "zstd in blocks": (b"zstd", zstd_stream),
    "zstd behind a note": (b"zstd", lambda data: SKIPPABLE + zstandard.compress(data)),
}


@pytest.mark.parametrize("name", list(PACKERS))
@given(parts=PARTS, where=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=30))
def test_all_parts_come_out_and_a_cut_one_or_what_is_none_is_refused(
    name: str, parts: list[bytes], where: float, junk: bytes
) -> None:
    encoding, pack = PACKERS[name]
    packed = [pack(part) for part in parts]
    data, body = b"".join(parts), b"".join(packed)
    if len(data) > LIMIT:
        with pytest.raises(PayloadTooLarge):
            unpack(body, encoding, LIMIT)
        return
    assert unpack(body, encoding, LIMIT) == data
    ends = {sum(map(len, packed[:count])) for count in range(1, len(packed) + 1)}
    if encoding == b"zstd" and name.endswith("note"):
        ends |= {end + len(SKIPPABLE) for end in [0, *ends]}
    cut = int(where * len(body))
    if cut not in ends:
        with pytest.raises(InputError, match="The body is not"):
            unpack(body[:cut], encoding, LIMIT)
    with pytest.raises(InputError, match="The body is not"):
        unpack(body + b"\0" + junk, encoding, LIMIT)


@given(data=st.binary(max_size=300), where=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=30))
def test_deflate_is_one_part_and_whole(data: bytes, where: float, junk: bytes) -> None:
    for wbits in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        body = zlib.compress(data, wbits=wbits)
        assert unpack(body, b"deflate", LIMIT) == data
        for wrong in (body[: int(where * len(body))], body + junk):
            with pytest.raises(InputError, match="The body is not deflate"):
                unpack(wrong, b"deflate", LIMIT)


@pytest.mark.parametrize("encoding", [b"gzip", b"zstd"])
@given(body=st.binary(max_size=300))
def test_any_bytes_are_refused_or_unpacked(encoding: bytes, body: bytes) -> None:
    for start in (b"", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd"):
        try:
            unpack(start + body, encoding, LIMIT)
        except (InputError, PayloadTooLarge) as error:
            assert len(error.message) < 300


@pytest.mark.parametrize(
    ("encoding", "part", "most"),
    [(b"gzip", gzip.compress(b""), 4096), (b"zstd", SKIPPABLE, 2**16), (b"zstd", zstandard.compress(b""), 2**16)],
)
def test_more_parts_than_anybody_sends_are_refused(encoding: bytes, part: bytes, most: int) -> None:
    assert unpack(part * most, encoding, LIMIT) == b""
    with pytest.raises(InputError, match=r"bytes behind its end|more than 65536 blocks"):
        unpack(part * (most + 1), encoding, LIMIT)


def test_what_unpacks_to_much_does_so_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def note(body: bytes, encoding: bytes, limit: int) -> bytes:
        seen.append((threading.current_thread() is threading.main_thread(), limit))
        return unpack(body, encoding, limit)

    monkeypatch.setattr(bodies, "unpack", note)
    small, bomb, large = b"a" * LARGE_BYTES, b"a" * (LARGE_BYTES + 1), bytes(range(256)) * 64
    for data, threads in ((small, [True]), (bomb, [True, False])):
        seen.clear()
        assert asyncio.run(unpacked(gzip.compress(data), b"gzip", 2**20)) == data
        assert [is_main for is_main, _ in seen] == threads
        assert seen[0][1] == LARGE_BYTES
    seen.clear()
    assert asyncio.run(unpacked(gzip.compress(large, 0), b"gzip", 2**20)) == large
    assert [is_main for is_main, _ in seen] == [False]
    with pytest.raises(PayloadTooLarge, match="more than 65536 bytes"):
        asyncio.run(unpacked(gzip.compress(bomb), b"gzip", LARGE_BYTES))
