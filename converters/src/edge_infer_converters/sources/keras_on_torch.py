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
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: The sizes that are tried for free dimensions: an image's, a short text's, and one step.
SIZES = (64, 8, 224, 1)
#: The newest operator set that torch's tracing exporter writes.
_NEWEST_OPSET = 20


def write(model: Any, path: str | Path, opset: int | None = None) -> None:
    """Write a model of the torch engine as ONNX.

    Args:
        model: A `keras.Model` with known inputs.
        path: The `.onnx` file to write.
        opset: The operator set to write, or None for one that suits.
    """
    import onnx
    import onnxscript.optimizer

    with quiet():
        zeros = _zeros_that_run(model)  # it exports nothing that was never called
        if any(dim is None for one in model.inputs for dim in one.shape[1:]):
            _export_free(model, path, zeros, opset or OPSET)
        else:
            model.export(str(path), format="onnx", verbose=False, opset_version=opset or OPSET)
        # The tracing exporter writes a Cast before and after each layer.
        exported = onnxscript.optimizer.optimize(onnx.load(path))
    onnx.save(exported, path)


def shapes_that_run(shapes: Sequence[Sequence[int | None]], run: Callable[[list[list[int]]], Any]) -> list[list[int]]:
    """Return shapes of one sample with which a model runs: the first size of `SIZES` for all free dimensions.

    Raises:
        Exception: It runs with none; what it raised with the first is raised.
    """
    failure: Exception | None = None
    for size in SIZES:
        tried = [[1 if axis == 0 else size if dim is None else dim for axis, dim in enumerate(one)] for one in shapes]
        try:
            run(tried)
        except Exception as error:  # Keras raises what its parts raise
            failure = failure or error
        else:
            return tried
    raise failure or ValueError("the model has no inputs")


def _zeros_that_run(model: Any) -> list[Any]:
    import keras

    def run(shapes: list[list[int]]) -> list[Any]:
        zeros = [keras.ops.zeros(one, dtype=given.dtype) for one, given in zip(shapes, model.inputs, strict=True)]
        model(zeros[0] if len(zeros) == 1 else zeros)
        return zeros

    return run(shapes_that_run([one.shape for one in model.inputs], run))


def _export_free(model: Any, path: str | Path, zeros: Sequence[Any], opset: int) -> None:
    """Export as Keras does, but with sizes that the model runs with: Keras takes 1 for whatever is free."""
    import torch

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *given: Any) -> Any:
            return self.inner(given[0] if len(given) == 1 else list(given), training=False)

    axes = {
        one.name: {axis: f"{one.name}_{axis}" if axis else "batch" for axis, dim in enumerate(one.shape) if dim is None}
        for one in model.inputs
    }
    torch.onnx.export(
        Positional().eval(),
        tuple(zeros),
        str(path),
        dynamo=False,
        input_names=[one.name for one in model.inputs],
        dynamic_axes=axes,
        opset_version=min(opset, _NEWEST_OPSET),
    )


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
