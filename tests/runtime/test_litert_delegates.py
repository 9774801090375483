"""Delegates of LiteRT: a library that takes no operator, and those that do not load. A Pi has no compiler for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import edge_infer
from edge_infer import BackendUnavailable, InputError, LiteRTOptions, ManifestError
from edge_infer_converters.writers.tflite import write
from tests.support import zoo

if TYPE_CHECKING:
    from tests.support.model_files import WriteBundle, WriteModel

MLP = write(onnx.load_from_string(zoo.mlp())).data
X = np.random.default_rng(3).normal(size=(4, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def delegate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with a delegate that takes no operator."""
    library = tmp_path_factory.mktemp("delegate") / "libnothing.so"
    source = Path(__file__).parents[1] / "support/delegate.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


def test_a_delegate_is_passed_through(write_model: WriteModel, delegate: str) -> None:
    with edge_infer.load(write_model(zoo.mlp(), "source.onnx")) as source:
        expected = source.run({"x": X})["logits"]
    options = LiteRTOptions(delegates=[delegate])
    with edge_infer.load(write_model(MLP, "mlp.tflite"), options=options, strict=True) as session:
        np.testing.assert_allclose(session.run({"x": X})["logits"], expected, rtol=1e-5, atol=1e-5)
        with session.prepare({"x": X.shape}) as call:
            call.inputs["x"][...] = X
            np.testing.assert_allclose(call()["logits"], expected, rtol=1e-5, atol=1e-5)


def test_the_report_names_the_delegate(write_model: WriteModel, delegate: str) -> None:
    options = LiteRTOptions(delegates=[(delegate, {"speed": "3"})], intra_op_threads=1)
    with edge_infer.load(write_model(MLP, "model.tflite"), options=options) as session:
        assert session.report().providers == ("libnothing.so", "LiteRT")
        assert session.report().threads == 1


def test_a_delegate_that_does_not_load_is_named_with_what_it_says(write_model: WriteModel, delegate: str) -> None:
    model = write_model(MLP, "model.tflite")
    for one, message in (
        ("libedgetpu.so.1", r"delegate `libedgetpu\.so\.1` does not load: .*cannot open"),
        ((delegate, {"fail": "no device is attached"}), "does not load: .*no device is attached"),
    ):
        with pytest.raises(BackendUnavailable, match=message):
            edge_infer.load(model, options=LiteRTOptions(delegates=[one]))


def test_no_bundle_names_a_library_to_load(write_bundle: WriteBundle, delegate: str) -> None:
    path = write_bundle({"tflite/fp32": MLP})
    document = json.loads((path / "manifest.json").read_text())
    document["variants"][0]["options"] = {"litert": {"user.delegates": json.dumps([[delegate, {}]])}}
    (path / "manifest.json").write_text(json.dumps(document))

    with pytest.raises(ManifestError, match="which only a program may"):
        edge_infer.load(path)


@pytest.mark.parametrize("delegates", ["libedgetpu.so.1", [5], [("a", "b", "c")], [("a", "b")]])
def test_what_is_no_delegate_is_refused(delegates: Any) -> None:
    with pytest.raises(InputError, match="expected a list of libraries"):
        LiteRTOptions(delegates=delegates)
