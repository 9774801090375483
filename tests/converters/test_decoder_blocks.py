"""Weights in blocks: what the bits stand for is near the floats, nearer than by rounding, and equal in any chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge_infer.errors import ConversionError
from edge_infer.generation.config import BLOCK
from edge_infer_converters.writers.decoder.blocks import EncodedRows, encode_rows
from edge_infer_converters.writers.decoder.spool import Spool

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.generation.weight_file import Encoding

HALF = np.finfo(np.float16)
ROWS = arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.sampled_from([32, 64, 96])),
    elements=st.floats(-60000, 60000, width=32) | st.sampled_from([0.0, 1e-30, -1e-6, 1.0, -1.0]),
)


def meant(encoded: EncodedRows, encoding: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the floats that the bits stand for."""
    if encoding in ("f32", "f16"):
        return np.frombuffer(encoded.values, {"f32": "<f4", "f16": "<f2"}[encoding]).astype(np.float64).reshape(shape)
    scales = np.frombuffer(encoded.scales, "<f2").astype(np.float64)
    if encoding == "int8":
        whole = np.frombuffer(encoded.values, np.int8).reshape(-1, BLOCK)
    else:
        pairs = np.frombuffer(encoded.values, np.uint8).reshape(-1, BLOCK // 2)
        whole = np.concatenate([pairs & 15, pairs >> 4], 1).astype(np.int8) - 8
    return (whole * scales[:, None]).reshape(shape)


def rounded(rows: np.ndarray) -> np.ndarray:
    """Return what plain rounding to 4 bits gives, as ggml's `quantize_row_q4_0_ref` does it."""
    blocks = rows.reshape(-1, BLOCK).astype(np.float64)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    scales = (largest / -8).astype(np.float16).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.clip(np.rint(np.where(scales == 0, 0, blocks / scales)), -8, 7)
    return np.asarray((whole * scales).reshape(rows.shape))


@settings(max_examples=80, deadline=None)
@given(ROWS)
def test_no_value_is_further_away_than_a_step_allows(rows: np.ndarray) -> None:
    largest = np.abs(rows).reshape(-1, BLOCK).max(1).repeat(BLOCK).reshape(rows.shape).astype(np.float64)
    tiny = float(HALF.smallest_subnormal)
    shares: dict[Encoding, float] = {"int8": 0.51 / 127, "int4": 1.0 / 7}
    for encoding, share in shares.items():
        found = meant(encode_rows(rows, encoding), encoding, rows.shape)

        # Scales are float16: near 0 their own steps count too.
        assert (np.abs(found - rows) <= share * 1.01 * largest + 128 * tiny).all()


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_what_is_said_of_the_error_is_true(rows: np.ndarray) -> None:
    every: tuple[Encoding, ...] = ("f32", "f16", "int8", "int4")
    for encoding in every:
        encoded = encode_rows(rows, encoding)
        error = ((meant(encoded, encoding, rows.shape) - rows) ** 2).sum()
        assert encoded.error == pytest.approx(
            error, rel=1e-3, abs=1e-6 * float((rows.astype(float) ** 2).sum()) + 1e-12
        )


@pytest.mark.parametrize("kind", ["normal", "heavy", "uniform"])
def test_the_search_is_better_than_plain_rounding(kind: str) -> None:
    draw = np.random.default_rng(0)
    values = {
        "normal": draw.standard_normal((64, 1024)),
        "heavy": draw.standard_t(4, (64, 1024)),
        "uniform": draw.uniform(-1, 1, (64, 1024)),
    }[kind].astype(np.float32)

    error = ((meant(encode_rows(values, "int4"), "int4", values.shape) - values) ** 2).sum()

    assert error < 0.97 * ((rounded(values) - values) ** 2).sum()


def test_zeros_and_one_value_are_exact() -> None:
    rows = np.zeros((2, BLOCK), np.float32)
    rows[1, 7] = -3.5
    both: tuple[Encoding, ...] = ("int8", "int4")
    for encoding in both:
        found = meant(encode_rows(rows, encoding), encoding, rows.shape)
        assert found[0].tolist() == [0.0] * BLOCK
        assert found[1] == pytest.approx(rows[1], rel=1e-3)


@pytest.mark.parametrize(("encoding", "value"), [("f16", 7e4), ("int8", 9e6), ("int4", 6e5), ("f16", -7e4)])
def test_what_float16_cannot_hold_is_refused(encoding: Encoding, value: float) -> None:
    rows = np.zeros((1, BLOCK), np.float32)
    rows[0, 3] = value

    with pytest.raises(ConversionError, match="float16 cannot hold"):
        encode_rows(rows, encoding)


class Table:
    """A tensor of the tests."""

    def __init__(self, values: np.ndarray) -> None:
        self.name = "table"
        self.values = values
        self.shape = values.shape

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]

    def blocks(self, start: int, stop: int, encoding: Encoding) -> None:
        """Return None: there are no blocks yet."""


@pytest.mark.parametrize("shape", [(1, 32), (5000, 64), (3, 2**18), (70001,)])
def test_a_tensor_in_chunks_is_the_same_as_whole(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    encodings: list[Encoding] = ["f32"] if len(shape) == 1 else ["int4", "f16", "int8", "f32"]
    done: list[int] = []

    with Spool(tmp_path) as spool:
        spool.add(Table(values), encodings, done.append)
        found = dict(spool.encoded([("table", one) for one in encodings][:1]))
        every: list[Any] = [next(iter(spool.encoded([("table", one)])))[1] for one in encodings]
        stored = [(bytes(one.values), bytes(one.scales or b"")) for one in every]
        assert bytes(found["table"].values) == stored[0][0]
        del found, every

    assert sum(done) == values.size
    for encoding, (data, scales) in zip(encodings, stored, strict=True):
        whole = encode_rows(values, encoding)
        assert (data, scales) == (whole.values, whole.scales)
    assert list(tmp_path.iterdir()) == []
