"""A damaged or foreign index is refused in plain words, and is never half read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.errors import BundleError, EdgeInferError, IntegrityError
from edge_infer.formats.safetensors import read_tensors, write_tensors
from edge_infer.platform.hashing import sha256
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index of two segments with a deleted entry."""
    index = edge_infer.Index.create(tmp_path / "a.index", 3, rows="f32")
    index.add([[1, 0, 0], [0, 1, 0]], texts=["red apple", "green tree"], metadata=[{"n": 1, "tag": "a"}, {"n": 2}])
    index.add([[0, 0, 1], [1, 1, 1]], texts=["blue sky", None], metadata=[{"tag": "b"}, None])
    index.delete([2])
    return tmp_path / "a.index"


def described(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((path / "index.json").read_bytes())
    return document


def segment_of(path: Path) -> Path:
    return path / str(described(path)["segments"][0]["path"])


def sealed(path: Path, change: Mapping[str, Tensor | None]) -> None:
    """Change the first segment, and let the catalogue name what it is then."""
    document = described(path)
    changed = {**read_tensors(segment_of(path).read_bytes()), **change}
    data = write_tensors({name: tensor for name, tensor in changed.items() if tensor is not None}, aligned=True)
    digest = sha256(data)
    entry = document["segments"][0]
    entry |= {"path": f"segments/{digest[:16]}.safetensors", "size": len(data), "sha256": digest}
    (path / entry["path"]).write_bytes(data)
    document["deleted"] = None
    (path / "index.json").write_text(json.dumps(document))


def test_every_truncation_of_a_segment_is_refused(path: Path) -> None:
    segment = segment_of(path)
    whole = segment.read_bytes()
    for size in range(0, len(whole), 37):
        segment.write_bytes(whole[:size])
        with pytest.raises(IntegrityError, match="bytes, expected"):
            edge_infer.Index.open(path)


def test_a_changed_byte_is_refused(path: Path) -> None:
    for one in (segment_of(path), path / described(path)["deleted"]["path"]):
        whole = one.read_bytes()
        one.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(IntegrityError, match="sha256"):
            edge_infer.Index.open(path)
        one.write_bytes(whole)


def test_an_empty_file_is_refused(path: Path) -> None:
    document = described(path)
    document["segments"][0] |= {"size": 0, "sha256": sha256(b"")}
    segment_of(path).write_bytes(b"")
    (path / "index.json").write_text(json.dumps(document))

    with pytest.raises(IntegrityError, match="empty"):
        edge_infer.Index.open(path)


def test_a_missing_file_is_named(path: Path) -> None:
    segment_of(path).unlink()

    with pytest.raises(IntegrityError, match=r"segments/[0-9a-f]{16}.safetensors`: the file is missing"):
        edge_infer.Index.open(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "other"}', "{" * 100_000, "\x00" * 50])
def test_what_is_no_catalogue_is_refused(path: Path, text: str) -> None:
    (path / "index.json").write_text(text)

    with pytest.raises(BundleError, match=r"index\.json"):
        edge_infer.Index.open(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2"),
        ({"metric": "euclid"}, "metric"),
        ({"dimension": -1}, "dimension"),
        ({"dimension": 4}, "expected int8"),
        ({"dimension": 1e300}, "dimension"),
        ({"rows": "int8 "}, "rows"),
        ({"rows": "f16"}, "vectors/f16"),
        ({"words": 1}, "words"),
        ({"next_id": "0"}, "next_id"),
        ({"segments": {}}, "segments"),
        ({"segments": [{}]}, "path"),
        ({"deleted": 3}, "deleted"),
        ({"embedding": {"name": "x"}}, "revision"),
        ({"embedding": 3}, "embedding"),
    ],
)
def test_a_field_that_cannot_be_is_named(path: Path, change: dict[str, Any], said: str) -> None:
    (path / "index.json").write_text(json.dumps(described(path) | change))

    with pytest.raises(BundleError, match=said):
        edge_infer.Index.open(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "../secret"),
        ("path", "segments/../../etc/passwd.safetensors"),
        ("path", "/etc/passwd"),
        ("path", 3),
        ("sha256", "x"),
        ("size", -1),
        ("size", 1.5),
        ("rows", True),
        ("rows", 10**12),
        ("rows", 1),
    ],
)
def test_a_file_entry_that_cannot_be_is_refused(path: Path, name: str, value: Any) -> None:
    document = described(path)
    document["segments"][0][name] = value
    (path / "index.json").write_text(json.dumps(document))

    with pytest.raises(BundleError):
        edge_infer.Index.open(path)


#: By what is wrong, tensors of the first segment that are others; None for one that is missing.
CHANGES: dict[str, dict[str, Tensor | None]] = {
    "no ids": {"ids": None},
    "no rows": {"vectors/i8": None},
    "rows of another type": {"vectors/i8": Tensor(bytes(6), "uint8", (2, 3))},
    "fewer scales": {"vectors/scale": Tensor(bytes(4), "float32", (1,))},
    "narrow codes": {"vectors/bits": Tensor(bytes(2), "uint8", (2, 1))},
    "ends of words that fall": {"words/ends": Tensor(b"\x09\0\0\0" + b"\x04\0\0\0" * 3, "uint32", (4,))},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_segment_that_does_not_fit_is_refused_when_it_is_opened(path: Path, what: str) -> None:
    sealed(path, CHANGES[what])

    with pytest.raises(BundleError, match=r"segments/"):
        edge_infer.Index.open(path)


LATER: dict[str, dict[str, Tensor | None]] = {
    "ends of the payload beyond it": {"payload/ends": Tensor(b"\xff" * 16, "uint64", (2,))},
    "a payload that is no JSON": {"payload": Tensor(b"x" * 87, "uint8", (87,))},
    "a value that is not there": {"columns/tag": Tensor(b"\x07\0\0\0" * 2, "uint32", (2,))},
    "values that are no list": {"values/tag": Tensor(b"3", "uint8", (1,))},
    "a payload that is deep": {
        "payload": Tensor(b"[" * 70_000, "uint8", (70_000,)),
        "payload/ends": Tensor(b"\x70\x11\x01\0\0\0\0\0" * 2, "uint64", (2,)),
    },
    "values that are deep": {"values/tag": Tensor(b"[" * 70_000, "uint8", (70_000,))},
    "rows of words beyond the last": {"words/rows": Tensor(b"\x09\0\0\0" * 4, "uint32", (4,))},
}


@pytest.mark.parametrize("what", LATER)
def test_damage_inside_a_segment_is_refused_when_it_is_met(path: Path, what: str) -> None:
    sealed(path, LATER[what])
    index = edge_infer.Index.open(path)

    with pytest.raises(BundleError, match="damaged"):
        index.search("red tree", 9, mode="words", where={"tag": "a"}) or index.search([1, 1, 1])


def test_numbers_that_are_not_finite_crash_nothing(path: Path) -> None:
    nan = b"\x00\x00\xc0\x7f"
    sealed(path, {"vectors/scale": Tensor(nan * 2, "float32", (2,))})
    index = edge_infer.Index.open(path)

    assert len(index.search([1, 1, 1], 9)) <= 4


def test_deleted_rows_that_are_not_there_are_refused(path: Path) -> None:
    document = described(path)
    for tensors in (
        {document["segments"][0]["path"]: Tensor(b"\x09\0\0\0", "uint32", (1,))},
        {"segments/other": Tensor(b"\0\0\0\0", "uint32", (1,))},
        {document["segments"][0]["path"]: Tensor(b"\0" * 8, "uint64", (1,))},
    ):
        data = write_tensors(tensors)
        digest = sha256(data)
        name = f"deleted/{digest[:16]}.safetensors"
        entry = {"path": name, "rows": 1, "size": len(data), "sha256": digest}
        (path / name).write_bytes(data)
        (path / "index.json").write_text(json.dumps({**document, "deleted": entry}))
        with pytest.raises(BundleError):
            edge_infer.Index.open(path)


def test_a_folder_or_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for name in ("nothing", "file", "."):
        with pytest.raises(EdgeInferError, match="There is no index"):
            edge_infer.Index.open(tmp_path / name)
