"""What a store sends, as bytes that nobody foresaw: our own errors or what was meant, in little memory."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import tracemalloc
from re import fullmatch
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tuf.api.metadata import TargetFile

from edge_infer.bundle.manifest import PART_SIZE
from edge_infer.errors import DeltaError, EdgeInferError, NotReleasedError, SignatureError, StoreError
from edge_infer.formats.spans import find_spans
from edge_infer.sync.chunks import MAX_CHUNK, cut
from edge_infer.sync.pack import MAGIC, MAX_STEP, unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.repository import Repository
from edge_infer.sync.revision import File, Revision
from edge_infer.sync.source import open_source
from edge_infer.sync.stage import offered
from edge_infer.sync.transforms import CODECS, DIFFERENCES, decode, encode
from edge_infer.sync.trust import Floor, newest
from tests.support import zoo
from tests.support.mutations import NUMBERS, mutated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = zoo.mlp()

# -- packs --

OLD = struct.pack("<512f", *(i / 7 for i in range(512)))
NEW = struct.pack("<512f", *(i / 7 + 1e-4 for i in range(512)))
DATA = OLD[:1000] + b"".join([NEW] * len(CODECS))
FILES = {"a.bin": File("a.bin", len(DATA), hashlib.sha256(DATA).hexdigest())}


def _frames() -> tuple[dict[str, Any], bytes]:
    """Write a pack by hand that has a copy and a step of every codec."""
    steps, frames, stored = [[0, 1000, 1, 0, 0]], [], b""
    for codec in CODECS:
        width = {1: 1, 5: 2**16}.get(codec, 4)
        stream = encode(codec, width, NEW, OLD if codec in DIFFERENCES else b"")
        frame = zstandard.ZstdCompressor().compress(stream)
        steps.append([codec, len(NEW), width, 0 if codec in DIFFERENCES else -1, 0])
        frames.append([len(frame), len(stream), -1, codec])
        stored += frame
    return {"files": [{"path": "a.bin", "steps": steps}], "bases": ["0" * 64], "frames": frames}, stored


HEADER, FRAMES = _frames()


def packed(header: Any) -> bytes:
    said = zstandard.ZstdCompressor().compress(json.dumps(header).encode())
    return MAGIC + struct.pack("<I", len(said)) + said + FRAMES


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], bytes]:
    base = tmp_path_factory.mktemp("base") / "base"
    base.write_bytes(OLD)

    def made(data: bytes) -> bytes:
        result = bytearray()
        unpack(io.BytesIO(data), FILES, lambda _digest: base, lambda _path: result.extend)
        return bytes(result)

    return made


def refused_or_right(unpacked: Callable[[bytes], bytes], data: bytes) -> None:
    tracemalloc.start()
    try:
        assert unpacked(data) == DATA
    except DeltaError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * MAX_STEP


def test_the_honest_pack_has_every_codec(unpacked: Callable[[bytes], bytes]) -> None:
    assert unpacked(packed(HEADER)) == DATA


@settings(max_examples=400, deadline=None)
@given(header=mutated(HEADER))
@example(header=HEADER | {"files": [{"path": "a.bin", "steps": [[0, len(DATA), 1, 0, 2**70]]}]})
@example(header=HEADER | {"files": [{"path": "a.bin", "steps": [[0, len(DATA), 1, 0, 2**62]]}]})
@example(header=HEADER | {"frames": [[2**23, 2**22, -1, 1]] * 2**10})
def test_a_header_that_says_something_else_gives_an_error_or_the_same(
    unpacked: Callable[[bytes], bytes], header: Any
) -> None:
    refused_or_right(unpacked, packed(header))


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.lists(st.sampled_from([*range(8), *NUMBERS]) | st.integers(-2, 2**23), min_size=5, max_size=5), max_size=6
    )
)
def test_steps_of_any_numbers_give_an_error_or_the_same(unpacked: Callable[[bytes], bytes], steps: Any) -> None:
    refused_or_right(unpacked, packed(HEADER | {"files": [{"path": "a.bin", "steps": steps}]}))


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), size=st.sampled_from([0, 1, 100, 2**26, 2**26 + 1, 2**32 - 1]))
def test_bytes_behind_the_first_words_of_a_pack_are_refused(
    unpacked: Callable[[bytes], bytes], data: bytes, size: int
) -> None:
    for given_ in (data, MAGIC + data, MAGIC + struct.pack("<I", size) + data):
        with pytest.raises(DeltaError):
            unpacked(given_)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([0, 7, *CODECS]), st.sampled_from([*range(-1, 10), *NUMBERS]), st.binary(max_size=64), st.data())
def test_any_bytes_are_decoded_to_as_many_or_refused(codec: int, width: int, data: bytes, more: st.DataObject) -> None:
    old = b""
    if codec in DIFFERENCES:
        old = more.draw(st.binary(min_size=len(data), max_size=len(data)) | st.binary(max_size=64))
    with contextlib.suppress(DeltaError):
        assert len(decode(codec, width, data, old)) == len(data)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b/c"]), st.binary(max_size=3000), min_size=1), st.binary(max_size=3000))
def test_what_is_packed_comes_out(files: dict[str, bytes], old: bytes) -> None:
    data = write_pack(files)
    result = {path: bytearray() for path in files}
    promised = {path: File(path, len(one), hashlib.sha256(one).hexdigest()) for path, one in files.items()}

    unpack(io.BytesIO(data), promised, lambda digest: pytest.fail(digest), lambda path: result[path].extend)

    assert {path: bytes(one) for path, one in result.items()} == files


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=50), st.integers(0, 5000))
def test_chunks_together_are_the_data(piece: bytes, times: int) -> None:
    data = piece * times
    at = 0
    for offset, length in cut(memoryview(data)):
        assert (offset, 0 < length <= MAX_CHUNK) == (at, True)
        at += length
    assert at == len(data)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=8), st.sampled_from([".onnx", ".tflite", ".safetensors"]))
def test_a_model_file_of_any_bytes_has_tensors_inside_it_or_none(at: int, change: bytes, kind: str) -> None:
    data = bytearray(MODEL)
    at %= len(data)
    data[at : at + len(change)] = change
    end = 0
    for span in find_spans(f"m{kind}", {f"m{kind}": bytes(data)}):
        assert end <= span.offset <= span.offset + span.length <= len(data)
        end = span.offset + span.length


# -- revisions, roll-outs, metadata --

REVISION: dict[str, Any] = {
    "format": 1,
    "model": "linear",
    "version": "2",
    "sequence": 2,
    "created": 1_795_000_000,
    "files": [
        {"path": "manifest.json", "size": 3, "sha256": "1" * 64},
        {"path": "onnx/model.onnx", "size": PART_SIZE + 1, "sha256": "2" * 64},
    ],
    "pack": {"sha256": "3" * 64, "size": PART_SIZE + 9, "parts": ["4" * 64, "5" * 64]},
    "deltas": [{"sha256": "6" * 64, "size": 5, "parts": ["7" * 64], "base": "8" * 64}],
}


@settings(max_examples=500, deadline=None)
@given(mutated(REVISION))
@example(REVISION | {"version": "\ud800"})
@example(REVISION | {"files": [*REVISION["files"], {"path": "\ud800", "size": 0, "sha256": "0" * 64}]})
def test_a_revision_that_says_something_else_is_refused_or_can_be_written_again(document: Any) -> None:
    try:
        revision = Revision.from_bytes(json.dumps(document).encode())
    except StoreError:
        return
    assert Revision.from_bytes(revision.to_bytes()) == revision
    assert len(revision.bundle) == 64
    assert all(".." not in file.path.split("/") for file in revision.files)


CUSTOM = {
    "version": "2",
    "sequence": 2,
    "history": ["1" * 64],
    "stage": {"number": 1, "share": 5000, "fallback": "2" * 64},
}


@settings(max_examples=300, deadline=None)
@given(mutated({"custom": CUSTOM}), st.integers(0, 3))
@example({"custom": CUSTOM | {"stage": {"number": 1, "share": 0, "fallback": "../../x"}}}, 0)
@example({"custom": CUSTOM | {"stage": {"number": float("inf"), "share": 0}}}, 0)
def test_a_roll_out_that_says_something_else_names_a_revision_or_is_refused(document: Any, taken: int) -> None:
    target = TargetFile(1, {"sha256": "3" * 64}, "linear", document)
    try:
        offer = offered(target, "linear", "device", taken)
    except (SignatureError, NotReleasedError):
        return
    assert fullmatch("[0-9a-f]{64}", offer.sha256)
    assert offer.stage >= 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    Repository(folder / "store").create(folder / "keys")
    return folder / "store"


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["2.root", "timestamp", "1.snapshot", "1.targets"]), more=st.data())
def test_metadata_of_any_bytes_gives_an_error_of_ours(
    store: Path, tmp_path_factory: pytest.TempPathFactory, name: str, more: st.DataObject
) -> None:
    """The store has no model, so that even what is right ends in an error."""
    path = store / "tuf" / f"{name}.json"
    before = path.read_bytes() if path.exists() else b""
    trusted = (store / "tuf/1.root.json").read_bytes()
    honest = json.loads(before or trusted)
    path.write_bytes(
        more.draw(st.binary(max_size=100) | mutated(honest).map(lambda document: json.dumps(document).encode()))
    )
    try:
        with pytest.raises(EdgeInferError):
            newest(open_source(str(store)), "linear", tmp_path_factory.mktemp("seen"), trusted, Floor())
    finally:
        path.write_bytes(before) if before else path.unlink()
