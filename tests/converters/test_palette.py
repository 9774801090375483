"""Weights as numbers of a palette: near to what they were, few bytes on the wire, and the same on the engine."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer_converters import convert
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes.palette import pack_palette, unpack_palette, with_palettes
from edge_infer_converters.passes.weight import PALETTES
from edge_infer_converters.passes.weight_only import prepare, rewrite, round_trip, weights_of
from tests.support.converters.engines import run_onnx
from tests.support.converters.ranker import ranker, tokens

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("size", "least_db"), [(16, 19.9), (32, 25.4), (64, 30.5)])
def test_a_palette_of_normal_values_is_as_good_as_theory_says(size: int, least_db: float) -> None:
    """Max 1960, "Quantizing for minimum distortion": 20.2, 26.0 and 31.9 dB."""
    rng = np.random.default_rng(0)
    values = (rng.normal(0, 1, (96, 400)) * rng.uniform(0.1, 9, (96, 1))).astype(np.float32)

    back = unpack_palette(pack_palette(values, 0, size))

    assert decibels(noise([{"x": values}], [{"x": back}])) > least_db


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 40), st.sampled_from([0, 1]), st.sampled_from([1e-30, 1.0, 1e30]), st.booleans()
)
def test_any_weights_come_back_finite_and_no_further_than_zeros(
    rows: int, columns: int, axis: int, size: float, is_constant: bool
) -> None:
    drawn = np.random.default_rng(rows * columns).normal(0, 1, (rows, columns))
    values = (np.full_like(drawn, 0.3) if is_constant else drawn).astype(np.float32) * np.float32(size)

    packed = pack_palette(values, axis, 16)
    back = unpack_palette(packed)

    assert packed.codes.dtype == np.uint8
    assert packed.codes.max() < 16
    assert np.isfinite(back).all()
    assert np.square((back - values) / size, dtype=np.float64).sum() <= np.square(values / size, dtype=np.float64).sum()


def test_each_kind_of_weight_gives_on_the_engine_what_the_search_reckoned_with() -> None:
    model = prepare(ranker())
    weights = with_palettes(weights_of(model))
    for encoding in PALETTES:
        choice = {weight.name: encoding for weight in weights if encoding in weight.encodings}
        assert choice
        back = onnx.ModelProto()
        back.CopyFrom(model)
        for weight in weights:
            for tensor in back.graph.initializer:
                if tensor.name == weight.name and weight.name in choice:
                    values = round_trip(weight, onnx.numpy_helper.to_array(tensor), encoding)
                    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        packed = rewrite(model, weights, choice)
        onnx.checker.check_model(packed)
        wanted, got = (run_onnx(one.SerializeToString(), tokens())["scores"] for one in (back, packed))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_bytes_on_the_wire_fall_with_the_size_of_the_palette() -> None:
    values = np.random.default_rng(1).normal(0, 1, (256, 256)).astype(np.float32)

    sizes = [len(zlib.compress(pack_palette(values, 0, size).codes.tobytes(), 9)) for size in PALETTES.values()]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.6 * values.size


def test_the_option_counts_bytes_on_the_wire(tmp_path: Path) -> None:
    model = tmp_path / "ranker.onnx"
    onnx.save(ranker(opset=18), model)  # without blocks of 4 bits, which filters have from 21 on
    options: dict[str, Any] = {"format": "onnx", "precision": "fp32,mixed", "cache": False}

    made = convert(model, tmp_path / "ranker.bundle", transport="palette", min_sqnr=20, **options)

    stored = {layer.encoding for layer in made.layers["onnx/mixed"]}
    assert stored & set(PALETTES)
    assert made.variants[1].quality.parity.sqnr_db >= 20
