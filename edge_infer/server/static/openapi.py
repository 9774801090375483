"""The description of the API: `/openapi.json`, OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import edge_infer
from edge_infer.generation.options import MAX_LOGPROBS
from edge_infer.server.ingestion.text_fields import MAX_CHOICES
from edge_infer.server.protocol.head import OCTETS
from edge_infer.server.protocol.reports import KINDS, METHODS, RESULTS, Report
from edge_infer.server.responses import JSON
from edge_infer.server.scheduling.request import LOWEST_PRIORITY, QUALITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HTML, _TEXT, _EVENTS = "text/html", "text/plain", "text/event-stream"


class Operation(NamedTuple):
    """One operation of the server.

    Attributes:
        path: Where.
        method: `get` or `post`.
        summary: What it does.
        body: The schema of the JSON that it takes; empty for none.
        answer: The schema of the JSON that it gives; empty for any.
        content: The media type of the answer.
        infers: Whether it runs a model: then a body must be there, and headers say how.
        is_open: Whether it needs neither key nor token and no model, so that nearly nothing is refused.
        is_openai: Whether its errors have OpenAI's form.
    """

    path: str
    method: str
    summary: str
    body: str = ""
    answer: str = ""
    content: str = JSON
    infers: bool = False
    is_open: bool = False
    is_openai: bool = False


_MODEL = "/v2/models/{name}"
_VERSION = f"{_MODEL}/versions/{{version}}"
_CONTROL = "/v2/repository/models/{name}"
OPERATIONS = (
    Operation("/health", "get", "Say OK", content=_TEXT, is_open=True),
    Operation("/livez", "get", "Whether the process answers", content=_TEXT, is_open=True),
    Operation("/readyz", "get", "Whether new requests are taken", answer="Readiness", is_open=True),
    Operation("/metrics", "get", "Metrics in the text format of Prometheus", content=_TEXT),
    Operation(
        "/inference",
        "post",
        "Run the only model that is served; of one that generates text, go on from `prompt`",
        "Inference",
        "Inferred",
        infers=True,
    ),
    Operation("/v2", "get", "Name, version and extensions of the server"),
    Operation("/v2/health/live", "get", "Whether the process answers", is_open=True),
    Operation("/v2/health/ready", "get", "Whether new requests are taken", answer="Readiness", is_open=True),
    Operation("/v2/models/stats", "get", "What was counted of all models that are loaded"),
    Operation(_MODEL, "get", "A model's inputs and outputs"),
    Operation(f"{_MODEL}/ready", "get", "Load a model and say that it is ready"),
    Operation(f"{_MODEL}/config", "get", "How a model is batched and where it runs"),
    Operation(f"{_MODEL}/stats", "get", "What was counted of a model"),
    Operation(f"{_MODEL}/infer", "post", "Run a model", "Request", "Answer", infers=True),
    Operation(
        f"{_MODEL}/infer_stream",
        "post",
        "Run a model with state step by step; each step is a server-sent event",
        "Steps",
        content=_EVENTS,
        infers=True,
    ),
    Operation(f"{_MODEL}/predict", "post", "Answer raw data: a file, a text, or JSON", "Raw", infers=True),
    Operation(f"{_MODEL}/feedback", "post", "Keep what somebody says of an answer (with --feedback)", "Feedback"),
    Operation(_VERSION, "get", "Inputs and outputs of a version"),
    Operation(f"{_VERSION}/ready", "get", "Load a version and say that it is ready"),
    Operation(f"{_VERSION}/config", "get", "How a version is batched and where it runs"),
    Operation(f"{_VERSION}/stats", "get", "What was counted of a version"),
    Operation(f"{_VERSION}/infer", "post", "Run a version", "Request", "Answer", infers=True),
    Operation(f"{_VERSION}/infer_stream", "post", "Run a version step by step", "Steps", content=_EVENTS, infers=True),
    Operation(f"{_VERSION}/predict", "post", "Answer raw data with a version", "Raw", infers=True),
    Operation(f"{_VERSION}/feedback", "post", "Keep what somebody says of an answer", "Feedback"),
    Operation("/v1/models", "get", "The models that generate text or embed it", answer="Models", is_openai=True),
    Operation("/v1/models/{name}", "get", "One of them", answer="Model", is_openai=True),
    Operation(
        "/v1/chat/completions",
        "post",
        "The next message of a conversation",
        "Chat",
        "Completion",
        infers=True,
        is_openai=True,
    ),
    Operation("/v1/completions", "post", "Go on from a text", "Prompt", "Completion", infers=True, is_openai=True),
    Operation("/tokenize", "post", "A text to tokens", "Content", "Tokens", infers=True),
    Operation("/detokenize", "post", "Tokens to a text", "Tokens", "Content", infers=True),
    Operation("/v1/embeddings", "post", "Texts to vectors, in OpenAI's form", "Texts", infers=True, is_openai=True),
    Operation("/v2/indexes", "get", "The indexes that can be searched"),
    Operation("/v2/indexes/{name}", "get", "An index: how many entries, and what they can be filtered by"),
    Operation(
        "/v2/indexes/{name}/search", "post", "The nearest entries to a text or a vector", "Search", "Hits", infers=True
    ),
    Operation("/v2/repository/index", "post", "All models, their versions and states", "Index"),
    Operation(f"{_CONTROL}/load", "post", "Load a model, or what it became on disk", "Control", content=""),
    Operation(f"{_CONTROL}/unload", "post", "Give back a model's memory", "Control", content=""),
    Operation(f"{_CONTROL}/canary", "post", "Let a version take a part of the requests", "Canary"),
    Operation("/models/", "get", "What is served, with revisions and variants"),
    Operation("/models/{name}/", "get", "One model's revision and variants"),
    Operation("/dashboard", "get", "A page that shows how the server is doing", content=_HTML, is_open=True),
    Operation("/dashboard/state.json", "get", "The counts that the dashboard draws"),
    Operation("/docs", "get", "This description, for people", content=_HTML),
    Operation("/openapi.json", "get", "This description, for machines"),
    Operation("/store/{path}", "get", "A file of the signed store that is hosted", content=OCTETS),
    Operation("/sync/v1/events", "get", "Tell when something is published, in server-sent events", content=_EVENTS),
    Operation("/sync/v1/report", "post", "Take a device's report", "Report"),
    Operation("/sync/v1/advice", "get", "Which roll-outs fail"),
    Operation("/sync/v1/fleet", "get", "What devices reported"),
    Operation("/fleet", "get", "What devices reported, for people", content=_HTML),
)
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
        f"{kind}{status}": {"description": text, "content": {JSON: {"schema": _schema(schema)}}}
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
            "schemas": _SCHEMAS,
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
        done["content"] = {operation.content: {"schema": _schema(operation.answer) if operation.answer else {}}}
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
        content: dict[str, Any] = {JSON: {"schema": _schema(operation.body)}}
        found["requestBody"] = {"required": operation.infers, "content": content}
        if operation.answer == "Completion":  # with `stream`
            done["content"][_EVENTS] = {"schema": {"type": "string"}}
        if operation.answer in ("Answer", "Inferred"):
            octets = {"schema": {"type": "string", "format": "binary"}}
            content[OCTETS] = done["content"][OCTETS] = octets
        if operation.body == "Raw":
            content[OCTETS] = {"schema": {"type": "string", "format": "binary"}}
    if operation.infers:
        parameters += [
            header
            for header in _HEADERS
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


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
#: The options of `/inference`.
_SHORT = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")
_PRIORITY = {**_WHOLE, "maximum": LOWEST_PRIORITY}
_QUALITY = {"enum": list(QUALITIES)}
_NAME = {"type": "string", "maxLength": 128}
_HEADERS = (
    _header("X-Priority", "1 is the most urgent; the body's own counts before it", _PRIORITY),
    _header("X-Timeout-Ms", "Milliseconds; the body's own counts before it", _WHOLE),
    _header("X-Quality", "Which variant, where a model has a fast one; the body's own counts before it", _QUALITY),
    _header("X-Request-Id", "Comes back in the answer", _NAME),
    _header("traceparent", "The W3C trace context, which comes back in the answer", _NAME),
    _header("Inference-Header-Content-Length", "The bytes of JSON in front of binary tensors", _WHOLE),
)


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


_PARAMETERS = {
    "priority": {**_PRIORITY, "description": "1 is the most urgent"},
    "timeout": {**_WHOLE, "description": "Microseconds"},
    "quality": {**_QUALITY, "description": "Which variant, where the model has a fast one"},
    "binary_data_output": {"type": "boolean"},
}
_STEPS = {
    "state": {"type": "string", "description": "Which output becomes which input: `h_out:h_in,c_out:c_in`"},
    "sequence": {"type": "string", "description": "Inputs of which each step takes one entry: `x`"},
    "steps": {"type": "integer", "minimum": 1, "description": "How many, where there is no sequence"},
}


def _request(parameters: dict[str, Any], *required: str) -> dict[str, Any]:
    wanted = {"name": {"type": "string"}, "parameters": _object({"binary_data": {"type": "boolean"}})}
    return _object(
        {
            "id": {"type": "string"},
            "inputs": {"type": "array", "items": _schema("Tensor")},
            "outputs": {"type": "array", "items": _object(wanted, "name")},
            "parameters": _object(parameters),
        },
        "inputs",
        *required,
    )


def _report() -> dict[str, Any]:
    choices = {"kind": KINDS, "method": METHODS, "result": RESULTS}
    kinds = {str: "string", int: "integer", float: "number"}
    named = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"}
    properties: dict[str, Any] = {"device": named, "model": named}
    for name, default in Report._field_defaults.items():
        bounds = {"maxLength": 500} if isinstance(default, str) else {"minimum": 0, "exclusiveMaximum": 2**53}
        properties[name] = {"type": kinds[type(default)], **bounds}
        if name in choices:
            properties[name]["enum"] = list(choices[name])
    return _object(properties, "device", "model")


_TEXT_OPTIONS = {
    "model": {"type": "string", "description": "Not needed where one model generates text"},
    "max_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 100, "description": "0 takes the likeliest token"},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
    "stop": {"description": "A text, or a list of texts"},
    "n": {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES},
    "stream": {"type": "boolean"},
    "stream_options": _object({"include_usage": {"type": "boolean"}}),
    "frequency_penalty": {"type": "number"},
    "presence_penalty": {"type": "number"},
    "repetition_penalty": {"type": "number"},
    "logit_bias": {"type": "object", "additionalProperties": {"type": "number"}},
    "response_format": _object({"type": {"enum": ["text", "json_object", "json_schema"]}}, "type"),
}
_CHOICE = _object({"index": _WHOLE, "finish_reason": {"enum": ["stop", "length"]}}, "index", "finish_reason")
_MODEL_ENTRY = _object({"id": {"type": "string"}, "object": {"const": "model"}, "created": _WHOLE}, "id", "object")
_SCHEMAS = {
    "Chat": _object(
        {
            "messages": {
                "type": "array",
                "minItems": 1,
                "items": _object({"role": {"type": "string"}, "content": {"description": "A text, or parts"}}, "role"),
            },
            **_TEXT_OPTIONS,
            "max_completion_tokens": {"type": "integer", "minimum": 1},
            "logprobs": {"type": "boolean"},
            "top_logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_LOGPROBS},
            "tools": {"type": "array", "items": {"type": "object"}},
            "tool_choice": {"enum": ["none", "auto"]},
            "chat_template_kwargs": {"type": "object"},
        },
        "messages",
    ),
    "Prompt": _object(
        {
            "prompt": {"description": "A text, token ids, or a list of either"},
            **_TEXT_OPTIONS,
            "logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_LOGPROBS},
            "echo": {"type": "boolean"},
        },
        "prompt",
    ),
    "Completion": _object(
        {
            "id": {"type": "string"},
            "object": {"enum": ["chat.completion", "text_completion"]},
            "created": _WHOLE,
            "model": {"type": "string"},
            "choices": {"type": "array", "items": _CHOICE},
            "usage": _object(dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _WHOLE)),
        },
        *("id", "object", "created", "model", "choices", "usage"),
    ),
    "Models": _object(
        {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL_ENTRY}}, "object", "data"
    ),
    "Model": _MODEL_ENTRY,
    "Content": _object({"content": {"type": "string"}, "model": {"type": "string"}}, "content"),
    "Tokens": _object(
        {"tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}, "model": {"type": "string"}}, "tokens"
    ),
    "Inference": {
        "anyOf": [
            _schema("Request"),
            _object({"prompt": {"type": "string"}, **{name: _TEXT_OPTIONS[name] for name in _SHORT}}, "prompt"),
        ]
    },
    "Inferred": {
        "anyOf": [
            _schema("Answer"),
            _object(
                {"text": {"type": "string"}, "tokens_generated": _WHOLE, "latency_ms": {"type": "number"}},
                *("text", "tokens_generated", "latency_ms"),
            ),
        ]
    },
    "OpenAIError": _object(
        {
            "error": _object(
                {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": "string"},
                },
                *("message", "type", "param", "code"),
            )
        },
        "error",
    ),
    "Request": _request(_PARAMETERS),
    "Raw": _object(
        {
            "inputs": {"description": "A text, the base64 text of an image's or a sound's file, or a list of them"},
            "parameters": {"type": "object", "description": "What the task takes, such as `top_k`"},
        },
        "inputs",
    ),
    "Texts": _object(
        {
            "model": {"type": "string"},
            "input": {"description": "A text, or a list of texts"},
            "encoding_format": {"enum": ["float", "base64"]},
        },
        *("model", "input"),
    ),
    "Search": _object(
        {
            "query": {"description": "A text, or a vector as a list of numbers"},
            "k": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10},
            "where": {"type": "object", "description": 'Metadata: `{"lang": "en", "year": {">=": 2020}}`'},
            "mode": {"enum": ["vectors", "words", "hybrid"], "default": "vectors"},
            "full_scan": {"type": "boolean", "description": "Compare each 8-bit row, however many there are"},
        },
        "query",
    ),
    "Hits": _object(
        {
            "hits": {
                "type": "array",
                "items": _object(
                    {
                        "id": _WHOLE,
                        "score": {"type": "number"},
                        "text": {"type": ["string", "null"]},
                        "metadata": {"type": "object"},
                    },
                    *("id", "score", "text", "metadata"),
                ),
            }
        },
        "hits",
    ),
    "Steps": _request({**_PARAMETERS, **_STEPS}, "parameters"),
    "Answer": _object(
        {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": _schema("Tensor")},
        },
        *("model_name", "model_version", "outputs"),
    ),
    "Tensor": _object(
        {
            "name": {"type": "string"},
            "shape": {"type": "array", "items": _WHOLE},
            "datatype": {"type": "string", "examples": ["FP32"]},
            "data": {"type": "array", "description": "Flat in row-major order, or nested as `shape` says"},
            "parameters": _object({"binary_data_size": _WHOLE}),
        },
        *("name", "shape", "datatype"),
    ),
    "Error": _object(
        {
            "error": {"type": "string"},
            "code": {"type": "string"},
            "hint": {"type": "string"},
            "details": {"type": "object"},
        },
        *("error", "code", "hint", "details"),
    ),
    "Readiness": _object(
        {
            "ready": {"type": "boolean"},
            "starting": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The models that load for the first time",
            },
            "lost": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "What happened to the device, by pool",
            },
        },
        "ready",
    ),
    "Index": _object({"ready": {"type": "boolean", "description": "Only what is loaded"}}),
    "Control": _object({"parameters": {"type": "object", "maxProperties": 0}}),
    "Canary": _object(
        {
            "version": {"type": "string"},
            "percent": {"type": "number", "minimum": 0, "maximum": 100, "description": "An empty body ends it"},
        }
    ),
    "Report": _report(),
    "Feedback": {
        "type": "object",
        "required": ["id", "label"],
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{32}$"},
            "label": {},
            "consent": {"type": "boolean"},
            "inputs": {"type": "array", "items": {"type": "object"}},
        },
        "additionalProperties": False,
    },
}
