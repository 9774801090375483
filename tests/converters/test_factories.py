"""Models made by code: `module:function` for torch and scikit-learn, and what is said when that goes wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

from edge_infer import Bundle, TensorSpec
from edge_infer.errors import ConversionError, InputError
from edge_infer_converters import Recipe, convert
from edge_infer_converters.data.functions import import_function
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.framework import Framework, compare
from edge_infer_converters.sources.onnx import SourceModel
from edge_infer_converters.sources.options import SourceOptions
from tests.support import zoo

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


TEXTS = """
import torch

class Bag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(50, 6)

    def forward(self, ids):
        return self.table(ids).mean(1)

class Steps(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(1)

IDS = torch.randint(0, 50, (2, 7))

def texts():
    return Bag(), (IDS,)

def steps():
    return Steps(), (torch.randn(2, 5, 3),), {"x": {1: "time"}}
"""


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write the module of texts into the current folder; return its name, which no other test has."""
    name = f"texts_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(TEXTS)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.torch
def test_the_length_of_a_text_stays_free(texts: str) -> None:
    needs_torch()

    model = open_source(f"{texts}:texts")

    assert [type(size) for size in model.inputs[0].shape] == [str, str]
    ids = np.random.default_rng(0).integers(0, 50, (3, 11))
    own, export = (model.reference(optimised=flag).run({"ids": ids})["output"] for flag in (False, True))
    np.testing.assert_allclose(own, export, atol=1e-6)


@pytest.mark.torch
def test_axes_that_are_named_stay_free(texts: str) -> None:
    needs_torch()

    model = open_source(f"{texts}:steps")

    assert [type(size) for size in model.inputs[0].shape] == [str, str, int]


@pytest.mark.torch
def test_variants_are_judged_by_the_outputs_of_torch_itself(in_folder: str, tmp_path: Path) -> None:
    torch = needs_torch()

    made = convert(f"torch{in_folder}:net", tmp_path / "net.bundle", format="onnx", precision="fp32")

    net, _ = sys.modules[f"torch{in_folder}"].net()
    for inputs, outputs in Bundle.open(made.path).examples():
        image = np.array(inputs["image"].tolist(), np.float32).reshape(inputs["image"].shape)
        with torch.no_grad():
            wanted = net.eval()(torch.from_numpy(image)).numpy()
        assert np.array_equal(np.array(outputs["output"].tolist(), np.float32).reshape(wanted.shape), wanted)
    assert made.variants[0].quality.parity.sqnr_db < 200, "torch and onnxruntime round differently"


def fake(run: Any, **sizes: Any) -> Framework:
    return Framework("torch", run, {"x": np.ones((2, 3), np.float32)}, sizes or {"x": [0]})


def export_of(path: Path, shape: list[Any]) -> Path:
    """A model that gives its input."""
    path.write_bytes(
        zoo.model([helper.make_node("Identity", ["x"], ["y"])], [zoo.value("x", shape)], [zoo.value("y", shape)])
    )
    return path


def test_an_export_that_fixes_a_size_is_refused_or_told(tmp_path: Path) -> None:
    fixed = export_of(tmp_path / "fixed.onnx", [2, 3])
    wide = export_of(tmp_path / "wide.onnx", ["batch", 3])
    model = fake(lambda feeds: [feeds["x"]], x=[0, 1])

    with pytest.raises(ConversionError, match="fixes the batch of `x` to 2, which torch does not") as caught:
        compare(model, fixed, "net")
    with pytest.raises(ConversionError, match="fixes axis 1 of `x` to 3"):
        compare(model, wide, "net")

    assert "--allow-baked" in (caught.value.hint or "")
    assert len(compare(model, fixed, "net", allow_baked=True)) == 2
    assert compare(model, export_of(tmp_path / "free.onnx", ["batch", "size"]), "net") == ()


def test_an_export_that_fixes_a_size_inside_is_refused_or_told(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["y"])]
    flat = {"flat": np.array([6], np.int64)}
    path = tmp_path / "net.onnx"
    path.write_bytes(zoo.model(nodes, [zoo.value("x", ["batch", 3])], [zoo.value("y", [6])], flat))
    model = fake(lambda feeds: [feeds["x"].ravel()])

    with pytest.raises(ConversionError, match="does not run on a batch of 3, as torch does") as caught:
        compare(model, path, "net")

    assert "--allow-baked" in (caught.value.hint or "")
    assert len(compare(model, path, "net", allow_baked=True)) == 1


def test_a_model_that_draws_numbers_is_told_so(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    with pytest.raises(ConversionError, match="gives other numbers each time it is run in torch, in output 0"):
        compare(
            fake(lambda feeds: [feeds["x"] + drawn.normal(size=feeds["x"].shape)]),
            export_of(tmp_path / "net.onnx", ["batch", 3]),
            "net",
        )


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda feeds: [feeds["x"] * 1.01], "output 0 on the example inputs"),
        (lambda feeds: [np.abs(feeds["x"])], "output 0 on the negated example inputs"),
        (lambda feeds: [feeds["x"] + (feeds["x"].sum() == 0)], "output 0 on zeros"),
        (lambda feeds: [feeds["x"][:2]], "output 0 on a batch of 3"),
    ],
)
def test_an_export_is_compared_on_several_inputs(run: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=f"differs from torch in {said}"):
        compare(fake(run), export_of(tmp_path / "net.onnx", ["batch", 3]), "net")


def test_a_size_that_the_model_itself_refuses_is_not_compared(tmp_path: Path) -> None:
    def run(feeds: Any) -> list[Any]:
        if feeds["x"].shape != (2, 3):
            raise ValueError("only two rows of three")
        return [feeds["x"]]

    assert compare(fake(run, x=[0, 1]), export_of(tmp_path / "net.onnx", [2, 3]), "net") == ()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("how", ["trace", "script"])
def test_a_torchscript_program_is_read_and_judged_by_itself(how: str, in_folder: str, tmp_path: Path) -> None:
    torch = needs_torch()
    net, example = import_function(f"torch{in_folder}:net")()
    program = torch.jit.trace(net.eval(), example) if how == "trace" else torch.jit.script(net.eval())
    torch.jit.save(program, tmp_path / "net.pt")

    model = open_source(tmp_path / "net.pt", SourceOptions({"image": (None, 3, 8, 8)}))

    assert model.inputs == (TensorSpec("image", "float32", ("batch", 3, 8, 8)),)
    image = np.random.default_rng(0).normal(0, 1, (4, 3, 8, 8)).astype(np.float32)
    with torch.no_grad():
        wanted = net(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(model.reference().run({"image": image})["output"], wanted, atol=1e-5)
    with pytest.raises(InputError, match="does not say the shape of `image`") as caught:
        open_source(tmp_path / "net.pt")
    assert "--shape image=" in (caught.value.hint or "")


@pytest.mark.torch
def test_weights_alone_and_pickled_modules_are_refused_unopened(in_folder: str, tmp_path: Path) -> None:
    torch = needs_torch()
    net, _ = import_function(f"torch{in_folder}:net")()
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    torch.save(net, tmp_path / "module.pth")

    with pytest.raises(ConversionError, match="weights without a model") as weights:
        open_source(tmp_path / "weights.pt")
    with pytest.raises(ConversionError, match=rf"pickled module \(`torch{in_folder}.Net`\)") as pickled:
        open_source(tmp_path / "module.pth")

    assert "edge-infer convert weights:net" in (weights.value.hint or "")
    assert "edge-infer convert module:net" in (pickled.value.hint or "")


ESTIMATORS = """
import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest, RandomForestClassifier, RandomForestRegressor

X = np.random.default_rng(0).normal(0, 1, (90, 5)).astype("float32")
Y = (X[:, 0] + X[:, 1] > 0).astype(int)

def clusters():
    return KMeans(3, random_state=0, n_init=2).fit(X)

def components():
    return PCA(2).fit(X)

def outliers():
    return IsolationForest(n_estimators=10, random_state=0).fit(X)

def forest():
    return RandomForestClassifier(5, random_state=0).fit(X, Y)

def trees():
    return RandomForestRegressor(5, random_state=0).fit(X, X[:, 0])
"""


@pytest.mark.parametrize("name", ["clusters", "components", "outliers", "forest", "trees"])
def test_estimators_of_every_kind_are_compared_with_themselves(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"estimators_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(ESTIMATORS)
    monkeypatch.chdir(tmp_path)

    model = open_source(f"{module}:{name}")

    assert isinstance(model, SourceModel)
    assert model.framework is not None
    assert model.notes == ()


@pytest.mark.torch
def test_free_axes_of_an_input_that_is_not_there_are_refused(texts: str, tmp_path: Path) -> None:
    needs_torch()
    with (tmp_path / f"{texts}.py").open("a") as file:
        file.write("\n\ndef wrong():\n    return Steps(), (torch.randn(2, 5, 3),), {'y': {1: 'time'}}\n")

    with pytest.raises(
        ConversionError, match=r"names the free axes \{1: 'time'\} of `y`, expected axes of `x` \(3 axes\)"
    ):
        open_source(f"{texts}:wrong")
