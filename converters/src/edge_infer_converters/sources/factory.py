"""Models that Python code makes: `module:function`, called without arguments.

What the function returns decides which exporter takes it: a torch module with example inputs, or a fitted
scikit-learn estimator. Nothing is ever unpickled: the code of the module runs, and no other.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import ConversionError
from edge_infer_converters.metrics import import_function
from edge_infer_converters.sources import onnx as source

if TYPE_CHECKING:
    import os

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def open_source(where: str | os.PathLike[str]) -> source.SourceModel:
    """Read a model from an `.onnx` file, or make one with `module:function`.

    Args:
        where: A path, or `package.module:function`. The function returns a `torch.nn.Module` and its example inputs (a
            tuple of tensors, or a dict of tensors by input name), or a fitted scikit-learn estimator.

    Raises:
        ConversionError: The function raised, returned something else, or its model cannot be exported.
        InputError: There is no such module or function.
        UnsupportedModel: The model uses what ONNX Runtime does not know.
    """
    if not (isinstance(where, str) and _FACTORY.fullmatch(where)) or Path(where).exists():
        return source.load(where)
    function = import_function(where)
    try:
        made = function()
    except Exception as error:  # the user's code raises what it likes
        raise ConversionError(f"`{where}` raised {type(error).__name__}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{where.rpartition(':')[2]}.onnx")
        _export(made, path, where)
        return source.load(path)


def _export(made: object, path: Path, where: str) -> None:
    """Hand what the function returned to its exporter."""
    first = made[0] if isinstance(made, tuple) and made else made
    if "torch" in sys.modules and isinstance(first, sys.modules["torch"].nn.Module):
        from edge_infer_converters.sources import torch

        torch.export(made, path, where)
    elif hasattr(first, "n_features_in_") and hasattr(first, "get_params"):
        from edge_infer_converters.sources import sklearn

        sklearn.export(first, path, where)
    else:
        raise ConversionError(
            f"`{where}` returned {type(made).__name__}, expected a torch module with example inputs, or a fitted "
            "scikit-learn estimator",
            hint="return model, (example,)",
            got=type(made).__name__,
        )
