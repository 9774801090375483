"""ONNX Runtime on the CPU by its C interface: no numpy, no import of the Python binding, buffers in and buffers out.

`onnxruntime.py` takes it where numpy is not imported: there the way to the first result is the interpreter, ctypes and
one library (a third of the Python binding's start, which is mostly numpy's), and the process is smaller by both.
"""

from __future__ import annotations

import ctypes
import sys
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Placement
from edge_infer.backends.onnxruntime_api import OrtError, load_api
from edge_infer.backends.onnxruntime_entries import session_entries
from edge_infer.backends.onnxruntime_errors import described
from edge_infer.dtypes import DType
from edge_infer.errors import ExecutionError, InputError, UnsupportedError, UnsupportedModel
from edge_infer.tensors import EngineTensor, Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from edge_infer.backends.base import Array
    from edge_infer.backends.onnxruntime_api import Api

# ONNX's numbers of the element types: `TensorProto.DataType`.
_DTYPES = {
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
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}
# What a value is that is no tensor: `ONNXType`.
_KINDS = ("unknown", "tensor", "sequence", "map", "opaque value", "sparse tensor", "optional value")
_ONNX_TENSOR = 1
_TEXT = 8


class _Handle:
    """An object of the library that is given back with the last reference to it, whatever thread drops that."""

    __slots__ = ("_kind", "api", "pointer")

    def __init__(self, api: Api, kind: str, pointer: Any) -> None:
        self.api = api
        self._kind = kind
        self.pointer = pointer

    def __del__(self) -> None:
        self.api.release(self._kind, self.pointer)


def load_model(model: Path | bytes, file: str | None, options: Mapping[str, str]) -> OrtCModel:
    """Load a model on the CPU.

    Args:
        model: The model file or its bytes.
        file: What errors call it.
        options: The engine's settings, as `Backend.prepare` takes them.

    Raises:
        BackendUnavailable: The library cannot be used here.
        ManifestError: A setting is not one that a bundle may set.
        UnsupportedModel: The engine cannot load the model.
    """
    entries = session_entries(options)
    threads = int(options.get("intra_op_threads", 0))
    api = load_api()
    try:
        settings = _Handle(api, "SessionOptions", api.make("CreateSessionOptions"))
        api.call("SetSessionLogSeverityLevel", settings.pointer, 4)
        api.call("SetIntraOpNumThreads", settings.pointer, threads)
        for key, value in entries.items():
            api.call("AddSessionConfigEntry", settings.pointer, key.encode(), value.encode())
        if isinstance(model, bytes):
            pointer = api.make("CreateSessionFromArray", api.env, model, len(model), settings.pointer)
        else:
            pointer = api.make("CreateSession", api.env, str(model).encode(), settings.pointer)
    except OrtError as error:
        raise described(error.kind, error.text, f"load `{file}`", UnsupportedModel) from error
    return OrtCModel(_Handle(api, "Session", pointer), threads)


class OrtCModel:
    """A loaded session."""

    is_thread_safe = True

    def __init__(self, session: _Handle, threads: int) -> None:
        self._session: _Handle | None = session
        api = session.api
        self.inputs = tuple(_specs(api, session.pointer, "Input"))
        self.outputs = tuple(_specs(api, session.pointer, "Output"))
        self._texts = [spec.name for spec in (*self.inputs, *self.outputs) if spec.dtype is DType.STRING]
        self.placement = Placement("cpu", threads, ("CPUExecutionProvider",))
        self._numbers = {spec.name: _NUMBERS[spec.dtype] for spec in self.inputs}
        self._out_numbers = {spec.name: _NUMBERS[spec.dtype] for spec in self.outputs}
        self._names = {spec.name: spec.name.encode() for spec in (*self.inputs, *self.outputs)}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        session = self._session
        if session is None:
            raise InputError("The session is closed", hint="load the model again")
        for name in self._texts if keep or into else ():
            if name in feeds or name in keep:
                raise UnsupportedError(
                    f"onnxruntime runs `{name}`, which is of strings, neither with kept tensors nor into buffers",
                    hint="run it without `keep` and `into`",
                    tensor=name,
                )
        api = session.api
        ours: list[Any] = []  # values made here, over memory of the caller's or ours
        held: list[Any] = []  # that memory
        given = (ctypes.c_void_p * len(outputs))()
        try:
            pointers = []
            for name, value in feeds.items():
                if isinstance(value, OrtCTensor):
                    held.append(value.handle())  # closed by another thread, it would be gone during the run
                    pointers.append(held[-1].pointer)
                    continue
                if name in self._texts:
                    pointers.append(_value_of_texts(api, value))
                else:
                    address, shape, owner = _source(value)
                    held.append(owner)
                    pointers.append(_value_over(api, address, self._numbers[name], shape))
                ours.append(pointers[-1])
            for i, name in enumerate(outputs):
                if isinstance(into.get(name), OrtCTensor):
                    held.append(into[name].handle())
                    given[i] = held[-1].pointer
                elif name in into:
                    address, shape, owner = _target(into[name])
                    held.append(owner)
                    given[i] = _value_over(api, address, self._out_numbers[name], shape)
                    ours.append(given[i])
            status = api.run(
                session.pointer,
                None,
                (ctypes.c_char_p * len(pointers))(*[self._names[name] for name in feeds]),
                (ctypes.c_void_p * len(pointers))(*pointers),
                len(pointers),
                (ctypes.c_char_p * len(outputs))(*[self._names[name] for name in outputs]),
                len(outputs),
                given,
            )
            if status:
                api.fail(status)
            results: dict[str, Array] = {}
            for i, name in enumerate(outputs):
                if name in into:
                    results[name] = into[name]
                    continue
                made = _Handle(api, "Value", given[i])
                dtype, shape = _described(api, given[i])
                results[name] = OrtCTensor(made, dtype, shape) if name in keep else _copied(made, dtype, shape)
            return results
        except OrtError as error:
            raise described(error.kind, error.text, "run the model", ExecutionError) from error
        finally:
            for pointer in ours:
                api.release_value(pointer)

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> OrtCCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        if self._session is None:
            raise InputError("The session is closed", hint="load the model again")
        return OrtCCall(self._session, self.inputs, self.outputs, shapes)

    def close(self) -> None:
        """Give back the session's memory, once no run or prepared call uses it."""
        self._session = None


class OrtCCall:
    """A run over buffers that are used again: one call into the library, whose arguments are all made beforehand."""

    def __init__(
        self,
        session: _Handle,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        api = session.api
        self._session = session
        self._memory: list[Any] = []
        self._values: list[_Handle] = []
        self._write: dict[str, memoryview] = {}
        buffers: dict[str, Array] = {}
        sizes: dict[str, int] = {}
        in_values = (ctypes.c_void_p * len(inputs))()
        for i, spec in enumerate(inputs):
            _refuse_texts(spec)
            shape = shapes[spec.name]
            sizes.update({dim: size for dim, size in zip(spec.shape, shape, strict=False) if isinstance(dim, str)})
            memory, in_values[i] = self._buffer(spec, shape)
            self._write[spec.name] = memoryview(memory)[: spec.dtype.nbytes(shape)]
            buffers[spec.name] = _shown(memory, spec.dtype, shape)
        self.inputs: Mapping[str, Array] = MappingProxyType(buffers)
        self.outputs: dict[str, Array] = {}
        self._out_values = (ctypes.c_void_p * len(outputs))()
        #: Outputs whose shape the inputs do not tell: the engine allocates them anew at each run.
        self._allocated: list[tuple[int, str]] = []
        for i, spec in enumerate(outputs):
            _refuse_texts(spec)
            known = [sizes.get(dim) if isinstance(dim, str) else dim for dim in spec.shape]
            shape = tuple(dim for dim in known if dim is not None)
            if spec.shape and len(shape) == len(known):
                memory, self._out_values[i] = self._buffer(spec, shape)
                self.outputs[spec.name] = Tensor(memoryview(memory)[: spec.dtype.nbytes(shape)], spec.dtype, shape)
            else:
                self._allocated.append((i, spec.name))
        names_in = (ctypes.c_char_p * len(inputs))(*[spec.name.encode() for spec in inputs])
        names_out = (ctypes.c_char_p * len(outputs))(*[spec.name.encode() for spec in outputs])
        self._memory += [names_in, names_out, in_values]
        # Addresses as ctypes objects: numbers would be converted anew at each call.
        self._arguments = (
            ctypes.c_void_p(session.pointer),
            None,
            ctypes.c_void_p(ctypes.addressof(names_in)),
            ctypes.c_void_p(ctypes.addressof(in_values)),
            len(inputs),
            ctypes.c_void_p(ctypes.addressof(names_out)),
            len(outputs),
            ctypes.c_void_p(ctypes.addressof(self._out_values)),
        )
        self._run: Any = api.run

    def _buffer(self, spec: TensorSpec, shape: tuple[int, ...]) -> tuple[bytearray, Any]:
        """Make zeroed memory and the engine's value over it, which lives as long as this call."""
        dtype = spec.dtype
        memory = bytearray(max(1, dtype.nbytes(shape)))
        address = ctypes.c_char.from_buffer(memory)
        self._memory.append(address)
        pointer = _value_over(self._session.api, ctypes.addressof(address), _NUMBERS[dtype], shape)
        self._values.append(_Handle(self._session.api, "Value", pointer))
        return memory, pointer

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        if isinstance(value, Tensor):
            self._write[name][:] = value.data()
        else:
            view = memoryview(value)
            self._write[name][:] = view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()

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
                made = _Handle(api, "Value", self._out_values[i])
                self._out_values[i] = None  # else the value of this run would have to fit the next
                self.outputs = {**self.outputs, name: _copied(made, *_described(api, made.pointer))}

    def close(self) -> None:
        """Give the buffers back."""
        self._values.clear()
        self._write.clear()
        self.inputs = {}
        self.outputs = {}


class OrtCTensor(EngineTensor):
    """An output that stays in ONNX Runtime's memory."""

    def __init__(self, handle: _Handle, dtype: DType, shape: tuple[int, ...]) -> None:
        super().__init__(dtype, shape)
        self._handle: _Handle | None = handle

    def handle(self) -> _Handle:
        """Return the engine's value behind it.

        Raises:
            InputError: The tensor was closed.
        """
        if self._handle is None:
            raise InputError("The tensor is closed: its memory was given back", hint="keep it open until it is read")
        return self._handle

    def to_host(self) -> Tensor:
        """Copy the data to host memory; see `EngineTensor.to_host`."""
        return _copied(self.handle(), self.dtype, self.shape)

    def close(self) -> None:
        """Give back the engine's memory."""
        self._handle = None


def _specs(api: Api, session: Any, side: str) -> list[TensorSpec]:
    return [_spec(api, session, side, i) for i in range(api.count(f"SessionGet{side}Count", session))]


def _spec(api: Api, session: Any, side: str, index: int) -> TensorSpec:
    text = api.make(f"SessionGet{side}Name", session, index, api.allocator)
    name = ctypes.string_at(text).decode("utf-8", "replace")
    api.call("AllocatorFree", api.allocator, text)
    info = _Handle(api, "TypeInfo", api.make(f"SessionGet{side}TypeInfo", session, index))
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
    if number not in _DTYPES:
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
    return TensorSpec(name, _DTYPES[number], dims, is_rank_known=bool(dims))


def _value_over(api: Api, address: int, number: int, shape: tuple[int, ...]) -> Any:
    """Make a value of the engine over memory that is not its own."""
    rank = len(shape)
    size = _DTYPES[number].nbytes(shape)
    dims = (ctypes.c_int64 * rank)(*shape)
    return api.make("CreateTensorWithDataAsOrtValue", api.memory, address, size, dims, rank, number)


def _value_of_texts(api: Api, value: Array) -> Any:
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


def _texts_of(value: _Handle, count: int) -> list[str]:
    """Copy the texts of a value; they lie behind one another, `offsets` says where each begins."""
    api = value.api
    size = api.count("GetStringTensorDataLength", value.pointer)
    data, offsets = ctypes.create_string_buffer(max(1, size)), (ctypes.c_size_t * count)()
    api.call("GetStringTensorContent", value.pointer, data, size, offsets, count)
    ends = [*offsets[1:], size]
    return [data.raw[start:end].decode("utf-8", "replace") for start, end in zip(offsets, ends, strict=True)]


def _refuse_texts(spec: TensorSpec) -> None:
    if spec.dtype is DType.STRING:
        raise InputError(
            f"`{spec.name}` is {spec.dtype}, which a prepared call does not take", hint="call `session.run`"
        )


def _source(value: Array) -> tuple[int, tuple[int, ...], Any]:
    """Return where a checked input lies, its shape, and what keeps it there; what cannot be pointed to is copied."""
    view = value.to_host().data() if isinstance(value, Tensor) else memoryview(value)
    if view.readonly or not view.c_contiguous or not view.nbytes:
        view = memoryview(bytearray(view.tobytes() or 1))
    owner = ctypes.c_char.from_buffer(view)
    return ctypes.addressof(owner), value.shape, owner


def _target(value: Array) -> tuple[int, tuple[int, ...], Any]:
    """Return where a checked buffer for an output lies, its shape, and what keeps it there."""
    view = value.data() if isinstance(value, Tensor) else memoryview(value)
    shape = value.shape if isinstance(value, Tensor) else tuple(view.shape or ())
    owner = ctypes.c_char.from_buffer(view if view.nbytes else bytearray(1))
    return ctypes.addressof(owner), shape, owner


def _described(api: Api, value: Any) -> tuple[DType, tuple[int, ...]]:
    info = _Handle(api, "TensorInfo", api.make("GetTensorTypeAndShape", value))
    rank = api.count("GetDimensionsCount", info.pointer)
    sizes = (ctypes.c_int64 * rank)()
    api.call("GetDimensions", info.pointer, sizes, rank)
    return _DTYPES[api.count("GetTensorElementType", info.pointer)], tuple(sizes)


def _copied(value: _Handle, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    if dtype is DType.STRING:
        return Tensor(_texts_of(value, prod(shape)) if prod(shape) else [], dtype, shape)
    size = dtype.nbytes(shape)
    data = bytearray(size)
    if size:
        source = value.api.make("GetTensorMutableData", value.pointer)
        ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(data)), source, size)
    return Tensor(data, dtype, shape)


def _shown(memory: bytearray, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return an input buffer as its user writes into it: a numpy array where numpy is imported, else a memoryview."""
    view = memoryview(memory)[: dtype.nbytes(shape)]
    if "numpy" in sys.modules and dtype.bits >= 8 and dtype is not DType.BFLOAT16:
        from edge_infer.values import to_numpy

        return to_numpy(Tensor(view, dtype, shape))
    return view.cast(dtype.buffer_format, shape) if view.nbytes and dtype.bits >= 8 and shape else view  # type: ignore[call-overload]
