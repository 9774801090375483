from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.server.response.negotiation import (
    ByteRange,
    Unsatisfiable,
    choose_encodings,
    is_compressible,
    matches,
    media_type,
    parse_accept,
    parse_range,
)

OFFERED = ("br", "zstd", "gzip")


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", []),
        ("identity", []),
        ("br", ["br"]),
        ("gzip, deflate, br, zstd", ["br", "zstd", "gzip"]),
        ("gzip;q=1.0, br;q=0.5", ["gzip", "br"]),
        ("br;q=0, gzip", ["gzip"]),
        ("br;q=0.000", []),
        ("*", ["br", "zstd", "gzip"]),
        ("*;q=0", []),
        ("*;q=0, zstd", ["zstd"]),
        ("gzip;q=0.2, *;q=0.5", ["br", "zstd", "gzip"]),
        ("BR", ["br"]),
        ("br ; q = 0.3 , gzip", ["gzip", "br"]),
        ("br;q=7", []),
        ("br;q=nonsense, gzip", ["gzip"]),
        ("identity, br;q=0.5", []),
        ("identity;q=0.5, br;q=0.5", ["br"]),
    ],
)
def test_encodings_follow_the_weights_of_the_client(header: str, chosen: list[str]) -> None:
    assert choose_encodings(header, OFFERED) == chosen


@given(st.text(max_size=60))
def test_no_header_breaks_the_parser(header: str) -> None:
    assert all(0 <= weight <= 1 for weight in parse_accept(header).values())
    assert set(choose_encodings(header, OFFERED)) <= set(OFFERED)


@given(st.dictionaries(st.sampled_from(OFFERED), st.integers(0, 1000), min_size=1))
def test_a_refused_encoding_is_never_chosen_and_the_heaviest_comes_first(weights: dict[str, int]) -> None:
    header = ", ".join(f"{name};q={weight / 1000:.3f}" for name, weight in weights.items())
    chosen = choose_encodings(header, OFFERED)
    assert set(chosen) == {name for name, weight in weights.items() if weight}
    assert [weights[name] for name in chosen] == sorted((weights[name] for name in chosen), reverse=True)


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=0-9", ByteRange(0, 10)),
        ("bytes=5-", ByteRange(5, 10)),
        ("bytes=-3", ByteRange(7, 10)),
        ("bytes=-99", ByteRange(0, 10)),
        ("bytes=3-99", ByteRange(3, 10)),
        ("Bytes = 1-2", ByteRange(1, 3)),
        ("bytes=10-", Unsatisfiable(10)),
        ("bytes=-0", Unsatisfiable(10)),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes", None),
        ("bytes=--1", None),
        ("bytes=0-1-2", None),
        ("bytes=" + "9" * 5000 + "-", None),
    ],
)
def test_ranges(header: str, part: object) -> None:
    assert parse_range(header, 10) == part


@given(st.integers(0, 50), st.integers(0, 60), st.none() | st.integers(0, 60))
def test_a_range_is_what_a_slice_gives(size: int, start: int, last: int | None) -> None:
    data = bytes(range(size))
    part = parse_range(f"bytes={start}-{'' if last is None else last}", size)
    if last is not None and last < start:
        assert part is None
    elif start >= size:
        assert part == Unsatisfiable(size)
    else:
        assert isinstance(part, ByteRange)
        assert data[part.start : part.stop] == data[start : None if last is None else last + 1]


@given(st.text(max_size=40), st.integers(0, 2**40))
def test_no_range_leaves_the_file(header: str, size: int) -> None:
    part = parse_range(header, size)
    if isinstance(part, ByteRange):
        assert 0 <= part.start < part.stop <= size


def test_tags_match_weakly_for_caches_and_strongly_for_ranges() -> None:
    assert matches('"a", W/"b"', '"b"', weak=True)
    assert not matches('"a", W/"b"', '"b"', weak=False)
    assert matches("*", '"b"', weak=True)
    assert not matches("*", '"b"', weak=False)
    assert not matches("", '"b"', weak=True)
    assert not matches("Fri, 20 Nov 2026 10:00:00 GMT", '"b"', weak=False)
    assert not matches('"b', '"b"', weak=True)


def test_browsers_get_the_media_types_that_they_insist_on() -> None:
    assert media_type("engine.wasm") == "application/wasm"
    assert media_type("worker.MJS").startswith("text/javascript")
    assert media_type("a.b/model.onnx") == "application/octet-stream"
    assert media_type("Makefile") == media_type("") == "application/octet-stream"
    assert is_compressible("application/wasm")
    assert is_compressible("image/svg+xml")
    assert not is_compressible("image/png")
    assert not is_compressible("application/zip")
