"""ONNX Runtime in a page: Python in Pyodide over the engine of `web/src/engines/ort.js`.

The engine is a JavaScript object; its calls are synchronous, so `run` needs no stack switching. Only its start is
not: the worker of `loadPython` starts it before user code runs and leaves it as `globalThis.edgeInferOrtEngine`.
`call.py` tells what a run costs in crossings.

With `device="webgpu"` it is another build, whose calls wait for the GPU; see `ort_webgpu.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Backend
from edge_infer.backends.web.call import PageTensor, to_bytes_object, to_object, translated
from edge_infer.backends.web.engine import ASYNC_LOAD, PageEngine
from edge_infer.backends.web.model import PageModel
from edge_infer.backends.web.ort_webgpu import GpuModel
from edge_infer.errors import UnsupportedError, UnsupportedModel
from edge_infer.platform import host
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.backends.base import Availability
    from edge_infer.bundle.variant import Variant
    from edge_infer.tensors.tensor import Tensor

WebModel = GpuModel | PageModel

_ENGINE = PageEngine("ort-web", "ort", "edgeInferOrtEngine")


class OrtWebBackend(Backend):
    """The adapter of onnxruntime-web's plain wasm build."""

    name = "ort-web"
    formats = ("onnx",)
    page_devices = ("wasm", "webgpu")

    def availability(self) -> Availability:
        """Say whether this Python runs in a page; an engine that has not started is started by `load_async`."""
        return _ENGINE.availability(self.page_devices if _has_webgpu() else ("wasm",))

    def version(self) -> str:
        """Return the version of onnxruntime-web; empty where it has not started."""
        return _ENGINE.version()

    async def start(self) -> None:
        """Start the engine where nobody has.

        Raises:
            BackendUnavailable: Its files are missing, or of another version.
        """
        await _ENGINE.start()

    def prepare(self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> WebModel:
        """Load a model; see `Backend.prepare`.

        Raises:
            UnsupportedError: The engine has not started, or the device is `webgpu`, and this place cannot wait.
        """
        if device == "webgpu":
            return host.suspend(self.prepare_async(model, variant, device=device, options=options), ASYNC_LOAD)
        data, external = self._read(model, variant, device)
        return self.open(data, {"config": dict(options)}, external)

    async def prepare_async(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> WebModel:
        """Load a model as `prepare` does, without blocking.

        On `webgpu`, where the browser has it and the GPU can run the model; else the model is loaded on `wasm`, and
        its placement says why.

        Raises:
            UnsupportedModel: The model is of float16, which this GPU does not compute.
        """
        await self.start()
        data, external = self._read(model, variant, device)
        settings = {"config": dict(options)}
        if device == "webgpu":
            if external:
                raise UnsupportedModel(
                    f"Variant `{variant.id}` has external data, which WebGPU does not read here",
                    hint="save the model as one file",
                )
            return await GpuModel.open(data, variant, options, lambda: self.open(data, settings, external))
        return self.open(data, settings, external)

    def _read(self, model: str | bytes, variant: Variant, device: str) -> tuple[bytes, dict[str, bytes]]:
        """Return the bytes of a model, and of the files that it refers to."""
        if device not in ("wasm", "webgpu"):
            raise UnsupportedError(
                f"Backend `ort-web` runs on `wasm` and `webgpu`, not on `{device}`", hint='load(..., device="wasm")'
            )
        if isinstance(model, bytes):
            if variant.external:
                raise UnsupportedModel(
                    f"Variant `{variant.id}` has external data, which is read from a folder only",
                    hint="save the model as one file",
                )
            return model, {}
        # The model names its files relative to its own folder.
        file = Path(model)
        folder, own = file.parent, variant.file.rpartition("/")[0]
        names = [path.removeprefix(f"{own}/") if own else path for path in variant.external]
        return file.read_bytes(), {name: (folder / name).read_bytes() for name in names}

    def open(self, model: bytes, settings: Mapping[str, Any], external: Mapping[str, bytes]) -> PageModel:
        """Load a model with all that this engine can be told; `prepare` tells it what a variant says.

        Args:
            model: The bytes of an `.onnx` or `.ort` file.
            settings: As `SessionOptions` of `web/src/engines/ort-session.js`, without external data.
            external: The files with weights that the model refers to, by the names it gives them.

        Raises:
            UnsupportedModel: The engine cannot load it.
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        engine = _ENGINE.ready()
        with translated:
            space = engine.reserve(len(model))
            if model:
                space.assign(model)
            options = to_object(dict(settings))
            options.externalData = to_bytes_object(external)
            session = engine.createSession(space, options)
            return PageModel(session, int(engine.threads), ("CPUExecutionProvider",))

    def tensor(self, dtype: DType, shape: Sequence[int], value: Tensor | None = None) -> PageTensor:
        """Put a tensor into the engine's memory, to be fed without further copies; zeros where there is no value."""
        engine = _ENGINE.ready()
        texts = value.reshape(-1).tolist() if value is not None and dtype is DType.STRING else None
        with translated:
            given = [] if texts is None else [to_object(texts)]
            made = PageTensor(engine.tensor(str(dtype), to_object(list(shape)), *given), dtype, shape)
        if value is not None and texts is None:
            made.fill(value)
        return made


def _has_webgpu() -> bool:
    """Tell whether the browser offers WebGPU; whether it has an adapter is found out by asking for one."""
    if not host.in_browser():
        return False
    import js

    return bool(hasattr(js.navigator, "gpu"))
