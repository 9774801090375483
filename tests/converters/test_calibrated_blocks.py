"""Blocks of 4 bits chosen by a text: the layers are computed rightly, and their products change less."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import AccuracyError
from edge_infer.generation.config import BLOCK
from edge_infer_converters import convert
from edge_infer_converters.conversion import DecoderConversion
from edge_infer_converters.search.calibrated_blocks import CalibratedBlocks
from edge_infer_converters.sources.decoder.describe import describe
from edge_infer_converters.sources.decoder.shards import Shards
from edge_infer_converters.sources.decoder.tensors import source_tensors
from edge_infer_converters.writers.decoder.blocks import encode_rows
from edge_infer_converters.writers.decoder.compensated import compensate
from tests.support.generation import hub_folders
from tests.support.generation.oracle import Oracle

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.writers.decoder.blocks import EncodedRows


def meant(encoded: EncodedRows, shape: tuple[int, int]) -> np.ndarray:
    """Return the floats that blocks of 4 bits stand for."""
    pairs = np.frombuffer(encoded.values, np.uint8).reshape(-1, BLOCK // 2)
    whole = np.concatenate([pairs & 15, pairs >> 4], 1).astype(np.float32) - 8
    return (whole * np.frombuffer(encoded.scales, "<f2").astype(np.float32)[:, None]).reshape(shape)


@pytest.mark.parametrize("family", hub_folders.CONFIGS)
def test_a_text_passes_through_the_layers_of_each_family(family: str, tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / family, family)
    described = describe(json.loads((folder / "config.json").read_text()))
    windows = [[5, 9, 200, 31, 7, 7, 12, 90, 3, 3, 41, 17], [300, 2, 8]]
    with Shards(folder) as shards:
        tensors = {one.name: one for one in source_tensors(described, shards.tensors)}
        blocks = CalibratedBlocks(described.config, tensors, described.rotations, windows, ())
        assert list(blocks) == []
        values = {name: one.rows(0, one.shape[0]) for name, one in tensors.items()}
    values |= {f"rope.{kind}": one for kind, one in described.rotations.items()}
    size = described.config.hidden_size
    # What the last layer gives is seen through a head that changes nothing.
    plain = {"embedding": values["embedding"], "final_norm.weight": np.ones(size), "final_norm.bias": np.zeros(size)}
    oracle = Oracle(described.config, {**values, **plain, "head": np.eye(size), "head.bias": np.zeros(size)})

    expected = np.concatenate([oracle.logits(window) for window in windows])

    got = blocks.outputs.astype(np.float64)
    if described.config.norm == "layer":
        got -= got.mean(1, keepdims=True)
    got /= np.sqrt((got * got).mean(1, keepdims=True) + described.config.norm_epsilon)
    cap = described.config.final_softcap
    got = cap * np.tanh(got / cap) if cap else got
    assert np.abs(got - expected).max() < 2e-3 * expected.std()  # one exact GELU is taken by tanh


def test_products_with_the_inputs_change_less_than_by_the_search_of_scales() -> None:
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((400, 24)) @ draw.standard_normal((24, 96)) + draw.standard_normal((400, 96)) * 0.3
    weights = draw.standard_normal((40, 96)).astype(np.float32)

    made = compensate(weights, inputs)

    np.testing.assert_array_equal(meant(made.rows, weights.shape), made.values)
    plain = meant(encode_rows(weights, "int4"), weights.shape)
    lost = [np.square(inputs @ (one - weights).T).sum() for one in (made.values, plain)]
    assert lost[0] < 0.5 * lost[1]


@pytest.mark.parametrize("scale", [0.0, 1e-20])
def test_inputs_of_nothing_give_what_the_search_gives(scale: float) -> None:
    weights = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)

    made = compensate(weights, np.eye(64) * np.sqrt(scale))

    plain = meant(encode_rows(weights, "int4"), weights.shape)
    np.testing.assert_allclose(made.values, plain, atol=1e-3)


def test_a_text_chooses_the_blocks_of_4_bits_and_no_others(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "tiny")
    text = tmp_path / "text.txt"
    text.write_text("Hello, world! The quick brown fox, and the lazy dog. " * 60)

    by_text = convert(folder, tmp_path / "text.bundle", calibration=text, precision="int4,int8")
    plain = convert(folder, tmp_path / "plain.bundle", precision="int4,int8")

    assert isinstance(by_text, DecoderConversion)
    assert isinstance(plain, DecoderConversion)
    files = [[(one.path / each.variant.file).read_bytes() for each in one.decoders] for one in (by_text, plain)]
    assert files[0][0] != files[1][0]
    assert len(files[0][0]) == len(files[1][0])
    assert files[0][1] == files[1][1]
    assert by_text.decoders[0].divergence is not None
    assert plain.decoders[0].divergence is None


def test_the_work_on_the_inputs_of_a_matrix_takes_little_more_than_their_sums_of_products() -> None:
    columns = 1536
    inputs = np.random.default_rng(0).standard_normal((256, columns), np.float32)
    weights = np.ones((8, columns), np.float32)
    tracemalloc.start()

    compensate(weights, inputs)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.4 * columns**2 * 8


def test_inputs_that_are_not_finite_name_the_matrix(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "tiny")
    described = describe(json.loads((folder / "config.json").read_text()))
    with Shards(folder) as shards:
        tensors = {one.name: one for one in source_tensors(described, shards.tensors)}
        taken = {"layers.1.down.weight"}
        large = replace(
            tensors["layers.0.down.weight"], factors=np.full(described.config.hidden_size, np.float32(3e38))
        )
        blocks = CalibratedBlocks(
            described.config, {**tensors, large.name: large}, described.rotations, [[5, 9, 200]], taken
        )
        with pytest.raises(AccuracyError, match=r"NaN or infinite inputs to `layers\.1\.qkv\.weight`"):
            list(blocks)
