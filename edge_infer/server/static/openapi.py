"""The description of the API: `/openapi.json`, OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import edge_infer
from edge_infer.server.protocol.head import OCTETS
from edge_infer.server.responses import JSON
from edge_infer.server.static.operations import EVENTS, OPERATIONS, Operation
from edge_infer.server.static.schemas import HEADERS, SCHEMAS, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_REFUSALS = {
    "400": "The request does not fit the model",
    "401": "There is no API key or token, or it is nobody's",
    "403": "The tenant, or the page that asks, may not",
    "404": "No such model, version or file",
    "408": "The request took too long to come",
    "413": "The body is too large",
    "415": "The body is in a form that the server does not read",
    "416": "The range begins after the file's end",
    "429": "More than the tenant's share; see Retry-After",
    "431": "The headers are too large",
    "500": "The bundle or the engine failed",
    "501": "The engine or the server cannot do what was asked",
    "502": "The store that a model comes from does not answer, or not as it must",
    "503": "Too many requests wait, the model cannot run now, or the server is stopping; see Retry-After",
    "504": "The answer would have come after the timeout",
    "507": "The disk has no room for it",
}
#: What is refused where nobody is asked for a key and no model is meant.
_ANYWHERE = ("400", "408", "431")


def openapi(models: Sequence[str] = (), root: str = "") -> dict[str, Any]:
    """Describe the API as an OpenAPI 3.1 document.

    Args:
        models: The names of those that are served.
        root: The path that all paths are under; empty for the server's root.
    """
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, models)
    refusals = {
        f"{kind}{status}": {"description": text, "content": {JSON: {"schema": schema_of(schema)}}}
        for status, text in _REFUSALS.items()
        for kind, schema in (("Refusal", "Error"), ("OpenAIRefusal", "OpenAIError"))
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "edge-infer", "version": edge_infer.__version__},
        "servers": [{"url": root or "/"}],
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": refusals,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _described(operation: Operation, models: Sequence[str]) -> dict[str, Any]:
    path, method = operation.path, operation.method
    done: dict[str, Any] = {"description": "Done"}
    if operation.content:
        done["content"] = {operation.content: {"schema": schema_of(operation.answer) if operation.answer else {}}}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{method}{path}".replace("{", "").replace("}", "").strip("/").replace("/", "_"),
        "responses": {"200": done},
    }
    is_of_model = models and "/indexes/" not in path
    named = {"name": {"enum": list(models)} if is_of_model else {}, "version": {"examples": ["1"]}, "path": {}}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", **more}}
        for name, more in named.items()
        if f"{{{name}}}" in path
    ]
    if path == "/sync/v1/advice":
        parameters.append({"name": "model", "in": "query", "schema": {"type": "string"}})
    if operation.body:
        content: dict[str, Any] = {JSON: {"schema": schema_of(operation.body)}}
        found["requestBody"] = {"required": operation.infers, "content": content}
        if operation.answer == "Completion":  # with `stream`
            done["content"][EVENTS] = {"schema": {"type": "string"}}
        if operation.answer in ("Answer", "Inferred"):
            octets = {"schema": {"type": "string", "format": "binary"}}
            content[OCTETS] = done["content"][OCTETS] = octets
        if operation.body == "Raw":
            content[OCTETS] = {"schema": {"type": "string", "format": "binary"}}
    if operation.infers:
        parameters += [
            header
            for header in HEADERS
            if operation.answer in ("Answer", "Inferred") or header["name"] != "Inference-Header-Content-Length"
        ]
    if parameters:
        found["parameters"] = parameters
    statuses: Iterable[str] = _ANYWHERE if operation.is_open else _REFUSALS
    kind = "OpenAIRefusal" if operation.is_openai else "Refusal"
    found["responses"] |= {status: {"$ref": f"#/components/responses/{kind}{status}"} for status in statuses}
    if operation.answer == "Readiness":
        found["responses"]["503"] = {
            **done,
            "description": "Not now: models load for the first time, a device is lost, or it is stopping",
        }
    return found
