"""Export a Keras 3 model on Keras's torch engine. As a program: a `.keras` file into an `.onnx` file.

Keras decides for one engine when it is imported. A model that lives on the jax or the tensorflow engine is saved, and
this program, a process of its own, reads it on torch: `python -m ...keras_on_torch IN.keras OUT.onnx OPSET [MODULE]`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edge_infer_converters.sources.torch import OPSET, first_line, quiet

if TYPE_CHECKING:
    from pathlib import Path


def write(model: Any, path: str | Path, opset: int | None = None) -> None:
    """Write a model of the torch engine as ONNX.

    Args:
        model: A `keras.Model` with known inputs.
        path: The `.onnx` file to write.
        opset: The operator set to write, or None for one that suits.
    """
    import keras
    import onnx
    import onnxscript.optimizer

    with quiet():
        zeros = [keras.ops.zeros([dim or 1 for dim in one.shape], dtype=one.dtype) for one in model.inputs]
        model(zeros[0] if len(zeros) == 1 else zeros)  # it exports nothing that was never called
        model.export(str(path), format="onnx", verbose=False, opset_version=opset or OPSET)
        # The tracing exporter writes a Cast before and after each layer.
        exported = onnxscript.optimizer.optimize(onnx.load(path))
    onnx.save(exported, path)


def main(arguments: list[str]) -> None:
    """Read the file, and write the other; see the top of this module."""
    import keras  # before the user's module, which may ask for another engine

    source, path, opset, *modules = arguments
    for name in modules:
        import_module(name)  # it registers the classes of its own
    # The file was written a moment ago by our own process, of a model that the user's code made.
    model = keras.saving.load_model(source, compile=False, safe_mode=False)
    write(model, path, int(opset))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {first_line(error)}")
