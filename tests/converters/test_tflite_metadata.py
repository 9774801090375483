"""What a TFLite file says of itself: metadata and class names as TensorFlow Lite Support reads them."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter

from edge_infer.formats import tflite
from edge_infer_converters import Recipe, convert
from edge_infer_converters.writers.tflite import FloatGraph, reading
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_tflite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

LABELS = [f"class {i}" for i in range(10)]


def described() -> bytes:
    graph = FloatGraph.of_onnx(onnx.load_from_string(zoo.mlp()))
    graph.describe("digits", "7", LABELS)
    return graph.write().data


class Fields:
    """A table of the metadata by the places of its fields, read with flatbuffers' own reader."""

    def __init__(self, data: bytes, place: int) -> None:
        self._table = flatbuffers.table.Table(data, place)

    def text(self, number: int) -> str:
        return bytes(self._table.String(self._table.Pos + self._at(number))).decode()

    def byte(self, number: int) -> int:
        return int(self._table.Get(flatbuffers.number_types.Int8Flags, self._table.Pos + self._at(number)))

    def tables(self, number: int) -> list[Fields]:
        if not self._at(number):
            return []
        start, count = self._table.Vector(self._at(number)), self._table.VectorLen(self._at(number))
        return [Fields(self._table.Bytes, self._table.Indirect(start + 4 * i)) for i in range(count)]

    def _at(self, number: int) -> Any:
        return self._table.Offset(4 + 2 * number)


def test_the_metadata_name_model_tensors_and_labels() -> None:
    data = tflite.read(described()).metadata["TFLITE_METADATA"]

    assert data[4:8] == b"M001"
    model = Fields(data, int.from_bytes(data[:4], "little"))
    assert (model.text(0), model.text(2), model.text(7)) == ("digits", "7", "1.0.0")
    (graph,) = model.tables(3)
    (x,), (logits,) = graph.tables(2), graph.tables(3)
    assert (x.text(0), logits.text(0)) == ("x", "logits")
    (file,) = logits.tables(6)
    assert (file.text(0), file.byte(2), x.tables(6)) == ("labels.txt", 2, [])


def test_the_labels_are_a_file_behind_the_model_which_still_runs() -> None:
    data = described()

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("labels.txt").decode().splitlines() == LABELS
    plain = FloatGraph.of_onnx(onnx.load_from_string(zoo.mlp())).write().data
    feeds = random_feeds(zoo.mlp())
    np.testing.assert_array_equal(run_tflite(data, feeds)["logits"], run_tflite(plain, feeds)["logits"])


def test_a_file_that_is_read_back_keeps_metadata_and_files() -> None:
    data = described()

    again = reading.read(data, "mlp.tflite").write("fp16").data

    assert tflite.read(again).metadata == tflite.read(data).metadata
    with zipfile.ZipFile(io.BytesIO(again)) as archive:
        assert archive.namelist() == ["labels.txt"]


def test_convert_puts_name_version_and_labels_into_every_tflite_file(write_model: WriteModel, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(LABELS))

    convert(
        write_model(zoo.mlp()),
        tmp_path / "m.bundle",
        name="digits",
        labels=tmp_path / "labels.json",
        recipe=Recipe(("tflite",), ("fp32", "int8")),
    )

    for name in ("model", "model_int8"):
        path = tmp_path / f"m.bundle/tflite/{name}.tflite"
        with zipfile.ZipFile(path) as archive:
            assert archive.read("labels.txt").decode().splitlines() == LABELS
        Interpreter(model_path=str(path)).allocate_tensors()


def test_names_inside_are_kept_where_that_is_asked_for(write_model: WriteModel, tmp_path: Path) -> None:
    sizes = []
    for keep_names in (False, True):
        recipe = Recipe(("tflite",), ("fp32",), keep_names=keep_names)
        convert(write_model(zoo.mlp()), tmp_path / "m.bundle", recipe=recipe, force=True)
        file = tflite.read((tmp_path / "m.bundle/tflite/model.tflite").read_bytes())
        sizes.append(len("".join(tensor.name for tensor in file.tensors)))
        assert ("w1" in {tensor.name for tensor in file.tensors}) is keep_names

    assert sizes[0] < sizes[1]


def test_the_same_labels_give_the_same_bytes() -> None:
    assert described() == described()
