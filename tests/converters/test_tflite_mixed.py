"""`mixed` for TFLite: the smallest file within the budget, tried on LiteRT itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import edge_infer
from edge_infer import Bundle
from edge_infer.parity import comparison
from edge_infer_converters import Recipe, convert
from edge_infer_converters.measure.budget import Budget
from edge_infer_converters.writers.tflite.quantize.weights import weights_of
from tests.support.converters.engines import run_onnx
from tests.support.converters.tflite_quantized import graph_of, ids, image_net, language_net

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.conversion import Conversion
    from tests.support.model_files import WriteModel


def searched(write_model: WriteModel, folder: Path, **budget: float) -> Conversion:
    """Convert the language net within a budget, measured on 24 inputs."""
    np.savez(folder / "data.npz", ids=np.concatenate([call["ids"] for call in ids(24)]))
    recipe = Recipe(("tflite",), ("fp32", "mixed"), budget=Budget(**budget))  # type: ignore[arg-type]
    source = write_model(language_net(), "net.onnx")
    return convert(source, folder / "net.bundle", evaluation=folder / "data.npz", recipe=recipe, force=True)


def size_of(result: Conversion) -> int:
    return next(one.nbytes for one in result.variants if one.variant.id == "tflite/mixed")


@pytest.mark.parametrize("least", [20, 35, 50])
def test_the_file_keeps_the_budget(least: int, write_model: WriteModel, tmp_path: Path) -> None:
    result = searched(write_model, tmp_path, min_sqnr_db=float(least))

    with edge_infer.load(tmp_path / "net.bundle", variant="tflite/mixed", arrays="numpy") as session:
        wanted = [run_onnx(language_net(), call) for call in ids(24)]
        got = [session.run(call) for call in ids(24)]
    assert comparison.compare(wanted, got).sqnr_db >= least
    assert size_of(result) < 0.7 * len(graph_of(language_net()).write().data)


def test_a_tighter_budget_takes_a_larger_file(write_model: WriteModel, tmp_path: Path) -> None:
    sizes = [size_of(searched(write_model, tmp_path, min_sqnr_db=float(least))) for least in (15, 30, 55)]

    assert sizes[0] < sizes[1] < sizes[2]


def test_a_size_alone_takes_the_best_that_has_it(write_model: WriteModel, tmp_path: Path) -> None:
    smallest = size_of(searched(write_model, tmp_path, min_sqnr_db=20.0))
    limit = int(smallest * 1.3)

    result = searched(write_model, tmp_path, max_size=limit)

    assert size_of(result) <= limit
    assert Bundle.open(tmp_path / "net.bundle").manifest.variant("tflite/mixed").precision == "mixed"


def test_each_weight_has_the_encodings_that_its_kernel_reads() -> None:
    found = {operator.code: encodings for _, operator, encodings in weights_of(graph_of(language_net()).graph)}
    image = {operator.code: encodings for _, operator, encodings in weights_of(graph_of(image_net()).graph)}

    assert found == {
        "EMBEDDING_LOOKUP": ("fp16", "int8", "int4"),
        "FULLY_CONNECTED": ("fp16", "int8", "int4"),
    }
    assert image["CONV_2D"] == ("fp16", "int8")
