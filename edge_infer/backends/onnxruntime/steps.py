"""Steps of a stream by ONNX Runtime: buffers bound once, and two of each state, read and written in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.backends.onnxruntime.errors import translate
from edge_infer.backends.onnxruntime.values import ONNX_TYPE
from edge_infer.errors import ExecutionError
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import Array, TensorSpec

# What the engine says where an output's shape is not that of the buffer it was given: op_kernel.cc of 1.31 and later,
# and execution_frame.cc.
_DOES_NOT_FIT = ("pre-allocated output OrtValues", "OrtValue shape verification failed")


class OnnxRuntimeSteps:
    """The steps of one stream, on the CPU.

    Args:
        session: The `onnxruntime.InferenceSession`.
        inputs: Its inputs.
        outputs: Its outputs.
        given: The shape of each input.
        made: The shape of each output.
        state: Which output becomes which input.
        first: The state to begin with, by input.
    """

    def __init__(
        self,
        session: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        given: Mapping[str, tuple[int, ...]],
        made: Mapping[str, tuple[int, ...]],
        state: Mapping[str, str],
        first: Mapping[str, Array],
    ) -> None:
        import numpy

        self._run = session.run_with_iobinding
        self._shapes = {name: shape for name, shape in given.items() if name not in state.values()}
        # The engine knows all of these by address only: they live as long as the bindings.
        self._inputs = {spec.name: numpy.zeros(given[spec.name], str(spec.dtype)) for spec in inputs}
        self._bytes = {name: _bytes_of(self._inputs[name]) for name in self._shapes}
        self._outputs = {
            spec.name: numpy.zeros(made[spec.name], str(spec.dtype)) for spec in outputs if spec.name not in state
        }
        read = {target: self._inputs.pop(target) for target in state.values()}
        written = {name: value.copy() for name, value in read.items()}
        for name, value in first.items():
            read[name][...] = to_numpy(value.to_host()) if isinstance(value, Tensor) else value
        self._turns = [(self._binding(session, read, written, state), read)]
        self._turns.append((self._binding(session, written, read, state), written))

    def _binding(
        self, session: Any, read: Mapping[str, Array], written: Mapping[str, Array], state: Mapping[str, str]
    ) -> Any:
        binding = session.io_binding()
        for name, value in {**self._inputs, **read}.items():
            binding.bind_input(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
        for name, value in {**self._outputs, **{source: written[target] for source, target in state.items()}}.items():
            binding.bind_output(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
        return binding

    def fits(self, feeds: Mapping[str, Array]) -> bool:
        """Tell whether these inputs have the shapes of the buffers."""
        return all(value.shape == self._shapes[name] for name, value in feeds.items())

    def step(self, feeds: Mapping[str, Array]) -> dict[str, Array] | None:
        """Run one step, and return copies of the outputs that are not state; None where one does not fit its buffer."""
        for name, value in feeds.items():
            if isinstance(value, Tensor):
                self._bytes[name][:] = value.to_host().data()
            else:
                self._inputs[name][...] = value
        try:
            self._run(self._turns[0][0])
        except Exception as error:
            if any(words in str(error) for words in _DOES_NOT_FIT):
                return None
            raise translate(error, "run the model", ExecutionError) from error
        self._turns.reverse()
        return {name: value.copy() for name, value in self._outputs.items()}

    def state(self) -> dict[str, Array]:
        """Return a copy of the state, by input."""
        return {name: value.copy() for name, value in self._turns[0][1].items()}

    def close(self) -> None:
        """Give the buffers back."""
        for binding, _ in self._turns:
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
        self._turns = []


def can_bind_steps(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Tell whether numpy has a buffer for each tensor, and the engine hands no input on as an output."""
    passed = {spec.name for spec in inputs} & {spec.name for spec in outputs}
    return not passed and not any(spec.dtype in ONNX_TYPE or spec.dtype is DType.STRING for spec in (*inputs, *outputs))


def _bytes_of(buffer: Any) -> memoryview:
    return memoryview(buffer.reshape(-1).view("uint8"))
