"""Prepared calls of ONNX Runtime: IO binding over buffers that are used again, on the host or on a GPU."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edge_infer.backends.onnxruntime.errors import translate
from edge_infer.backends.onnxruntime.shapes import output_shapes
from edge_infer.backends.onnxruntime.values import ONNX_TYPE
from edge_infer.errors import ExecutionError, InputError
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import Array, TensorSpec


def known_shapes(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorSpec, tuple[int, ...] | None]]:
    """Return each output with its shape, where the shapes of the inputs tell it, else None.

    Raises:
        InputError: A tensor is of a dtype that no buffer holds.
    """
    for spec in (*inputs, *outputs):
        if spec.dtype in ONNX_TYPE or spec.dtype is DType.STRING:
            raise InputError(
                f"`{spec.name}` is {spec.dtype}, which a prepared call does not take", hint="call `session.run`"
            )
    return output_shapes(inputs, outputs, shapes)


class OnnxRuntimeCall:
    """A run through IO binding over numpy buffers that are used again."""

    def __init__(
        self,
        session: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        import numpy

        self._session = session
        self._binding = session.io_binding()
        #: The engine knows these by address only: they must live as long as the binding, whatever happens outside.
        self._buffers: dict[str, Array] = {}
        self._bound: list[Array] = []
        self.outputs: dict[str, Array] = {}
        for spec in inputs:
            buffer = numpy.zeros(shapes[spec.name], str(spec.dtype))
            self._binding.bind_input(spec.name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
            self._buffers[spec.name] = buffer
        self.inputs: Mapping[str, Array] = MappingProxyType(self._buffers)
        self._fill = {name: buffer.__setitem__ for name, buffer in self._buffers.items()}
        #: Outputs whose shape the inputs do not tell: the engine allocates them anew at each run.
        self._allocated: list[str] = []
        for spec, shape in known_shapes(inputs, outputs, shapes):
            if shape is not None:
                buffer = numpy.zeros(shape, str(spec.dtype))
                self._binding.bind_output(spec.name, "cpu", 0, buffer.dtype.type, shape, buffer.ctypes.data)
                self.outputs[spec.name] = buffer
                self._bound.append(buffer)
            else:
                self._binding.bind_output(spec.name, "cpu")
                self._allocated.append(spec.name)
        self._order = [spec.name for spec in outputs]
        self._run = session.run_with_iobinding

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        if isinstance(value, Tensor):
            value = to_numpy(value.to_host())
        self._fill[name](..., value)

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        if self._allocated:
            for name in self._allocated:
                self._binding.bind_output(name, "cpu")  # else the buffer of the last run would have to fit
        try:
            self._run(self._binding)
        except Exception as error:
            raise translate(error, "run the model", ExecutionError) from error
        if self._allocated:
            values = dict(zip(self._order, self._binding.get_outputs(), strict=True))
            made = {name: values[name].numpy() for name in self._allocated}
            # An output that is also an input lies in the input's buffer.
            made.update((name, made[name].copy()) for name in self._allocated if name in self._buffers)
            self.outputs = {**self.outputs, **made}

    def close(self) -> None:
        """Give the buffers back."""
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        self._buffers.clear()
        self._fill.clear()
        self._bound.clear()
        self.outputs = {}
