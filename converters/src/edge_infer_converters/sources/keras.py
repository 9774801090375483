"""Export a Keras 3 model, whichever engine it is on, and read `.keras` and `.h5` files.

The export is Keras's own, on its torch engine: TensorFlow is never asked for. A model on the jax or the tensorflow
engine is exported by a process of its own (`keras_on_torch`), and judged by the outputs of its own engine.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edge_infer.errors import ConversionError
from edge_infer.tasks.sources.image_metadata import KEY
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.sources import keras_on_torch, onnx_file
from edge_infer_converters.sources import onnx as onnx_source
from edge_infer_converters.sources.dynamic import axes_of
from edge_infer_converters.sources.framework import Framework
from edge_infer_converters.sources.made import first_of, libraries_of
from edge_infer_converters.sources.torch import OPSET, answer, first_line, flat, quiet, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edge_infer_converters.sources.onnx import SourceModel
    from edge_infer_converters.sources.options import Dynamic, SourceOptions

_EXTRA = 'pip install "edge-infer-converters[keras]"'
_HEADS = {".keras": b"PK\x03\x04", ".h5": b"\x89HDF\r\n\x1a\n", ".hdf5": b"\x89HDF\r\n\x1a\n"}

#: Keras before it ran the lambdas of .h5 files, whatever `safe_mode` said, and read other files that these name.
_SAFE = (3, 13, 2)
#: Layers that Keras itself makes only where TensorFlow is installed: they turn texts and names into numbers.
_OF_TENSORFLOW = ("TextVectorization", "StringLookup", "IntegerLookup", "Hashing", "HashedCrossing")
#: The most bytes of the description in a `.keras` file.
_MAX_CONFIG = 64 * 2**20
#: Layers that take levels divide them by 255, or by half of it.
_LEVELS_SCALE = 0.05


def takes(made: object) -> bool:
    """Tell whether an object is a Keras model."""
    return "keras" in libraries_of(made)


def load(path: str | os.PathLike[str], options: SourceOptions) -> SourceModel:
    """Read a `.keras` or `.h5` file by exporting it to ONNX; nothing in it is run but Keras's own layers.

    Raises:
        ConversionError: The file is missing, damaged, of weights alone, or has classes that Keras does not know.
    """
    place = Path(path)
    head = _HEADS[place.suffix]
    try:
        with place.open("rb") as file:
            start = file.read(len(head))
    except OSError as error:
        raise onnx_file.missing(place) from error
    if start != head:
        raise ConversionError(
            f"`{place.name}` is not a {place.suffix} file: it begins with {start!r}",
            hint="save it again: model.save('model.keras')",
        )
    if place.suffix == ".keras":
        _refuse_lookups(place)
    _need(("keras", "torch", "onnxscript"), f"Reading {place.suffix}")
    if "keras" not in sys.modules:  # without a choice it would look for TensorFlow
        os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    if (version := tuple(int(one) for one in re.findall(r"\d+", keras.__version__)[:3])) < _SAFE:
        raise ConversionError(
            f"Keras {keras.__version__} runs code that a {place.suffix} file holds, expected "
            f"{'.'.join(map(str, _SAFE))} or newer",
            hint=_EXTRA,
            got=version,
        )
    try:
        with quiet():
            model = keras.saving.load_model(str(place), compile=False, safe_mode=True)
    except Exception as error:  # Keras, h5py and zipfile raise what their parts raise
        said = first_line(error)
        raise ConversionError(f"Keras cannot read `{place.name}`: {said}", hint=_what_to_do(place, said)) from error
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, f"{place.stem}.onnx")
        framework = export(model, exported, place.name, options.opset, options.dynamic)
        return onnx_source.load_export(exported, framework, place.name, options)


def _refuse_lookups(place: Path) -> None:
    """Refuse a `.keras` file with layers that Keras makes with TensorFlow alone, before Keras says less.

    Raises:
        ConversionError: It names the layer, and what to do.
    """
    try:
        with zipfile.ZipFile(place) as archive, archive.open("config.json") as file:
            document = json.loads(file.read(_MAX_CONFIG))
        found = next(_lookups(document), None)
    except (OSError, KeyError, ValueError, RecursionError, zipfile.BadZipFile):
        return  # Keras says what is wrong with it
    if found is None:
        return
    kind, name = found
    raise ConversionError(
        f"`{place.name}` has the layer `{name}` ({kind}), which Keras makes only where TensorFlow is installed, and "
        "which no operator of ONNX does",
        hint="cut the model behind the layer and give its words with --preprocess: docs/guide/pipeline_sources.md, "
        "`Texts and names of Keras`",
        layer=name,
        got=kind,
    )


def _lookups(document: Any) -> Iterator[tuple[str, str]]:
    """Give the class and the name of each layer of `_OF_TENSORFLOW`."""
    if isinstance(document, dict):
        config = document.get("config")
        if document.get("class_name") in _OF_TENSORFLOW and isinstance(config, dict):
            yield document["class_name"], str(config.get("name", ""))
        for one in document.values():
            yield from _lookups(one)
    elif isinstance(document, list):
        for one in document:
            yield from _lookups(one)


def _what_to_do(place: Path, said: str) -> str:
    if place.name.endswith((".weights.h5", ".weights.hdf5")) or "No model config" in said:
        return "the file has weights alone: give module:function, which builds the model and calls load_weights"
    if "Could not locate" in said or "ambda" in said:
        return "give module:function, where `function` of module.py imports the classes, loads it and returns the model"
    if place.suffix != ".keras":
        return (
            "Keras 2 reads its own files: pip install tensorflow tf-keras, tf_keras.models.load_model(path).export("
            "'folder'), then tf.lite.TFLiteConverter.from_saved_model('folder').convert()"
        )
    return "save it again: model.save('model.keras')"


def export(
    made: object, path: Path, where: str, opset: int | None = None, dynamic: Sequence[Dynamic] = ()
) -> Framework | None:
    """Export a model.

    Args:
        made: A `keras.Model` with known inputs.
        path: The `.onnx` file to write.
        where: What the user calls it; of `module:function` the module is imported by the process that exports.
        opset: The operator set to write, or None for one that suits.
        dynamic: The dimensions to make free that the model fixes.

    Returns:
        The model on its own engine, to be compared with its export; None where the export has other inputs.

    Raises:
        ConversionError: A package is missing, the inputs are unknown, or Keras cannot export the model.
    """
    import keras

    model: Any = first_of(made)
    engine = keras.backend.backend()
    _need(("torch", "onnxscript"), "Exporting from Keras")
    inputs = list(getattr(model, "inputs", None) or ())
    if not inputs:
        raise ConversionError(
            f"The Keras model of `{where}` has no known inputs", hint="call it once on example data, or model.build()"
        )
    if dynamic:
        model = _with_free(model, inputs, dynamic, where)
        inputs = list(model.inputs)
    if engine == "torch":
        try:
            keras_on_torch.write(model, path, opset)
        except Exception as error:  # Keras and torch raise what their parts raise
            raise ConversionError(f"Keras cannot export `{where}`: {first_line(error)}") from error
    else:
        _export_elsewhere(model, engine, path, where, opset)
    exported = onnx.load(path)
    _name_outputs(exported, list(getattr(model, "output_names", None) or ()))
    if (scale := _scale_of(model)) is not None:
        entry = exported.metadata_props.add()
        entry.key, entry.value = KEY, json.dumps({"source": "keras", "scale": scale})
    path.write_bytes(exported.SerializeToString())
    names = [value.name for value in exported.graph.input]
    if len(names) != len(inputs):
        return None
    ends = dict(zip(names, inputs, strict=True))
    sizes = {name: [axis for axis, dim in enumerate(one.shape) if dim is None] for name, one in ends.items()}
    run = functools.partial(_run_on_torch if engine == "torch" else _run, model)

    def draw(shapes: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        return {
            name: _example(rng, [2 if 0 in sizes[name] else shape[0], *shape[1:]] if shape else [], str(one.dtype))
            for (name, one), shape in zip(ends.items(), shapes, strict=True)
        }

    try:
        shapes = keras_on_torch.shapes_that_run([one.shape for one in inputs], lambda shapes: run(draw(shapes)))
    except Exception as error:  # Keras raises what its parts raise
        raise ConversionError(f"`{where}` does not run on inputs of any size: {first_line(error)}") from error
    examples = draw(shapes)
    return Framework("keras" if engine == "torch" else f"keras on {engine}", run, examples, sizes)


def _with_free(model: Any, inputs: Sequence[Any], dynamic: Sequence[Dynamic], where: str) -> Any:
    """Build the model again on inputs with free dimensions, with the same layers and weights.

    Raises:
        ConversionError: A layer needs the size; Keras says which.
    """
    import keras

    specs = [
        TensorSpec(one.name, str(one.dtype), [f"{one.name}_{axis}" if dim is None else dim for axis, dim in dims])
        for one in inputs
        for dims in [list(enumerate(one.shape))]
    ]
    axes = {
        name: {axis: symbol for axis, symbol in found.items() if inputs[at].shape[axis] is not None}
        for at, spec in enumerate(specs)
        for name, found in axes_of(dynamic, specs).items()
        if name == spec.name
    }
    if not any(axes.values()):
        return model
    free = [
        keras.Input(
            batch_shape=[None if axis in axes.get(one.name, {}) else dim for axis, dim in enumerate(one.shape)],
            dtype=one.dtype,
            name=one.name,
        )
        for one in inputs
    ]
    try:
        with quiet():
            built = keras.models.clone_model(model, input_tensors=free if len(free) > 1 else free[0])
            built.set_weights(model.get_weights())
    except Exception as error:  # Keras raises what its parts raise
        symbols = ", ".join(f"`{symbol}`" for symbol in dict.fromkeys(s for one in axes.values() for s in one.values()))
        raise ConversionError(
            f"{symbols} of `{where}` cannot become free: {first_line(error)}",
            hint="build the model with None for that size, or leave it out of --dynamic",
        ) from error
    return built


def _need(packages: tuple[str, ...], what: str) -> None:
    """Refuse where a package is not installed.

    Raises:
        ConversionError: It names the package and the extra.
    """
    for name in packages:
        if (name in sys.modules and sys.modules[name] is None) or (name not in sys.modules and find_spec(name) is None):
            raise ConversionError(f"{what} needs {name}, which is not installed", hint=_EXTRA)


def _export_elsewhere(model: Any, engine: str, path: Path, where: str, opset: int | None) -> None:
    """Export a model of another engine by a process whose Keras is on torch.

    Raises:
        ConversionError: The model cannot be saved, or not be read and exported there.
    """
    saved = path.with_name("saved.keras")
    try:
        with quiet():
            model.save(saved)
    except Exception as error:  # Keras raises what its parts raise
        raise ConversionError(f"Keras cannot save `{where}`: {first_line(error)}", hint=_native(engine)) from error
    module, sign, _ = where.partition(":")
    command = [sys.executable, "-m", keras_on_torch.__name__, str(saved), str(path), str(opset or OPSET)]
    places = os.pathsep.join(one for one in sys.path if one)
    done = subprocess.run(
        [*command, *([module] if sign else [])],
        env={**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": places},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConversionError(
            f"`{where}` is on Keras's {engine} engine, and its torch engine, which exports, does not take it: "
            + (lines[-1] if lines else f"its process ended with {done.returncode}"),
            hint=_native(engine),
        )


def _native(engine: str) -> str:
    if engine == "jax":
        return "write layers with keras.ops, or give it as a JAX function: return lambda x: model(x), (example,)"
    if engine == "tensorflow":
        return (
            "write layers with keras.ops, or model.export('folder') and "
            "python -m tf2onnx.convert --saved-model folder --output model.onnx"
        )
    return "write layers with keras.ops"


def _run_on_torch(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    given = list(tensors_of(feeds).values())
    return answer(model, given[0] if len(given) == 1 else given, training=False)


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
    from keras import ops

    given = [ops.convert_to_tensor(value) for value in feeds.values()]
    return [ops.convert_to_numpy(one) for one in flat(model(given[0] if len(given) == 1 else given, training=False))]


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
