"""The adapter of the reference engine: slow, in plain numpy, and right by definition.

For checking other engines, and where no other one installs. It computes the operators of the ONNX standard as its
documents say, one after the other, with no fusion and no rounding of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability, Backend, Placement, Runnable
from edge_infer.errors import BackendUnavailable, ExecutionError, UnsupportedModel
from edge_infer.platform.installed import installed_version
from edge_infer.tensors.arrays import EXTENDED, fill, has_numpy, to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edge_infer.backends.reference.evaluator import Program
    from edge_infer.bundle.variant import Variant
    from edge_infer.formats.onnx_model import ValueInfo
    from edge_infer.tensors.tensor import Array


class ReferenceBackend(Backend):
    """The adapter of `edge_infer.backends.reference`."""

    name = "reference"
    formats = ("onnx",)
    page_devices = ()
    is_reference = True

    def availability(self) -> Availability:
        """Say whether numpy is installed; imports nothing."""
        if not has_numpy():
            return Availability(False, reason="numpy is not installed", hint="pip install 'edge-infer[reference]'")
        return Availability(True, ("cpu",))

    def version(self) -> str:
        """Return the version of edge-infer, whose operators they are."""
        return installed_version("edge_infer", "edge-infer")

    def prepare(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> ReferenceModel:
        """Load a model; see `Backend.prepare`. Options of other engines do not concern it."""
        del device, options
        try:
            from edge_infer.backends.reference.evaluator import Context, MissingOperator, Program
        except ImportError as error:
            raise BackendUnavailable(
                f"numpy cannot be imported: {error}", hint="pip install 'edge-infer[reference]'"
            ) from error
        from edge_infer.formats.onnx_model import read_model

        try:
            data, folder = (model, "") if isinstance(model, bytes) else _read(model)
            read = read_model(data)
            program = Program.of_graph(read.graph, read.opsets, Context(read, folder))
            unmade = sorted(program.reads())
            if unmade:
                raise ValueError(f"nothing makes `{unmade[0]}`, which it reads")
            constants = {*read.graph.constants, *read.graph.sparse}
            inputs = tuple(_spec(info) for info in read.graph.inputs if info.name not in constants)
            return ReferenceModel(program, inputs, tuple(_spec(info) for info in read.graph.outputs))
        except UnsupportedModel:
            raise
        except MissingOperator as error:
            raise UnsupportedModel(
                f"reference has no operator {error.operator}, as {error.label} of `{variant.file}` is",
                hint="it has those of the ONNX standard; take another engine: --backend onnxruntime",
                operator=error.operator,
                node=error.label,
            ) from error
        except Exception as error:
            raise UnsupportedModel(
                f"reference cannot load `{variant.file}`: {error}",
                hint="the file is cut short, no ONNX model, or not as the standard says",
                engine_error=type(error).__name__,
            ) from error


def _read(path: str) -> tuple[bytes, str]:
    with open(path, "rb") as file:
        return file.read(), os.path.dirname(os.path.abspath(path))


class ReferenceModel(Runnable):
    """A graph with its constants, ready to run."""

    is_thread_safe = True

    def __init__(self, program: Program, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self._program: Program | None = program
        self.inputs, self.outputs = inputs, outputs
        self.placement = Placement("cpu", 1, ("numpy",))

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. It has no memory of its own to keep tensors in: they are host tensors."""
        del keep
        import numpy

        from edge_infer.backends.reference.evaluator import NodeFailed

        if self._program is None:
            raise ExecutionError("The model is closed", hint="load it again")
        arrays = {name: _array(value) for name, value in feeds.items()}
        try:
            # What overflows, or divides by zero, gives infinities and NaN, as it does on other engines.
            with numpy.errstate(all="ignore"):
                computed = dict(zip(outputs, self._program.run(arrays, list(outputs)), strict=True))
        except NodeFailed as error:
            cause = error.__cause__ or error
            raise ExecutionError(
                f"reference cannot run the model at {error.label}: {type(cause).__name__}: {cause}",
                hint="an input may not fit it: compare with another engine, --backend onnxruntime",
                engine_error=type(cause).__name__,
                node=error.label,
            ) from error
        results: dict[str, Array] = {name: _result(name, value) for name, value in computed.items()}
        for name, target in into.items():
            result = results[name]
            fill(name, target, to_numpy(result) if isinstance(result, Tensor) else result)
            results[name] = target
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> ReferenceCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        return ReferenceCall(self, shapes)

    def close(self) -> None:
        """Give back the model's memory."""
        self._program = None


class ReferenceCall:
    """A run on fixed input buffers; it is not faster than a plain run."""

    def __init__(self, model: ReferenceModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._model = model
        self.inputs: dict[str, Array] = {spec.name: _zeros(spec, shapes[spec.name]) for spec in model.inputs}
        self.outputs: dict[str, Array] = {}

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        own = self.inputs[name]
        if isinstance(own, Tensor):
            given = value.to_host() if isinstance(value, Tensor) else value
            own.data()[:] = given.data() if isinstance(given, Tensor) else memoryview(given.view("uint8")).cast("B")
            return
        own[...] = to_numpy(value.to_host()) if isinstance(value, Tensor) else value

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        self.outputs = self._model.run(self.inputs, [spec.name for spec in self._model.outputs], {}, ())

    def close(self) -> None:
        """Give the buffers back."""
        self.inputs = {}
        self.outputs = {}


def _zeros(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Return an empty input buffer."""
    import numpy

    if spec.dtype in EXTENDED:
        made: Array = to_numpy(Tensor(bytearray(spec.dtype.nbytes(shape)), spec.dtype, shape))
        return made
    return numpy.zeros(shape, object if spec.dtype is DType.STRING else str(spec.dtype))


def _array(value: Array) -> Any:
    """Return an input as the evaluator takes it: the bits of a type that numpy lacks."""
    import numpy

    from edge_infer.backends.reference.elements import SMALL, dtype_of, encode

    if isinstance(value, Tensor):
        value = value.to_host()
        small = next((one for one in SMALL.values() if one.name == value.dtype), None)
        if small is None:
            return to_numpy(value)
        if small.bits >= 8:
            return numpy.frombuffer(value.data(), dtype_of(small)).reshape(value.shape)
        return encode(numpy.array(value.tolist()).reshape(value.shape), small)
    small = next((one for one in SMALL.values() if one.name == value.dtype.name), None)
    if small is None:
        return value
    if small.bits >= 8:  # of the package ml_dtypes
        return numpy.ascontiguousarray(value).view(dtype_of(small)).reshape(value.shape)
    return encode(value.astype("int8"), small)


def _result(name: str, value: Any) -> Array:
    """Return an output: no view of an input or a constant, and a tensor where numpy lacks the type."""
    import numpy

    from edge_infer.backends.reference.elements import decode, small_of

    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise ExecutionError(f"Output `{name}` is a {type(value).__name__}, expected a tensor", output=name)
    array = numpy.array(value, copy=True, order="C")
    small = small_of(array.dtype)
    if small is None:
        return array
    if small.bits >= 8:
        return Tensor(memoryview(array.tobytes()), small.name, array.shape)
    return Tensor.from_list(decode(array).reshape(-1).tolist(), small.name).reshape(array.shape)


def _spec(info: ValueInfo) -> TensorSpec:
    from edge_infer.backends.reference.elements import name_of

    if info.form != "tensor":
        raise UnsupportedModel(
            f"`{info.name}` is a {info.form or 'value without a type'}, expected a tensor", tensor=info.name
        )
    shape = [dim or f"{info.name}_{i}" if isinstance(dim, str) else dim for i, dim in enumerate(info.shape or ())]
    return TensorSpec(info.name, name_of(info.kind), shape, is_rank_known=info.shape is not None)
