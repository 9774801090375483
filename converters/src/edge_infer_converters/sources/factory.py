"""Where a model comes from: a file, by its suffix, or `module:function`, called without arguments.

What the function returns decides which exporter takes it: a torch or Keras model, or a fitted estimator. Nothing is
ever unpickled: the code of the module runs, and no other.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import ConversionError
from edge_infer_converters.data.functions import import_function
from edge_infer_converters.sources import onnx as source
from edge_infer_converters.sources.options import SourceOptions

if TYPE_CHECKING:
    import os

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NO_OPTIONS = SourceOptions()


def open_source(where: str | os.PathLike[str], options: SourceOptions = _NO_OPTIONS) -> source.SourceModel:
    """Read a model from a file, or make one with `module:function`.

    Args:
        where: The path of an `.onnx` or `.pt2` file, or `package.module:function`. The function returns a
            `torch.nn.Module` and its example inputs (a tuple of tensors, or a dict of tensors by input name), a Keras 3
            model, or a fitted estimator of scikit-learn, XGBoost or LightGBM.
        options: The dimensions to fix, and the operator set to export.

    Raises:
        ConversionError: The function raised, returned something else, or its model cannot be exported.
        InputError: There is no such module or function, or the shapes do not fit the model.
        UnsupportedModel: The model uses what ONNX Runtime does not know.
    """
    is_factory = isinstance(where, str) and _FACTORY.fullmatch(where) and not Path(where).exists()
    if not is_factory and Path(where).suffix != ".pt2":
        return source.load(where, options)
    with tempfile.TemporaryDirectory() as folder:
        if is_factory:
            path = Path(folder, f"{str(where).rpartition(':')[2]}.onnx")
            _export(_made_by(str(where)), path, str(where), options.opset)
        else:
            from edge_infer_converters.sources import exported_program

            path = Path(folder, f"{Path(where).stem}.onnx")
            exported_program.export(Path(where), path, options.opset)
        return source.load(path, options)


def _made_by(where: str) -> object:
    function = import_function(where)
    try:
        return function()
    except Exception as error:  # the user's code raises what it likes
        raise ConversionError(
            f"`{where}` raised {type(error).__name__}: {error}",
            hint="it is called without arguments, and returns the model",
        ) from error


def _export(made: object, path: Path, where: str, opset: int | None) -> None:
    """Hand what the function returned to its exporter."""
    first = made[0] if isinstance(made, tuple) and made else made
    library = {base.__module__.partition(".")[0] for base in type(first).__mro__}
    if "keras" in library:  # before torch: with that backend a Keras model is a torch module too
        from edge_infer_converters.sources import keras

        keras.export(first, path, where, opset)
    elif "torch" in sys.modules and isinstance(first, sys.modules["torch"].nn.Module):
        from edge_infer_converters.sources import torch

        torch.export(made, path, where, opset)
    elif library & {"xgboost", "lightgbm"}:
        from edge_infer_converters.sources import boosting

        boosting.export(first, path, where, opset)
    elif hasattr(first, "n_features_in_") and hasattr(first, "get_params"):
        from edge_infer_converters.sources import sklearn

        sklearn.export(first, path, where, opset)
    else:
        raise ConversionError(
            f"`{where}` returned {type(made).__name__}, expected a torch module with example inputs, a Keras model, or "
            "a fitted estimator of scikit-learn, XGBoost or LightGBM",
            hint="return model, (example,)",
            got=type(made).__name__,
        )
