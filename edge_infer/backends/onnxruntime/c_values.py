"""Values of ONNX Runtime's C interface: views of our memory, and copies."""

from __future__ import annotations

import ctypes
from math import prod

from edge_infer.backends.onnxruntime.api import OrtError
from edge_infer.errors import InputError, UnsupportedModel
from edge_infer.tensors.arrays import writable_bytes
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import EngineTensor, Tensor, TensorSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edge_infer.backends.onnxruntime.api import Api
    from edge_infer.tensors.tensor import Array

# ONNX's numbers of the element types: `TensorProto.DataType`.
DTYPES = {
    1: DType.FLOAT32,
    2: DType.UINT8,
    3: DType.INT8,
    4: DType.UINT16,
    5: DType.INT16,
    6: DType.INT32,
    7: DType.INT64,
    8: DType.STRING,
    9: DType.BOOL,
    10: DType.FLOAT16,
    11: DType.FLOAT64,
    12: DType.UINT32,
    13: DType.UINT64,
    16: DType.BFLOAT16,
    21: DType.UINT4,
    22: DType.INT4,
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
# What a value is that is not a tensor: `ONNXType`.
_KINDS = ("unknown", "tensor", "sequence", "map", "opaque value", "sparse tensor", "optional value")
_ONNX_TENSOR = 1
_TEXT = 8


class Handle:
    """An object of the library that is given back with the last reference to it, whatever thread drops that."""

    __slots__ = ("_kind", "api", "pointer")

    def __init__(self, api: Api, kind: str, pointer: Any) -> None:
        self.api = api
        self._kind = kind
        self.pointer = pointer

    def __del__(self) -> None:
        self.api.release(self._kind, self.pointer)


class OrtCTensor(EngineTensor):
    """An output that stays in ONNX Runtime's memory.

    Args:
        handle: The engine's value.
        dtype: Its dtype.
        shape: Its shape.
        memory: The memory that it lies in, where that is not the engine's.
    """

    def __init__(self, handle: Handle, dtype: DType, shape: tuple[int, ...], memory: Any = None) -> None:
        super().__init__(dtype, shape)
        self._handle: Handle | None = handle
        self._memory = memory

    def handle(self) -> Handle:
        """Return the engine's value behind it.

        Raises:
            InputError: The tensor was closed.
        """
        if self._handle is None:
            raise InputError("The tensor is closed: its memory was given back", hint="keep it open until it is read")
        return self._handle

    def to_host(self) -> Tensor:
        """Copy the data to host memory; see `EngineTensor.to_host`."""
        return copied(self.handle(), self.dtype, self.shape)

    def close(self) -> None:
        """Give back the engine's memory."""
        self._handle = self._memory = None


def specs_of(api: Api, session: Any, side: str) -> list[TensorSpec]:
    """Return the specs of a session's inputs or outputs; `side` is `Input` or `Output`."""
    return [_spec(api, session, side, i) for i in range(api.count(f"SessionGet{side}Count", session))]


def _spec(api: Api, session: Any, side: str, index: int) -> TensorSpec:
    text = api.make(f"SessionGet{side}Name", session, index, api.allocator)
    name = ctypes.string_at(text).decode("utf-8", "replace")
    api.call("AllocatorFree", api.allocator, text)
    info = Handle(api, "TypeInfo", api.make(f"SessionGet{side}TypeInfo", session, index))
    kind = api.count("GetOnnxTypeFromTypeInfo", info.pointer)
    if kind != _ONNX_TENSOR:
        raise UnsupportedModel(
            f"`{name}` is a {_KINDS[kind] if kind < len(_KINDS) else 'value'}, expected a tensor of a known dtype",
            hint="a classifier of scikit-learn gives sequences of maps: convert it with `options={'zipmap': False}`"
            if _KINDS[kind : kind + 1] == ("sequence",)
            else "",
            tensor=name,
        )
    tensor = api.make("CastTypeInfoToTensorInfo", info.pointer)  # part of the info
    number = api.count("GetTensorElementType", tensor)
    if number not in DTYPES:
        raise UnsupportedModel(
            f"`{name}` has the element type {number}, expected a tensor of a known dtype", tensor=name
        )
    rank = api.count("GetDimensionsCount", tensor)
    sizes, symbols = (ctypes.c_int64 * rank)(), (ctypes.c_char_p * rank)()
    api.call("GetDimensions", tensor, sizes, rank)
    api.call("GetSymbolicDimensions", tensor, symbols, rank)
    dims = [
        size if size >= 0 else (symbol or b"").decode("utf-8", "replace") or f"{name}_{i}"
        for i, (size, symbol) in enumerate(zip(sizes, symbols, strict=True))
    ]
    # Its interface shows a scalar and a tensor of unknown rank alike: no dimensions.
    return TensorSpec(name, DTYPES[number], dims, is_rank_known=bool(dims))


def value_over(api: Api, address: int, number: int, shape: tuple[int, ...]) -> Any:
    """Make a value of the engine over memory that is not its own."""
    rank = len(shape)
    size = DTYPES[number].nbytes(shape)
    dims = (ctypes.c_int64 * rank)(*shape)
    return api.make("CreateTensorWithDataAsOrtValue", api.memory, address, size, dims, rank, number)


def value_of_texts(api: Api, value: Array) -> Any:
    """Make a value of the engine that holds copies of texts, each ended by a zero byte."""
    texts = [text.encode() for text in value.reshape(-1).tolist()]
    rank = len(value.shape)
    pointer = api.make("CreateTensorAsOrtValue", api.allocator, (ctypes.c_int64 * rank)(*value.shape), rank, _TEXT)
    try:
        api.call("FillStringTensor", pointer, (ctypes.c_char_p * len(texts))(*texts), len(texts))
    except OrtError:
        api.release_value(pointer)
        raise
    return pointer


def _texts_of(value: Handle, count: int) -> list[str]:
    """Copy the texts of a value; they lie behind one another, `offsets` says where each begins."""
    api = value.api
    size = api.count("GetStringTensorDataLength", value.pointer)
    data, offsets = ctypes.create_string_buffer(max(1, size)), (ctypes.c_size_t * count)()
    api.call("GetStringTensorContent", value.pointer, data, size, offsets, count)
    ends = [*offsets[1:], size]
    return [data.raw[start:end].decode("utf-8", "replace") for start, end in zip(offsets, ends, strict=True)]


def source(value: Array) -> tuple[int, tuple[int, ...], Any]:
    """Return where a checked input lies, its shape, and what keeps it there; what cannot be pointed to is copied."""
    view = value.to_host().data() if isinstance(value, Tensor) else memoryview(value)
    if view.readonly or not view.c_contiguous or not view.nbytes:
        view = memoryview(bytearray(view.tobytes() or 1))
    owner = ctypes.c_char.from_buffer(view)
    return ctypes.addressof(owner), value.shape, owner


def target(value: Array) -> tuple[int, tuple[int, ...], Any]:
    """Return where a checked buffer for an output lies, its shape, and what keeps it there."""
    view = value.data() if isinstance(value, Tensor) else memoryview(value)
    shape = value.shape if isinstance(value, Tensor) else tuple(view.shape or ())
    owner = ctypes.c_char.from_buffer(view if view.nbytes else bytearray(1))
    return ctypes.addressof(owner), shape, owner


def description(api: Api, value: Any) -> tuple[DType, tuple[int, ...]]:
    """Return the dtype and the shape of a value."""
    info = Handle(api, "TensorInfo", api.make("GetTensorTypeAndShape", value))
    rank = api.count("GetDimensionsCount", info.pointer)
    sizes = (ctypes.c_int64 * rank)()
    api.call("GetDimensions", info.pointer, sizes, rank)
    return DTYPES[api.count("GetTensorElementType", info.pointer)], tuple(sizes)


def copied(value: Handle, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Copy a value of the engine into a tensor."""
    if dtype is DType.STRING:
        return Tensor(_texts_of(value, prod(shape)) if prod(shape) else [], dtype, shape)
    size = dtype.nbytes(shape)
    data = bytearray(size)
    if size:
        source = value.api.make("GetTensorMutableData", value.pointer)
        ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(data)), source, size)
    return Tensor(data, dtype, shape)


def kept_copy(api: Api, value: Tensor) -> OrtCTensor:
    """Return a value of the engine over memory of its own, with the data of a tensor."""
    if value.dtype is DType.STRING:
        return OrtCTensor(Handle(api, "Value", value_of_texts(api, value)), value.dtype, value.shape)
    memory = bytearray(value.data()) or bytearray(1)
    owner = ctypes.c_char.from_buffer(memory)
    pointer = value_over(api, ctypes.addressof(owner), NUMBERS[value.dtype], value.shape)
    return OrtCTensor(Handle(api, "Value", pointer), value.dtype, value.shape, owner)


def overwrite(name: str, target: Array, value: Tensor) -> None:
    """Copy a tensor into a buffer for an output, or into a value of the engine.

    Raises:
        InputError: The target has another shape.
    """
    if not isinstance(target, OrtCTensor):
        writable_bytes(name, target, value.dtype, value.shape)[:] = value.data()
        return
    if target.shape != value.shape:
        raise InputError(
            f"`into` gives output `{name}` shape {target.shape}, it has {value.shape}", hint="give it one of that shape"
        )
    api = target.handle().api
    data = bytes(value.data())
    ctypes.memmove(api.make("GetTensorMutableData", target.handle().pointer), data, len(data))
