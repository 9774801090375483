"""Models made by code: `module:function` for torch and scikit-learn, and what is said when that goes wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_infer import Bundle, TensorSpec
from edge_infer.errors import ConversionError, InputError
from edge_infer_converters import Recipe, convert
from edge_infer_converters.sources.factory import open_source

if TYPE_CHECKING:
    from pathlib import Path

TORCH = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, image):
        return self.head(torch.relu(self.norm(self.conv(image))).mean((2, 3)))

def net():
    return Net(), (torch.zeros(1, 3, 8, 8),)

def no_example():
    return Net()

def wrong_shape():
    return Net(), (torch.zeros(1, 5, 8, 8),)

def too_many():
    return Net(), (torch.zeros(1, 3, 8, 8), torch.zeros(1))

class Chooses(torch.nn.Module):
    def forward(self, x):
        if float(x.mean()) > .5:
            return x * 2
        return -x

def chooses():
    return Chooses(), (torch.zeros(2, 3),)

def raises():
    raise OSError("no weights")

def text():
    return "net"
"""

SKLEARN = """
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X = np.random.default_rng(0).normal(0, 1, (90, 5)).astype("float32")
Y = (X[:, 0] + X[:, 1] > 0).astype(int)

def fitted():
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write both modules into the current folder; return the end of their names, which no other test has."""
    end = f"_{abs(hash(request.node.name))}"
    (tmp_path / f"torch{end}.py").write_text(TORCH)
    (tmp_path / f"sk{end}.py").write_text(SKLEARN)
    monkeypatch.chdir(tmp_path)
    return end


def needs_torch() -> Any:
    import onnxscript  # noqa: F401  the exporter needs it
    import torch

    return torch


@pytest.mark.torch
def test_a_torch_module_gives_what_it_gives_in_torch(in_folder: str) -> None:
    torch = needs_torch()
    image = np.random.default_rng(0).normal(0, 1, (3, 3, 8, 8)).astype(np.float32)

    model = open_source(f"torch{in_folder}:net")

    assert model.name == "net"
    assert model.inputs == (TensorSpec("image", "float32", ("batch", 3, 8, 8)),)
    net, _ = sys.modules[f"torch{in_folder}"].net()
    with torch.no_grad():
        wanted = net.eval()(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(model.reference().run({"image": image})["output"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.torch
def test_the_older_exporter_takes_what_the_newer_does_not(in_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needs_torch()
    export, tried = torch.onnx.export, []

    def failing(*arguments: Any, **options: Any) -> Any:
        tried.append(options["dynamo"])
        if options["dynamo"]:
            raise RuntimeError("not supported")
        return export(*arguments, **options)

    monkeypatch.setattr(torch.onnx, "export", failing)

    model = open_source(f"torch{in_folder}:net")

    assert tried == [True, False]
    assert model.inputs[0].shape[1:] == (3, 8, 8)
    assert isinstance(model.inputs[0].shape[0], str)


@pytest.mark.torch
def test_an_export_with_other_numbers_than_torch_is_refused(in_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needs_torch()
    export = torch.onnx.export

    def halving(module: Any, *arguments: Any, **options: Any) -> Any:
        class Halved(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, image: Any) -> Any:
                return module(image) / 2

        return export(Halved(), *arguments, **options)

    monkeypatch.setattr(torch.onnx, "export", halving)

    with pytest.raises(ConversionError, match="differs from torch in output 0 on the example inputs"):
        open_source(f"torch{in_folder}:net")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("no_example", "returned a torch module without example inputs"),
        ("wrong_shape", "does not run on its example inputs"),
        ("too_many", "returned 2 example inputs, `forward` takes 1"),
        ("chooses", r"what its example inputs decided at .*torch.*\.py:\d+: Converting a tensor to a Python float"),
        ("raises", "raised OSError: no weights"),
        ("text", "returned str, expected a torch module"),
    ],
)
def test_what_a_factory_does_wrong_is_told(in_folder: str, function: str, said: str) -> None:
    needs_torch()

    with pytest.raises(ConversionError, match=said):
        open_source(f"torch{in_folder}:{function}")


def test_a_factory_that_is_not_there_is_told(in_folder: str) -> None:
    with pytest.raises(InputError, match="has no function `fited`") as caught:
        open_source(f"sk{in_folder}:fited")

    assert "fitted" in caught.value.hint


def test_an_estimator_becomes_a_bundle_of_plain_tensors(in_folder: str, tmp_path: Path) -> None:

    convert(f"sk{in_folder}:fitted", tmp_path / "m.bundle", recipe=Recipe(("onnx",), ("fp32",)))

    manifest = Bundle.open(tmp_path / "m.bundle").manifest
    assert (manifest.name, manifest.inputs) == ("fitted", (TensorSpec("x", "float32", ("batch", 5)),))
    assert [spec.dtype for spec in manifest.outputs] == ["int64", "float32"]
    module = sys.modules[f"sk{in_folder}"]
    model = open_source(f"sk{in_folder}:fitted")
    label, probabilities = model.reference().run({"x": module.X}).values()
    np.testing.assert_array_equal(label, module.fitted().predict(module.X))
    np.testing.assert_allclose(probabilities, module.fitted().predict_proba(module.X), atol=1e-5)


@pytest.mark.parametrize(
    ("module", "function", "package", "extra"),
    [("sk", "fitted", "skl2onnx", "sklearn"), ("torch", "net", "onnxscript", "torch")],
)
def test_an_absent_extra_says_what_to_install(
    in_folder: str, monkeypatch: pytest.MonkeyPatch, module: str, function: str, package: str, extra: str
) -> None:
    if module == "torch":
        needs_torch()
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConversionError, match=f"{package}, which is not installed") as caught:
        open_source(f"{module}{in_folder}:{function}")

    assert caught.value.hint == f'pip install "edge-infer-converters[{extra}]"'


def test_inputs_by_name_have_any_order_for_the_older_exporter_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "swapped.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, a, b):\n        return a - 2 * b\n\n\n"
        "def net():\n    return Net(), {'b': torch.ones(1, 3), 'a': torch.zeros(1, 3)}\n"
    )
    monkeypatch.chdir(tmp_path)
    real = torch.onnx.export

    def older(*given: Any, **settings: Any) -> None:
        if settings["dynamo"]:
            raise RuntimeError("not this one")
        real(*given, **settings)

    monkeypatch.setattr(torch.onnx, "export", older)

    reference = open_source("swapped:net").reference()

    result = reference.run({"a": np.full((1, 3), 10, np.float32), "b": np.ones((1, 3), np.float32)})
    np.testing.assert_array_equal(result["output"], np.full((1, 3), 8, np.float32))
