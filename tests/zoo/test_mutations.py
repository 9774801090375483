"""`verify` notices that a variant of a real detector was changed: a weight, swapped scores, a lost one, a moved box."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer_converters.passes.graphs import FreshNames, names_in
from tests.support import limited, real_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZOO = real_models.folder()
#: A face detector for images of 320 x 240: `scores` [1, 4420, 2], background and face, and `boxes` [1, 4420, 4], shares
#: of the image.
MODEL = "ultraface_rfb320.onnx"
_WIDTH = 320
_PRECISIONS = ("fp32", "fp16", "int8")
UNNOTICED = "one SQNR over a whole output, 20 dB enough for int8, does not see it"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models"),
]


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The detector's bundle, its ranges and golden examples from two images of noise."""
    assert ZOO is not None
    folder = tmp_path_factory.mktemp("detector")
    images = np.random.default_rng(0).normal(0, 0.5, (2, 3, 240, 320)).astype(np.float32)
    np.savez(folder / "images.npz", input=images)
    bundle = folder / "faces.bundle"
    command = ["convert", os.fspath(ZOO / MODEL), "-o", os.fspath(bundle), "--calibration", str(folder / "images.npz")]
    more = ["--format", "onnx", "--precision", ",".join(_PRECISIONS), "--keep-all"]
    done = limited.run((*real_models.EDGE_INFER, *command, *more), seconds=120)
    assert done.code == 0, done.err
    return bundle


def verified(bundle: Path, precision: str) -> str:
    """Return the verdict of a variant on onnxruntime."""
    command = ("verify", os.fspath(bundle), "--variant", f"onnx/{precision}", "--backend", "onnxruntime", "--json")
    done = limited.run((*real_models.EDGE_INFER, *command), seconds=120)
    return str(json.loads(done.out)["rows"][0]["verdict"])


def changed(bundle: Path, precision: str, change: Callable[[onnx.GraphProto], None], target: Path) -> Path:
    """Copy a bundle with one variant's graph changed, its manifest true to the new file."""
    shutil.copytree(bundle, target)
    manifest = Manifest.from_bytes((target / "manifest.json").read_bytes())
    file = manifest.variant(f"onnx/{precision}").file
    model = onnx.load(target / file)
    change(model.graph)
    data = model.SerializeToString()
    (target / file).write_bytes(data)
    entries = dict(manifest.files) | {file: FileEntry(file, len(data), sha256(data).hexdigest())}
    document = json.loads((target / "manifest.json").read_bytes())
    document["files"] = [entry.to_json() for entry in entries.values()]
    (target / "manifest.json").write_text(json.dumps(document))
    return target


def a_weight(graph: onnx.GraphProto) -> None:
    """Turn the sign of the largest weight of the first convolution."""
    first = next(node for node in graph.node if node.op_type == "Conv")
    makers = {name: node for node in graph.node for name in node.output}
    name = first.input[1]
    while name in makers:  # behind DequantizeLinear or Cast
        name = makers[name].input[0]
    tensor = next(one for one in graph.initializer if one.name == name)
    weights = numpy_helper.to_array(tensor).copy()
    place = np.unravel_index(np.abs(weights.astype(np.float32)).argmax(), weights.shape)
    weights[place] = -weights[place]
    tensor.CopyFrom(numpy_helper.from_array(weights, name))


def behind(graph: onnx.GraphProto, output: str, kind: str, values: list[float]) -> None:
    """Put an operator with a constant behind an output."""
    fresh = FreshNames(names_in(graph))
    before, constant = fresh(f"{output}/before"), fresh(f"{output}/constant")
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == output:
                    names[i] = before
    graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32), constant))
    graph.node.append(helper.make_node(kind, [before, constant], [output], name=fresh(kind)))


def swapped_scores(graph: onnx.GraphProto) -> None:
    """Give the background for the face, and the face for the background."""
    fresh = FreshNames(names_in(graph))
    before, order = fresh("scores/before"), fresh("scores/order")
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == "scores":
                    names[i] = before
    graph.initializer.append(numpy_helper.from_array(np.array([1, 0]), order))
    graph.node.append(helper.make_node("Gather", [before, order], ["scores"], name=fresh("swap"), axis=2))


def no_faces(graph: onnx.GraphProto) -> None:
    """Zero the score of a class."""
    behind(graph, "scores", "Mul", [1, 0])


def moved_boxes(graph: onnx.GraphProto) -> None:
    """Shift the boxes by 3 px."""
    behind(graph, "boxes", "Add", [3 / _WIDTH, 0, 3 / _WIDTH, 0])


@pytest.mark.parametrize("precision", _PRECISIONS)
def test_a_variant_that_nobody_changed_passes(detector: Path, precision: str) -> None:
    assert verified(detector, precision) in ("ok", "warn")


@pytest.mark.parametrize(
    ("precision", "change"),
    [
        pytest.param(
            precision,
            change,
            marks=[pytest.mark.xfail(reason=UNNOTICED, raises=AssertionError)]
            if precision == "int8" and change is not swapped_scores
            else [],
        )
        for precision in _PRECISIONS
        for change in (a_weight, swapped_scores, no_faces, moved_boxes)
    ],
)
def test_verify_notices_a_change(
    detector: Path, precision: str, change: Callable[[onnx.GraphProto], None], tmp_path: Path
) -> None:
    assert verified(changed(detector, precision, change, tmp_path / "changed.bundle"), precision) == "fail"
