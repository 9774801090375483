"""The inner values of a compiled model: its calls are run one by one, and each output is read at once."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from edge_infer.errors import UnsupportedModel
from edge_infer.formats import tflite
from edge_infer.formats.program import ALIGNMENT, call_arguments, read_compiled
from edge_infer.kernels.extents import extents
from edge_infer.kernels.library import native_library
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.formats.tflite import TFLiteTensor

_OPERAND = "output"


class InnerValues:
    """Runs a compiled model, and gives its values out by the names of the TFLite file that it was made of.

    Args:
        compiled: The content of the compiled model.
        source: The TFLite file.

    Raises:
        UnsupportedModel: Either is damaged, or the compiled model does not say of which operators its calls are.
    """

    def __init__(self, compiled: bytes, source: bytes) -> None:
        self._model = read_compiled(compiled)
        self._file = tflite.read(source)
        program = self._model.program
        if not program.operators or max(program.operators) >= len(self._file.operators):
            raise UnsupportedModel(
                "The compiled model does not say which operators of the TFLite file its calls compute",
                hint="convert it again: edge-infer convert MODEL --format tflite --format compiled -o model.bundle",
            )
        names = self._file.value_names()
        self._values: dict[int, tuple[str, TFLiteTensor]] = {}
        for number, (kernel, place) in zip(program.operators, program.calls, strict=True):
            numbers = self._file.operators[number].outputs if number >= 0 else ()
            self._values.pop(number, None)  # of several calls of an operator the last one leaves the value
            if len(numbers) == 1:
                tensor = self._file.tensors[numbers[0]]
                low, high = self._output(kernel, place)
                if tensor.nbytes == high - low:
                    self._values[number] = (names[numbers[0]], tensor)

    @property
    def is_row(self) -> bool:
        """Whether a run computes one sample of a free batch."""
        return self._model.program.is_row

    @property
    def names(self) -> list[str]:
        """The names of the values that are given out."""
        return [name for name, _ in self._values.values()]

    def run(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the model on one sample; integers with a scale become the numbers that they stand for."""
        program = self._model.program
        memory = (ctypes.c_ubyte * (program.image_bytes + ALIGNMENT))()
        start = -ctypes.addressof(memory) % ALIGNMENT
        image = memoryview(memory).cast("B")[start : start + program.image_bytes]
        image[: program.constant_bytes] = self._model.constants
        for offset, nbytes, initial in program.state:
            image[offset : offset + nbytes] = bytes(nbytes) if initial < 0 else image[initial : initial + nbytes]
        for tensor in program.inputs:
            data = feeds[tensor.name].data()
            image[tensor.offset : tensor.offset + data.nbytes] = data
        found = {}
        for number, call in zip(program.operators, program.calls, strict=True):
            native_library().run(ctypes.addressof(memory) + start, [call])
            if number in self._values:
                name, value = self._values[number]
                low, high = self._output(*call)
                found[name] = _number(bytes(image[low:high]), value)
        return found

    def _output(self, kernel: str, place: int) -> tuple[int, int]:
        tensors, integers, _ = call_arguments(self._model.constants, kernel, place)
        low, high = extents(kernel, integers)[_OPERAND]
        return tensors[_OPERAND] + low, tensors[_OPERAND] + high


def _number(data: bytes, tensor: TFLiteTensor) -> Tensor:
    shape = tuple(tensor.shape)
    if tensor.dtype == "uint8":  # kernels compute in int8
        data = bytes(one ^ 0x80 for one in data)
    value = Tensor(data, DType(tensor.dtype), shape)
    scales: Sequence[float] = tensor.scales.scales if tensor.scales is not None else ()
    if len(scales) != 1 or tensor.scales is None:
        return value
    scale, zero = scales[0], tensor.scales.zero_points[0]
    return Tensor.from_list([(one - zero) * scale for one in value.reshape(-1).tolist()], "float32").reshape(shape)
