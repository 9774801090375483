"""A model for feature-extraction is judged by the vectors of texts: by the angle to those of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from edge_infer.tasks.definition import Definition, read_definition
from edge_infer_converters import convert
from edge_infer_converters.data.calibration import CalibrationSet
from edge_infer_converters.measure.text_vectors import TextVectors
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from pathlib import Path

_WIDTH = 64
_BERT = {
    "config.json": {"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 64},
    "tokenizer.json": hub_folders.tokenizer(),
    "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
    "modules.json": [
        {"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling", "Normalize")
    ],
}


def definition(*after: dict[str, str]) -> Definition:
    document = {"version": 1, "inputs": {"*": [{"step": "text.tokenize"}]}, "outputs": list(after)}
    return read_definition("feature-extraction", document)


def call(*mask: int) -> dict[str, np.ndarray]:
    return {"input_ids": np.ones((1, len(mask)), np.int64), "attention_mask": np.array([mask], np.int64)}


def given(*tokens: tuple[float, float]) -> dict[str, np.ndarray]:
    return {"last_hidden_state": np.array([tokens], np.float32)}


@pytest.mark.parametrize(
    ("method", "cosine"), [("mean", 1.0), ("first", np.cos(np.arctan2(1, 2))), ("last", np.cos(np.arctan2(1, 2)))]
)
def test_tokens_are_pooled_as_the_pipeline_does_and_padding_counts_for_nothing(method: str, cosine: float) -> None:
    data = CalibrationSet((call(1, 1, 0),), None, "made-up sentences")
    references = [given((2.0, 0.0), (2.0, 0.0), (7.0, 7.0))]
    results = [given((2.0, 1.0), (2.0, -1.0), (-9.0, 5.0))]

    vectors = TextVectors.of(definition({"step": "post.pool", "method": method}), data, references)

    assert vectors is not None
    assert vectors.compare(references, results).mean == pytest.approx(cosine)


def test_another_task_and_vectors_of_tokens_are_judged_as_ever() -> None:
    data = CalibrationSet((call(1, 1),), None, "made-up sentences")
    references = [given((2.0, 0.0), (2.0, 0.0))]

    assert TextVectors.of(None, data, references) is None
    assert TextVectors.of(definition({"step": "post.pool", "method": "none"}), data, references) is None
    assert TextVectors.of(definition({"step": "post.tensor"}), data, references) is None


def encoder(outlier: float) -> bytes:
    """Embeddings with one large dimension that the product leaves out: 8 bits then leave few steps for the others."""
    rng = np.random.default_rng(0)
    table = rng.normal(0, 1, (len(hub_folders.WORDS), _WIDTH)).astype(np.float32)
    matrix = rng.normal(0, 0.2, (_WIDTH, _WIDTH)).astype(np.float32)
    matrix[0] = 0
    large = np.zeros(_WIDTH, np.float32)
    large[0] = outlier
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Add", ["words", "large"], ["wide"]),
        helper.make_node("MatMul", ["wide", "matrix"], ["last_hidden_state"]),
    ]
    return zoo.model(
        nodes,
        [zoo.value(name, ["batch", "sequence"], "int64") for name in ("input_ids", "attention_mask")],
        [zoo.value("last_hidden_state", ["batch", "sequence", _WIDTH])],
        {"table": table, "matrix": matrix, "large": large},
    )


@pytest.mark.parametrize(("outlier", "kept"), [(110.0, True), (400.0, False)])
def test_int8_of_a_text_model_is_kept_where_its_vectors_are_near(outlier: float, kept: bool, tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "encoder", encoder(outlier), _BERT)

    result = convert(folder, tmp_path / "m.bundle", precision="fp32,int8-dynamic", format="onnx")

    found = next(one for one in result.variants if one.variant.id == "onnx/int8-dynamic")
    assert found.quality.parity.sqnr_db < 20, "by the usual limit it would be left out"
    assert found.quality.vectors is not None
    assert found.is_kept == kept == found.quality.vectors.is_good
    assert found.quality.to_json()["vectors"]["mean_cosine"] == round(found.quality.vectors.mean, 6)
    assert ("cosine" in found.quality.verdict.reason) == kept
