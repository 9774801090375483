"""LiteRT in a page: Python in Pyodide over the engine of `web/src/engines/litert.js`, for `.tflite` files.

As with `ort-web`, only the start of the engine is asynchronous; a model is loaded and run by synchronous calls. It has
no memory of its own to keep tensors in: kept outputs are host tensors. A model with free dimensions is compiled for
each set of shapes that it runs on; an input cannot be empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.backends.base import Backend
from edge_infer.backends.web.call import to_bytes, translated
from edge_infer.backends.web.engine import PageEngine
from edge_infer.backends.web.model import HostPageModel
from edge_infer.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.backends.base import Availability
    from edge_infer.bundle.manifest import Variant

_ENGINE = PageEngine("litert-web", "litert", "edgeInferLiteRtEngine")


class LiteRTWebBackend(Backend):
    """The adapter of LiteRT.js's wasm builds."""

    name = "litert-web"
    formats = ("tflite",)
    page_devices = ("wasm",)

    def availability(self) -> Availability:
        """Say whether this Python runs in a page."""
        return _ENGINE.availability()

    def version(self) -> str:
        """Return the version of LiteRT.js; empty where it has not started."""
        return _ENGINE.version()

    async def start(self) -> None:
        """Start the engine where nobody has; a BackendUnavailable where its files are missing."""
        await _ENGINE.start()

    def prepare(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> LiteRTWebModel:
        """Load a model; see `Backend.prepare`. The engine takes no options.

        Raises:
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        if device != "wasm":
            raise UnsupportedError(
                f"Backend `litert-web` runs on `wasm`, not on `{device}`", hint='load(..., device="wasm")'
            )
        if options:
            raise InputError(f"litert-web takes no options, `{variant.id}` has {list(options)}", variant=variant.id)
        return self.open(model if isinstance(model, bytes) else Path(model).read_bytes())

    def open(self, model: bytes) -> LiteRTWebModel:
        """Load the bytes of a `.tflite` file.

        Raises:
            UnsupportedModel: The engine cannot load it.
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        engine = _ENGINE.ready()
        with translated:
            return LiteRTWebModel(engine.createSession(to_bytes(model)), int(engine.threads), ("LiteRT",))


class LiteRTWebModel(HostPageModel):
    """A model in the engine's memory."""

    # Each set of shapes is a compiled model, with a copy of the weights.
    max_calls = 2

    def keeping_state(self) -> LiteRTWebModel:
        """Make a second model whose state stays from run to run; see `Runnable.keeping_state`."""
        with translated:
            return LiteRTWebModel(self._js_session.keepingState(), self.placement.threads, self.placement.providers)
