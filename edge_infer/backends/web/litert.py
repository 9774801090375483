"""LiteRT in a page: Python in Pyodide over the engine of `web/src/engines/litert.js`, for `.tflite` files.

As with `ort-web`, only the start of the engine is asynchronous; a model is loaded and run by synchronous calls. It has
no memory of its own to keep tensors in: kept outputs are host tensors. A model with free dimensions is compiled for
each set of shapes that it runs on; an input cannot be empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.backends.web.call import to_bytes, translated
from edge_infer.backends.web.engine import PageEngine, WasmBackend
from edge_infer.backends.web.model import HostPageModel
from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.variant import Variant


class LiteRTWebBackend(WasmBackend):
    """The adapter of LiteRT.js's wasm builds."""

    name = "litert-web"
    formats = ("tflite",)
    engine = PageEngine("litert-web", "litert", "edgeInferLiteRtEngine")

    def prepare(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> LiteRTWebModel:
        """Load a model; see `Backend.prepare`. The engine takes no options.

        Raises:
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        self.check_device(device)
        if options:
            raise InputError(f"litert-web takes no options, `{variant.id}` has {list(options)}", variant=variant.id)
        return self.open(model if isinstance(model, bytes) else Path(model).read_bytes())

    def open(self, model: bytes) -> LiteRTWebModel:
        """Load the bytes of a `.tflite` file.

        Raises:
            UnsupportedModel: The engine cannot load it.
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        engine = self.engine.ready()
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
