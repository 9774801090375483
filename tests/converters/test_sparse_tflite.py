"""TFLite constants that are stored without their zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import edge_infer
from edge_infer.errors import UnsupportedModel
from edge_infer.formats import tflite
from edge_infer.formats.tflite_check import is_whole
from edge_infer_converters import convert
from tests.support.sparse_tflite import W, add_sparse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_constant_is_read_with_its_zeros() -> None:
    (constant,) = (one for one in tflite.read(add_sparse()).tensors if one.data is not None)

    assert constant.data is not None
    assert constant.data.tobytes() == W.tobytes()


@pytest.mark.parametrize("kind", ["tflite", "onnx"])
def test_the_variants_answer_as_litert_does(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "sparse.tflite"
    path.write_bytes(add_sparse())
    x = np.arange(48, dtype=np.float32).reshape(8, 6)

    convert(path, tmp_path / "bundle", format=kind, precision="fp32")

    for model in (path, tmp_path / "bundle"):
        with edge_infer.load(model) as session:
            (y,) = session.run({"x": x}).values()
        np.testing.assert_array_equal(np.asarray(y), x + W)


def _segments_go_back(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arraySegments.values = [0, 1, 0, 1, 3]


def _segments_end_early(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arraySegments.values = [0, 1, 1, 1, 2]


def _too_few_segments(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arraySegments.values = [0, 1, 3]


def _index_outside(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arrayIndices.values = [1, 0, 9]


def _no_indices(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arrayIndices = None


def _block_of_nothing(sparsity: Any) -> None:
    sparsity.dimMetadata[3].denseSize = 0


def _large_block(sparsity: Any) -> None:
    sparsity.dimMetadata[3].denseSize = 2**31 - 1


def _dimension_twice(sparsity: Any) -> None:
    sparsity.traversalOrder = [0, 0, 2, 3]


def _blocks_of_one_dimension(sparsity: Any) -> None:
    sparsity.blockMap = [1, 1]


def _blocks_first(sparsity: Any) -> None:
    sparsity.traversalOrder = [2, 3, 0, 1]


@pytest.mark.parametrize(
    "damage",
    [
        _segments_go_back,
        _segments_end_early,
        _too_few_segments,
        _index_outside,
        _no_indices,
        _block_of_nothing,
        _large_block,
        _dimension_twice,
        _blocks_of_one_dimension,
        _blocks_first,
    ],
)
def test_a_damaged_one_is_refused(damage: Callable[[Any], None]) -> None:
    with pytest.raises(UnsupportedModel, match="contradicts itself"):
        tflite.read(add_sparse(damage))


def test_one_that_is_cut_short_is_not_whole() -> None:
    content = add_sparse()

    assert is_whole(content)
    assert not any(is_whole(content[:size]) for size in range(8, len(content) - 3, 4))


def test_one_of_texts_has_no_zeros_to_add() -> None:
    (constant,) = (
        one for one in tflite.read(add_sparse(kind=schema.TensorType.STRING)).tensors if one.data is not None
    )

    assert constant.dtype == "string"
