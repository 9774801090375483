"""ONNX Runtime in a page: Python in Pyodide over the engine of `web/src/engines/ort.js`.

The engine is a JavaScript object; its calls are synchronous, so `run` needs no stack switching. Only its start is
not: the worker of `startPython` starts it before user code runs and leaves it as `globalThis.edgeInferOrtEngine`.
A crossing between the languages costs 3 to 5 us, so a run is one for each input, one for the call and one for each
output; tensors are copied once, between the two memories.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer import platform
from edge_infer.backends.base import Availability, Placement
from edge_infer.dtypes import DType
from edge_infer.errors import (
    BackendUnavailable,
    EdgeInferError,
    ExecutionError,
    InputError,
    UnsupportedError,
    UnsupportedModel,
    error_from_json,
)
from edge_infer.tensors import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from edge_infer.backends.base import Array
    from edge_infer.manifest import Variant

_ASYNC_LOAD = "write `await edge_infer.load_async(...)`"
# Calls, with their buffers, that a model keeps for the shapes it saw last.
_MAX_CALLS = 4


class OrtWebBackend:
    """The adapter of onnxruntime-web's plain wasm build."""

    name = "ort-web"
    formats = ("onnx",)

    def availability(self) -> Availability:
        """Say whether this Python runs in a page; an engine that has not started is started by `load_async`."""
        if not platform.in_browser():
            return Availability(False, reason="only inside Pyodide", hint="edge-infer verify BUNDLE --backend ort-web")
        return Availability(True, ("wasm",))

    def version(self) -> str:
        """Return the version of onnxruntime-web; empty where it has not started."""
        engine = _started_engine() if platform.in_browser() else None
        return str(engine.version) if engine is not None else ""

    async def start(self) -> None:
        """Start the engine where nobody has.

        Raises:
            BackendUnavailable: Its files are missing, or of another version.
        """
        if not platform.in_browser():
            raise BackendUnavailable("Backend `ort-web` runs only inside Pyodide", hint="edge-infer backends")
        if _started_engine() is None:
            import js
            from pyodide.code import run_js

            with _translated:
                module = await run_js("(url) => import(url)")(f"{platform.web_root()}src/engines/ort.js")
                js.edgeInferOrtEngine = await module.sharedOrtEngine()

    def prepare(self, model: Path | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> OrtWebModel:
        """Load a model; see `Backend.prepare`.

        Raises:
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        if device != "wasm":
            raise UnsupportedError(
                f"Backend `ort-web` runs on `wasm`, not on `{device}`", hint='load(..., device="wasm")'
            )
        if variant.external:
            raise UnsupportedModel(
                f"Variant `{variant.id}` has external data, which a page cannot read", hint="save the model as one file"
            )
        if _started_engine() is None:
            platform.suspend(self.start(), _ASYNC_LOAD)
        engine = _started_engine()
        data = model if isinstance(model, bytes) else model.read_bytes()
        with _translated:
            space = engine.reserve(len(data))
            if data:
                space.assign(data)
            return OrtWebModel(engine.createSession(space, _to_object({"config": dict(options)})), int(engine.threads))


class OrtWebModel:
    """A model in the engine's memory."""

    # There is one thread.
    is_thread_safe = True

    def __init__(self, js_session: Any, threads: int) -> None:
        self._js_session = js_session
        specs = json.loads(js_session.describe())
        self.inputs = tuple(TensorSpec(**spec) for spec in specs["inputs"])
        self.outputs = tuple(TensorSpec(**spec) for spec in specs["outputs"])
        self.placement = Placement("wasm", threads, ("CPUExecutionProvider",))
        self._calls: dict[_Plan, _Crossing] = {}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        values = [feeds[spec.name] for spec in self.inputs]
        shapes = tuple(None if type(value) is EngineTensor else value.shape for value in values)
        placed = tuple(name for name in outputs if type(into.get(name)) is EngineTensor) if into else ()
        plan = _Plan(shapes, tuple(outputs), tuple(keep), placed)
        call = self._calls.get(plan)
        with _translated:
            if call is None:
                call = self._calls[plan] = _Crossing(self._js_session, self.inputs, plan)
                if len(self._calls) > _MAX_CALLS:
                    self._calls.pop(next(iter(self._calls))).close()
            tensors = []
            for value, write in zip(values, call.writers, strict=True):
                if write is None:
                    tensors.append(value.js_tensor())
                else:
                    write(value)
            tensors += [into[name].js_tensor() for name in placed]
            call.run(*tensors)
            return {name: call.read(i, into.get(name)) for i, name in enumerate(outputs)}

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> OrtWebCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        in_order = tuple(shapes[spec.name] for spec in self.inputs)
        with _translated:
            call = _Crossing(self._js_session, self.inputs, _Plan(in_order, tuple(spec.name for spec in self.outputs)))
        return OrtWebCall(call, self.inputs, self.outputs, shapes)

    def close(self) -> None:
        """Give back the model's memory."""
        for call in self._calls.values():
            call.close()
        self._calls.clear()
        self._js_session.close()


class _Plan(NamedTuple):
    """What stays from run to run: the inputs' shapes (None: a tensor of the engine) and the outputs' places."""

    shapes: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[str, ...]
    keep: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()


class _Crossing:
    """A call of the engine, and what crosses to it: a writer for each input, a reader for each output."""

    def __init__(self, js_session: Any, inputs: Sequence[TensorSpec], plan: _Plan) -> None:
        shapes = {spec.name: shape for spec, shape in zip(inputs, plan.shapes, strict=True)}
        self._js_call = js_session.bind(*map(_to_object, (shapes, *plan[1:])))
        self._js_run = self._js_call.run
        self._names = plan.outputs
        self._keeps = [name in plan.keep for name in plan.outputs]
        self._placed = [name in plan.placed for name in plan.outputs]
        self._fixed: list[tuple[DType, tuple[int, ...], int, Callable[[Any], None]] | None] = [None] * len(self._names)
        self._open: dict[int, tuple[DType, tuple[int, ...]]] = {}
        self._has_run = False
        self.writers = [
            None if shape is None else self._writer(spec, shape)
            for spec, shape in zip(inputs, plan.shapes, strict=True)
        ]

    def _writer(self, spec: TensorSpec, shape: tuple[int, ...]) -> Callable[[Array], None]:
        if spec.dtype is DType.STRING:
            return lambda value: self._js_call.writeStrings(spec.name, _to_object(value.reshape(-1).tolist()))
        if spec.dtype.nbytes(shape) == 0:
            return lambda _: None
        assign = self._js_call.slot(spec.name).assign
        return lambda value: assign(value.data() if isinstance(value, Tensor) else _flat(value))

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

    def read(self, index: int, target: Array | None = None) -> Array:
        """Return an output: in a buffer of its own, in the one that was given, or where the engine has it."""
        if self._placed[index]:
            return target
        if self._keeps[index]:
            return EngineTensor(self._js_call.take(index), *self._open[index])
        fixed = self._fixed[index]
        dtype, shape = fixed[:2] if fixed is not None else self._open[index]
        if dtype is DType.STRING:
            if target is not None:
                raise InputError(f"Output `{self._names[index]}` is of strings, which `into` does not take")
            return Tensor(self._js_call.strings(index).to_py(), dtype, shape)
        nbytes = fixed[2] if fixed is not None else dtype.nbytes(shape)
        buffer: Any = bytearray(nbytes) if target is None else self._target(index, target, dtype, shape)
        if nbytes:
            assign_to = fixed[3] if fixed is not None else self._js_call.view(index).assign_to
            assign_to(buffer)
        return Tensor(buffer, dtype, shape) if target is None else target

    def is_fixed(self, index: int) -> bool:
        """Tell whether an output has the same shape and place after every run."""
        return self._fixed[index] is not None

    def _target(self, index: int, target: Array, dtype: DType, shape: tuple[int, ...]) -> memoryview:
        """Check the buffer for an output and return its bytes."""
        name = self._names[index]
        got_dtype, got_shape = getattr(target, "dtype", dtype), tuple(getattr(target, "shape", shape))
        view = target.data() if isinstance(target, Tensor) else memoryview(target)
        if str(got_dtype) != dtype or got_shape != shape or view.nbytes != dtype.nbytes(shape):
            raise InputError(
                f"The buffer for output `{name}` is {got_dtype}{list(got_shape)}, expected {dtype}{list(shape)}",
                hint=f"edge_infer.Tensor(bytearray({dtype.nbytes(shape)}), '{dtype}', {shape})",
                output=name,
            )
        if view.readonly or not view.c_contiguous:
            raise InputError(f"The buffer for output `{name}` is read-only or not contiguous", output=name)
        return view.cast("B") if view.nbytes else view

    def close(self) -> None:
        """Give the engine's buffers back."""
        self._js_call.close()


class OrtWebCall:
    """A run over buffers that are used again."""

    def __init__(
        self,
        call: _Crossing,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._call = call
        self._inputs = inputs
        self._shapes = shapes
        self._writers = {spec.name: write for spec, write in zip(inputs, call.writers, strict=True) if write}
        self._buffers: dict[str, Tensor] = {}
        self._outputs = [spec.name for spec in outputs]
        self.outputs: dict[str, Array] = {}

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The input buffers, made when they are first asked for: from then on each run copies them to the engine."""
        if not self._buffers:
            for spec in self._inputs:
                if spec.dtype is DType.STRING:
                    raise InputError(
                        f"Input `{spec.name}` is of strings, which have no buffer", hint="pass them to the call"
                    )
                shape = self._shapes[spec.name]
                self._buffers[spec.name] = Tensor(bytearray(spec.dtype.nbytes(shape)), spec.dtype, shape)
        return self._buffers

    def write(self, name: str, value: Array) -> None:
        """Copy a value into the engine, and into the input buffer where there is one."""
        if self._buffers:
            self._buffers[name].data()[:] = _flat(value)
            return
        with _translated:
            self._writers[name](value)

    def run(self) -> None:
        """Run the model on what was written."""
        with _translated:
            for name, buffer in self._buffers.items():
                self._writers[name](buffer)
            self._call.run()
            for i, name in enumerate(self._outputs):
                known = self.outputs.get(name)
                result = self._call.read(i, known if self._call.is_fixed(i) else None)
                if result is not known:
                    # Another dict: whoever shows these outputs sees by it that a buffer has changed.
                    self.outputs = {**self.outputs, name: result}

    def close(self) -> None:
        """Give the buffers back."""
        self._call.close()


class EngineTensor(Tensor):
    """An output that stays in the engine's memory. Reading it copies it; closing it gives the memory back."""

    location = "engine"

    def __new__(cls, js_tensor: Any, dtype: DType | str, shape: Sequence[int]) -> Self:
        """Make an object that exports no buffer: its data is the engine's."""
        del js_tensor, dtype, shape
        return object.__new__(cls)

    def __init__(self, js_tensor: Any, dtype: DType | str, shape: Sequence[int]) -> None:
        self._js_tensor = js_tensor
        self.dtype = DType(dtype)
        self.shape = tuple(shape)

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

    def data(self) -> memoryview:
        """Return a copy of the bytes."""
        return self.to_host().data()

    def _values(self) -> list[Any]:
        return self.to_host()._values()

    def __buffer__(self, flags: int) -> memoryview:
        return self.to_host().__buffer__(flags)

    def __getitem__(self, index: int | tuple[int, ...]) -> Any:
        return self.to_host()[index]

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return a copy of another shape in Python's memory."""
        return self.to_host().reshape(*shape)

    def close(self) -> None:
        """Give back the engine's memory."""
        if self._js_tensor is not None:
            self._js_tensor.close()
            self._js_tensor = None


def _started_engine() -> Any:
    import js

    return getattr(js, "edgeInferOrtEngine", None)


def _to_object(value: Any) -> Any:
    """Make a JavaScript value of a JSON one."""
    import js

    return js.JSON.parse(json.dumps(value))


def _flat(value: Array) -> memoryview:
    """Return the bytes of an array, copied only where they are not contiguous."""
    if isinstance(value, Tensor):
        return value.data()
    view = memoryview(value)
    if not view.nbytes:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


class _Translated:
    """Turns the engine's `InferError`, an object of JavaScript, into the same in Python; quicker than a generator."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        from pyodide.ffi import JsException

        if isinstance(error, JsException):
            raise _translate(error) from error


_translated = _Translated()


def _translate(error: Any) -> EdgeInferError:
    import js

    said = json.loads(js.JSON.stringify(error.js_error))
    if isinstance(said, dict) and "code" in said:
        return error_from_json(said)
    return ExecutionError(f"The engine failed: {error}", engine_error=error.name)
