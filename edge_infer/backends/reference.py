"""The ONNX reference evaluator: slow, in plain numpy, and right by definition.

For checking other engines. It implements the operators of the ONNX standard as its documents say, one after the
other, with no fusion and no rounding of its own.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability, Backend, Placement, Runnable
from edge_infer.errors import BackendUnavailable, ExecutionError, UnsupportedModel
from edge_infer.platform.installed import installed_version
from edge_infer.tensors.arrays import fill, to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edge_infer.bundle.manifest import Variant
    from edge_infer.tensors.tensor import Array


class ReferenceBackend(Backend):
    """The adapter of `onnx.reference`."""

    name = "reference"
    formats = ("onnx",)
    is_reference = True

    def availability(self) -> Availability:
        """Say whether `onnx` is installed; imports nothing."""
        if sys.platform == "emscripten":
            return Availability(False, reason="needs onnx and numpy, which this page does not have")
        if find_spec("onnx") is None:
            return Availability(False, reason="not installed", hint="pip install 'edge-infer[reference]'")
        return Availability(True, ("cpu",))

    def version(self) -> str:
        """Return the version of `onnx`."""
        return installed_version("onnx", "onnx")

    def prepare(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> ReferenceModel:
        """Load a model; see `Backend.prepare`. Options of other engines do not concern it."""
        del device, options
        try:
            import onnx
            from onnx.reference import ReferenceEvaluator
        except ImportError as error:
            raise BackendUnavailable(f"onnx cannot be imported: {error}", hint="pip install onnx") from error
        try:
            proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
            if not proto.HasField("graph"):
                raise ValueError("there is no graph in it")
            return ReferenceModel(proto, ReferenceEvaluator(proto))
        except UnsupportedModel:
            raise
        except Exception as error:
            raise UnsupportedModel(
                f"reference cannot load `{variant.file}`: {error}",
                hint="the file is cut short, no ONNX model, or uses an operator outside the standard",
                engine_error=type(error).__name__,
            ) from error


class ReferenceModel(Runnable):
    """A loaded reference evaluator."""

    is_thread_safe = True

    def __init__(self, proto: Any, evaluator: Any) -> None:
        constants = {tensor.name for tensor in proto.graph.initializer}
        self._evaluator = evaluator
        self.inputs = tuple(_spec(info) for info in proto.graph.input if info.name not in constants)
        self.outputs = tuple(_spec(info) for info in proto.graph.output)
        self.placement = Placement("cpu", 1, ("onnx.reference",))

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. It has no memory of its own to keep tensors in: they are host tensors."""
        del keep
        arrays = {
            name: to_numpy(value.to_host()) if isinstance(value, Tensor) else value for name, value in feeds.items()
        }
        try:
            results = dict(zip(outputs, self._evaluator.run(list(outputs), arrays), strict=True))
        except Exception as error:
            node = _failed_node(error)
            where = f" at {node}" if node else ""
            raise ExecutionError(
                f"reference cannot run the model{where}: {type(error).__name__}: {error}",
                hint="the evaluator is onnx's own, and slow to follow: --backend onnxruntime",
                engine_error=type(error).__name__,
                node=node,
            ) from error
        import numpy

        for name, result in results.items():
            # The evaluator returns views of its inputs where an operator changes nothing but the shape.
            results[name] = numpy.array(result, copy=True)
        for name, target in into.items():
            fill(name, target, results[name])
            results[name] = target
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> ReferenceCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        return ReferenceCall(self, shapes)

    def close(self) -> None:
        """Give back the model's memory."""
        self._evaluator = None


class ReferenceCall:
    """A run on fixed input buffers; it is not faster than a plain run."""

    def __init__(self, model: ReferenceModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        import numpy

        self._model = model
        self.inputs: dict[str, Array] = {
            spec.name: numpy.zeros(shapes[spec.name], object if spec.dtype is DType.STRING else str(spec.dtype))
            for spec in model.inputs
        }
        self.outputs: dict[str, Array] = {}

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        self.inputs[name][...] = to_numpy(value.to_host()) if isinstance(value, Tensor) else value

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        self.outputs = self._model.run(self.inputs, [spec.name for spec in self._model.outputs], {}, ())

    def close(self) -> None:
        """Give the buffers back."""
        self.inputs = {}
        self.outputs = {}


def _failed_node(error: BaseException) -> str:
    """Name the node at which the evaluator failed: it says nothing of it, but runs each as `node` of a loop."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        proto = getattr(trace.tb_frame.f_locals.get("node"), "onnx_node", None)
        if proto is not None:
            name = proto.name or next(iter(proto.output), "")
            found = f"{proto.op_type} node `{name}`"  # the innermost: a node of a subgraph or function
        trace = trace.tb_next
    return found


def _spec(info: Any) -> TensorSpec:
    import onnx

    if not info.type.HasField("tensor_type"):
        raise UnsupportedModel(
            f"`{info.name}` is a {info.type.WhichOneof('value')}, expected a tensor", tensor=info.name
        )
    tensor = info.type.tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    shape = [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or f"{info.name}_{i}"
        for i, dim in enumerate(tensor.shape.dim)
    ]
    return TensorSpec(info.name, dtype, shape, is_rank_known=tensor.HasField("shape"))
