"""Conversion of specs and tensors between ONNX Runtime's Python binding and ours."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, UnsupportedError, UnsupportedModel
from edge_infer.tensors.arrays import to_numpy, to_tensor
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import EngineTensor, Tensor, TensorSpec

if TYPE_CHECKING:
    from edge_infer.tensors.tensor import Array

# ONNX Runtime's names of element types, and ONNX's numbers of those that numpy cannot carry into a session.
DTYPES = {
    "tensor(float)": DType.FLOAT32,
    "tensor(double)": DType.FLOAT64,
    "tensor(float16)": DType.FLOAT16,
    "tensor(bfloat16)": DType.BFLOAT16,
    "tensor(int4)": DType.INT4,
    "tensor(uint4)": DType.UINT4,
    "tensor(int8)": DType.INT8,
    "tensor(uint8)": DType.UINT8,
    "tensor(int16)": DType.INT16,
    "tensor(uint16)": DType.UINT16,
    "tensor(int32)": DType.INT32,
    "tensor(uint32)": DType.UINT32,
    "tensor(int64)": DType.INT64,
    "tensor(uint64)": DType.UINT64,
    "tensor(bool)": DType.BOOL,
    "tensor(string)": DType.STRING,
}
ONNX_TYPE = {DType.BFLOAT16: 16, DType.UINT4: 21, DType.INT4: 22}


class OrtTensor(EngineTensor):
    """A tensor that stays in ONNX Runtime's memory, on the host or on a GPU; DLPack hands it on without a copy."""

    def __init__(self, value: Any) -> None:
        super().__init__(DTYPES[value.data_type()], value.shape())
        self._value = value
        if value.device_name().lower() != "cpu":
            self.location = "device"

    def value(self) -> Any:
        """Return the `onnxruntime.OrtValue` behind it.

        Raises:
            InputError: The tensor was closed.
        """
        if self._value is None:
            raise InputError("The tensor is closed: its memory was given back", hint="keep it open until it is read")
        return self._value

    def to_host(self) -> Tensor:
        """Copy the data to host memory; see `EngineTensor.to_host`."""
        value = self.value()
        if self.location == "device" and self.dtype in ONNX_TYPE:
            raise UnsupportedError(
                f"A tensor of {self.dtype} cannot be copied from the GPU: numpy has no such dtype",
                hint="torch.from_dlpack(tensor).cpu(), or run without `keep`",
            )
        host = from_ort_value(value)
        return host if isinstance(host, Tensor) else to_tensor(host)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """Hand the memory to another library without a copy: `torch.from_dlpack(tensor)`."""
        return self.value().__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where the memory lies, as DLPack numbers it."""
        kind, index = self.value().__dlpack_device__()
        return kind, index

    def close(self) -> None:
        """Give back the engine's memory."""
        self._value = None


def spec_of(node: Any) -> TensorSpec:
    """Return the spec of an `onnxruntime.NodeArg`.

    Raises:
        UnsupportedModel: It is not a tensor.
    """
    dtype = DTYPES.get(node.type)
    if dtype is None:
        raise UnsupportedModel(
            f"`{node.name}` is a {node.type}, expected a tensor of a known dtype",
            hint="a classifier of scikit-learn gives sequences of maps: convert it with `options={'zipmap': False}`"
            if "map" in node.type
            else "",
            tensor=node.name,
        )
    dims = [dim if dim is not None else f"{node.name}_{i}" for i, dim in enumerate(node.shape)]
    # Its API shows a scalar and a tensor of unknown rank alike: no dimensions.
    return TensorSpec(node.name, dtype, dims, is_rank_known=bool(dims))


def to_ort_value(value: Array) -> Any:
    """Return a checked value as an `onnxruntime.OrtValue`, over the same memory where numpy knows the dtype."""
    import onnxruntime

    make = onnxruntime.OrtValue
    if isinstance(value, OrtTensor):
        return value.value()
    if isinstance(value, Tensor):
        value = value.to_host()
        if value.dtype not in ONNX_TYPE:
            return make.ortvalue_from_numpy(to_numpy(value))
    elif value.dtype.name not in ONNX_TYPE:
        return make.ortvalue_from_numpy(value)
    tensor = value if isinstance(value, Tensor) else to_tensor(value)
    ort_value = make.ortvalue_from_shape_and_type(list(tensor.shape), ONNX_TYPE[tensor.dtype])
    ctypes.memmove(ort_value.data_ptr(), bytes(tensor.data()), tensor.nbytes)
    return ort_value


def from_ort_value(value: Any) -> Array:
    """Return an `onnxruntime.OrtValue` as a numpy array, or a `Tensor` where numpy lacks the dtype."""
    dtype = DTYPES[value.data_type()]
    if dtype not in ONNX_TYPE:
        return value.numpy()
    shape = tuple(value.shape())
    return Tensor(bytearray(ctypes.string_at(value.data_ptr(), dtype.nbytes(shape))), dtype, shape)
