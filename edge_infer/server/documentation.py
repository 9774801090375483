"""`/openapi.json`, and `/docs`: a page that shows it without any script from elsewhere."""

from __future__ import annotations

import json
from html import escape
from math import prod
from shlex import quote
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import edge_infer
from edge_infer.dtypes import DType
from edge_infer.errors import EdgeInferError
from edge_infer.server.answers import NO_CACHE, json_answer
from edge_infer.server.ingestion.elements import DATATYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from edge_infer.server.repository import ModelRepository
    from edge_infer.tensors import TensorSpec

_ERROR = {
    "type": "object",
    "required": ["error", "code", "hint", "details"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "details": {"type": "object"},
    },
}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "datatype": {"type": "string", "examples": ["FP32"]},
        "data": {"type": "array", "description": "Flat in row-major order, or nested as `shape` says"},
        "parameters": {
            "type": "object",
            "properties": {"binary_data_size": {"type": "integer", "minimum": 0}},
        },
    },
}
_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "inputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "parameters": {"type": "object", "properties": {"binary_data": {"type": "boolean"}}},
                },
            },
        },
        "parameters": {
            "type": "object",
            "properties": {
                "priority": {"type": "integer", "minimum": 0, "maximum": 255, "description": "1 is the most urgent"},
                "timeout": {"type": "integer", "minimum": 0, "description": "Microseconds"},
                "binary_data_output": {"type": "boolean"},
            },
        },
    },
}
_ANSWER = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string"},
        "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}},
    },
}
_REFUSALS = {
    "400": "The request does not fit the model",
    "401": "There is no API key, or it is nobody's",
    "404": "No such model or version",
    "413": "The body is too large",
    "415": "The body is in a form that the server does not read",
    "429": "More than the tenant's share; see Retry-After",
    "500": "The bundle or the engine failed",
    "503": "Too many requests wait, or the server is stopping; see Retry-After",
    "504": "The answer would have come after the timeout",
}
#: Path, method, summary, whether it takes a model, whether it infers.
_OPERATIONS = [
    ("/health", "get", "Say OK"),
    ("/livez", "get", "Whether the process answers"),
    ("/readyz", "get", "Whether new requests are taken"),
    ("/metrics", "get", "Metrics in the text format of Prometheus"),
    ("/inference", "post", "Run the only model that is served"),
    ("/v2", "get", "Name, version and extensions of the server"),
    ("/v2/health/live", "get", "Whether the process answers"),
    ("/v2/health/ready", "get", "Whether new requests are taken"),
    ("/v2/models/stats", "get", "What was counted of all models that are loaded"),
    ("/v2/models/{name}", "get", "A model's inputs and outputs"),
    ("/v2/models/{name}/ready", "get", "Load a model and say that it is ready"),
    ("/v2/models/{name}/config", "get", "How a model is batched and where it runs"),
    ("/v2/models/{name}/stats", "get", "What was counted of a model"),
    ("/v2/models/{name}/infer", "post", "Run a model"),
    ("/v2/models/{name}/infer_stream", "post", "Run a model with state step by step; each step is a server-sent event"),
    ("/v2/models/{name}/versions/{version}", "get", "Inputs and outputs of a version"),
    ("/v2/models/{name}/versions/{version}/ready", "get", "Load a version and say that it is ready"),
    ("/v2/models/{name}/versions/{version}/config", "get", "How a version is batched and where it runs"),
    ("/v2/models/{name}/versions/{version}/stats", "get", "What was counted of a version"),
    ("/v2/models/{name}/versions/{version}/infer", "post", "Run a version"),
    ("/v2/repository/index", "post", "All models, their versions and states"),
    ("/v2/repository/models/{name}/load", "post", "Load a model, or what it became on disk"),
    ("/v2/repository/models/{name}/unload", "post", "Give back a model's memory"),
    ("/v2/repository/models/{name}/canary", "post", "Let a version take a part of the requests"),
    ("/models/", "get", "What is served, with revisions and variants"),
    ("/models/{name}/", "get", "One model's revision and variants"),
]


def openapi(models: Sequence[str] = ()) -> dict[str, Any]:
    """Describe the API as an OpenAPI 3.1 document; the names of models are those that are served."""
    schemas: dict[str, dict[str, Any]] = {
        "name": {"type": "string", **({"enum": list(models)} if models else {})},
        "version": {"type": "string"},
    }
    paths: dict[str, dict[str, Any]] = {}
    for path, method, summary in _OPERATIONS:
        infers = path.endswith(("/infer", "/inference"))
        names = [name for name in ("name", "version") if f"{{{name}}}" in path]
        operation: dict[str, Any] = {
            "summary": summary,
            "operationId": f"{method}{path}".replace("{", "").replace("}", "").strip("/").replace("/", "_"),
            "responses": {"200": {"description": "Done"}},
        }
        if names:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names
            ]
        if infers:
            octets: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
            operation["requestBody"] = {
                "required": True,
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Request"}},
                    "application/octet-stream": octets,
                },
            }
            operation["responses"]["200"]["content"] = {
                "application/json": {"schema": {"$ref": "#/components/schemas/Answer"}},
                "application/octet-stream": octets,
            }
        if infers or names:
            operation["responses"] |= {
                status: {
                    "description": text,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
                for status, text in _REFUSALS.items()
            }
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "edge-infer", "version": edge_infer.__version__},
        "paths": paths,
        "components": {"schemas": {"Request": _REQUEST, "Answer": _ANSWER, "Tensor": _TENSOR, "Error": _ERROR}},
    }


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "code{font:14px ui-monospace,monospace}table{border-collapse:collapse;width:100%}"
    "td{border-top:1px solid #d8dee4;padding:.4rem .6rem;vertical-align:top}pre{background:#f6f8fa;padding:1rem;"
    "white-space:pre-wrap}"
)


class DocumentationRoutes:
    """The API's description, for machines and for people.

    Args:
        repository: The models, whose names the page lists.
    """

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route("/openapi.json", self.openapi), Route("/docs", self.page)]

    async def openapi(self, _request: Request) -> Response:
        """Send the OpenAPI document."""
        return json_answer(openapi(self._repository.names()), NO_CACHE)

    async def page(self, request: Request) -> Response:
        """Send the page."""
        rows = "".join(
            f"<tr><td><code>{method.upper()}</code><td><code>{escape(path)}</code><td>{escape(summary)}"
            for path, method, summary in _OPERATIONS
        )
        names = self._repository.names()
        models = ", ".join(f"<code>{escape(name)}</code>" for name in names) or "none"
        example = escape(self._example(str(request.base_url)))
        return HTMLResponse(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>edge-infer API</title><style>{_STYLE}</style>'
            f"<h1>edge-infer {edge_infer.__version__}</h1><p>The Open Inference Protocol, version 2. Models: {models}. "
            f'For machines: <a href="/openapi.json">/openapi.json</a>. Many requests at once: the WebSocket '
            '<code>/v2/models/NAME/stream</code>. What happens now: <a href="/dashboard">/dashboard</a>.</p>'
            f"<pre>{example}</pre><table>{rows}</table>",
            200,
            NO_CACHE,
        )

    def _example(self, server: str) -> str:
        """Write the command that runs the first model whose inputs are known: it can be copied and typed."""
        for name in self._repository.names():
            try:
                inputs = self._repository.get(name).bundle().manifest.inputs
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
