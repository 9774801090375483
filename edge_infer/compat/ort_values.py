"""`OrtValue` and `NodeArg`: tensors in the engine's memory, and the specs of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.backends.web.ort import OrtWebBackend
from edge_infer.compat.ort_errors import NativeErrors, ort_error
from edge_infer.tensors.arrays import has_numpy, to_numpy, to_tensor
from edge_infer.tensors.dtypes import DType, dtype_of_buffer
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from edge_infer.backends.web.call import PageTensor
    from edge_infer.tensors.tensor import TensorSpec

# The spelling of `tensor(...)`, and ONNX's numbers: TensorProto.DataType.
_TYPE_NAMES = {DType.FLOAT32: "float", DType.FLOAT64: "double"}
_NUMBERS = {
    DType.FLOAT32: 1,
    DType.UINT8: 2,
    DType.INT8: 3,
    DType.UINT16: 4,
    DType.INT16: 5,
    DType.INT32: 6,
    DType.INT64: 7,
    DType.STRING: 8,
    DType.BOOL: 9,
    DType.FLOAT16: 10,
    DType.FLOAT64: 11,
    DType.UINT32: 12,
    DType.UINT64: 13,
    DType.BFLOAT16: 16,
    DType.UINT4: 21,
    DType.INT4: 22,
}


def type_name(dtype: DType | str) -> str:
    """Write an element type as ONNX Runtime does.

    >>> type_name("float32")
    'tensor(float)'
    """
    return f"tensor({_TYPE_NAMES.get(DType(dtype), str(dtype))})"


class NodeArg(NamedTuple):
    """An input or output of a model; an unnamed dimension of any size is None."""

    name: str
    type: str
    shape: list[int | str | None]


def node_arg(spec: TensorSpec) -> NodeArg:
    """Describe a spec; the engine calls the nameless dimension 2 of `x` `x_2`."""
    shape = [None if dim == f"{spec.name}_{axis}" else dim for axis, dim in enumerate(spec.shape)]
    return NodeArg(spec.name, type_name(spec.dtype), shape)


def check_device(device_type: str, device_id: int = 0) -> None:
    """Refuse every device but the CPU, which is what the engine calls the page's memory."""
    if device_type != "cpu" or device_id != 0:
        raise NotImplementedError(f"Device `{device_type}:{device_id}` cannot work in a page: only `cpu`, device 0")


def presented(tensor: Tensor) -> Any:
    """Return a tensor as a numpy array where numpy can be imported."""
    host = tensor.to_host()
    return to_numpy(host) if has_numpy() else host


def as_tensor(array: Any) -> Tensor:
    """See a numpy array, a Tensor or another typed buffer as a Tensor."""
    if isinstance(array, Tensor):
        return array
    if hasattr(array, "dtype"):
        return to_tensor(array)
    try:
        view = memoryview(array)
    except TypeError:
        raise TypeError(
            f"a {type(array).__name__} is not an array; pass a numpy array or an edge_infer.Tensor"
        ) from None
    dtype = dtype_of_buffer(view)
    if dtype is None:
        raise TypeError(f"a buffer of format {view.format!r} has no ONNX type")
    return Tensor(view, dtype, view.shape or ())


class OrtValue:
    """A tensor in the engine's memory: fed to a session without a copy."""

    def __init__(self, tensor: PageTensor) -> None:
        self._tensor = tensor

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> Self:
        """Copy an array into the engine's memory."""
        check_device(device_type, device_id)
        tensor = as_tensor(numpy_obj)
        with NativeErrors():
            return cls(OrtWebBackend().tensor(tensor.dtype, tensor.shape, tensor))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> Self:
        """Make a tensor of zeros; the type is numpy's, its name, or ONNX's number."""
        check_device(device_type, device_id)
        numbers = {number: dtype for dtype, number in _NUMBERS.items()}
        if isinstance(element_type, int):
            if element_type not in numbers:
                raise NotImplementedError(f"ONNX's element type {element_type} has no name in edge-infer")
            dtype = numbers[element_type]
        else:
            dtype = DType.parse(getattr(element_type, "__name__", element_type))
        with NativeErrors():
            return cls(OrtWebBackend().tensor(dtype, tuple(shape)))

    def numpy(self) -> Any:
        """Copy the data out: a numpy array where numpy can be imported, else a Tensor."""
        return presented(self._tensor)

    def update_inplace(self, np_arr: Any) -> None:
        """Write an array of the same type and shape over the data."""
        tensor = as_tensor(np_arr)
        if tensor.dtype is DType.STRING:
            raise NotImplementedError("Strings cannot be written over in the engine's memory; make another OrtValue")
        if (tensor.dtype, tensor.shape) != (self._tensor.dtype, self._tensor.shape):
            raise ort_error(
                2,
                f"The tensor is {type_name(self._tensor.dtype)} of shape {self._tensor.shape}, "
                f"the array {type_name(tensor.dtype)} of shape {tensor.shape}",
            )
        self._tensor.fill(tensor)

    def shape(self) -> list[int]:
        """Return the shape."""
        return list(self._tensor.shape)

    def data_type(self) -> str:
        """Return the type as `tensor(float)`."""
        return type_name(self._tensor.dtype)

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return _NUMBERS[self._tensor.dtype]

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of the data."""
        return self._tensor.nbytes

    def device_name(self) -> str:
        """Return where the tensor lies, in ONNX Runtime's words."""
        return "cpu"

    def has_value(self) -> bool:
        """Tell whether there is a value."""
        return True

    def is_tensor(self) -> bool:
        """Tell whether this is a tensor: sequences cannot leave the engine."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Tell whether this is a sparse tensor."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Tell whether this is a sequence."""
        return False

    def data_ptr(self) -> int:
        """Not in a page."""
        raise NotImplementedError(
            "`OrtValue.data_ptr` cannot work in a page: the engine has a memory of its own, which Python cannot address"
        )

    def tensor(self) -> PageTensor:
        """Return the engine's tensor behind it."""
        return self._tensor

    def __del__(self) -> None:
        self._tensor.close()
