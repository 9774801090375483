"""`edge-infer verify --bisect`: the first node at which two engines, or two variants, part."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer import Bundle, load
from edge_infer.backends.base import Availability
from edge_infer.backends.registry import get_backend
from edge_infer.cli import bisect, main_here
from edge_infer.cli.bisect import judged_way, other_way
from edge_infer.formats.safetensors import write_examples
from edge_infer.tensors.tensor import Tensor
from edge_infer.tools.browser.page import PagePython
from edge_infer.verify.bisection import taps_of
from edge_infer.verify.graphs import graph_of
from tests.support import zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.model_files import WriteBundle

    Verify = Callable[..., tuple[int, dict[str, Any], str]]

GOLDEN = "examples/golden.safetensors"


def net() -> bytes:
    """x -> conv1 -> act1 -> conv2 -> act2 -> pool -> head -> logits, all nodes named."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(0, 0.4, (8, 1, 3, 3)).astype(np.float32),
        "b1": rng.normal(0, 0.1, 8).astype(np.float32),
        "w2": rng.normal(0, 0.3, (8, 8, 3, 3)).astype(np.float32),
        "w3": rng.normal(0, 0.5, (8, 10)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="act1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], name="act2"),
        helper.make_node("ReduceMean", ["r2", "axes"], ["p"], name="pool", keepdims=0),
        helper.make_node("MatMul", ["p", "w3"], ["logits"], name="head"),
    ]
    return zoo.model(
        nodes,
        [zoo.value("x", ["n", 1, 8, 8])],
        [zoo.value("logits", ["n", 10])],
        weights | {"axes": np.array([2, 3])},
    )


def with_weight(data: bytes, name: str, factor: float) -> bytes:
    """Plant a difference: scale one weight."""
    proto = onnx.load_from_string(data)
    for tensor in proto.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), name))
    return bytes(proto.SerializeToString())


def clipped(folder: Path, **wishes: Any) -> Path:
    """Convert the net with calibration data that are too small: int8 clips what lies behind conv1."""
    from edge_infer_converters import convert

    (folder / "net.onnx").write_bytes(net())
    rng = np.random.default_rng(2)
    np.savez(folder / "calibration.npz", x=rng.normal(0, 0.02, (32, 1, 8, 8)).astype(np.float32))
    np.savez(folder / "eval.npz", x=rng.normal(0, 1, (8, 1, 8, 8)).astype(np.float32))
    convert(
        folder / "net.onnx",
        folder / "net.bundle",
        keep_all=True,
        calibration=folder / "calibration.npz",
        evaluation=folder / "eval.npz",
        **wishes,
    )
    return folder / "net.bundle"


def golden(data: bytes) -> bytes:
    x = np.random.default_rng(1).normal(0, 1, (2, 1, 8, 8)).astype(np.float32)
    logits = run_onnx(data, {"x": x})["logits"]
    tensors = [Tensor(array.tobytes(), "float32", array.shape) for array in (x, logits)]
    return write_examples([({"x": tensors[0]}, {"logits": tensors[1]})])


@pytest.fixture
def planted(write_bundle: WriteBundle) -> Path:
    """The net as fp32, and as `fp16` the same with conv2's weights 1 % larger."""
    variants = {"onnx/fp32": net(), "onnx/fp16": with_weight(net(), "w2", 1.01)}
    return write_bundle(variants, extra={GOLDEN: golden(net())}, examples=GOLDEN)


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verify:
    """Run the command; return its exit code, its document, and what it said."""

    def run(*arguments: object) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["edge-infer", "verify", *map(str, arguments), "--json"])
        with pytest.raises(SystemExit) as ended:
            main_here()
        said = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(said.out) if said.out else {}, said.err

    return run


def test_the_planted_node_is_named_and_what_it_read_was_equal(planted: Path, verify: Verify) -> None:
    code, document, _ = verify(planted, "--backend", "onnxruntime", "--bisect")

    (found,) = document["bisections"]
    assert code == 1
    assert (found["variant"], found["against"]) == (
        "onnx/fp16",
        {"variant": "onnx/fp32", "backend": "onnxruntime", "device": "cpu"},
    )
    first = found["first_difference"]
    assert (first["node"], first["operator"], first["output"]) == ("conv2", "Conv", "r2")
    assert first["inputs"] == {"r1": None}  # null: equal to the last bit
    assert first["sqnr_db"] == pytest.approx(40, abs=0.5)  # 1 % is 40 dB
    assert "expected >= 50" in first["reason"]


def test_between_engines_a_sound_model_differs_nowhere(planted: Path, verify: Verify) -> None:
    arguments = ("--backend", "onnxruntime", "--variant", "onnx/fp32", "--bisect", "--against", "reference")
    code, document, said = verify(planted, *arguments)

    (found,) = document["bisections"]
    assert (code, found["first_difference"], found["compared"]) == (0, None, 6)
    assert "no inner value differs" in said


@pytest.mark.long
@pytest.mark.browser
def test_chromium_is_compared_with_native_node_by_node(planted: Path, verify: Verify) -> None:
    arguments = ("--backend", "ort-web", "--variant", "onnx/fp16", "--bisect", "--against", "onnx/fp32")
    code, document, _ = verify(planted, *arguments)

    (found,) = document["bisections"]
    assert (code, found["backend"], found["against"]["backend"]) == (1, "ort-web", "onnxruntime")
    assert found["first_difference"]["node"] == "conv2"


@pytest.mark.long
@pytest.mark.browser
def test_webgpu_is_bisected_on_webgpu(planted: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page where the device is not used raises."""
    devices = []
    run = PagePython.run_examples

    def seen(page: PagePython, url: str, backend: str, variant: str, device: str, given: Any = ()) -> Any:
        devices.append(device)
        return run(page, url, backend, variant, device, given)

    monkeypatch.setattr(PagePython, "run_examples", seen)
    arguments = ("--backend", "ort-web", "--device", "webgpu", "--variant", "onnx/fp32", "--bisect")
    _, document, said = verify(planted, *arguments, "--against", "onnx/fp16")

    assert devices == ["webgpu", "webgpu"], said
    (found,) = document["bisections"]
    assert (found["device"], found["against"]["device"]) == ("webgpu", "cpu")
    assert found["first_difference"]["node"] == "conv2"


def test_the_processor_is_bisected_on_the_processor_where_there_is_a_gpu(
    planted: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = []

    def seen(*arguments: Any, **wishes: Any) -> Any:
        devices.append(wishes["device"])
        return load(*arguments, **wishes)

    monkeypatch.setattr(bisect, "load", seen)
    state = Availability(ready=True, devices=("cuda", "cpu"))
    monkeypatch.setattr(get_backend("onnxruntime"), "availability", lambda: state)
    verify(planted, "--backend", "onnxruntime", "--device", "cpu", "--bisect")

    assert devices == ["cpu", "cpu"]


def test_a_gpu_is_compared_with_the_processor_of_the_same_engine(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Availability(ready=True, devices=("cuda", "cpu"))
    monkeypatch.setattr(get_backend("onnxruntime"), "availability", lambda: state)
    bundle = Bundle.open(planted)

    for device in ("auto", "cuda"):
        way = judged_way(bundle.manifest.variant("onnx/fp32"), "onnxruntime", device)
        assert str(way) == "onnx/fp32 on onnxruntime, cuda"
        assert str(other_way(bundle, way, "onnxruntime")) == "onnx/fp32 on onnxruntime"


def test_an_int8_variant_is_mapped_to_the_names_of_the_float_one(tmp_path: Path, verify: Verify) -> None:
    """A range that calibration never saw: what lies behind conv2 is clipped."""
    clipped(tmp_path, format="onnx", precision="fp32,int8")

    arguments = ("--backend", "onnxruntime", "--variant", "onnx/int8", "--bisect")
    code, document, _ = verify(tmp_path / "net.bundle", *arguments)

    first = document["bisections"][0]["first_difference"]
    assert code == 1
    assert (first["node"], first["output"]) == ("conv1", "r1")  # the first whose range is too small
    assert first["output_in_variant"] not in ("c1", "r1")  # its inner names are short


def test_int8_values_are_found_by_what_they_are_computed_from(tmp_path: Path) -> None:
    from edge_infer_converters.data.random_inputs import random_set
    from edge_infer_converters.passes.int8_static import to_int8
    from edge_infer_converters.sources import onnx as source

    (tmp_path / "net.onnx").write_bytes(net())
    model = source.load(tmp_path / "net.onnx")
    quantized = to_int8(model.proto, random_set(model.inputs).calls).SerializeToString()

    assert {tap.name for tap in taps_of(graph_of(net(), "onnx"), graph_of(quantized, "onnx"))} >= {
        "r1",
        "r2",
        "p",
        "logits",
    }


def test_all_variants_are_compared_with_one(planted: Path, verify: Verify) -> None:
    _, document, _ = verify(planted, "--backend", "onnxruntime", "--bisect", "--against", "onnx/fp32")

    assert [found["variant"] for found in document["bisections"]] == ["onnx/fp16"]


def test_half_precision_is_compared_as_numbers(tmp_path: Path, verify: Verify) -> None:
    from edge_infer_converters import convert

    (tmp_path / "net.onnx").write_bytes(net())
    convert(tmp_path / "net.onnx", tmp_path / "net.bundle", format="onnx", precision="fp32,fp16")

    arguments = ("--variant", "onnx/fp16", "--backend", "onnxruntime", "--bisect", "--against", "onnx/fp32")
    code, document, _ = verify(tmp_path / "net.bundle", *arguments)

    (found,) = document["bisections"]
    assert (code, found["first_difference"]) == (0, None)
    assert found["compared"] >= 4


def test_look_alikes_are_told_apart_by_their_order() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", weight], [out], name=out)
        for weight, out in (("wq", "q"), ("wk", "k"), ("wv", "v"))
    ]
    nodes.append(helper.make_node("Sum", ["q", "k", "v"], ["y"], name="sum"))
    weights = {name: np.eye(3, dtype=np.float32) for name in ("wq", "wk", "wv")}
    data = zoo.model(nodes, [zoo.value("x", [2, 3])], [zoo.value("y", [2, 3])], weights)
    other = onnx.load_from_string(data)
    for node in other.graph.node:
        node.output[:] = [name if name == "y" else f"{name}_other" for name in node.output]
        node.input[:] = [f"{name}_other" if name in "qkv" else name for name in node.input]

    graphs = graph_of(data, "onnx"), graph_of(other.SerializeToString(), "onnx")
    pairs = [(tap.name, tap.other) for tap in taps_of(*graphs)]

    assert pairs == [("q", "q_other"), ("k", "k_other"), ("v", "v_other"), ("y", "y")]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--bisect", "--against", "onnx/none"), 1, "--against `onnx/none` is neither an engine nor a variant"),
        (("--against", "onnx/fp32"), 2, "--against needs --bisect"),
        (("--variant", "onnx/fp32", "--bisect", "--against", "onnxruntime"), 1, "cannot be compared with itself"),
    ],
)
def test_what_cannot_be_compared_is_said(
    planted: Path, arguments: tuple[str, ...], code: int, said: str, verify: Verify
) -> None:
    found, _, stderr = verify(planted, "--backend", "onnxruntime", *arguments)

    assert (found, said in stderr) == (code, True)


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    """The net as TFLite, its int8 variant by ranges that are too small; and as ONNX."""
    return clipped(tmp_path, precision="fp32,fp16,int8")


def test_tflite_is_bisected_by_the_values_between_its_operators(tflite: Path, verify: Verify) -> None:
    code, document, said = verify(tflite, "--backend", "litert", "--bisect", "--variant", "tflite/int8")

    (found,) = document["bisections"]
    first = found["first_difference"]
    assert (code, found["against"]["variant"]) == (1, "tflite/fp32"), said
    assert first["operator"] == "RESHAPE"  # it reads the input, which the ranges clip already
    assert first["sqnr_db"] < 20


def test_a_sound_tflite_variant_differs_nowhere(tflite: Path, write_bundle: WriteBundle, verify: Verify) -> None:
    model = (tflite / "tflite/model.tflite").read_bytes()
    goldens = (tflite / GOLDEN).read_bytes()
    twice = write_bundle({"tflite/fp32": model, "tflite/fp16": model}, extra={GOLDEN: goldens}, examples=GOLDEN)

    arguments = ("--backend", "litert", "--variant", "tflite/fp16", "--bisect", "--against", "tflite/fp32")
    _, document, said = verify(twice, *arguments)

    (found,) = document["bisections"]
    assert found["first_difference"] is None
    assert found["compared"] >= 4
    assert "no inner value differs" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variant", "tflite/fp32", "--against", "onnx/fp32"), "files of two formats"),
        (("--variant", "tflite/int8", "--against", "onnxruntime"), "does not give inner values of TFLite"),
    ],
)
def test_tflite_is_compared_with_tflite_on_its_own_engine(
    tflite: Path, verify: Verify, arguments: tuple[str, ...], message: str
) -> None:
    _, document, said = verify(tflite, "--backend", "litert", "--bisect", *arguments)

    assert document["bisections"] == []
    assert message in said
