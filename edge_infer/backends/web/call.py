"""Calls, tensors and errors between Python and an engine of `web/src/engines/`.

A crossing costs 3 to 5 us: a run of small tensors is one, of larger ones one for each input, one for the call and one
for each output, and then a tensor is copied once, between the two memories.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError, ExecutionError, InputError, error_from_json
from edge_infer.tensors.arrays import writable_bytes
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import EngineTensor, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer.tensors.tensor import Array, TensorSpec


# Up to here one more copy inside Python costs less than a crossing, 3 to 5 us.
_MAX_SHARED_BYTES = 64 * 1024


class Plan(NamedTuple):
    """The state between runs: the inputs' shapes (None: a tensor of the engine) and the outputs' places."""

    shapes: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[str, ...]
    keep: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()


class Crossing:
    """A call of the engine, and what crosses to it.

    Small tensors (all of them together up to 64 KiB) cross by a buffer that both languages see, so that a run is one
    crossing; it is set up after the first run, which settles where the outputs lie. Larger ones are copied straight
    from the caller's memory to the engine's and back, one crossing each.
    """

    def __init__(self, js_session: Any, inputs: Sequence[TensorSpec], plan: Plan) -> None:
        shapes = {spec.name: shape for spec, shape in zip(inputs, plan.shapes, strict=True)}
        self._js_call = js_session.bind(*map(to_object, (shapes, *plan[1:])))
        self._js_run = self._js_call.run
        self._names = plan.outputs
        self._keeps = [name in plan.keep for name in plan.outputs]
        self._placed = [name in plan.placed for name in plan.outputs]
        self._fixed: list[tuple[DType, tuple[int, ...], int, Callable[[Any], None]] | None] = [None] * len(self._names)
        self._open: dict[int, tuple[DType, tuple[int, ...]]] = {}
        self._has_run = False
        self._proxy: Any = None
        #: The bytes of each output in the shared buffer; empty where there is none.
        self._shared: list[memoryview] = []
        #: Copies a value to each input; None for one that a tensor of the engine feeds.
        self.writers = [
            None if shape is None else self._writer(spec, shape)
            for spec, shape in zip(inputs, plan.shapes, strict=True)
        ]
        is_text = any(spec.dtype is DType.STRING for spec in inputs)
        self._in_bytes = (
            None
            if is_text or None in plan.shapes
            else [spec.dtype.nbytes(shape or ()) for spec, shape in zip(inputs, plan.shapes, strict=True)]
        )

    def _writer(self, spec: TensorSpec, shape: tuple[int, ...]) -> Callable[[Array], None]:
        if spec.dtype is DType.STRING:
            return lambda value: self._js_call.writeStrings(spec.name, to_object(value.reshape(-1).tolist()))
        if spec.dtype.nbytes(shape) == 0:
            return lambda _: None
        assign = self._js_call.slot(spec.name).assign
        return lambda value: assign(value.data() if isinstance(value, Tensor) else flat_bytes(value))

    def run(self, *js_tensors: Any) -> None:
        """Run on what was written."""
        described = self._js_run(*js_tensors)
        self._open = {i: (DType(dtype), tuple(shape)) for i, dtype, shape in json.loads(described)} if described else {}
        if not self._has_run:
            # Only now it is settled which outputs lie in a buffer of their own.
            self._has_run = True
            for i in range(len(self._names)):
                if i not in self._open and not self._placed[i]:
                    fixed = self._js_call.description(i)
                    dtype, shape = DType(fixed.dtype), tuple(fixed.shape.to_py())
                    self._fixed[i] = dtype, shape, dtype.nbytes(shape), self._js_call.view(i).assign_to
            self._share()

    def _share(self) -> None:
        out_bytes = [fixed[2] for fixed in self._fixed if fixed is not None]
        if self._in_bytes is None or len(out_bytes) < len(self._fixed):
            return
        total = sum(self._in_bytes) + sum(out_bytes)
        if not 0 < total <= _MAX_SHARED_BYTES:
            return
        from pyodide.ffi import create_proxy

        buffer = bytearray(total)
        self._proxy = create_proxy(buffer)
        self._js_call.stage(self._proxy)
        self._js_run = self._js_call.cross
        parts = []
        start = 0
        for size in (*self._in_bytes, *out_bytes):
            parts.append(memoryview(buffer)[start : start + size])
            start += size
        self.writers = [_sharing(part) for part in parts[: len(self._in_bytes)]]
        self._shared = parts[len(self._in_bytes) :]

    def shared(self, index: int) -> Tensor | None:
        """Return an output in the shared buffer, which the next run overwrites; None where there is no such buffer."""
        fixed = self._fixed[index]
        return Tensor(self._shared[index], *fixed[:2]) if self._shared and fixed is not None else None

    def read(self, index: int, target: Array | None = None) -> Array:
        """Return an output: in a buffer of its own, in the one that was given, or where the engine has it."""
        if self._placed[index]:
            return target
        if self._keeps[index]:
            return PageTensor(self._js_call.take(index), *self._open[index])
        fixed = self._fixed[index]
        dtype, shape = fixed[:2] if fixed is not None else self._open[index]
        if dtype is DType.STRING:
            if target is not None:
                raise InputError(f"Output `{self._names[index]}` is of strings, which `into` does not take")
            return Tensor(self._js_call.strings(index).to_py(), dtype, shape)
        if self._shared and target is None:
            return Tensor(bytearray(self._shared[index]), dtype, shape)
        nbytes = fixed[2] if fixed is not None else dtype.nbytes(shape)
        buffer: Any = bytearray(nbytes) if target is None else writable_bytes(self._names[index], target, dtype, shape)
        if self._shared:
            buffer[:] = self._shared[index]
        elif nbytes:
            assign_to = fixed[3] if fixed is not None else self._js_call.view(index).assign_to
            assign_to(buffer)
        return Tensor(buffer, dtype, shape) if target is None else target

    def is_fixed(self, index: int) -> bool:
        """Tell whether an output has the same shape and place after every run."""
        return self._fixed[index] is not None

    def close(self) -> None:
        """Give the engine's buffers back."""
        self._js_call.close()
        if self._proxy is not None:
            self._proxy.destroy()
            self._proxy = None


def _sharing(part: memoryview) -> Callable[[Array], None]:
    def write(value: Array) -> None:
        part[:] = value.data() if isinstance(value, Tensor) else flat_bytes(value)

    return write


class PageTensor(EngineTensor):
    """A tensor in the memory of the page's engine. Reading it copies it; closing it gives the memory back."""

    def __init__(self, js_tensor: Any, dtype: DType | str, shape: Sequence[int]) -> None:
        super().__init__(DType(dtype), shape)
        self._js_tensor = js_tensor

    def js_tensor(self) -> Any:
        """Return the JavaScript object behind it; an InputError where the tensor was closed."""
        if self._js_tensor is None:
            raise InputError("The tensor is closed: its memory was given back", hint="keep it open until it is read")
        return self._js_tensor

    def to_host(self) -> Tensor:
        """Copy the data to Python's memory; an InputError where the tensor was closed."""
        js_tensor = self.js_tensor()
        if self.dtype is DType.STRING:
            return Tensor(js_tensor.strings.to_py(), self.dtype, self.shape)
        buffer = bytearray(self.nbytes)
        if buffer:
            js_tensor.bytes.assign_to(buffer)
        return Tensor(buffer, self.dtype, self.shape)

    def fill(self, value: Array) -> None:
        """Copy an array of the same dtype and shape into the engine's memory; strings cannot be written over."""
        if self.nbytes:
            self.js_tensor().bytes.assign(flat_bytes(value))

    def close(self) -> None:
        """Give back the engine's memory."""
        if self._js_tensor is not None:
            self._js_tensor.close()
            self._js_tensor = None


def to_object(value: Any) -> Any:
    """Make a JavaScript value of a JSON one."""
    import js

    return js.JSON.parse(json.dumps(value))


def to_bytes_object(files: Mapping[str, bytes]) -> Any:
    """Make a JavaScript object of names and `Uint8Array`s, copied into JavaScript's memory."""
    import js
    from pyodide.ffi import to_js

    return to_js(files, dict_converter=js.Object.fromEntries)


def to_bytes(data: bytes | memoryview) -> Any:
    """Copy bytes into a `Uint8Array` of JavaScript's memory."""
    import js

    array = js.Uint8Array.new(len(data))
    if data:
        array.assign(data)
    return array


def flat_bytes(value: Array) -> memoryview:
    """Return the bytes of an array, copied only where they are not contiguous."""
    if isinstance(value, Tensor):
        return value.data()
    view = memoryview(value)
    if not view.nbytes:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


class _Translated:
    """Turns the engine's `EdgeInferError`, a JavaScript object, into the same in Python; quicker than a generator."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        from pyodide.ffi import JsException

        if isinstance(error, JsException):
            raise _translate(error) from error


translated = _Translated()


def _translate(error: Any) -> EdgeInferError:
    import js

    said = json.loads(js.JSON.stringify(error.js_error))
    if isinstance(said, dict) and "code" in said:
        return error_from_json(said)
    return ExecutionError(f"The engine failed: {error}", engine_error=error.name)
