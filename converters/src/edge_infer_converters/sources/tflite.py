"""Read a `.tflite` file as a source, and run it on LiteRT as the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from edge_infer.errors import ConversionError, EdgeInferError, InputError, UnsupportedModel, UnsupportedOperator
from edge_infer.formats import tflite
from edge_infer.formats.tflite_tables import end_names, hidden_state
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.sources.options import SourceOptions
from edge_infer_converters.sources.source import Source
from edge_infer_converters.support import Support, page_lacks
from edge_infer_converters.writers.tflite.graph import dimensions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx
    from ai_edge_litert.interpreter import Interpreter

    from edge_infer.formats.tflite import TFLiteFile, TFLiteTensor
    from edge_infer_converters.writers.tflite import FloatGraph

# It tells the shapes of the outputs: a file does not say those of custom operators.
_TRIAL = """
import json
import sys
from ai_edge_litert.interpreter import Interpreter
try:
    interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
    interpreter.allocate_tensors()
    interpreter.invoke()
except (RuntimeError, ValueError):
    sys.exit(1)  # it will come again, and be told, when the model is run
print(json.dumps([[detail["index"], detail["shape"].tolist()] for detail in interpreter.get_output_details()]))
"""


@dataclass(frozen=True, slots=True)
class TFLiteSource(Source):
    """A TFLite model that was read.

    Attributes:
        name: The file's name without its suffix.
        data: The bytes of the file.
        file: Its tables.
        graph: The same as a graph that can be written in other precisions, or why there is none.
        inputs: What it takes.
        outputs: What it gives.
        precision: What its weights are stored in: `fp32`, `fp16`, `int8` or `int4`.
        nbytes: The size of the file.
        opset: ONNX's operator set to write, or None for the usual one.
        usual_sizes: The sizes of dimensions that were made free, by name.
        is_float: Whether it computes in float32: its weights are floats, or halves that become floats first.
    """

    format: ClassVar = "tflite"
    name: str
    data: bytes
    file: TFLiteFile
    graph: FloatGraph | EdgeInferError
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    precision: str
    nbytes: int
    opset: int | None = None
    usual_sizes: Mapping[str, int] = field(default_factory=dict)
    is_float: bool = False

    @property
    def count(self) -> str:
        """How many operators it has, in words."""
        return f"{len(self.file.operators)} operators"

    def reference(self, *, optimised: bool = False) -> Reference:
        """Load the model into LiteRT, without accelerators or with its usual one."""
        return Reference(self, optimised=optimised)

    def cleaned(self, opset: int | None, *, prunes: bool) -> tuple[TFLiteSource, Mapping[str, int] | None]:
        """Return the model with the operator set of its ONNX file; channels are never removed."""
        if prunes:
            raise InputError("--prune-dead-channels is for ONNX sources: a TFLite file is kept", hint="leave it out")
        return replace(self, opset=opset), None

    def support(self, targets: Sequence[str], formats: Sequence[str]) -> Support:
        """Return the graph of the file, or why it can only be kept unchanged, and what keeps it from being ONNX."""
        refused = self.graph if isinstance(self.graph, EdgeInferError) else None
        graph = None if isinstance(self.graph, EdgeInferError) else self.graph
        if self.opset is not None and "onnx" not in formats:
            raise InputError("--opset is for ONNX files, and none is written", hint="--format onnx, or leave it out")
        if "onnx" not in formats:
            return Support((), refused, graph)
        try:
            made = self._to_onnx()
        except (UnsupportedModel, UnsupportedOperator) as error:
            return Support((), refused, graph, onnx=error)
        return Support(tuple(page_lacks(made)) if {"any", "web"} & set(targets) else (), refused, graph)

    def release(self, formats: Sequence[str]) -> tuple[TFLiteSource, onnx.ModelProto]:
        """Return this source, and the same as ONNX where that is to be written."""
        import onnx

        return self, self._to_onnx() if "onnx" in formats else onnx.ModelProto()

    def _to_onnx(self) -> onnx.ModelProto:
        from edge_infer_converters.passes.opset import to_opset
        from edge_infer_converters.writers.onnx import SUPPORTED, to_onnx
        from edge_infer_converters.writers.tflite import reading

        graph = self.graph
        if isinstance(graph, EdgeInferError):  # it cannot be written back; ONNX has control flow and complex numbers
            bodies = reading.read_subgraphs(self.data, f"{self.name}.tflite", SUPPORTED)
            return to_opset(to_onnx(bodies[0], self.name, bodies), self.opset)
        return to_opset(to_onnx(graph.graph, self.name), self.opset)

    def own_file(self, id_: str) -> bytes | None:
        """Return the bytes of the file for the variant of its own precision."""
        return self.data if id_ == f"tflite/{self.precision}" else None


def load(path: str | os.PathLike[str], options: SourceOptions | None = None) -> TFLiteSource:
    """Read and check a `.tflite` file.

    Args:
        path: The file.
        options: The sizes to fix or to free, and the inputs to bind: the file is written again then.

    Raises:
        ConversionError: There is no such file.
        InputError: An option does not fit it, or is for other files.
        UnsupportedModel: It is not a TFLite file, is cut short or contradicts itself, or LiteRT crashes on it.
        UnsupportedOperator: It has operators that are not TFLite's own, and LiteRT does not run it.
    """
    from edge_infer_converters.writers.tflite import reading
    from edge_infer_converters.writers.tflite.peephole import widen_halves

    place = Path(path)
    asked = options or SourceOptions()
    if asked.layout != SourceOptions().layout:
        raise InputError(
            f"--layout is for ONNX files: `{place.name}` has the channels of its images last, as TFLite has them",
            hint="leave it out",
        )
    if asked.allow_baked:
        raise InputError(f"--allow-baked is for exports: `{place.name}` is read as it is", hint="leave it out")
    try:
        data = place.read_bytes()
    except OSError as error:
        raise ConversionError(f"`{place}` cannot be read: {error.strerror}") from error
    file = tflite.read(data, place.name)
    data = tflite.mended(data)
    is_changed = bool(asked.shapes or asked.dynamic or asked.bind)
    freed: dict[str, dict[int, str]] = {}
    if is_changed:
        from edge_infer_converters.sources.tflite_sizes import with_sizes

        _trial(data, place.name)
        data, freed = with_sizes(data, place.name, asked)
        file = tflite.read(data, place.name)
    graph: FloatGraph | EdgeInferError
    try:
        graph = reading.read(data, place.name)
    except (UnsupportedModel, UnsupportedOperator) as error:
        graph = error
    shapes = _trial(data, place.name)
    if isinstance(graph, EdgeInferError) and shapes is None:
        raise graph
    inputs = tuple(_spec(name, file.tensors[i]) for name, i in file.inputs.items())
    outputs = tuple(_spec(name, file.tensors[i], (shapes or {}).get(i, ())) for name, i in file.outputs.items())
    precision = _precision(file)
    is_float = precision == "fp32"
    if precision == "fp16" and not isinstance(graph, EdgeInferError):
        is_float = widen_halves(graph.graph)
    source = TFLiteSource(place.stem, data, file, graph, inputs, outputs, precision, len(data), is_float=is_float)
    return _named(source, freed) if freed else source


def _named(source: TFLiteSource, freed: Mapping[str, Mapping[int, str]]) -> TFLiteSource:
    """Prove that the model runs with other sizes, and call them as they are asked for."""
    from edge_infer_converters.sources.dynamic import follow, sizes_of

    sizes = {name: source.file.tensors[i].shape for name, i in source.file.inputs.items()}
    usual = {name: {axis: sizes[name][axis] for axis in one} for name, one in freed.items()}
    found = follow(source.reference().run, [_with(spec, usual) for spec in source.inputs], freed)
    inputs = tuple(_with(spec, freed) for spec in source.inputs)
    outputs = tuple(_with(spec, found) for spec in source.outputs)
    return replace(source, inputs=inputs, outputs=outputs, usual_sizes=sizes_of(freed, sizes))


def _with(spec: TensorSpec, dims: Mapping[str, Mapping[int, int | str]]) -> TensorSpec:
    """Return a spec with other dimensions where there are some that are not empty."""
    others = dims.get(spec.name, {})
    return TensorSpec(spec.name, spec.dtype, [others.get(axis) or dim for axis, dim in enumerate(spec.shape)])


class Reference:
    """The source model on LiteRT as it was written: one thread and no accelerator.

    Args:
        model: The model.
        optimised: Whether LiteRT's usual accelerator, XNNPACK, takes part.

    Raises:
        UnsupportedModel: LiteRT cannot load the model.
    """

    def __init__(self, model: TFLiteSource, *, optimised: bool = False) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        def make() -> Interpreter:
            return Interpreter(
                model_content=model.data,
                num_threads=1,
                experimental_op_resolver_type=OpResolverType.AUTO
                if optimised
                else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            )

        self._make = make
        self._state = hidden_state(model.data)
        self._shapes: dict[str, tuple[int, ...]] = {}
        try:
            self._interpreter = self._make()
        except (RuntimeError, ValueError) as error:
            raise UnsupportedModel(
                f"LiteRT cannot load `{model.name}`: {_one_line(error)}", model=model.name
            ) from error
        self._inputs, self._outputs = _places(self._interpreter)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once, from the initial state where it has one.

        Raises:
            ConversionError: LiteRT failed; the message is its own.
        """
        shapes = {name: array.shape for name, array in feeds.items()}
        try:
            if self._state == "resources" and self._shapes:  # no interpreter resets these
                self._interpreter, self._shapes = self._make(), {}
            if shapes != self._shapes:
                for name, index in self._inputs.items():
                    self._interpreter.resize_tensor_input(index, shapes[name])
                self._interpreter.allocate_tensors()
                self._shapes = shapes
            elif self._state == "tensors":
                self._interpreter.reset_all_variables()
            for name, index in self._inputs.items():
                self._interpreter.set_tensor(index, feeds[name])
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ConversionError(f"The model failed to run: {_one_line(error)}") from error
        return {name: self._interpreter.get_tensor(index) for name, index in self._outputs.items()}


def _places(interpreter: Interpreter) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tensors of inputs and outputs by name: a signature may have another order than the graph."""
    signatures = interpreter.get_signature_list()
    if signatures:
        runner = interpreter.get_signature_runner(next(iter(signatures)))
        sides = (runner.get_input_details(), runner.get_output_details())
        inputs, outputs = ({name: detail["index"] for name, detail in side.items()} for side in sides)
        return inputs, outputs
    inputs, outputs = (
        dict(
            zip(end_names((detail["name"] for detail in side), kind), (detail["index"] for detail in side), strict=True)
        )
        for kind, side in (("input", interpreter.get_input_details()), ("output", interpreter.get_output_details()))
    )
    return inputs, outputs


def _trial(data: bytes, name: str) -> dict[int, tuple[int, ...]] | None:
    """Run a file in a process of its own first: LiteRT is C++, and a file of lies may end its process.

    Returns:
        The shape of each output, by the number of its tensor; None where LiteRT does not run it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tflite")
        path.write_bytes(data)
        done = subprocess.run([sys.executable, "-c", _TRIAL, os.fspath(path)], capture_output=True, check=False)
    if done.returncode < 0:
        raise UnsupportedModel(f"LiteRT crashes on `{name}`", hint="convert or fetch it again", model=name)
    return None if done.returncode else {i: tuple(shape) for i, shape in json.loads(done.stdout)}


def _spec(name: str, tensor: TFLiteTensor, found: tuple[int, ...] = ()) -> TensorSpec:
    try:
        dtype = DType.parse(tensor.dtype)
    except InputError as error:
        raise UnsupportedModel(f"`{name}` is a tensor of {tensor.dtype}", tensor=name) from error
    return TensorSpec(name, dtype, dimensions(name, tensor.signature or found))


def _precision(file: TFLiteFile) -> str:
    """Name what most bytes of the weights are stored in."""
    sizes = {"fp32": 0, "fp16": 0, "int8": 0, "int4": 0}
    read = {i for operator in file.operators for i in operator.inputs if i >= 0}
    for tensor in (file.tensors[i] for i in sorted(read)):
        if tensor.data is None:
            continue
        if tensor.scales is not None:
            sizes["int4" if tensor.dtype == "int4" else "int8"] += len(tensor.data)
        elif tensor.dtype in ("float32", "float16"):
            sizes["fp32" if tensor.dtype == "float32" else "fp16"] += len(tensor.data)
    return max(sizes, key=lambda word: sizes[word])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
