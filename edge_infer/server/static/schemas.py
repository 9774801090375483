"""The schemas of what the API takes and gives, for `/openapi.json` (JSON Schema 2020-12)."""

from __future__ import annotations

from typing import Any

from edge_infer.generation.options import MAX_LOGPROBS
from edge_infer.server.ingestion.text_fields import MAX_CHOICES
from edge_infer.server.protocol.reports import KINDS, METHODS, RESULTS, Report
from edge_infer.server.scheduling.request import LOWEST_PRIORITY, QUALITIES


def schema_of(name: str) -> dict[str, str]:
    """Refer to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
#: The options of `/inference`.
_SHORT = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")
_PRIORITY = {**_WHOLE, "maximum": LOWEST_PRIORITY}
_QUALITY = {"enum": list(QUALITIES)}
_NAME = {"type": "string", "maxLength": 128}
HEADERS = (
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
            "inputs": {"type": "array", "items": schema_of("Tensor")},
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
_TEXT_OR_NULL = {"type": ["string", "null"]}
_CHOICE = _object(
    {
        "index": _WHOLE,
        "message": _object(
            {"role": {"const": "assistant"}, "content": {"type": "string"}, "refusal": _TEXT_OR_NULL},
            *("role", "content"),
        ),
        "text": {"type": "string", "description": "In the place of `message`, where a text was gone on from"},
        "logprobs": {"type": ["object", "null"], "description": "In OpenAI's form, where they were asked for"},
        "finish_reason": {"enum": ["stop", "length"]},
    },
    *("index", "logprobs", "finish_reason"),
)
_USAGE = _object(
    {
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _WHOLE),
        "prompt_tokens_details": _object({"cached_tokens": _WHOLE}, "cached_tokens"),
    },
    *("prompt_tokens", "completion_tokens", "total_tokens"),
)
_MODEL_ENTRY = _object(
    {"id": {"type": "string"}, "object": {"const": "model"}, "created": _WHOLE, "owned_by": {"type": "string"}},
    *("id", "object", "created", "owned_by"),
)
_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
SCHEMAS = {
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
            "system_fingerprint": {"type": "string", "description": "Changes when the model's files do"},
            "choices": {"type": "array", "items": _CHOICE},
            "usage": _USAGE,
        },
        *("id", "object", "created", "model", "choices", "usage"),
    ),
    "Models": _object(
        {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL_ENTRY}}, "object", "data"
    ),
    "Model": _MODEL_ENTRY,
    "Content": _object({"content": {"type": "string"}, "model": {"type": "string"}}, "content"),
    "Tokens": _object({"tokens": _TOKENS, "model": {"type": "string"}}, "tokens"),
    "Tokenized": _object({"tokens": _TOKENS, "count": _WHOLE}, "tokens", "count"),
    "Inference": {
        "anyOf": [
            schema_of("Request"),
            _object({"prompt": {"type": "string"}, **{name: _TEXT_OPTIONS[name] for name in _SHORT}}, "prompt"),
        ]
    },
    "Inferred": {
        "anyOf": [
            schema_of("Answer"),
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
    "Embeddings": _object(
        {
            "object": {"const": "list"},
            "data": {
                "type": "array",
                "items": _object(
                    {
                        "object": {"const": "embedding"},
                        "index": _WHOLE,
                        "embedding": {
                            "type": ["array", "string"],
                            "items": {"type": "number"},
                            "description": "Numbers, or the base64 text of their bytes as float32",
                        },
                    },
                    *("object", "index", "embedding"),
                ),
            },
            "model": {"type": "string"},
            "usage": _object({"prompt_tokens": _WHOLE, "total_tokens": _WHOLE}, "prompt_tokens", "total_tokens"),
        },
        *("object", "data", "model", "usage"),
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
            "parameters": _object(
                {"variant": {"type": "string", "description": "What ran, where several variants take turns"}}
            ),
            "outputs": {"type": "array", "items": schema_of("Tensor")},
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
            "failed": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "The code of the error of each model whose newest bundle could not be loaded",
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
