"""Small bundles that feed one another, and the chains that are built of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import edge_infer
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.chains.build import build_chain
from edge_infer.tensors.tensor import TensorSpec
from edge_infer.vectors.embedder import Embedder
from tests.support.generation.bundles import write_bundle
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from pathlib import Path

#: Boxes of the detector: left, top, right, bottom in an input of 32 x 32, score, class.
BOXES = [[2.0, 3.0, 12.0, 14.0, 0.9, 0.0], [10.0, 8.0, 30.0, 31.0, 0.8, 1.0], [0.0, 0.0, 3.0, 3.0, 0.2, 0.0]]
TEXTS = ["good film", "bad film", "paris", "london a paris", "a good london"]


def detector(folder: Path) -> Path:
    """A detector that finds the same boxes in each picture."""
    return pipelines.write(
        folder,
        [
            helper.make_node("ReduceMean", ["pixels"], ["mean"], axes=[1, 2, 3], keepdims=0),
            helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
            helper.make_node("Add", ["boxes", "nothing"], ["found"]),
        ],
        [TensorSpec("pixels", "float32", (1, 3, 32, 32))],
        [TensorSpec("found", "float32", (1, len(BOXES), 6))],
        "object-detection",
        {
            "pixels": [
                {"step": "image.decode"},
                {"step": "image.resize", "width": 32, "height": 32},
                {"step": "image.rescale_normalize"},
            ]
        },
        [{"step": "post.boxes", "format": "yolov10"}, {"step": "post.detections"}],
        constants={"zero": np.float32(0), "boxes": np.array([BOXES], np.float32)},
        labels=["thing", "place"],
    )


def embedder(folder: Path) -> Path:
    """A model that gives a vector of four numbers for a text."""
    return pipelines.words(folder, "feature-extraction", [{"step": "post.normalize"}], pooled=True)


def ranker(folder: Path) -> Path:
    """A model that scores a query with a document: the mean of a column of its table."""
    return pipelines.words(folder, "text-ranking", [{"step": "post.tensor"}], 1, pooled=True)


def clusters(folder: Path, width: int = 4) -> Path:
    """K-means without a pipeline: the nearest of three centres, and how far each is."""
    centres = np.random.default_rng(5).normal(size=(3, width)).astype(np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "middle"], ["rows"]),
        helper.make_node("Sub", ["rows", "centres"], ["apart"]),
        helper.make_node("Mul", ["apart", "apart"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "last"], ["scores"], keepdims=0),
        helper.make_node("ArgMin", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    constants = {"centres": centres, "middle": np.array([1]), "last": np.array([2])}
    specs = [TensorSpec("label", "int64", ("n",)), TensorSpec("scores", "float32", ("n", 3))]
    graph = helper.make_graph(
        nodes,
        "clusters",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    manifest = Manifest(
        folder.stem,
        "1",
        [TensorSpec("x", "float32", ("n", width))],
        specs,
        [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")],
        [FileEntry("onnx/model.onnx", len(data), hashlib.sha256(data).hexdigest())],
    )
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(data)
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def index(folder: Path, bundle: Path, texts: list[str] | None = None) -> Path:
    """An index of texts by the embedder."""
    with Embedder(bundle) as model:
        made = edge_infer.Index.create(folder, 4, embedding=model.embedding(), model=bundle)
        chosen = TEXTS if texts is None else texts
        made.add(model.documents(chosen), texts=chosen, metadata=[{"n": i} for i in range(len(chosen))])
    return folder


def things(folder: Path) -> dict[str, Any]:
    """Describe a detector whose crops are classified, beside a classifier of the whole picture."""
    detector(folder / "things.bundle")
    pipelines.colours(folder / "colours.bundle")
    return {
        "name": "things",
        "inputs": {"image": "image"},
        "steps": [
            {"name": "things", "bundle": "things.bundle", "from": "image"},
            {"name": "crops", "do": "crop", "from": {"image": "image", "boxes": "things"}, "with": {"margin": 0.1}},
            {"name": "colours", "bundle": "colours.bundle", "from": "crops", "with": {"top_k": 1}},
            {"name": "whole", "bundle": "colours.bundle", "from": "image"},
        ],
        "outputs": {"things": "things", "colours": "colours", "whole": "whole"},
    }


def answers(folder: Path, **generate: Any) -> dict[str, Any]:
    """Describe an embedder, a search, a ranking and a generator: a question to an answer with its sources."""
    embedder(folder / "minilm.bundle")
    ranker(folder / "ranker.bundle")
    write_bundle(folder / "writer.bundle", **generate)
    index(folder / "notes.index", folder / "minilm.bundle")
    return {
        "name": "answers",
        "inputs": {"question": "text"},
        "steps": [
            {"name": "vector", "bundle": "minilm.bundle", "from": "question"},
            {
                "name": "found",
                "index": "notes.index",
                "from": {"vector": "vector", "text": "question"},
                "with": {"k": 3, "mode": "hybrid"},
            },
            {
                "name": "sources",
                "bundle": "ranker.bundle",
                "from": {"query": "question", "hits": "found"},
                "with": {"most": 2},
            },
            {
                "name": "prompt",
                "do": "prompt",
                "from": {"sources": "sources", "question": "question"},
                "with": {"template": "Read:\n{sources}\n\nQuestion: {question}"},
            },
            {"name": "answer", "bundle": "writer.bundle", "from": "prompt", "with": {"max_tokens": 8}},
        ],
        "outputs": {"answer": "answer", "sources": "sources"},
    }


def grouped(folder: Path) -> dict[str, Any]:
    """Describe an encoder and k-means: a text to the number of its group."""
    embedder(folder / "minilm.bundle")
    clusters(folder / "groups.bundle")
    return {
        "name": "grouped",
        "inputs": {"text": "text"},
        "steps": [
            {"name": "vector", "bundle": "minilm.bundle", "from": "text", "cache": True},
            {"name": "group", "bundle": "groups.bundle", "from": {"x": "vector"}},
        ],
        "outputs": "group.label",
    }


def speech(folder: Path) -> dict[str, Any]:
    """Describe a detector of speech and what cuts it out."""
    pipelines.loudness(folder / "speech.bundle")
    return {
        "name": "speech",
        "inputs": {"sound": "sound"},
        "steps": [
            {"name": "parts", "bundle": "speech.bundle", "from": "sound"},
            {"name": "cuts", "do": "cut", "from": {"sound": "sound", "segments": "parts"}},
            {"name": "again", "bundle": "speech.bundle", "from": "cuts"},
        ],
        "outputs": {"parts": "parts", "again": "again"},
    }


def build(folder: Path, description: dict[str, Any], **options: Any) -> Path:
    """Build a chain beside its parts, and return its bundle."""
    target = folder / f"{description['name']}.bundle"
    target = target.with_name(f"chain-{target.name}")
    build_chain(description, folder, target, **options)
    return target
