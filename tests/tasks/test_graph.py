"""The steps that are small ONNX models: packed, proven and synced with their bundle, the same in Python and in Node."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import cli
from edge_infer.errors import EdgeInferError, InputError, IntegrityError, ManifestError
from edge_infer.runtime.loader import trial
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.tasks import vectors
from edge_infer_converters import convert
from tests.support import zoo
from tests.support.tasks import hub_folders, pipelines

PROGRAM = Path(__file__).with_name("ask.mjs")
PIPELINE: dict[str, Any] = {
    "task": "image-classification",
    "inputs": {
        "pixel_values": [
            {"step": "image.decode"},
            {"step": "image.resize", "width": 16, "height": 16},
            {"step": "image.to_tensor"},
            {"step": "tensor.graph", "file": "halve.onnx"},
        ]
    },
    "outputs": [{"step": "post.graph", "file": "sure.onnx"}, {"step": "post.top_k", "tensor": "scores"}],
}


def halve(side: int | str = 16) -> bytes:
    """Means of 2 x 2 levels, as -1 to 1."""
    return zoo.model(
        [
            helper.make_node("AveragePool", ["levels"], ["means"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Div", ["means", "half"], ["scaled"]),
            helper.make_node("Sub", ["scaled", "one"], ["halved"]),
        ],
        [zoo.value("levels", ["n", 3, side, side])],
        [zoo.value("halved", ["n", 3, "h", "w"])],
        {"half": np.array(127.5, np.float32), "one": np.array(1, np.float32)},
        21,
    )


def sure() -> bytes:
    """Probabilities, half as sure."""
    return zoo.model(
        [helper.make_node("Mul", ["logits", "half"], ["cool"]), helper.make_node("Softmax", ["cool"], ["scores"])],
        [zoo.value("logits", ["n", 3])],
        [zoo.value("scores", ["n", 3])],
        {"half": np.array(0.5, np.float32)},
        21,
    )


def write(folder: Path, definition: dict[str, Any] | None = None, **graphs: bytes) -> Path:
    """Write a model, a definition and its graphs beside one another; return the path of the definition."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(hub_folders.image_classifier(3))
    for name, data in ({"halve": halve(), "sure": sure()} | graphs).items():
        (folder / f"{name}.onnx").write_bytes(data)
    (folder / "labels.json").write_text('["a", "b", "c"]')
    (folder / "pipeline.json").write_text(json.dumps(definition or PIPELINE), "utf-8")
    return folder / "pipeline.json"


def made(folder: Path, target: str = "made.bundle", version: str = "1", **graphs: bytes) -> Path:
    definition = write(folder, None, **graphs)
    convert(
        folder / "model.onnx",
        folder / target,
        name="graphs",
        version=version,
        preprocess=str(definition),
        labels=folder / "labels.json",
        precision="fp32",
        format="onnx",
    )
    return folder / target


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("graphs"))


def picture(seed: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)


def by_hand(bundle: Path, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    levels = pixels.transpose(2, 0, 1)[None].astype(np.float32)
    halved = levels.reshape(1, 3, 8, 2, 8, 2).mean((3, 5)) / 127.5 - 1
    with edge_infer.load(bundle, arrays="numpy") as session:
        logits = session.run({"pixel_values": halved.astype(np.float32)})["logits"][0] * 0.5
    powers = np.exp(logits - logits.max())
    found: np.ndarray[Any, Any] = powers / powers.sum()
    return found


def test_the_answers_are_those_by_hand(bundle: Path) -> None:
    with edge_infer.pipeline(bundle, self_test=True) as ask:
        for seed in range(5):
            scores = {one["label"]: one["score"] for one in ask(picture(seed))}
            assert [scores[name] for name in "abc"] == pytest.approx(by_hand(bundle, picture(seed)), abs=1e-6)
        alone = ask([picture(0), picture(1)])
    assert alone[0] != alone[1]


def test_verify_runs_the_graphs_and_notices_another_one(bundle: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["verify", str(bundle), "--backend", "onnxruntime"])
    assert done.exit_code == 0, done.output
    assert "agree with the vectors of the pipeline" in done.output
    proof = vectors.read(Bundle.open(bundle))
    assert proof is not None
    other = made(tmp_path, halve=halve().replace(np.float32(127.5).tobytes(), np.float32(100).tobytes()))
    differences = vectors.check_steps(Bundle.open(other), proof)
    assert differences[0] == "case 0: the tensor `pixel_values` differs"


def test_a_damaged_graph_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = made(tmp_path)
    (path / "halve.onnx").write_bytes(sure())
    with pytest.raises(IntegrityError, match=r"halve\.onnx"):
        edge_infer.pipeline(path)


def test_node_gives_the_same(bundle: Path, tmp_path: Path) -> None:
    pictures = [picture(seed) for seed in range(4)]
    encoded = [base64.b64encode(one.tobytes()).decode() for one in pictures]
    asked = [{"image": {"width": 16, "height": 16, "channels": 3, "data": data}} for data in encoded]
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    command = ["node", str(PROGRAM), str(bundle), str(tmp_path / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)["answers"]
    with edge_infer.pipeline(bundle) as ask:
        for got, want in zip(answers, ask(pictures), strict=True):
            assert [one["label"] for one in got] == [one["label"] for one in want]
            assert [one["score"] for one in got] == pytest.approx([one["score"] for one in want], abs=1e-6)


def test_a_graph_is_synced_with_its_bundle(bundle: Path, tmp_path: Path) -> None:
    store, keys = Repository(tmp_path / "store"), tmp_path / "keys"
    store.create(keys)
    publish(bundle, store, keys)
    taken = pull(str(tmp_path / "store"), "graphs", DeviceStore(tmp_path / "device"), trial)
    with edge_infer.pipeline(taken.path) as there, edge_infer.pipeline(bundle) as here:
        assert there(picture()) == here(picture())


def two_inputs() -> bytes:
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"])]
    return zoo.model(nodes, [zoo.value("a", ["n"]), zoo.value("b", ["n"])], [zoo.value("sum", ["n"])], {}, 21)


def changed(side: str, at: int, **values: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(PIPELINE))
    steps = found["outputs"] if side == "outputs" else found["inputs"]["pixel_values"]
    steps[at] |= values
    return found


@pytest.mark.parametrize(
    ("definition", "graphs", "error", "said"),
    [
        (changed("inputs", 3, file="none.onnx"), {}, InputError, "none.onnx"),
        (changed("inputs", 3, file="../halve.onnx"), {}, InputError, "outside of the folder"),
        (changed("inputs", 3, file="/halve.onnx"), {}, InputError, "outside of the folder"),
        (changed("inputs", 3, file="labels.json"), {}, ManifestError, r"is no \.onnx file"),
        (PIPELINE, {"halve": b""}, EdgeInferError, r"halve\.onnx"),
        (PIPELINE, {"halve": b"no model"}, ManifestError, r"halve\.onnx` cannot be loaded"),
        (PIPELINE, {"halve": two_inputs()}, ManifestError, "one input and one output"),
        (PIPELINE, {"sure": halve()}, ManifestError, "takes `levels`, and the model gives `logits`"),
        (PIPELINE, {"halve": halve(20)}, EdgeInferError, "levels"),
    ],
)
def test_what_does_not_fit_is_refused(
    definition: dict[str, Any], graphs: dict[str, bytes], error: type[Exception], said: str, tmp_path: Path
) -> None:
    path = write(tmp_path, definition, **graphs)
    with pytest.raises(error, match=said):
        convert(
            tmp_path / "model.onnx",
            tmp_path / "b.bundle",
            preprocess=str(path),
            calibration=pictures(tmp_path),
            labels=tmp_path / "labels.json",
            precision="fp32",
            format="onnx",
        )
    assert not (tmp_path / "b.bundle").exists()


def test_labels_are_counted_by_what_the_last_graph_gives(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "labels.json").write_text('["a", "b"]')
    with pytest.raises(InputError, match="There are 2 labels, and output `scores` has 3 classes"):
        convert(tmp_path / "model.onnx", tmp_path / "b", preprocess=str(path), labels=tmp_path / "labels.json")


def pictures(folder: Path) -> Path:
    from PIL import Image

    (folder / "pictures").mkdir()
    Image.fromarray(picture()).save(folder / "pictures/one.png")
    return folder / "pictures"


def found_above(folder: Path) -> Path:
    """A bundle whose graph lists the levels above 0.5 of three: as many rows as there are."""
    rows = zoo.model(
        [
            helper.make_node("Greater", ["logits", "half"], ["is_above"]),
            helper.make_node("Reshape", ["is_above", "flat"], ["mask"]),
            helper.make_node("Compress", ["logits", "mask"], ["levels"]),
            helper.make_node("Reshape", ["levels", "column"], ["found"]),
        ],
        [zoo.value("logits", ["n", 3])],
        [zoo.value("found", ["rows", 1])],
        {
            "half": np.array(0.5, np.float32),
            "flat": np.array([-1], np.int64),
            "column": np.array([-1, 1], np.int64),
        },
        17,
    )
    steps = [{"step": "post.graph", "file": "found.onnx"}, {"step": "post.tensor", "tensor": "found"}]
    before = [
        {"step": "image.decode"},
        {"step": "image.resize", "width": 8, "height": 8},
        {"step": "image.rescale_normalize"},
    ]
    return pipelines.write(
        folder,
        [helper.make_node("ReduceMean", ["pixels"], ["logits"], axes=[2, 3], keepdims=0)],
        [edge_infer.TensorSpec("pixels", "float32", ("batch", 3, 8, 8))],
        [edge_infer.TensorSpec("logits", "float32", ("batch", 3))],
        "image-feature-extraction",
        {"pixels": before},
        steps,
        files={"found.onnx": rows},
    )


def test_a_list_of_one_row_stays_a_list(tmp_path: Path) -> None:
    """The dimension that the graph's input got for the run is taken away again, and no other one of 1."""
    path = found_above(tmp_path / "found.bundle")
    pictures = [np.full((8, 8, 3), levels, np.uint8) for levels in ([255, 0, 0], [255, 255, 0], [0, 0, 0])]
    with edge_infer.pipeline(path) as ask:
        shapes = [list(ask(one).shape) for one in pictures]
    assert shapes == [[1, 1], [2, 1], [0, 1]]
    code = (
        f"import {{ pipeline }} from {json.dumps((PROGRAM.parents[2] / 'web/src/index.js').as_uri())};"
        f"const ask = await pipeline({json.dumps(str(path))});"
        "const said = []; for (const levels of [[255, 0, 0], [255, 255, 0]]) {"
        " const data = Uint8Array.from({ length: 192 }, (_, i) => levels[i % 3]);"
        " said.push((await ask({ data, width: 8, height: 8, channels: 3 })).shape); }"
        "await ask.dispose(); console.log(JSON.stringify(said));"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == shapes[:2]
