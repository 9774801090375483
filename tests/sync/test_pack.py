"""Packs give every file back byte for byte, whatever it holds, and find the tensors that make them small."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from edge_infer.errors import DeltaError
from edge_infer.formats.spans import find_spans
from edge_infer.sync.chunks import MAX_CHUNK, cut
from edge_infer.sync.pack import unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.revision import File
from edge_infer.sync.transforms import FLOATS, GROUPED, INTEGERS, PLANES, RATIOS, RAW, RESCALED, decode, encode
from tests.support import zoo
from tests.support.sync.publisher import weights, write_version

DIGITS = Path(__file__).parents[2] / "examples/digits/digits.onnx"


def made(pack: bytes, files: dict[str, bytes], old: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Unpack, with the old files as the bases."""
    result = {path: bytearray() for path in files}
    with tempfile.TemporaryDirectory() as folder:
        for data in (old or {}).values():
            Path(folder, hashlib.sha256(data).hexdigest()).write_bytes(data)
        listed = {path: File(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()}
        unpack(io.BytesIO(pack), listed, lambda digest: Path(folder, digest), lambda path: result[path].extend)
    return {path: bytes(data) for path, data in result.items()}


def safetensors(tensors: dict[str, np.ndarray[Any, Any]]) -> bytes:
    kinds = {"float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64"}
    header, body = {}, b""
    for name, array in tensors.items():
        end = len(body) + array.nbytes
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": array.shape, "data_offsets": [len(body), end]}
        body += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@given(st.data(), st.sampled_from([RAW, PLANES, FLOATS, INTEGERS, GROUPED]), st.sampled_from([1, 2, 4, 8]))
def test_a_transform_is_undone_with_numpy_and_without(data: st.DataObject, transform: int, width: int) -> None:
    if transform in (FLOATS, GROUPED) and width == 1:
        width = 2
    count = data.draw(st.integers(0, 20)) * width
    new, old = (data.draw(st.binary(min_size=count, max_size=count)) for _ in range(2))

    encoded = encode(transform, width, new, old)

    assert len(encoded) == len(new)
    assert decode(transform, width, encoded, old) == new
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numpy", None)
        assert decode(transform, width, encoded, old) == new


@given(st.data(), st.integers(RATIOS[0], RATIOS[-1]))
def test_a_change_of_scale_is_undone_with_numpy_and_without(data: st.DataObject, ratio: int) -> None:
    count = data.draw(st.integers(0, 40))
    new, old = (data.draw(st.binary(min_size=count, max_size=count)) for _ in range(2))

    encoded = encode(RESCALED, ratio, new, old)

    assert decode(RESCALED, ratio, encoded, old) == new
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numpy", None)
        assert decode(RESCALED, ratio, encoded, old) == new


@pytest.mark.parametrize("ratio", [0, 1, RATIOS[0] - 1, RATIOS[-1] + 1, -(1 << 16)])
def test_a_ratio_out_of_bounds_is_refused(ratio: int) -> None:
    with pytest.raises(DeltaError, match="Unknown transform 5"):
        decode(RESCALED, ratio, b"\0", b"\0")


def test_codes_whose_scale_moved_cost_little(tmp_path: Path) -> None:
    """Without the prediction every code differs: three times as many bytes."""
    weights = np.random.default_rng(0).normal(size=40_000)
    old = np.clip(np.rint(weights * 30), -127, 127).astype(np.int8)
    new = np.clip(np.rint(weights * 30 / 1.2), -127, 127).astype(np.int8)

    delta = write_pack({"w.safetensors": safetensors({"w": new})}, {"w.safetensors": safetensors({"w": old})})

    assert len(delta) < 0.2 * new.nbytes


def test_the_transforms_have_not_changed() -> None:
    """Reference vectors for other clients: devices hold packs that older publishers wrote."""
    new = np.array([1.0, -1.0, 0.5, -0.0], "<f4").tobytes()
    old = np.array([1.0000001, -1.0, 0.5, 0.0], "<f4").tobytes()

    assert encode(PLANES, 4, new).hex() == "0000000000000000808000003fbf3f80"
    assert encode(FLOATS, 4, new, old).hex() == "01000001000000000000000000000000"
    assert encode(INTEGERS, 1, b"\x05\xff\x80\x00", b"\x04\x01\x7f\x00").hex() == "02030200"


_FILES = st.dictionaries(
    st.sampled_from(["a.bin", "onnx/m.onnx", "m.tflite", "m.safetensors"]), st.binary(max_size=300)
)


@settings(max_examples=60, deadline=None)
@given(_FILES, _FILES)
def test_any_files_come_back_from_any_others(files: dict[str, bytes], old: dict[str, bytes]) -> None:
    assert made(write_pack(files), files) == files
    assert made(write_pack(files, old), files, old) == files


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float16", "int8", "int64"]))
def test_a_drifted_tensor_comes_back_in_every_dtype(seed: int, dtype: str) -> None:
    random = np.random.default_rng(seed)
    before = (random.normal(size=300) * 50).astype(dtype)
    after = (before + random.integers(-2, 3, size=300)).astype(dtype)
    files, old = ({"m.safetensors": safetensors({"w": array})} for array in (after, before))

    assert made(write_pack(files, old), files, old) == files


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 130_000), st.integers(0, 255))
def test_a_flipped_byte_anywhere_in_a_model_comes_back(at: int, value: int) -> None:
    old = {"m.onnx": DIGITS.read_bytes()}
    data = bytearray(old["m.onnx"])
    data[at % len(data)] = value

    assert made(write_pack({"m.onnx": bytes(data)}, old), {"m.onnx": bytes(data)}, old) == {"m.onnx": bytes(data)}


def test_a_tensor_above_the_step_limit_comes_back() -> None:
    before = np.random.default_rng(0).normal(size=2_500_000).astype(np.float32)
    after = before.copy()
    after[::1000] *= np.float32(1.001)
    files, old = ({"m.safetensors": safetensors({"w": array})} for array in (after, before))

    pack = write_pack(files, old)

    assert made(pack, files, old) == files
    assert len(pack) < 0.01 * after.nbytes


class TestSpans:
    def test_onnx_initializers_are_found_where_they_lie(self) -> None:
        data = DIGITS.read_bytes()
        model = onnx.load(DIGITS)

        spans = {span.name: span for span in find_spans("m.onnx", {"m.onnx": data})}

        large = {one.name: one.raw_data for one in model.graph.initializer if len(one.raw_data) >= 64}
        assert {name: data[span.offset : span.offset + span.length] for name, span in spans.items()} == large
        assert all(span.width == 4 and span.is_float for span in spans.values())

    def test_external_data_is_found_in_the_file_beside(self, tmp_path: Path) -> None:
        model = onnx.load_from_string(zoo.mlp())
        stored = {one.name: numpy_helper.to_array(one).tobytes() for one in model.graph.initializer}
        onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        files = {f"onnx/{name}": (tmp_path / name).read_bytes() for name in ("m.onnx", "m.data")}

        spans = find_spans("onnx/m.data", files)

        assert spans
        for span in spans:
            assert files["onnx/m.data"][span.offset : span.offset + span.length] == stored[span.name]

    def test_tflite_buffers_are_found(self) -> None:
        from edge_infer_converters.writers import tflite

        matrix = weights(1)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        rows = [zoo.value(name, ["batch", len(matrix)]) for name in "xy"]
        model = zoo.model([node], rows[:1], rows[1:], {"w": matrix})
        data = bytes(tflite.write(onnx.load_from_string(model)).data)

        spans = find_spans("m.tflite", {"m.tflite": data})

        (large,) = (span for span in spans if span.length == matrix.nbytes)
        body = data[large.offset : large.offset + large.length]
        assert (large.width, large.is_float) == (4, True)
        assert body in (matrix.tobytes(), matrix.T.tobytes())

    def test_safetensors_are_found(self) -> None:
        data = safetensors({"a": np.zeros(100, np.float16), "b": np.zeros(100, np.int64)})

        found = [
            (span.name, span.width, span.is_float, span.length)
            for span in find_spans("m.safetensors", {"m.safetensors": data})
        ]

        assert found == [("a", 2, True, 200), ("b", 8, False, 800)]

    @given(st.binary(max_size=200), st.sampled_from(["m.onnx", "m.tflite", "m.safetensors"]))
    def test_nonsense_has_no_tensors_and_no_crash(self, data: bytes, path: str) -> None:
        for body in (data, b"\x20\x00\x00\x00TFL3" + data):
            assert all(span.offset + span.length <= len(body) for span in find_spans(path, {path: body}))


def test_a_small_drift_moves_less_than_half(tmp_path: Path) -> None:
    files, old = (
        {"m.onnx": (write_version(tmp_path / str(version), version) / "onnx/model.onnx").read_bytes()}
        for version in (2, 1)
    )

    assert weights(1).tobytes() in old["m.onnx"]
    assert len(write_pack(files, old)) < 0.45 * len(files["m.onnx"])
    assert len(write_pack(files)) < 0.93 * len(files["m.onnx"])


def test_a_changed_name_moves_almost_nothing() -> None:
    old = {"m.onnx": DIGITS.read_bytes()}
    model = onnx.load_from_string(old["m.onnx"])
    model.producer_name = "another, longer name than before"
    files = {"m.onnx": model.SerializeToString()}

    assert len(write_pack(files, old)) < 2_000
    assert made(write_pack(files, old), files, old) == files


class TestChunks:
    """What is no tensor is cut where its content says so."""

    @given(st.binary(max_size=200), st.integers(0, 3 * MAX_CHUNK))
    def test_chunks_follow_one_another_and_are_the_data(self, some: bytes, length: int) -> None:
        data = (some * (length // max(len(some), 1) + 1))[:length]

        at = 0
        for start, size in cut(memoryview(data)):
            assert (start, 0 < size <= MAX_CHUNK) == (at, True)
            at += size
        assert at == len(data)

    def test_bytes_that_were_inserted_change_the_chunks_around_them_alone(self) -> None:
        data = np.random.default_rng(3).bytes(3_000_000)
        first = {data[at : at + size] for at, size in cut(memoryview(data))}
        other = data[:1_000_000] + b"inserted" + data[1_000_000:]

        assert len([1 for at, size in cut(memoryview(other)) if other[at : at + size] not in first]) <= 3

    def test_a_large_file_of_no_known_format_moves_what_changed_alone_under_another_name_too(self) -> None:
        old = np.random.default_rng(4).bytes(12_000_000)  # too large to be a prefix
        new = old[:5_000_000] + b"inserted" + old[5_000_000:8_000_000] + old[8_000_100:]

        delta = write_pack({"vocabulary.bin": new}, {"words.bin": old})

        assert len(delta) < 4 * MAX_CHUNK
        assert made(delta, {"vocabulary.bin": new}, {"words.bin": old})["vocabulary.bin"] == new
