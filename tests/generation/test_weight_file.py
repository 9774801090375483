"""The weight file of a decoder: what is written is read again, and lies where the kernels may read it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import BundleError, InputError
from edge_infer.formats.safetensors import read_tensors
from edge_infer.generation.config import DecoderConfig
from edge_infer.generation.weight_file import Encoded, WeightFile, write_weight_file
from edge_infer.kernels import decoder_words as words
from tests.support.generation.decoders import random_decoder

if TYPE_CHECKING:
    from pathlib import Path

TINY = DecoderConfig(
    "llama", 7, 32, 2, 2, 1, 18, 32, 64, rotary_size=18, sliding_window=4, layer_kinds=(0, 1), attention_scale=0.25
)


@pytest.mark.parametrize("encoding", ["f32", "f16", "int8", "int4"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, encoding: str) -> None:
    decoder = random_decoder(TINY, "f16" if encoding == "int4" else encoding, embedding=encoding)  # type: ignore[arg-type]
    path = decoder.write(tmp_path / "model.safetensors")

    with WeightFile(path) as file:
        assert file.config == TINY
        for name, tensor in decoder.tensors:
            place = file.tensors[name]
            assert place.start % 16 == 0
            assert file.data[place.start : place.end] == bytes(tensor.values)
            if tensor.scales is not None:
                place = file.tensors[f"{name}.scales"]
                assert (place.start % 16, file.data[place.start : place.end]) == (0, bytes(tensor.scales))
    assert path.stat().st_size % 16 == 0
    assert "embedding" in read_tensors(path.read_bytes())  # any reader of safetensors reads it


def test_the_program_names_the_fields_and_the_places(tmp_path: Path) -> None:
    decoder = random_decoder(TINY, "int8", embedding="int4", optional=frozenset({"down.bias"}))
    with WeightFile(decoder.write(tmp_path / "model.safetensors")) as file:
        row = struct.unpack(f"<{len(file.program) // 4}i", file.program)

        fields = dict(zip(words.FIELDS, row, strict=False))
        assert (fields["magic"], fields["words"], fields["layers"]) == (words.MAGIC, len(row), 2)
        assert struct.unpack("<f", struct.pack("<i", fields["attention_scale"])) == (0.25,)
        start = len(words.FIELDS)
        embedding = row[start : start + 3]
        assert embedding[0] == words.ENCODINGS.index("int4")
        assert embedding[1] * 16 == file.tensors["embedding"].start
        assert embedding[2] * 16 == file.tensors["embedding.scales"].start
        second = start + 3 * len(words.TENSORS) + words.LAYER_WORDS
        assert row[second] == 1
        bias = second + 1 + 3 * words.LAYER_TENSORS.index("down.bias")
        assert row[bias : bias + 3] == (1, file.tensors["layers.1.down.bias"].start // 16, 0)
        gate = second + 1 + 3 * words.LAYER_TENSORS.index("up.bias")
        assert row[gate : gate + 3] == (0, 0, 0)


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (random_decoder(TINY, "int8").write(tmp_path / name).read_bytes() for name in "ab")

    assert first == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def _vector(count: int) -> Encoded:
    return Encoded("f32", (count,), bytes(4 * count))


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        ("embeding", _vector(7), "no tensor `embeding`.*did you mean `embedding`"),
        ("embedding", _vector(7), r"shape \[7\], expected \[7, 32\]"),
        ("embedding", Encoded("f32", (7, 32), b"123"), "3 bytes of values, expected 896"),
        ("embedding", Encoded("int8", (7, 32), bytes(224)), "0 bytes of scales, expected 14"),
        ("embedding", Encoded("f32", (7, 32), bytes(896), b"12"), "2 bytes of scales, expected 0"),
        ("embedding", Encoded("q6", (7, 32), bytes(896)), "the encoding `q6`"),  # type: ignore[arg-type]
        ("final_norm.weight", Encoded("f16", (32,), bytes(64)), "a vector of f16"),
        ("layers.0.attention_output.weight", Encoded("int4", (32, 36), bytes(576), bytes(64)), "36 columns"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(tmp_path: Path, name: str, tensor: Encoded, says: str) -> None:
    with pytest.raises(InputError) as caught:
        write_weight_file(tmp_path / "model.safetensors", TINY, [(name, tensor)])

    assert caught.match(says.partition(".*")[0])
    assert says.partition(".*")[2] in caught.value.hint
    assert not [*tmp_path.iterdir()]


def test_missing_and_doubled_tensors_are_refused(tmp_path: Path) -> None:
    tensors = random_decoder(TINY).tensors
    with pytest.raises(InputError, match=r"lacks the tensor `layers\.1\.down\.weight` and 0 more"):
        write_weight_file(tmp_path / "model.safetensors", TINY, tensors[:-1])
    with pytest.raises(InputError, match="`embedding` is there twice"):
        write_weight_file(tmp_path / "model.safetensors", TINY, [tensors[0], tensors[0]])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 64,
        (2**63).to_bytes(8, "little") + bytes(64),
        (8).to_bytes(8, "little") + b"[1,2,3] " + bytes(16),
        (8).to_bytes(8, "little") + b"{}      " + bytes(16),
        (30).to_bytes(8, "little") + b'{"__metadata__":{"decoder":1}}' + bytes(16),
    ],
)
def test_a_file_that_is_no_weight_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    with pytest.raises(BundleError):
        WeightFile(path)


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = random_decoder(TINY).write(tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes()[:-64])

    with pytest.raises(BundleError, match="is at"):
        WeightFile(path)
