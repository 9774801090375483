"""Compiled models in a page: Python in Pyodide over `web/src/engines/compiled.js`, for files of `edge-infer compile`.

Each model holds its own kernels, so no engine is fetched. `loadPython` always provides the module that runs them: loading
and running a model are synchronous.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.backends.base import Backend
from edge_infer.backends.web.call import to_bytes, translated
from edge_infer.backends.web.engine import PageEngine
from edge_infer.backends.web.model import HostPageModel
from edge_infer.errors import InputError, UnsupportedError, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.backends.base import Availability
    from edge_infer.bundle.manifest import Variant

_ENGINE = PageEngine("compiled-web", "compiled", "edgeInferCompiledEngine")


class CompiledWebBackend(Backend):
    """The adapter of compiled models, each of which brings its kernels."""

    name = "compiled-web"
    formats = ("compiled",)
    page_devices = ("wasm",)

    def availability(self) -> Availability:
        """Say whether this Python runs in a page."""
        return _ENGINE.availability()

    def version(self) -> str:
        """Return the version of the page's edge-infer; empty where it has not started."""
        return _ENGINE.version()

    async def start(self) -> None:
        """Fetch the module that runs them, where `loadPython` has not."""
        await _ENGINE.start()

    def prepare(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> HostPageModel:
        """Load a model; see `Backend.prepare`. The engine takes no options but `strict`, which always holds.

        Raises:
            UnsupportedModel: The file is not a compiled model, or is damaged.
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        if device != "wasm":
            raise UnsupportedError(
                f"Backend `compiled-web` runs on `wasm`, not on `{device}`", hint='load(..., device="wasm")'
            )
        unknown = [key for key in options if key != "strict"]
        if unknown:
            raise InputError(
                f"compiled-web takes no option {listed(unknown)}, as `{variant.id}` has", variant=variant.id
            )
        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        engine = _ENGINE.ready()
        with translated:
            return HostPageModel(engine.createSession(to_bytes(content)), 1, ("edge-infer kernels",))
