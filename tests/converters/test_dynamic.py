"""`--dynamic` and `--shape`: free and other sizes, proven by running, or refused with the place that fixes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edge_infer
from edge_infer import TensorSpec
from edge_infer.errors import ConversionError, InputError, UnsupportedModel
from edge_infer_converters import convert
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.options import SourceOptions, parse_dynamic
from edge_infer_converters.writers.tflite import write
from tests.support import real_models

if TYPE_CHECKING:
    from pathlib import Path


def save(path: Path, nodes: list[onnx.NodeProto], ends: dict[str, list[Any]], **weights: Any) -> Path:
    """Write a model of float inputs `x...` and outputs `y...`."""
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [value for name, value in values.items() if name[0] == "x"],
        [value for name, value in values.items() if name[0] == "y"],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if path.suffix == ".tflite":
        path.write_bytes(write(model, path.stem).data)
    else:
        onnx.save(model, path)
    return path


def convolutional(path: Path) -> Path:
    """Write a model that pools whatever size comes in."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["y"]),
    ]
    weights = {"w": rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32), "shape": np.array([1, 4], np.int64)}
    return save(path, nodes, {"x": [1, 3, 8, 8], "y": [1, 4]}, **weights)


def flat(path: Path) -> Path:
    """Write a model whose matrix needs its size."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"], "flatten"),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    weights = {"shape": np.array([1, 192], np.int64), "w": np.eye(192, 2, dtype=np.float32)}
    return save(path, nodes, {"x": [1, 3, 8, 8], "y": [1, 2]}, **weights)


def opened(path: Path, dynamic: str = "", **options: Any) -> Any:
    return open_source(path, SourceOptions(dynamic=parse_dynamic(dynamic or None), **options))


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_a_batch_becomes_free_although_a_stored_shape_fixes_it(suffix: str, tmp_path: Path) -> None:
    path = flat(tmp_path / f"net{suffix}")
    x = np.random.default_rng(0).normal(0, 1, (3, 3, 8, 8)).astype(np.float32)

    model = opened(path, "batch")

    assert [spec.shape[0] for spec in (*model.inputs, *model.outputs)] == ["batch", "batch"]
    alone = opened(path).reference()
    wanted = np.concatenate([alone.run({"x": one[None]})["y"] for one in x])
    np.testing.assert_allclose(model.reference().run({"x": x})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_a_size_that_a_matrix_needs_is_refused_by_the_node(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"`height`.* cannot become free.*(?i:reshape)"):
        opened(flat(tmp_path / f"net{suffix}"), "x:2=height")
    with pytest.raises(ConversionError, match=r"`height`.* cannot become free"):
        opened(flat(tmp_path / f"net{suffix}"), "batch,x:2=height")  # nor may two samples be taken for four


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_every_variant_of_freed_dimensions_runs_with_other_sizes(suffix: str, tmp_path: Path) -> None:
    path = convolutional(tmp_path / f"net{suffix}")
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 12, 20)).astype(np.float32)
    made = convert(path, tmp_path / "net.bundle", dynamic="batch,x:2=height,x:3=width", goldens=2, keep_all=True)

    assert made.variants
    wanted = opened(path, "batch,x:2=height,x:3=width").reference().run({"x": x})["y"]
    for one in made.variants:
        with edge_infer.load(tmp_path / "net.bundle", variant=one.variant.id, arrays="numpy") as session:
            assert session.inputs[0].shape == ("batch", 3, "height", "width")
            got = session.run({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, atol=0.1 if "int8" in one.variant.id else 1e-2)


def test_samples_that_change_one_another_have_no_free_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=0)]
    with pytest.raises(ConversionError, match="two samples at once is another than that of each alone"):
        opened(save(tmp_path / "net.onnx", nodes, {"x": [1, 3], "y": [1, 3]}), "batch")


def test_rows_of_one_sample_are_no_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, {"x": [1, 4], "y": [1, 4]}, shape=np.array([-1, 4], np.int64))
    with pytest.raises(ConversionError, match="`y` then has 2 rows in place of 1"):
        opened(path, "x:1=length")


def test_one_name_is_free_in_several_inputs(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x0", "x1"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, {"x0": [1, 6], "x1": [1, 6], "y": [1, 6]})

    model = opened(path, "x0:1=length,x1:1=length")

    assert [spec.shape for spec in (*model.inputs, *model.outputs)] == [(1, "length")] * 3
    with pytest.raises(ConversionError, match=r"`length`.*Add `y`"):
        opened(path, "x0:1=length")


@pytest.mark.parametrize("text", ["heigth", "x=height", "x:a=b", "x:2=3d", ""])
def test_dimensions_are_read_or_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not known") as caught:
        parse_dynamic(text)
    assert caught.value.hint


def test_contradictions_are_refused(tmp_path: Path) -> None:
    path = convolutional(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="free and of a fixed size at once"):
        opened(path, "x:2=height", shapes={"x": (None, None, 8, None)})
    with pytest.raises(InputError, match="has no axis 4"):
        opened(path, "x:4=height")
    with pytest.raises(InputError, match="has no input `image`"):
        opened(path, "image:2=height")
    with pytest.raises(InputError, match="known as `sequence`"):
        opened(path, "sequence")


def test_a_tflite_file_takes_another_shape(tmp_path: Path) -> None:
    path = convolutional(tmp_path / "net.tflite")
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 12, 20)).astype(np.float32)

    model = opened(path, shapes={"x": (2, None, 12, 20)})

    assert model.inputs == (TensorSpec("x", "float32", (2, 3, 12, 20)),)
    assert model.outputs == (TensorSpec("y", "float32", (2, 4)),)
    wanted = opened(convolutional(tmp_path / "net.onnx"), "batch,height,width").reference().run({"x": x})["y"]
    np.testing.assert_allclose(model.reference().run({"x": x})["y"], wanted, atol=1e-5)
    with pytest.raises(InputError, match="has 4 dimensions"):
        opened(path, shapes={"x": (1, 3)})
    with pytest.raises(ConversionError, match=r"cannot have inputs of 1x3x16x8.*RESHAPE"):
        opened(flat(tmp_path / "flat.tflite"), shapes={"x": (1, 3, 16, 8)})


def test_an_input_of_a_tflite_file_becomes_a_constant(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x0", "x1"], ["y"])]
    path = save(tmp_path / "net.tflite", nodes, {"x0": [1, 6], "x1": [1, 6], "y": [1, 6]})

    model = opened(path, bind={"x1": 3.0})

    x = np.ones((1, 6), np.float32)
    assert [spec.name for spec in model.inputs] == ["x0"]
    np.testing.assert_array_equal(model.reference().run({"x0": x})["y"], 3 * x)
    with pytest.raises(InputError, match="leaves the model without an input"):
        opened(path, bind={"x0": 1.0, "x1": 3.0})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layout": "nhwc"}, "--layout is for ONNX files"),
        ({"allow_baked": True}, "--allow-baked is for exports"),
        ({"opset": 15}, "--opset is for ONNX files, and none is written"),
    ],
)
def test_what_a_tflite_file_cannot_take_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        convert(convolutional(tmp_path / "net.tflite"), tmp_path / "net.bundle", **options)


def test_the_onnx_file_of_a_tflite_file_has_the_operator_set_asked_for(tmp_path: Path) -> None:
    path = convolutional(tmp_path / "net.tflite")
    convert(path, tmp_path / "net.bundle", format="onnx", precision="fp32", opset=15, goldens=1)

    model = onnx.load(tmp_path / "net.bundle" / "onnx" / "model.onnx")
    assert [one.version for one in model.opset_import if not one.domain] == [15]


def real(name: str) -> Path:
    place = real_models.folder()
    if place is None:
        pytest.skip("EDGE_INFER_ZOO names no folder of real models")
    return place / name


@pytest.mark.parametrize("name", ["ultraface_rfb320.onnx", "kws_int8.tflite", "blazeface.tflite"])
def test_detectors_of_others_take_two_images(name: str) -> None:
    model = opened(real(name), "batch")

    assert {spec.shape[0] for spec in (*model.inputs, *model.outputs)} == {"batch"}


def test_sizes_that_take_too_long_are_refused_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_infer_converters.sources.tflite_sizes._TRIAL_S", 0.001)

    with pytest.raises(ConversionError, match=r"did not run within .* with inputs of 1x49x10x1"):
        opened(real("kws_int8.tflite"), "batch")


def test_operators_that_are_not_written_back_are_named() -> None:
    with pytest.raises(UnsupportedModel, match="TFLite_Detection_PostProcess"):
        opened(real("coco_ssd.tflite"), "batch")
    with pytest.raises(UnsupportedModel, match=r"operator \d+, which gives `.+`, is an LSTM of integers"):
        opened(real("coral_lstm.tflite"), "batch")


TORCH = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(width, 4)

    def forward(self, image):
        values = self.conv(image)
        return self.head(values.mean((2, 3)) if self.head.in_features == 8 else values.flatten(1))

def pooled():
    return Net(8), (torch.zeros(1, 3, 8, 8),)

def flat():
    return Net(512), (torch.zeros(1, 3, 8, 8),)
"""

KERAS = """
import keras

def net():
    image = keras.Input((8, 8, 3), name="image")
    values = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(image))
    return keras.Model(image, keras.layers.Dense(2)(values))

def flat():
    image = keras.Input((8, 8, 3), name="image")
    return keras.Model(image, keras.layers.Dense(2)(keras.layers.Flatten()(image)))
"""


def export(code: str, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = f"sizes_{code.split()[1]}_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return open_source(f"{module}:{function}", SourceOptions(dynamic=parse_dynamic("height,width")))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_a_torch_module_is_exported_with_the_sizes_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    model = export(TORCH, "pooled", tmp_path, monkeypatch)

    assert model.inputs == (TensorSpec("image", "float32", ("batch", 3, "height", "width")),)
    with pytest.raises(ConversionError, match="with 16 in place of 8 torch says: mat1 and mat2"):
        export(TORCH, "flat", tmp_path, monkeypatch)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_keras_model_is_built_again_on_free_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    pytest.importorskip("onnxscript")
    model = export(KERAS, "net", tmp_path, monkeypatch)

    assert model.inputs == (TensorSpec("image", "float32", ("batch", "height", "width", 3)),)
    image = np.random.default_rng(0).normal(0, 1, (2, 12, 20, 3)).astype(np.float32)
    assert model.reference().run({"image": image})[model.outputs[0].name].shape == (2, 2)
    with pytest.raises(ConversionError, match=r"`height`, `width` of .* cannot become free"):
        export(KERAS, "flat", tmp_path, monkeypatch)
