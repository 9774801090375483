"""Compiled models in a page: Python in Pyodide over `web/src/engines/compiled.js`, for files of `edge-infer compile`.

Each model holds its own kernels, so no engine is fetched. `loadPython` always provides the module that runs them:
loading and running a model are synchronous.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.backends.web.call import to_bytes, translated
from edge_infer.backends.web.engine import PageEngine, WasmBackend
from edge_infer.backends.web.model import HostPageModel
from edge_infer.errors import InputError, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.variant import Variant


class CompiledWebBackend(WasmBackend):
    """The adapter of compiled models, each of which brings its kernels."""

    name = "compiled-web"
    formats = ("compiled",)
    engine = PageEngine("compiled-web", "compiled", "edgeInferCompiledEngine")

    def prepare(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> CompiledPageModel:
        """Load a model; see `Backend.prepare`. The engine takes no options but `strict`, which always holds.

        Raises:
            UnsupportedModel: The file is not a compiled model, or is damaged.
            UnsupportedError: The engine has not started, and this place cannot wait for it.
        """
        self.check_device(device)
        unknown = [key for key in options if key != "strict"]
        if unknown:
            raise InputError(
                f"compiled-web takes no option {listed(unknown)}, as `{variant.id}` has", variant=variant.id
            )
        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        engine = self.engine.ready()
        with translated:
            return CompiledPageModel(engine.createSession(to_bytes(content)), 1, ("edge-infer kernels",))


class CompiledPageModel(HostPageModel):
    """A model in memory of its own."""

    def keeping_state(self) -> CompiledPageModel:
        """Make a second model whose state stays from run to run; see `Runnable.keeping_state`."""
        with translated:
            return CompiledPageModel(self._js_session.keepingState(), self.placement.threads, self.placement.providers)
