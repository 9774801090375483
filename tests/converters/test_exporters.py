"""Models of other libraries: each becomes an ONNX model that gives the library's own numbers."""

from __future__ import annotations

import json
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_infer import TensorSpec
from edge_infer.errors import ConversionError
from edge_infer_converters.passes.graphs import opset_of
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.onnx import SourceModel
from edge_infer_converters.sources.options import SourceOptions
from tests.support.converters.table import RNG, X

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


BOOSTED = """
import lightgbm
import numpy as np
import xgboost
from tests.support.converters.table import CLASSES, X

def xgboost_classifier():
    return xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(X, CLASSES)

def xgboost_regressor():
    return xgboost.XGBRegressor(n_estimators=5, max_depth=3, n_jobs=1).fit(X, X[:, 2])

def xgboost_booster():
    return xgboost.train({"max_depth": 3, "nthread": 1}, xgboost.DMatrix(X, label=X[:, 2]), 5)

def lightgbm_classifier():
    return lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, CLASSES)

def lightgbm_regressor():
    return lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(X, X[:, 2])

def lightgbm_tenths():
    tenths = np.round(X * 10).astype(np.float32) / np.float32(10)
    return lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(tenths, label=tenths.prod(1)), 10)

def lightgbm_booster():
    return lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, label=X[:, 2].copy()), 5)
"""

KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras

def net():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(image)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, keras.layers.Dense(3, activation="softmax", name="scores")(x))
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the modules into the current folder; return the end of their names, which no other test has."""
    end = f"_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"boosted{end}.py").write_text(BOOSTED)
    (tmp_path / f"keras{end}.py").write_text(KERAS)
    monkeypatch.chdir(tmp_path)
    return end


# -- boosted trees --


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_boosted_classifier_gives_its_labels_and_probabilities(in_folder: str, library: str) -> None:
    model = open_source(f"boosted{in_folder}:{library}_classifier")

    assert model.inputs == (TensorSpec("x", "float32", ("batch", 5)),)
    assert [(str(spec.dtype), spec.shape) for spec in model.outputs] == [
        ("int64", ("batch",)),
        ("float32", ("batch", 3)),
    ]
    labels, probabilities = model.reference().run({"x": X}).values()
    estimator = getattr(sys.modules[f"boosted{in_folder}"], f"{library}_classifier")()
    np.testing.assert_array_equal(labels, estimator.predict(X))
    np.testing.assert_allclose(probabilities, estimator.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_boosted_regressor_and_its_booster_give_their_values(in_folder: str, library: str) -> None:
    (values,) = open_source(f"boosted{in_folder}:{library}_regressor").reference().run({"x": X}).values()
    (boosted,) = open_source(f"boosted{in_folder}:{library}_booster").reference().run({"x": X}).values()

    estimator = getattr(sys.modules[f"boosted{in_folder}"], f"{library}_regressor")()
    np.testing.assert_allclose(values.reshape(-1), estimator.predict(X), atol=1e-5)
    assert boosted.shape == values.shape


def test_thresholds_of_lightgbm_divide_float32_numbers_as_they_divide_float64_ones(in_folder: str) -> None:
    """A threshold rounded up would move the float32 that it has become to the other side."""
    model = open_source(f"boosted{in_folder}:lightgbm_tenths")
    assert isinstance(model, SourceModel)
    booster = sys.modules[f"boosted{in_folder}"].lightgbm_tenths()
    (node,) = [node for node in model.proto.graph.node if node.op_type.startswith("TreeEnsemble")]
    stored = {attribute.name: attribute for attribute in node.attribute}
    splits = list(zip(stored["nodes_featureids"].ints, stored["nodes_values"].floats, strict=True))
    edges = np.repeat(X[:1], 2 * len(splits), 0)
    for number, (feature, threshold) in enumerate(splits):
        edges[2 * number, feature] = threshold
        edges[2 * number + 1, feature] = np.nextafter(np.float32(threshold), np.float32(np.inf))

    (values,) = model.reference().run({"x": edges}).values()

    np.testing.assert_allclose(values.reshape(-1), booster.predict(edges.astype(np.float64)), atol=1e-4)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_without_onnxmltools_the_extra_is_named(in_folder: str, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, "onnxmltools", None)

    with pytest.raises(ConversionError, match=f"Exporting from {library} needs onnxmltools") as caught:
        open_source(f"boosted{in_folder}:{library}_regressor")

    assert caught.value.hint == f'pip install "edge-infer-converters[{library}]"'


# -- Keras --


@pytest.mark.long
@pytest.mark.torch
def test_a_keras_model_gives_what_it_gives_in_keras(in_folder: str) -> None:
    image = RNG.normal(0, 1, (3, 8, 8, 1)).astype(np.float32)

    model = open_source(f"keras{in_folder}:net")

    assert model.inputs == (TensorSpec("image", "float32", ("batch", 8, 8, 1)),)
    assert model.outputs == (TensorSpec("scores", "float32", ("batch", 3)),)
    assert isinstance(model, SourceModel)
    assert "Cast" not in {node.op_type for node in model.proto.graph.node}
    net = sys.modules[f"keras{in_folder}"].net()
    wanted = net(image).detach().cpu().numpy()
    np.testing.assert_allclose(model.reference().run({"image": image})["scores"], wanted, atol=1e-5)


# -- exported programs --


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A saved program with a free batch, and the module that it is of."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # torch comes after the types
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(6, 3)

        def forward(self, x: Any) -> dict[str, Any]:
            return {"scores": torch.relu(self.head(x)), "doubled": x * 2}

    net = Net().eval()
    path = tmp_path_factory.mktemp("program") / "net.pt2"
    exported = torch.export.export(net, (torch.zeros(2, 6),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    torch.export.save(exported, path)
    return path, net


def changed(source: Path, target: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes]) -> Path:
    """Copy an archive, its members changed and others put in."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        for name, data in more.items():
            new.writestr(name, data)
    return target


@pytest.mark.torch
def test_an_exported_program_gives_what_it_gives_in_torch(program: tuple[Path, Any]) -> None:
    import torch

    path, net = program
    x = RNG.normal(0, 1, (5, 6)).astype(np.float32)

    model = open_source(path, SourceOptions(opset=18))

    assert model.inputs == (TensorSpec("x", "float32", ("batch", 6)),)
    assert isinstance(model, SourceModel)
    assert (model.name, opset_of(model.proto)) == ("net", 18)
    with torch.no_grad():
        wanted = net(torch.from_numpy(x))
    found = model.reference().run({"x": x})
    assert set(found) == {"scores", "doubled"}
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value.numpy(), atol=1e-6)


@pytest.mark.torch
def test_a_program_that_would_run_code_is_refused_unopened(program: tuple[Path, Any], tmp_path: Path) -> None:
    def call(name: str, data: bytes) -> bytes:
        return data.replace(b"torch.ops.aten.relu.default", b"torch.os.system") if name.endswith("model.json") else data

    def expression(name: str, data: bytes) -> bytes:
        if not name.endswith("model.json"):
            return data
        document = json.loads(data)
        document["planted"] = {"expr_str": "__import__('os').system('true')"}
        return json.dumps(document).encode()

    def same(name: str, data: bytes) -> bytes:
        return data

    planted = {
        "call.pt2": (call, {}, r"torch\.os\.system"),
        "expression.pt2": (expression, {}, "__import__"),
        "pickle.pt2": (same, {"net/data/constants/opaque_obj_0": b"\x80\x04."}, "opaque_obj_0"),
    }
    for name, (change, more, said) in planted.items():
        with pytest.raises(ConversionError, match=f"would run code when it is opened .*{said}.*refused"):
            open_source(changed(program[0], tmp_path / name, change, more))


@pytest.mark.torch
def test_torch_never_unpickles_what_its_restricted_reader_refuses(
    program: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    import torch

    class Planted:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("unpickled",)

    buffer = io.BytesIO()
    torch.save(Planted(), buffer)

    def inputs(name: str, data: bytes) -> bytes:
        return buffer.getvalue() if "sample_inputs" in name else data

    with pytest.raises(ConversionError, match="torch cannot open"):
        open_source(changed(program[0], tmp_path / "planted.pt2", inputs, {}))

    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "is not an exported program"), (b"PK\x03\x04" + b"\0" * 50, "is not an exported program")]
)
def test_a_file_that_is_no_program_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "net.pt2").write_bytes(data)

    with pytest.raises(ConversionError, match=said):
        open_source(tmp_path / "net.pt2")
    with pytest.raises(ConversionError, match="There is no file"):
        open_source(tmp_path / "none.pt2")
