"""The reader of safetensors is strict: each byte belongs to one tensor, each key stands once.

The reference implementation, safetensors 0.8, refuses the same files but three: a space before the header's object, a
name that stands twice, and a note of ours.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import BundleError
from edge_infer.formats.safetensors import read_examples, read_tensors, write_tensors
from edge_infer.tensors.tensor import Tensor

DATA = bytes(range(12))
A = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
B = {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}


def packed(header: Any, data: bytes = DATA, length: int | None = None) -> bytes:
    """Write a file with a header, given as JSON or as its bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def with_a(**changed: Any) -> Any:
    return {"a": {**A, **changed}, "b": B}


def raw(entry_a: str) -> bytes:
    return b'{"a": ' + entry_a.encode() + b', "b": ' + json.dumps(B).encode() + b"}"


WRONG: dict[str, bytes] = {
    "nothing": b"",
    "a length cut short": b"\x02\0\0\0\0\0\0",
    "a header of no bytes": packed(b"", b""),
    "a header longer than the file": packed(with_a(), length=10**4),
    "a header longer than the limit": packed(with_a(), length=10**8 + 1),
    "the greatest length": packed(with_a(), length=2**64 - 1),
    "a header cut short": packed(json.dumps(with_a()).encode()[:-1]),
    "text behind the header's object": packed(json.dumps(with_a()).encode() + b"x"),
    "a space before the object": packed(b" " + json.dumps(with_a()).encode()),
    "a zero behind the object": packed(json.dumps(with_a()).encode() + b"\0"),
    "a byte order mark": packed(b"\xef\xbb\xbf" + json.dumps(with_a()).encode()),
    "UTF-16": packed(json.dumps(with_a()).encode("utf-16")),
    "bytes that are not UTF-8": packed(b'{"\xff": 1}'),
    "a list": packed([A]),
    "a number": packed(b"1"),
    "null": packed(b"null"),
    "deep nesting": packed(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "overlapping tensors": packed({"a": A, "b": {**B, "data_offsets": [3, 11]}}, DATA[:11]),
    "one tensor's bytes twice": packed({"a": A, "c": A, "b": B}),
    "a hole at the start": packed({"b": B}),
    "a hole between tensors": packed({"a": {**A, "shape": [3], "data_offsets": [0, 3]}, "b": B}),
    "bytes behind the last tensor": packed(with_a(), DATA + b"\0"),
    "data cut short": packed(with_a(), DATA[:-1]),
    "data and no tensor": packed({}),
    "reversed offsets": packed(with_a(data_offsets=[4, 0])),
    "a negative offset": packed(with_a(data_offsets=[-1, 3])),
    "an offset behind the end": packed({"a": A, "b": {**B, "data_offsets": [4, 13]}}),
    "an offset of 2^64": packed(with_a(data_offsets=[0, 2**64])),
    "one offset": packed(with_a(data_offsets=[4])),
    "three offsets": packed(with_a(data_offsets=[0, 4, 4])),
    "an offset that is true": packed(raw('{"dtype": "U8", "shape": [1], "data_offsets": [false, true]}')),
    "an offset with a point": packed(with_a(data_offsets=[0, 4.0])),
    "an offset that is a text": packed(with_a(data_offsets=["0", "4"])),
    "offsets that are an object": packed(with_a(data_offsets={"0": 0, "4": 4})),
    "an offset that is not a number": packed(raw('{"dtype": "U8", "shape": [4], "data_offsets": [0, NaN]}')),
    "an infinite dimension": packed(raw('{"dtype": "U8", "shape": [Infinity], "data_offsets": [0, 4]}')),
    "a negative dimension": packed(with_a(shape=[-4])),
    "a dimension that is true": packed(with_a(shape=[True, 4])),
    "a dimension with a point": packed(with_a(shape=[4.0])),
    "a shape that is a number": packed(with_a(shape=4)),
    "a shape that is a text": packed(with_a(shape="4")),
    "too few bytes for the shape": packed(with_a(shape=[5])),
    "too many bytes for the shape": packed(with_a(shape=[3])),
    "a shape whose product leaves 64 bits": packed(with_a(shape=[2**33, 2**33, 0, 2**33])),
    "an unknown dtype": packed(with_a(dtype="F7")),
    "a dtype that is a list": packed(with_a(dtype=["U8"])),
    "an entry without a dtype": packed({"a": {"shape": [4], "data_offsets": [0, 4]}, "b": B}),
    "an entry that is null": packed({"a": None, "b": B}),
    "one name twice": packed(b'{"a": ' + json.dumps(A).encode() + b', "a": ' + json.dumps(A).encode() + b"}", DATA[:4]),
    "one field twice": packed(raw('{"dtype": "U8", "dtype": "I8", "shape": [4], "data_offsets": [0, 4]}')),
    "metadata that are a list": packed({"__metadata__": [], "a": A, "b": B}),
    "metadata with a number": packed({"__metadata__": {"x": 1}, "a": A, "b": B}),
    "metadata twice": packed(b'{"__metadata__": {}, "__metadata__": {}}', b""),
    "a note of an unknown dtype": packed({"__metadata__": {"a": "float7:4"}, "a": A, "b": B}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused(what: str) -> None:
    with pytest.raises(BundleError, match="Not a safetensors file"):
        read_tensors(WRONG[what])
    with pytest.raises(BundleError):
        read_examples(WRONG[what])


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (json.dumps({"a": A, "b": B}).encode() + b" " * 13, ["a", "b"]),  # padding, as the reference writes it
        ({"b": B, "a": A}, ["b", "a"]),  # in another order than the bytes
        ({"a": A, "empty": {"dtype": "F32", "shape": [0, 3], "data_offsets": [4, 4]}, "b": B}, ["a", "empty", "b"]),
        (with_a(strides=[1]), ["a", "b"]),  # a field that a later writer may add
        ({"__metadata__": {"format": "pt"}, "a": A, "b": B}, ["a", "b"]),
    ],
)
def test_what_the_format_allows_is_read(header: Any, names: list[str]) -> None:
    found = read_tensors(packed(header))

    assert [*found] == names
    assert found["a"].tolist() == [0, 1, 2, 3]
    assert found["b"].shape == (2,)


def test_a_file_without_tensors_is_read() -> None:
    assert read_tensors(packed({}, b"")) == {}


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 250), st.sampled_from(["set", "cut", "add"]), st.integers(0, 255)), max_size=4
    )
)
def test_a_changed_file_is_read_or_refused(changes: list[tuple[int, str, int]]) -> None:
    whole = write_tensors({"a": Tensor(b"123456", "int16", (3,)), "b": Tensor(bytes(16), "float32", (2, 2))})
    content = bytearray(whole)
    for place, kind, byte in changes:
        place %= len(content)
        if kind == "set":
            content[place] = byte
        elif kind == "cut":
            del content[place]
        else:
            content.insert(place, byte)
    try:
        found = read_tensors(bytes(content))
    except BundleError:
        return
    size = 8 + int.from_bytes(content[:8], "little")
    spans = [one["data_offsets"] for one in json.loads(content[8:size]).values()]
    assert sorted(tensor.nbytes for tensor in found.values()) == sorted(end - start for start, end in spans)
    assert sum(tensor.nbytes for tensor in found.values()) == len(content) - size
