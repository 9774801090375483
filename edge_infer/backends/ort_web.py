"""ONNX Runtime in a page: Python in Pyodide over the engine of `web/src/engines/ort.js`.

The engine is a JavaScript object; its calls are synchronous, so `run` needs no stack switching. Only its start is
not: the worker of `startPython` starts it before user code runs and leaves it as `globalThis.edgeInferOrtEngine`.
What a run costs in crossings is told in `ort_web_call.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer import platform
from edge_infer.backends.base import Availability, Placement
from edge_infer.backends.ort_web_call import (
    Crossing,
    PageTensor,
    Plan,
    flat_bytes,
    to_bytes_object,
    to_object,
    translated,
)
from edge_infer.dtypes import DType
from edge_infer.errors import BackendUnavailable, InputError, UnsupportedError, UnsupportedModel
from edge_infer.tensors import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

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

            with translated:
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
        if variant.external and isinstance(model, bytes):
            raise UnsupportedModel(
                f"Variant `{variant.id}` has external data, which is read from a folder only",
                hint="save the model as one file",
            )
        data = model if isinstance(model, bytes) else model.read_bytes()
        external = {}
        if not isinstance(model, bytes):
            # The model names its files relative to its own folder.
            folder, own = model.parent, variant.file.rpartition("/")[0]
            for path in variant.external:
                name = path.removeprefix(f"{own}/") if own else path
                external[name] = (folder / name).read_bytes()
        return self.open(data, {"config": dict(options)}, external)

    def open(self, model: bytes, settings: Mapping[str, Any], external: Mapping[str, bytes]) -> OrtWebModel:
        """Load a model with all that this engine can be told; `prepare` tells it what a variant says.

        Args:
            model: The bytes of an `.onnx` or `.ort` file.
            settings: As `SessionOptions` of `web/src/engines/ort-session.js`, without external data.
            external: The files with weights that the model refers to, by the names it gives them.

        Raises:
            UnsupportedModel: The engine cannot load it.
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        engine = self._engine()
        with translated:
            space = engine.reserve(len(model))
            if model:
                space.assign(model)
            options = to_object(dict(settings))
            options.externalData = to_bytes_object(external)
            return OrtWebModel(engine.createSession(space, options), int(engine.threads))

    def tensor(self, dtype: DType, shape: Sequence[int], value: Tensor | None = None) -> PageTensor:
        """Put a tensor into the engine's memory, to be fed without further copies; zeros where there is no value."""
        engine = self._engine()
        texts = value.reshape(-1).tolist() if value is not None and dtype is DType.STRING else None
        with translated:
            given = [] if texts is None else [to_object(texts)]
            made = PageTensor(engine.tensor(str(dtype), to_object(list(shape)), *given), dtype, shape)
        if value is not None and texts is None:
            made.fill(value)
        return made

    def _engine(self) -> Any:
        if _started_engine() is None:
            platform.suspend(self.start(), _ASYNC_LOAD)
        return _started_engine()


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
        self._calls: dict[Plan, Crossing] = {}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        values = [feeds[spec.name] for spec in self.inputs]
        shapes = tuple(None if type(value) is PageTensor else value.shape for value in values)
        placed = tuple(name for name in outputs if type(into.get(name)) is PageTensor) if into else ()
        plan = Plan(shapes, tuple(outputs), tuple(keep), placed)
        call = self._calls.get(plan)
        with translated:
            if call is None:
                call = self._calls[plan] = Crossing(self._js_session, self.inputs, plan)
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
        with translated:
            call = Crossing(self._js_session, self.inputs, Plan(in_order, tuple(spec.name for spec in self.outputs)))
        return OrtWebCall(call, self.inputs, self.outputs, shapes)

    def close(self) -> None:
        """Give back the model's memory."""
        for call in self._calls.values():
            call.close()
        self._calls.clear()
        self._js_session.close()


class OrtWebCall:
    """A run over buffers that are used again."""

    def __init__(
        self,
        call: Crossing,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._call = call
        self._inputs = inputs
        self._shapes = shapes
        self._places = {spec.name: place for place, spec in enumerate(inputs)}
        self._buffers: dict[str, Tensor] = {}
        # Whether the outputs lie in the buffer that both languages see: each run renews them where they are.
        self._is_shared = False
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
            self._buffers[name].data()[:] = flat_bytes(value)
            return
        with translated:
            self._write(name, value)

    def run(self) -> None:
        """Run the model on what was written."""
        with translated:
            for name, buffer in self._buffers.items():
                self._write(name, buffer)
            self._call.run()
            if self._is_shared:
                return
            for i, name in enumerate(self._outputs):
                known = self.outputs.get(name)
                result = self._call.shared(i)
                self._is_shared = result is not None
                if result is None:
                    result = self._call.read(i, known if self._call.is_fixed(i) else None)
                if result is not known:
                    # Another dict: whoever shows these outputs sees by it that a buffer has changed.
                    self.outputs = {**self.outputs, name: result}

    def _write(self, name: str, value: Array) -> None:
        write = self._call.writers[self._places[name]]
        if write is not None:
            write(value)

    def close(self) -> None:
        """Give the buffers back."""
        self._call.close()


def _started_engine() -> Any:
    import js

    return getattr(js, "edgeInferOrtEngine", None)
