"""Prepared calls of ONNX Runtime on a GPU: tensors that stay on the device, page-locked host buffers, CUDA graphs."""

from __future__ import annotations

import ctypes
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edge_infer.backends.onnxruntime.call import known_shapes
from edge_infer.backends.onnxruntime.errors import translated
from edge_infer.backends.onnxruntime.values import OrtTensor
from edge_infer.errors import ExecutionError, UnsupportedError
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import Array, TensorSpec

# A captured graph belongs to the buffers that it was captured with; its number tells ONNX Runtime which to replay.
_graph_numbers = count(1)


class DeviceCall:
    """A run whose inputs and outputs have fixed places on a device, copied from and to host buffers around it.

    Args:
        session: The `onnxruntime.InferenceSession`.
        inputs: Its inputs.
        outputs: Its outputs.
        shapes: The shape of each input.
        place: ONNX Runtime's name of the device, and its number.
        has_graph: Whether to capture the run in a CUDA graph and replay it.
    """

    def __init__(
        self,
        session: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        place: tuple[str, int],
        has_graph: bool,
    ) -> None:
        import numpy
        import onnxruntime

        known = known_shapes(inputs, outputs, shapes)
        free = [spec.name for spec, shape in known if shape is None]
        if free and has_graph:
            raise UnsupportedError(
                f"A CUDA graph needs fixed shapes, the shape of the output `{free[0]}` is known after the run only",
                hint="leave `cuda_graph` out, or fix the model's shapes: edge-infer convert --shape",
                tensor=free[0],
            )
        self._session = session
        self._place = place
        self._binding = session.io_binding()
        self._buffers: dict[str, Array] = {}
        self._locked: list[int] = []
        self._device: dict[str, Any] = {}
        #: Inputs whose value was given as a device tensor: their host buffer is not what the device holds.
        self._resident: set[str] = set()
        self._results: list[tuple[Any, Any]] = []
        self._free = free
        self.outputs: dict[str, Array] = {}
        make = onnxruntime.OrtValue
        with translated("prepare the call", ExecutionError):
            for spec in inputs:
                buffer = numpy.zeros(shapes[spec.name], str(spec.dtype))
                value = make.ortvalue_from_shape_and_type(list(buffer.shape), buffer.dtype.type, *place)
                self._binding.bind_ortvalue_input(spec.name, value)
                self._device[spec.name] = value
                self._buffers[spec.name] = self._page_locked(buffer)
            for spec, shape in known:
                if shape is None:
                    self._binding.bind_output(spec.name, "cpu")
                    continue
                buffer = numpy.zeros(shape, str(spec.dtype))
                value = make.ortvalue_from_shape_and_type(list(shape), buffer.dtype.type, *place)
                self._binding.bind_ortvalue_output(spec.name, value)
                self.outputs[spec.name] = self._page_locked(buffer)
                self._results.append((make.ortvalue_from_numpy(buffer), value))
        self.inputs: Mapping[str, Array] = MappingProxyType(self._buffers)
        self._order = [spec.name for spec in outputs]
        self._options: Any = None
        if has_graph:
            self._options = onnxruntime.RunOptions()
            self._options.add_run_config_entry("gpu_graph_id", str(next(_graph_numbers)))

    def _page_locked(self, buffer: Any) -> Any:
        """Lock a host buffer in memory, so that the device copies it by itself; without CUDA it is not locked."""
        runtime = _cuda_runtime() if self._place[0] == "cuda" and buffer.nbytes else None
        if runtime is not None and runtime.cudaHostRegister(ctypes.c_void_p(buffer.ctypes.data), buffer.nbytes, 0) == 0:
            self._locked.append(buffer.ctypes.data)
        return buffer

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer, or a device tensor into the input's place on the device."""
        if isinstance(value, OrtTensor) and value.location == "device":
            with translated("copy the tensor", ExecutionError):
                self._device[name].update_inplace(value.value())
            self._resident.add(name)
            return
        if isinstance(value, Tensor):
            value = to_numpy(value.to_host())
        self._buffers[name][...] = value
        self._resident.discard(name)

    def run(self) -> None:
        """Copy the inputs to the device, run, and copy the outputs back."""
        with translated("run the model", ExecutionError):
            for name, buffer in self._buffers.items():
                if name not in self._resident:
                    self._device[name].update_inplace(buffer)
            for name in self._free:
                self._binding.bind_output(name, "cpu")  # else the buffer of the last run would have to fit
            self._session.run_with_iobinding(self._binding, self._options)
            for host, device in self._results:
                host.update_inplace(device)
            if self._free:
                values = dict(zip(self._order, self._binding.get_outputs(), strict=True))
                self.outputs = {**self.outputs, **{name: values[name].numpy().copy() for name in self._free}}

    def close(self) -> None:
        """Give the buffers back."""
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        runtime = _cuda_runtime() if self._locked else None
        while self._locked:
            address = self._locked.pop()
            if runtime is not None:
                runtime.cudaHostUnregister(ctypes.c_void_p(address))
        self._device.clear()
        self._results.clear()
        self._buffers.clear()
        self.outputs = {}


def _cuda_runtime() -> Any:
    """Return CUDA's runtime library as ONNX Runtime's provider has loaded it; None where it is not found."""
    import onnxruntime

    major = str(getattr(onnxruntime, "cuda_version", "")).partition(".")[0]
    for name in (f"libcudart.so.{major}", f"cudart64_{major}.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
