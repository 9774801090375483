"""Open a source: a file, by its suffix, or the object that `module:function` returns.

What the function returns decides which exporter takes it: a torch or Keras model, a JAX function, or a fitted
estimator. Nothing is ever unpickled: the code of the module runs, and no other.
"""

from __future__ import annotations

import re
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.data.functions import import_function
from edge_infer_converters.sources import onnx
from edge_infer_converters.sources.options import SourceOptions

if TYPE_CHECKING:
    import os

    from edge_infer_converters.sources.framework import Framework
    from edge_infer_converters.sources.source import Source

#: The module that reads a file with this suffix, by its `load`; any other file is read as ONNX.
FILES = {
    ".tflite": "tflite",
    ".pt2": "exported_program",
    ".pt": "torchscript",
    ".pth": "torchscript",
    ".ort": "ort_format",
    **dict.fromkeys((".keras", ".h5", ".hdf5"), "keras"),
    **dict.fromkeys((".json", ".ubj", ".txt", ".cbm", ".skops"), "estimator_files"),
}
#: The modules that export an object which a function made; the first whose `takes` accepts it exports it. Keras stands
#: before torch: with that engine a Keras model is a torch module too. JAX stands last: it takes any function.
EXPORTERS = ("keras", "torch", "catboost", "boosting", "sklearn", "jax")
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NO_OPTIONS = SourceOptions()


def open_source(where: str | os.PathLike[str], options: SourceOptions = _NO_OPTIONS) -> Source:
    """Read a model from a file, or make one with `module:function`.

    Args:
        where: The path of an `.onnx`, `.ort`, `.tflite`, `.pt2`, `.pt`, `.keras` or `.h5` file, or
            `package.module:function`. This returns a `torch.nn.Module` or a JAX function with its example inputs (a
            tuple of tensors, or a dict of tensors by input name), a Keras 3 model, or a fitted estimator of
            scikit-learn, XGBoost, LightGBM or CatBoost; or a file of these libraries (`estimator_files`).
        options: The dimensions to fix, and the operator set to export.

    Raises:
        ConversionError: The function raised, returned something else, or its model cannot be exported.
        InputError: There is no such module or function, or the shapes do not fit the model.
        UnsupportedModel: The model has types or an operator set that its engine does not know.
    """
    if isinstance(where, str) and _FACTORY.fullmatch(where) and not Path(where).exists():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{where.rpartition(':')[2]}.onnx")
            return onnx.load_export(path, _export(_made_by(where), path, where, options), where, options)
    reader = import_module(f"edge_infer_converters.sources.{FILES.get(Path(where).suffix, 'onnx')}")
    source: Source = reader.load(where, options)
    return source


def _made_by(where: str) -> object:
    function = import_function(where)
    try:
        return function()
    except Exception as error:  # the user's code raises what it likes
        raise ConversionError(
            f"`{where}` raised {type(error).__name__}: {error}",
            hint="it is called without arguments, and returns the model",
        ) from error


def _export(made: object, path: Path, where: str, options: SourceOptions) -> Framework | None:
    """Hand what the function returned to its exporter."""
    for name in EXPORTERS:
        exporter = import_module(f"edge_infer_converters.sources.{name}")
        if exporter.takes(made):
            more: dict[str, Any] = {"dynamic": options.dynamic} if name in ("keras", "torch", "jax") else {}
            if name == "torch":
                more["allow_baked"] = options.allow_baked
            framework: Framework | None = exporter.export(made, path, where, options.opset, **more)
            return framework
    raise ConversionError(
        f"`{where}` returned {type(made).__name__}, expected a torch module or a JAX function with example inputs, "
        "a Keras model, or a fitted estimator of scikit-learn, XGBoost, LightGBM or CatBoost",
        hint="return model, (example,)",
        got=type(made).__name__,
    )
