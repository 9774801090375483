"""Prepared calls by ONNX Runtime's C interface."""

from __future__ import annotations

import ctypes
import sys
from types import MappingProxyType

from edge_infer.backends.onnxruntime.api import OrtError
from edge_infer.backends.onnxruntime.c_values import NUMBERS, Handle, copied, description, value_over
from edge_infer.backends.onnxruntime.errors import described
from edge_infer.backends.onnxruntime.shapes import output_shapes
from edge_infer.errors import ExecutionError, InputError
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.tensors.tensor import Array, TensorSpec


class OrtCCall:
    """A run over buffers that are used again: one call into the library, whose arguments are all made beforehand."""

    def __init__(
        self,
        session: Handle,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        api = session.api
        self._session = session
        self._memory: list[Any] = []
        self._values: list[Handle] = []
        self._write: dict[str, memoryview] = {}
        #: Where the buffer is a numpy array: numpy copies another array a third quicker than two views do.
        self._fill: dict[str, Any] = {}
        #: Likewise what copies an output.
        self._copies: dict[str, Any] = {}
        buffers: dict[str, Array] = {}
        in_values = (ctypes.c_void_p * len(inputs))()
        for i, spec in enumerate(inputs):
            _refuse_texts(spec)
            shape = shapes[spec.name]
            memory, in_values[i] = self._buffer(spec, shape)
            self._write[spec.name] = memoryview(memory)[: spec.dtype.nbytes(shape)]
            buffers[spec.name] = shown = _shown(memory, spec.dtype, shape)
            if not isinstance(shown, memoryview) and shown.nbytes:
                self._fill[spec.name] = shown.__setitem__
        self.inputs: Mapping[str, Array] = MappingProxyType(buffers)
        self.outputs: dict[str, Array] = {}
        self._out_values = (ctypes.c_void_p * len(outputs))()
        #: Outputs whose shape the inputs do not tell: the engine allocates them anew at each run.
        self._allocated: list[tuple[int, str]] = []
        for i, (spec, known) in enumerate(output_shapes(inputs, outputs, shapes)):
            _refuse_texts(spec)
            if known is not None:
                memory, self._out_values[i] = self._buffer(spec, known)
                self.outputs[spec.name] = Tensor(memoryview(memory)[: spec.dtype.nbytes(known)], spec.dtype, known)
                shown = _shown(memory, spec.dtype, known)
                if not isinstance(shown, memoryview):
                    self._copies[spec.name] = shown.copy
            else:
                self._allocated.append((i, spec.name))
        names_in = (ctypes.c_char_p * len(inputs))(*[spec.name.encode() for spec in inputs])
        names_out = (ctypes.c_char_p * len(outputs))(*[spec.name.encode() for spec in outputs])
        self._memory += [names_in, names_out, in_values]
        # Each as a ctypes object of its C type, for `Api.run_made`.
        self._arguments = (
            ctypes.c_void_p(session.pointer),
            ctypes.c_void_p(),
            ctypes.c_void_p(ctypes.addressof(names_in)),
            ctypes.c_void_p(ctypes.addressof(in_values)),
            ctypes.c_size_t(len(inputs)),
            ctypes.c_void_p(ctypes.addressof(names_out)),
            ctypes.c_size_t(len(outputs)),
            ctypes.c_void_p(ctypes.addressof(self._out_values)),
        )
        self._run: Any = api.run_made

    def _buffer(self, spec: TensorSpec, shape: tuple[int, ...]) -> tuple[bytearray, Any]:
        """Make zeroed memory and the engine's value over it, which lives as long as this call."""
        dtype = spec.dtype
        memory = bytearray(max(1, dtype.nbytes(shape)))
        address = ctypes.c_char.from_buffer(memory)
        self._memory.append(address)
        pointer = value_over(self._session.api, ctypes.addressof(address), NUMBERS[dtype], shape)
        self._values.append(Handle(self._session.api, "Value", pointer))
        return memory, pointer

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        fill = self._fill.get(name)
        if fill is not None and not isinstance(value, Tensor):
            fill(..., value)
        elif isinstance(value, Tensor):
            self._write[name][:] = value.data()
        else:
            view = memoryview(value)
            self._write[name][:] = view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()

    @property
    def nbytes(self) -> int:
        """The bytes of its buffers."""
        return sum(value.nbytes for value in (*self.inputs.values(), *self.outputs.values()))

    @property
    def has_fixed_outputs(self) -> bool:
        """Whether the inputs tell the shape of every output."""
        return not self._allocated

    def run_once(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Write the inputs, run, and return copies of the outputs: numpy arrays where numpy is imported."""
        for name, value in feeds.items():
            self.write(name, value)
        self.run()
        results: dict[str, Array] = {}
        for name in outputs:
            if name in self._copies:
                results[name] = self._copies[name]()
            else:
                buffer = self.outputs[name]
                results[name] = Tensor(bytearray(buffer.data()), buffer.dtype, buffer.shape)
        return results

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        status = self._run(*self._arguments)
        if status:
            try:
                self._session.api.fail(status)
            except OrtError as error:
                raise described(error.kind, error.text, "run the model", ExecutionError) from error
        if self._allocated:
            api = self._session.api
            for i, name in self._allocated:
                made = Handle(api, "Value", self._out_values[i])
                self._out_values[i] = None  # else the value of this run would have to fit the next
                self.outputs = {**self.outputs, name: copied(made, *description(api, made.pointer))}

    def close(self) -> None:
        """Give the buffers back."""
        self._values.clear()
        self._write.clear()
        self._fill.clear()
        self._copies.clear()
        self.inputs = {}
        self.outputs = {}


def _refuse_texts(spec: TensorSpec) -> None:
    if spec.dtype is DType.STRING:
        raise InputError(
            f"`{spec.name}` is {spec.dtype}, which a prepared call does not take", hint="call `session.run`"
        )


def _shown(memory: bytearray, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return an input buffer as its user writes into it: a numpy array where numpy is imported, else a memoryview."""
    view = memoryview(memory)[: dtype.nbytes(shape)]
    if "numpy" in sys.modules and dtype.bits >= 8 and dtype is not DType.BFLOAT16:
        from edge_infer.tensors.arrays import to_numpy

        return to_numpy(Tensor(view, dtype, shape))
    # Before Python 3.12 a memoryview has no half precision: its user writes the bits, as uint16.
    code: Any = "H" if dtype is DType.FLOAT16 and sys.version_info < (3, 12) else dtype.buffer_format
    return view.cast(code, shape) if view.nbytes and dtype.bits >= 8 and shape else view
