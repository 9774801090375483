"""WebGPU in a page: a model in the GPU's memory, over `web/src/engines/ort-webgpu.js`, whose calls wait for the GPU.

`run_async` works everywhere. `run` waits by JSPI where Python may switch stacks; else the engine lives in a worker of
its own and this one blocks until the answer lies in shared memory, which needs a cross-origin isolated page; else it is
an UnsupportedError. Which of them it is, is settled when the model is loaded.

A GPU may go away at any time. The model then goes on in the plain build: once, with a warning, and told by its
placement. Tensors do not stay on the GPU: kept outputs are host tensors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from warnings import warn

from edge_infer.backends.base import Placement, Runnable
from edge_infer.backends.web.call import flat_bytes, to_bytes, translated
from edge_infer.errors import EdgeInferError, ExecutionError, InputError
from edge_infer.platform import host
from edge_infer.tensors.arrays import writable_bytes
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edge_infer.backends.web.model import PageModel
    from edge_infer.bundle.variant import Variant
    from edge_infer.tensors.tensor import Array

_RUN_ASYNC = "write `await session.run_async(...)`"


class GpuModel(Runnable):
    """A model on the GPU, until that fails."""

    # There is one thread.
    is_thread_safe = True
    is_asynchronous = True

    @classmethod
    async def open(
        cls, model: bytes, variant: Variant, options: Mapping[str, str], open_wasm: Callable[[], PageModel]
    ) -> GpuModel | PageModel:
        """Load a model on the GPU, else in the plain build, whose placement then says why.

        Args:
            model: The bytes of an `.onnx` file.
            variant: What it is.
            options: ONNX Runtime's configuration entries.
            open_wasm: Loads it in the plain build.

        Raises:
            UnsupportedModel: The model is of float16, which this GPU does not compute, or the plain build cannot
                load it either.
        """
        described = {"id": variant.id, "precision": variant.precision, "options": {"ort-web": dict(options)}}
        try:
            return cls(await _open_session(model, json.dumps(described)), open_wasm)
        except EdgeInferError as error:
            if variant.precision == "fp16" and error.code == "unsupported_model":
                raise
            fallen = open_wasm()
            fallen.placement = fallen.placement._replace(fallbacks=(f"webgpu: {error.message}",))
            return fallen

    def __init__(self, js_session: Any, open_wasm: Callable[[], PageModel]) -> None:
        self._js_session = js_session
        self._open_wasm = open_wasm
        self._wasm: PageModel | None = None
        specs = json.loads(js_session.describe())
        self.inputs = tuple(TensorSpec(**spec) for spec in specs["inputs"])
        self.outputs = tuple(TensorSpec(**spec) for spec in specs["outputs"])
        self.placement = Placement("webgpu", 0, ("WebGpuExecutionProvider", "CPUExecutionProvider"))

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. An UnsupportedError where this place cannot wait for the GPU."""
        if self._wasm is not None:
            return self._wasm.run(feeds, outputs, into, keep)
        request = _request(feeds, outputs)
        try:
            with translated:
                if hasattr(self._js_session, "runBlocking"):
                    answer = self._js_session.runBlocking(*request)
                else:
                    answer = host.suspend(self._ask(request), _RUN_ASYNC)
        except ExecutionError as error:
            return self._fall_back(error, feeds, outputs, into, keep)
        return _results(answer, into)

    async def run_async(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model as `run` does, without blocking."""
        if self._wasm is not None:
            return self._wasm.run(feeds, outputs, into, keep)
        try:
            answer = await self._ask(_request(feeds, outputs))
        except ExecutionError as error:
            return self._fall_back(error, feeds, outputs, into, keep)
        return _results(answer, into)

    async def _ask(self, request: tuple[str, Any]) -> Any:
        with translated:
            return await self._js_session.run(*request)

    def _fall_back(
        self,
        error: ExecutionError,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        into: Mapping[str, Array],
        keep: Collection[str],
    ) -> dict[str, Array]:
        """Go on in the plain build, if that can run what the GPU could not."""
        wasm = self._open_wasm()
        try:
            results = wasm.run(feeds, outputs, into, keep)
        except EdgeInferError:
            wasm.close()  # the model fails on both: it is not the GPU's fault
            raise
        self._wasm = wasm
        self._js_session.close()
        said = f"webgpu: {error.message}"
        self.placement = wasm.placement._replace(fallbacks=(said,))
        warn(f"ort-web: {said}; going on with wasm", RuntimeWarning, stacklevel=4)
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> GpuCall:
        """Make a call with an input buffer of each of these shapes, in Python's memory; see `Runnable.bind`."""
        return GpuCall(self, shapes)

    def close(self) -> None:
        """Give back the model's memory."""
        if self._wasm is not None:
            self._wasm.close()
        else:
            self._js_session.close()


class GpuCall:
    """A run with fixed shapes over buffers of Python."""

    def __init__(self, model: GpuModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._model = model
        self._outputs = [spec.name for spec in model.outputs]
        self.inputs: dict[str, Array] = {}
        for spec in model.inputs:
            shape = shapes[spec.name]
            data: Any = [""] * _size(shape) if spec.dtype is DType.STRING else bytearray(spec.dtype.nbytes(shape))
            self.inputs[spec.name] = Tensor(data, spec.dtype, shape)
        self.outputs: dict[str, Array] = {}

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        target = self.inputs[name]
        if target.dtype is DType.STRING:
            self.inputs = {**self.inputs, name: value}
        else:
            target.data()[:] = flat_bytes(value)

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        self.outputs = self._model.run(self.inputs, self._outputs, {}, ())

    def close(self) -> None:
        """Give the buffers back."""
        self.inputs, self.outputs = {}, {}


async def _open_session(model: bytes, variant: str) -> Any:
    """Open the model here where this place can wait by JSPI, else in a worker that it can wait for by blocking."""
    from pyodide.code import run_js

    load = run_js("(url) => import(url)")
    folder = f"{host.web_root()}src/engines/"
    with translated:
        waiting = await load(f"{folder}waiting-session.js")
        if not host.can_suspend() and waiting.canWait():
            opened = waiting.WaitingSession
        else:
            opened = (await load(f"{folder}bytes-session.js")).BytesSession
        return await opened.open(host.web_root(), to_bytes(model), variant)


def _request(feeds: Mapping[str, Array], outputs: Sequence[str]) -> tuple[str, Any]:
    """Describe a run as JSON, with the bytes of its inputs."""
    from js import Array as JsArray

    described = []
    buffers = JsArray.new()
    for name, value in feeds.items():
        tensor = value.to_host() if isinstance(value, Tensor) else value
        entry = {"name": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        if entry["dtype"] == DType.STRING:
            entry["strings"] = tensor.reshape(-1).tolist()
        else:
            buffers.push(to_bytes(flat_bytes(tensor)))
        described.append(entry)
    return json.dumps({"feeds": described, "outputs": list(outputs)}), buffers


def _results(answer: Any, into: Mapping[str, Array]) -> dict[str, Array]:
    """Read what a run gave."""
    results: dict[str, Array] = {}
    buffers = iter(answer.buffers)
    for entry in json.loads(answer.described):
        name, dtype, shape = entry["name"], DType(entry["dtype"]), tuple(entry["shape"])
        if dtype is DType.STRING:
            if name in into:
                raise InputError(f"Output `{name}` is of strings, which `into` does not take")
            results[name] = Tensor(entry["strings"], dtype, shape)
            continue
        target = into.get(name)
        data = bytearray(dtype.nbytes(shape)) if target is None else writable_bytes(name, target, dtype, shape)
        source = next(buffers)
        if len(data):
            source.assign_to(data)
        results[name] = Tensor(data, dtype, shape) if target is None else target
    return results


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size
