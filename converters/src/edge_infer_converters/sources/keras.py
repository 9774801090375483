"""Export a Keras 3 model by its own ONNX export, with the torch backend: TensorFlow is never asked for."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edge_infer.errors import ConversionError
from edge_infer.tasks.sources.image_metadata import KEY
from edge_infer_converters.sources.framework import Framework
from edge_infer_converters.sources.made import first_of, libraries_of
from edge_infer_converters.sources.torch import answer, first_line, quiet, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Layers that take levels divide them by 255, or by half of it.
_LEVELS_SCALE = 0.05


def takes(made: object) -> bool:
    """Tell whether an object is a Keras model."""
    return "keras" in libraries_of(made)


def export(made: object, path: Path, where: str, opset: int | None = None) -> Framework | None:
    """Export a model.

    Args:
        made: A `keras.Model` with known inputs.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits.

    Returns:
        The model in Keras, to be compared with its export; None where the export has other inputs.

    Raises:
        ConversionError: The backend is not torch, a package is missing, or Keras cannot export the model.
    """
    import keras

    model: Any = first_of(made)
    backend = keras.backend.backend()
    if backend != "torch":
        raise ConversionError(
            f"Keras runs on {backend} here; it is exported with the torch backend",
            hint="KERAS_BACKEND=torch edge-infer convert ...",
            expected="torch",
            got=backend,
        )
    try:
        import onnxscript.optimizer
    except ImportError as error:
        raise ConversionError(
            f"Exporting from Keras needs {error.name}, which is not installed",
            hint='pip install "edge-infer-converters[keras]"',
        ) from error
    inputs = list(getattr(model, "inputs", None) or ())
    if not inputs:
        raise ConversionError(
            f"The Keras model of `{where}` has no known inputs", hint="call it once on example data, or model.build()"
        )
    try:
        with quiet():
            zeros = [keras.ops.zeros([dim or 1 for dim in one.shape], dtype=one.dtype) for one in inputs]
            model(zeros[0] if len(zeros) == 1 else zeros)  # it exports nothing that was never called
            model.export(str(path), format="onnx", verbose=False, opset_version=opset or 20)
            # The tracing exporter writes a Cast before and after each layer.
            exported = onnxscript.optimizer.optimize(onnx.load(path))
    except Exception as error:  # Keras and torch raise what their parts raise
        raise ConversionError(f"Keras cannot export `{where}`: {first_line(error)}") from error
    _name_outputs(exported, list(getattr(model, "output_names", None) or ()))
    if (scale := _scale_of(model)) is not None:
        entry = exported.metadata_props.add()
        entry.key, entry.value = KEY, json.dumps({"source": "keras", "scale": scale})
    path.write_bytes(exported.SerializeToString())
    names = [value.name for value in exported.graph.input]
    if len(names) != len(inputs):
        return None
    rng = np.random.default_rng(0)
    ends = dict(zip(names, inputs, strict=True))
    examples = {name: _example(rng, [dim or 2 for dim in one.shape], str(one.dtype)) for name, one in ends.items()}
    sizes = {name: [axis for axis, dim in enumerate(one.shape) if dim is None] for name, one in ends.items()}
    return Framework("keras", functools.partial(_run, model), examples, sizes)


def _scale_of(model: Any) -> float | None:
    """Tell by its first layers what images a model takes: 1 for levels, 1/255 for 0 to 1, None where none does."""
    import keras

    for layer in _layers(model):
        if isinstance(layer, keras.layers.Rescaling):
            # From levels to 0 to 1 or -1 to 1; a larger scale is for what is small already.
            return 1.0 if float(np.max(layer.scale)) <= _LEVELS_SCALE else 1 / 255
        if isinstance(layer, keras.layers.Normalization):
            mean = layer.mean if layer.input_mean is None else layer.input_mean
            return 1.0 if float(keras.ops.convert_to_numpy(mean).max()) > 1 else 1 / 255
        if not isinstance(layer, (keras.layers.InputLayer, keras.layers.Resizing, keras.layers.CenterCrop)):
            return None
    return None


def _layers(model: Any) -> Iterator[Any]:
    """Give the layers in their order, those of models inside too."""
    for layer in getattr(model, "layers", ()):
        if getattr(layer, "layers", None):
            yield from _layers(layer)
        else:
            yield layer


def _run(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    given = list(tensors_of(feeds).values())
    return answer(model, given[0] if len(given) == 1 else given, training=False)


def _example(rng: np.random.Generator, shape: list[int], dtype: str) -> np.ndarray:
    values = rng.normal(size=shape) if dtype.startswith("float") else rng.integers(0, 2, shape)
    found: np.ndarray = values.astype(dtype)
    return found


def _name_outputs(model: onnx.ModelProto, names: list[str]) -> None:
    """Call the outputs, in place, as Keras does; the exporter numbers them."""
    if len(set(names)) != len(model.graph.output):
        names = ["output", *(f"output_{i}" for i in range(1, len(model.graph.output)))]
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    for value, name in zip(model.graph.output, names, strict=True):
        if name in taken:
            continue
        for node in model.graph.node:
            node.output[:] = [name if one == value.name else one for one in node.output]
            node.input[:] = [name if one == value.name else one for one in node.input]
        value.name = name
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].HasField("dim_value"):
            dims[0].dim_param = "batch"
