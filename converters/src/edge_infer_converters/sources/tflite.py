"""Read a `.tflite` file as a source, and run it on LiteRT as the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from edge_infer.errors import ConversionError, InputError, UnsupportedModel
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.sources.options import SourceOptions
from edge_infer_converters.sources.source import Source
from edge_infer_converters.support import Support

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_edge_litert.interpreter import Interpreter

    from edge_infer_converters.writers.tflite import FloatGraph
    from edge_infer_converters.writers.tflite.graph import Graph, Tensor

_TRIAL = """
import sys
from ai_edge_litert.interpreter import Interpreter
try:
    interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
    interpreter.allocate_tensors()
    interpreter.invoke()
except (RuntimeError, ValueError):
    pass  # it will come again, and be told, when the model is run
"""


@dataclass(frozen=True, slots=True)
class TFLiteSource(Source):
    """A TFLite model that was read.

    Attributes:
        name: The file's name without its suffix.
        data: The bytes of the file.
        graph: The same as a graph.
        inputs: What it takes.
        outputs: What it gives.
        precision: What its weights are stored in: `fp32`, `fp16`, `int8` or `int4`.
        nbytes: The size of the file.
    """

    format: ClassVar = "tflite"
    name: str
    data: bytes
    graph: FloatGraph
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    precision: str
    nbytes: int

    @property
    def count(self) -> str:
        """How many operators it has, in words."""
        return f"{len(self.graph.graph.operators)} operators"

    def reference(self) -> Reference:
        """Load the model into LiteRT, without accelerators."""
        return Reference(self)

    def support(self, targets: Sequence[str], formats: Sequence[str]) -> Support:  # noqa: ARG002
        """Return the graph of the file: its operators are TFLite's own."""
        return Support((), None, self.graph)

    def own_file(self, id_: str) -> bytes | None:
        """Return the bytes of the file for the variant of its own precision."""
        return self.data if id_ == f"tflite/{self.precision}" else None


def load(path: str | os.PathLike[str], options: SourceOptions | None = None) -> TFLiteSource:
    """Read and check a `.tflite` file.

    Args:
        path: The file.
        options: The source options; a TFLite file takes none.

    Raises:
        ConversionError: There is no such file.
        InputError: Dimensions are to be fixed, or an operator set is asked for.
        UnsupportedModel: It is not a TFLite file, is cut short or contradicts itself, cannot be written back, or LiteRT
            crashes on it.
        UnsupportedOperator: It has operators that are not TFLite's own.
    """
    from edge_infer_converters.writers.tflite import reading

    place = Path(path)
    if options is not None and options != SourceOptions():
        raise InputError(
            "--shape, --opset and --layout are for ONNX models: a TFLite file is kept as it is",
            hint="leave them out, or convert the model that it was made from",
            got=place.name,
        )
    try:
        data = place.read_bytes()
    except OSError as error:
        raise ConversionError(f"`{place}` cannot be read: {error.strerror}") from error
    graph = reading.read(data, place.name)
    _require_survival(place)
    inputs, outputs = (
        tuple(_spec(tensor) for tensor in tensors) for tensors in (graph.graph.inputs, graph.graph.outputs)
    )
    return TFLiteSource(place.stem, data, graph, inputs, outputs, _precision(graph.graph), len(data))


class Reference:
    """The source model on LiteRT as it was written: one thread and no accelerator.

    Raises:
        UnsupportedModel: LiteRT cannot load the model.
    """

    def __init__(self, model: TFLiteSource) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self._shapes: dict[str, tuple[int, ...]] = {}
        try:
            self._interpreter = Interpreter(
                model_content=model.data,
                num_threads=1,
                experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            )
        except (RuntimeError, ValueError) as error:
            raise UnsupportedModel(
                f"LiteRT cannot load `{model.name}`: {_one_line(error)}", model=model.name
            ) from error
        self._inputs, self._outputs = _places(self._interpreter)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once.

        Raises:
            ConversionError: LiteRT failed; the message is its own.
        """
        shapes = {name: array.shape for name, array in feeds.items()}
        try:
            if shapes != self._shapes:
                for name, index in self._inputs.items():
                    self._interpreter.resize_tensor_input(index, shapes[name])
                self._interpreter.allocate_tensors()
                self._shapes = shapes
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
        {detail["name"]: detail["index"] for detail in side}
        for side in (interpreter.get_input_details(), interpreter.get_output_details())
    )
    return inputs, outputs


def _require_survival(path: Path) -> None:
    """Load the file in a process of its own first: LiteRT is C++, and a file of lies may end its process."""
    done = subprocess.run([sys.executable, "-c", _TRIAL, os.fspath(path)], capture_output=True, check=False)
    if done.returncode < 0:
        raise UnsupportedModel(f"LiteRT crashes on `{path.name}`", hint="convert or fetch it again", model=path.name)


def _spec(tensor: Tensor) -> TensorSpec:
    try:
        dtype = DType.parse(tensor.dtype.name)
    except InputError as error:
        raise UnsupportedModel(f"`{tensor.name}` is a tensor of {tensor.dtype}", tensor=tensor.name) from error
    dims = [
        dim if dim >= 0 else "batch" if axis == 0 else f"{tensor.name}_{axis}"
        for axis, dim in enumerate(tensor.signature)
    ]
    return TensorSpec(tensor.name, dtype, dims)


def _precision(graph: Graph) -> str:
    """Name what most bytes of the weights are stored in."""
    sizes = {"fp32": 0, "fp16": 0, "int8": 0, "int4": 0}
    found = {id(one): one for operator in graph.operators for one in operator.inputs if one is not None}
    for tensor in found.values():
        if tensor.data is None:
            continue
        if tensor.quantization is not None:
            sizes["int4" if tensor.quantization.bits == 4 else "int8"] += tensor.data.size
        elif tensor.dtype in (np.float32, np.float16):
            sizes["fp32" if tensor.dtype == np.float32 else "fp16"] += tensor.data.nbytes
    return max(sizes, key=lambda word: sizes[word])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
