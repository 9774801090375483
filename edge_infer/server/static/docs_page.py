"""`/openapi.json`, and `/docs`: a page that shows it without any script from elsewhere."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from html import escape
from math import prod
from shlex import quote
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import edge_infer
from edge_infer.errors import EdgeInferError
from edge_infer.server.ingestion.model_paths import root_path
from edge_infer.server.responses import NO_CACHE, json_answer
from edge_infer.server.static.openapi import openapi
from edge_infer.server.static.operations import OPERATIONS
from edge_infer.server.static.task_forms import forms
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from edge_infer.bundle.manifest import Manifest
    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.tensors.tensor import TensorSpec

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "code{font:14px ui-monospace,monospace}table{border-collapse:collapse;width:100%}"
    "td{border-top:1px solid #d8dee4;padding:.4rem .6rem;vertical-align:top}pre{background:#f6f8fa;padding:1rem;"
    "white-space:pre-wrap}"
)


class DocumentationRoutes:
    """The API's description, for machines and for people.

    Args:
        engine: The models, whose names the page lists.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._repository = engine.repository

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route("/openapi.json", self.openapi), Route("/docs", self.page)]

    async def openapi(self, request: Request) -> Response:
        """Send the OpenAPI document."""
        return json_answer(openapi(self._repository.names(), root_path(request.scope)), NO_CACHE)

    async def page(self, request: Request) -> Response:
        """Send the page. Its links hold under a path too."""
        loaded = {model.name: model.inputs for model in self._engine.active()}
        server = str(request.base_url.replace(path=f"{root_path(request.scope)}/"))
        example = escape(await asyncio.to_thread(self._example, server, loaded))
        asked = await asyncio.to_thread(lambda: forms(self._manifests()))
        rows = "".join(
            f"<tr><td><code>{one.method.upper()}</code><td><code>{escape(one.path)}</code><td>{escape(one.summary)}"
            for one in OPERATIONS
        )
        names = self._repository.names()
        models = ", ".join(f"<code>{escape(name)}</code>" for name in names) or "none"
        return HTMLResponse(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>edge-infer API</title><style>{_STYLE}</style>'
            f"<h1>edge-infer {edge_infer.__version__}</h1><p>The Open Inference Protocol, version 2. Models: {models}. "
            'For machines: <a href="openapi.json">/openapi.json</a>. Many requests at once: the WebSocket '
            '<code>/v2/models/NAME/stream</code>. What happens now: <a href="dashboard">/dashboard</a>.</p>'
            f"<pre>{example}</pre>{asked}<table>{rows}</table>",
            200,
            NO_CACHE,
        )

    def _manifests(self) -> list[tuple[str, Manifest]]:
        found = []
        for name in self._repository.names():
            with suppress(EdgeInferError):
                found.append((name, self._repository.get(name).bundle().manifest))
        return found

    def _example(self, server: str, loaded: Mapping[str, Sequence[TensorSpec]]) -> str:
        """Write the command that runs the first model whose inputs are known: it can be copied and typed."""
        for name in self._repository.names():
            try:
                inputs = loaded.get(name) or self._repository.get(name).bundle().manifest.inputs
            except EdgeInferError:
                continue
            if inputs:
                return _command(f"{server}v2/models/{name}/infer", inputs)
        return _command(f"{server}v2/models/NAME/infer", [])


def _command(address: str, inputs: Sequence[TensorSpec]) -> str:
    """Write a request of zeros, of one row where that is free."""
    tensors = []
    for spec in inputs:
        shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
        zero = {DType.BOOL: "False", DType.STRING: '""'}.get(spec.dtype, "0")
        name, datatype = json.dumps(spec.name), DATATYPES[spec.dtype]
        tensors.append(
            f'{{"name": {name}, "shape": {shape}, "datatype": "{datatype}", "data": [{zero}] * {prod(shape)}}}'
        )
    code = f'import json; print(json.dumps({{"inputs": [{", ".join(tensors)}]}}))'
    return f"python3 -c {quote(code)} |\n  curl {quote(address)} -H 'Content-Type: application/json' -d @-"
