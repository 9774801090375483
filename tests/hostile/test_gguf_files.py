"""GGUF files, damaged or made to harm: one clear line that names the place, soon, and no bundle."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError
from edge_infer_converters import convert
from edge_infer_converters.sources.decoder.gguf_file import GgufFile
from tests.support.generation import gguf_files

if TYPE_CHECKING:
    from pathlib import Path


def text(value: bytes | str, length: int | None = None) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data) if length is None else length) + data


def header(tensors: int = 0, entries: int = 0, magic: bytes = b"GGUF", version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def entry(key: bytes | str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def padded(data: bytes, more: int = 256) -> bytes:
    return data + bytes(-len(data) % 32 + more)


MUCH = 2**60
#: By case the bytes of a file, and what must be said.
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "cannot be read"),
    "short": (b"GG", "is not a GGUF file"),
    "other": (b"PK\x03\x04" + bytes(100), "is not a GGUF file"),
    "version-1": (header(version=1), "it is of version 1"),
    "other-order": (header(version=3 << 24), "for machines of the other byte order"),
    "cut-header": (header()[:12], "it ends at byte 12"),
    "many-entries": (header(entries=MUCH), f"{MUCH} entries of metadata are promised, and 0 bytes are left"),
    "many-tensors": (header(tensors=MUCH), f"{MUCH} tensors are promised"),
    "long-key": (header(entries=1) + text(b"a" * 40, MUCH), f"has {MUCH} bytes"),
    "long-text": (header(entries=1) + entry("a", 8, text(b"a" * 40, 50)), "has 50 bytes, which the file does not have"),
    "key-no-utf8": (header(entries=1) + entry(b"\xff\xfe", 4, bytes(20)), "is not UTF-8"),
    "text-no-utf8": (header(entries=1) + entry("a", 8, text(b"\xc3(")) + bytes(20), "is not UTF-8"),
    "unknown-kind": (header(entries=1) + entry("a", 13, bytes(20)), "`a` is of the type 13"),
    "cut-number": (header(entries=1) + entry("a" * 9, 10, b"\0"), "where a number of its header is expected"),
    "long-list": (
        header(entries=1) + entry("a", 9, struct.pack("<IQ", 6, MUCH)),
        f"{MUCH} numbers of `a` are promised",
    ),
    "long-list-of-texts": (
        header(entries=1) + entry("a", 9, struct.pack("<IQ", 8, MUCH)),
        f"{MUCH} texts of `a` are promised",
    ),
    "list-of-lists": (header(entries=1) + entry("a", 9, struct.pack("<IQ", 9, 1)) + bytes(40), "a list of the type 9"),
    "twice": (header(entries=2) + 2 * entry("a", 4, bytes(4)) + bytes(40), "has `a` twice"),
    "alignment": (
        header(entries=1) + entry("general.alignment", 4, struct.pack("<I", 3)),
        "`general.alignment` is 3, expected a power of 2",
    ),
    "alignment-0": (header(entries=1) + entry("general.alignment", 4, bytes(4)), "`general.alignment` is 0"),
    "no-dimensions": (header(1) + tensor("a", ()) + bytes(20), "tensor `a` has 0 dimensions"),
    "many-dimensions": (header(1) + text("a") + struct.pack("<I", 2**31) + bytes(40), "2147483648 dimensions"),
    "huge-shape": (padded(header(1) + tensor("a", (2**62, 2**62))), "tensor `a` has shape"),
    "zero-shape": (padded(header(1) + tensor("a", (0, 4))), "tensor `a` has shape [4, 0]"),
    "half-block": (padded(header(1) + tensor("a", (33, 2), 2)), "has shape [2, 33] in blocks of 32"),
    "behind-the-end": (padded(header(1) + tensor("a", (64,), 0, 32)), "tensor `a` takes 256 bytes from 32"),
    "far-away": (padded(header(1) + tensor("a", (8,), 0, 2**63)), f"from {2**63}"),
    "not-aligned": (padded(header(1) + tensor("a", (8,), 0, 4)), "takes 32 bytes from 4"),
    "overlap": (
        padded(header(2) + tensor("a", (32,)) + tensor("b", (8,), 0, 32)),
        "the tensors `a` and `b` overlap",
    ),
    "same-name": (padded(header(2) + tensor("a", (8,)) + tensor("a", (8,), 0, 32)), "the tensor `a` twice"),
    "k-quants": (padded(header(1) + tensor("a", (256, 1), 12)), "tensor `a` is stored as Q4_K, which is not read"),
    "unknown-type": (padded(header(1) + tensor("a", (8,), 99)), "of the type 99, which ggml does not have"),
    "no-architecture": (padded(header(1) + tensor("a", (8,))), "the architecture None is not read"),
}


def refused(path: Path) -> str:
    """Convert a file that must be refused, and return what is said."""
    output = path.with_suffix(".bundle")
    with pytest.raises(EdgeInferError) as caught:
        convert(path, output)
    assert sorted(one.name for one in path.parent.iterdir()) == [path.name]  # nothing half-written
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("case", FILES)
def test_a_damaged_file_is_named(tmp_path: Path, case: str) -> None:
    data, said = FILES[case]
    path = tmp_path / "evil.gguf"
    path.write_bytes(data)

    assert said in refused(path)


NAN = float("nan")
#: By case fields to replace, and what must be said.
METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "no-heads": ({"llama.attention.head_count": ...}, "`llama.attention.head_count` is missing"),
    "zero-heads": ({"llama.attention.head_count": 0}, "`llama.attention.head_count` is 0"),
    "text": ({"llama.embedding_length": "wide"}, "`llama.embedding_length` is 'wide'"),
    "other-width": ({"llama.embedding_length": 128}, "`token_embd.weight`: [320, 64], expected [320, 128]"),
    "many-layers": ({"llama.block_count": 2**31}, "`llama.block_count` is 2147483648"),
    "one-layer-more": ({"llama.block_count": 3}, "have no `blk.2.attn_norm.weight`"),
    "epsilon": ({"llama.attention.layer_norm_rms_epsilon": NAN}, "`llama.attention.layer_norm_rms_epsilon` is nan"),
    "theta": ({"llama.rope.freq_base": 0.0}, "`rope_theta` is 0.0"),
    "rotation": ({"llama.rope.scaling.type": "spiral"}, "positions of the type `spiral`"),
    "odd-rotation": ({"llama.rope.dimension_count": 3}, "an even part of a head's 16 values"),
    "no-tokens": ({"tokenizer.ggml.tokens": ...}, "`tokenizer.ggml.tokens` is not a list of texts"),
    "tokens-of-numbers": ({"tokenizer.ggml.tokens": [1, 2]}, "`tokenizer.ggml.tokens` is not a list of texts"),
    "token-twice": ({"tokenizer.ggml.tokens": ["a"] * 320}, "`tokenizer.ggml.tokens` has 'a' twice"),
    "many-tokens": (
        {
            "tokenizer.ggml.tokens": [str(i) for i in range(900)],
            "tokenizer.ggml.token_type": ...,
            "tokenizer.ggml.merges": ["1 2"],
        },
        "has a token 899, and the model 320 tokens",
    ),
    "few-kinds": ({"tokenizer.ggml.token_type": [1, 1]}, "has 2 entries for 320 tokens"),
    "merge": ({"tokenizer.ggml.merges": ["t h e"]}, "has 't h e', expected two tokens that make a third"),
    "foreign-merge": ({"tokenizer.ggml.merges": ["qqq t"]}, "has 'qqq t'"),
    "end-outside": ({"tokenizer.ggml.eos_token_id": 320}, "`eos_token_id` is 320"),
    "large-template": ({"tokenizer.chat_template": "a" * (2**20 + 1)}, "has 1048577 bytes, expected at most"),
}


@pytest.mark.parametrize("case", METADATA)
def test_a_wrong_field_is_named(tmp_path: Path, case: str) -> None:
    fields, said = METADATA[case]

    assert said in refused(gguf_files.write_gguf(tmp_path / "evil.gguf", metadata=fields))


def test_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = gguf_files.write_gguf(
        tmp_path / "evil.gguf", tokenizer="llama", metadata={"tokenizer.ggml.scores": [NAN] * 320}
    )

    assert "the score nan" in refused(file)


def test_long_tokens_are_refused_before_all_their_parts_are_looked_up(tmp_path: Path) -> None:
    tokens = [f"{number:04}" + "a" * 4000 for number in range(320)]
    fields = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0.0] * 320}
    file = gguf_files.write_gguf(tmp_path / "evil.gguf", tokenizer="llama", metadata=fields)

    assert "tokens that are too long in sum" in refused(file)


TENSORS: dict[str, tuple[str, np.ndarray | None, str]] = {
    "no-embedding": ("token_embd.weight", None, "no tensor `token_embd.weight`"),
    "no-part": ("blk.1.ffn_up.weight", None, "have no `blk.1.ffn_up.weight`"),
    "turned": ("blk.0.ffn_down.weight", np.ones((96, 64), np.float32), "[96, 64], expected [64, 96]"),
    "few-queries": ("blk.0.attn_q.weight", np.ones((32, 64), np.float32), "[32, 64]"),
    "nan": ("output.weight", np.full((320, 64), np.nan, np.float32), "`head` holds NaN"),
    "unknown": ("blk.0.attn_sinks.weight", np.ones(4, np.float32), "`blk.0.attn_sinks.weight` and 0 more"),
    "rotation": ("rope_freqs.weight", np.zeros(8, np.float32), "`rope_freqs.weight` is not 8 numbers above 0"),
    "short-rotation": ("rope_freqs.weight", np.ones(3, np.float32), "`rope_freqs.weight` is not 8 numbers above 0"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_wrong_tensor_is_named(tmp_path: Path, case: str) -> None:
    name, value, said = TENSORS[case]
    tensors = {key: one for key, one in gguf_files.stored_weights("llama").items() if key != name}
    if value is not None:
        tensors[name] = value

    assert said in refused(gguf_files.write_gguf(tmp_path / "evil.gguf", tensors=tensors))


def test_blocks_whose_scale_is_no_number_are_refused(tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "evil.gguf", kind="Q4_0")
    with GgufFile(path) as file:
        place = file.tensors["blk.0.ffn_down.weight"].start
    data = bytearray(path.read_bytes())
    data[place : place + 2] = np.float16(np.nan).tobytes()
    path.write_bytes(data)

    assert "layers.0.down.weight` holds NaN" in refused(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return gguf_files.write_gguf(tmp_path_factory.mktemp("gguf") / "whole.gguf", kind="Q4_0").read_bytes()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 12_000), st.binary(min_size=1, max_size=8)), max_size=3), st.integers(0, 2**20)
)
def test_any_bytes_are_read_or_refused(
    whole: bytes, tmp_path: Path, changes: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(whole)
    for at, value in changes:
        data[at : at + len(value)] = value
    path = tmp_path / "any.gguf"
    path.write_bytes(data[: min(cut, len(data))] if cut % 3 else data)

    try:
        with GgufFile(path) as file:
            assert sum(one.nbytes for one in file.tensors.values()) <= len(data)
    except EdgeInferError as error:
        assert error.hint
