"""The reference vectors that other decoders are tested with: what this one gives, with numpy and without."""

from __future__ import annotations

import base64
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tuf.api.metadata import TargetFile

from edge_infer.errors import EdgeInferError
from edge_infer.sync.pack import unpack
from edge_infer.sync.revision import File
from edge_infer.sync.stage import offered
from edge_infer.sync.transforms import PLANES, decode, encode
from tests.support.sync.vectors import PLACE

if TYPE_CHECKING:
    from pathlib import Path

VECTORS: dict[str, Any] = json.loads(PLACE.read_text())
raw = base64.b64decode


@pytest.mark.parametrize("has_numpy", [True, False], ids=["numpy", "no numpy"])
def test_transforms_give_what_the_vectors_say(has_numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    for one in VECTORS["transforms"]:
        old = b"" if one["transform"] == PLANES else raw(one["old"])
        assert decode(one["transform"], one["width"], raw(one["data"]), old) == raw(one["gives"])


def test_the_encoder_writes_what_the_vectors_hold() -> None:
    for one in VECTORS["transforms"]:
        old = b"" if one["transform"] == PLANES else raw(one["old"])
        assert encode(one["transform"], one["width"], raw(one["gives"]), old) == raw(one["data"])


@pytest.mark.parametrize("case", VECTORS["packs"], ids=lambda case: case["name"])
def test_packs_give_what_the_vectors_say(case: dict[str, Any], tmp_path: Path) -> None:
    for base in case["bases"]:
        (tmp_path / base["sha256"]).write_bytes(raw(base["bytes"]))
    made: dict[str, bytearray] = {}

    unpack(
        io.BytesIO(raw(case["pack"])),
        {one["path"]: File(one["path"], one["size"], one["sha256"]) for one in case["files"]},
        lambda digest: tmp_path / digest,
        lambda path: made.setdefault(path, bytearray()).extend,
    )

    assert made == {one["path"]: raw(one["bytes"]) for one in case["files"]}


@pytest.mark.parametrize("case", VECTORS["stages"], ids=lambda case: json.dumps(case["custom"]))
def test_a_step_of_a_roll_out_gives_what_the_vectors_say(case: dict[str, Any]) -> None:
    target = TargetFile(5, {"sha256": "ab" * 32}, "m", {"custom": case["custom"]})
    try:
        gives = "fallback" if offered(target, "m", "device", 0).is_fallback else "whole"
    except EdgeInferError as error:
        gives = error.code

    assert gives == case["gives"]


def test_the_delta_vector_has_a_frame_with_a_prefix() -> None:
    """Decoders without dictionaries need a way of their own there, so the vectors must show it."""
    import struct

    import zstandard

    pack = raw(VECTORS["packs"][1]["pack"])
    (size,) = struct.unpack("<I", pack[8:12])
    frames = json.loads(zstandard.ZstdDecompressor().decompress(pack[12 : 12 + size]))["frames"]
    assert any(base >= 0 for _, _, base, _ in frames)
