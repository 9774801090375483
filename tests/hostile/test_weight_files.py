"""Damaged weight files of decoders are refused, or run within their memory: none ends the process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import BundleError, EdgeInferError
from edge_infer.generation.decoder import Decoder
from edge_infer.generation.weight_file import WeightFile
from edge_infer.kernels import decoder_words as words
from tests.support.generation.decoders import random_decoder
from tests.support.generation.families import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = len(words.FIELDS) + 3 * len(words.TENSORS) + 3 * words.LAYER_WORDS
_VALUES = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.integers(-4, 70), st.sampled_from([2**31 - 1, -(2**31), 2**20, 2**17])
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """A file, and where its program begins."""
    config, optional = FAMILIES["gemma"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path_factory.mktemp("whole") / "model")
    with WeightFile(path) as file:
        return path.read_bytes(), file.tensors["program"].start


def _try(path: Path) -> None:
    """Open a file and run it; errors of ours are right."""
    try:
        with Decoder.open(path, context=4) as decoder:
            decoder.run([0, 1, 2, 3], [0] * 4, range(4), [3])
            decoder.top(0, 3)
    except EdgeInferError:
        pass


@given(changes=st.lists(st.tuples(st.integers(0, _WORDS - 1), _VALUES), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_a_damaged_program_ends_no_process(
    whole: tuple[bytes, int], tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    content, start = bytearray(whole[0]), whole[1]
    for word, value in changes:
        content[start + 4 * word : start + 4 * word + 4] = value.to_bytes(4, "little", signed=True)
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)

    _try(path)


@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_damaged_bytes_end_no_process(
    whole: tuple[bytes, int], tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(whole[0])
    for place, value in changes:
        content[place % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)

    _try(path)


@pytest.mark.parametrize(
    ("word", "value", "part"),
    [
        ("magic", 0, "magic"),
        ("version", 2, "version"),
        ("vocab_size", 10**6, "vocab_size"),
        ("context", 2**20, "context"),
        (len(words.FIELDS), 5, "embedding"),
        (len(words.FIELDS) + 1, 2**30, "embedding"),
        (len(words.FIELDS) + 2, -1, "embedding"),
        (len(words.FIELDS) + 3 * len(words.TENSORS), 2, "layers.0.kind"),
        (len(words.FIELDS) + 3 * len(words.TENSORS) + words.LAYER_WORDS + 1, 0, "layers.1.attention_norm.weight"),
    ],
)
def test_a_wrong_word_is_named(
    whole: tuple[bytes, int], tmp_path: Path, word: str | int, value: int, part: str
) -> None:
    content, start = bytearray(whole[0]), whole[1]
    place = start + 4 * (words.FIELDS.index(word) if isinstance(word, str) else word)
    content[place : place + 4] = value.to_bytes(4, "little", signed=True)
    path = tmp_path / "damaged"
    path.write_bytes(content)

    with pytest.raises(BundleError, match=f"`{part}` does not fit"):
        Decoder.open(path)


def test_a_configuration_of_another_model_is_refused(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content = whole[0]
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    config = json.loads(header["__metadata__"]["decoder"])
    for change in ({"vocab_size": 98}, {"norm": "power"}, {"hidden_size": 2**40}, {"layers": -1}):
        header["__metadata__"]["decoder"] = json.dumps({**config, **change})
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 16)
        path = tmp_path / "other"
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

        with pytest.raises(BundleError):
            Decoder.open(path)
