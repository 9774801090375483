"""Files of other tools that are not read here: what each is, and what exports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from pathlib import Path


class Foreign(NamedTuple):
    """A kind of file.

    Attributes:
        what: What it is.
        command: What to type, or to write, where the framework is; `{path}` stands for the file.
    """

    what: str
    command: str


_FUNCTION = "edge-infer convert module:function, where `function` of module.py {}"
_SOURCE = "such a file is for one engine alone: convert the model that it was made from"
_PICKLE = Foreign(
    "a pickle, which runs code when it is opened",
    "skops.io.dump(model, 'model.skops') where it was made, or " + _FUNCTION.format("makes the model"),
)
_SAVED_MODEL = Foreign(
    "a SavedModel of TensorFlow",
    "where TensorFlow is: pip install tf2onnx; python -m tf2onnx.convert --saved-model {path} --output model.onnx",
)
_FILES = {
    ".pb": Foreign(
        "a graph of TensorFlow",
        "where TensorFlow is: pip install tf2onnx; python -m tf2onnx.convert --graphdef {path} "
        "--inputs IN:0 --outputs OUT:0 --output model.onnx",
    ),
    ".safetensors": Foreign("weights without a graph", _FUNCTION.format("builds the model and loads them")),
    ".ckpt": Foreign("weights without a graph", _FUNCTION.format("builds the model and loads them")),
    ".msgpack": Foreign("weights of Flax without a graph", _FUNCTION.format("builds the model and loads them")),
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".joblib": _PICKLE,
    ".pdmodel": Foreign("a graph of PaddlePaddle", "paddle2onnx exports it, where PaddlePaddle is"),
    ".pmml": Foreign("a model of PMML", "fit it again in scikit-learn, and give module:function"),
    ".mlmodel": Foreign("a model of Core ML", _SOURCE),
    ".mlpackage": Foreign("a model of Core ML", _SOURCE),
    ".engine": Foreign("an engine of TensorRT", _SOURCE),
    ".plan": Foreign("an engine of TensorRT", _SOURCE),
    ".pte": Foreign("a program of ExecuTorch", _SOURCE),
    ".mnn": Foreign("a model of MNN", _SOURCE),
    ".rknn": Foreign("a model of RKNN", _SOURCE),
    ".hef": Foreign("a program of Hailo", _SOURCE),
    ".xml": Foreign("a graph of OpenVINO", _SOURCE),
}


def refuse(path: Path) -> None:
    """Refuse a file, or a folder, of another tool; say nothing of others.

    Raises:
        ConversionError: It says what the file is, and what exports it.
    """
    if path.is_dir() and any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        found: Foreign | None = _SAVED_MODEL
    elif path.name == "saved_model.pb" and path.is_file():
        path, found = path.parent, _SAVED_MODEL
    else:
        found = _FILES.get(path.suffix.lower()) if path.exists() else None
    if found is not None:
        raise ConversionError(
            f"`{path}` is {found.what}, which `convert` does not read; "
            "expected .onnx, .ort, .pt, .pt2, .keras, .h5 or .tflite",
            hint=found.command.format(path=path),
        )
