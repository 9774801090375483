"""The operations of the API, which `/openapi.json` describes: what is where, what it takes and gives."""

from __future__ import annotations

from typing import NamedTuple

from edge_infer.server.protocol.head import OCTETS
from edge_infer.server.responses import JSON

HTML, TEXT, EVENTS = "text/html", "text/plain", "text/event-stream"


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
    Operation("/health", "get", "Say OK", content=TEXT, is_open=True),
    Operation("/livez", "get", "Whether the process answers", content=TEXT, is_open=True),
    Operation("/readyz", "get", "Whether new requests are taken", answer="Readiness", is_open=True),
    Operation("/metrics", "get", "Metrics in the text format of Prometheus", content=TEXT),
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
        content=EVENTS,
        infers=True,
    ),
    Operation(f"{_MODEL}/predict", "post", "Answer raw data: a file, a text, or JSON", "Raw", infers=True),
    Operation(f"{_MODEL}/feedback", "post", "Keep what somebody says of an answer (with --feedback)", "Feedback"),
    Operation(_VERSION, "get", "Inputs and outputs of a version"),
    Operation(f"{_VERSION}/ready", "get", "Load a version and say that it is ready"),
    Operation(f"{_VERSION}/config", "get", "How a version is batched and where it runs"),
    Operation(f"{_VERSION}/stats", "get", "What was counted of a version"),
    Operation(f"{_VERSION}/infer", "post", "Run a version", "Request", "Answer", infers=True),
    Operation(f"{_VERSION}/infer_stream", "post", "Run a version step by step", "Steps", content=EVENTS, infers=True),
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
    Operation("/tokenize", "post", "A text to tokens", "Content", "Tokenized", infers=True),
    Operation("/detokenize", "post", "Tokens to a text", "Tokens", "Content", infers=True),
    Operation(
        "/v1/embeddings",
        "post",
        "Texts to vectors, in OpenAI's form",
        "Texts",
        "Embeddings",
        infers=True,
        is_openai=True,
    ),
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
    Operation("/dashboard", "get", "A page that shows how the server is doing", content=HTML, is_open=True),
    Operation("/dashboard/state.json", "get", "The counts that the dashboard draws"),
    Operation("/docs", "get", "This description, for people", content=HTML),
    Operation("/openapi.json", "get", "This description, for machines"),
    Operation("/store/{path}", "get", "A file of the signed store that is hosted", content=OCTETS),
    Operation("/sync/v1/events", "get", "Tell when something is published, in server-sent events", content=EVENTS),
    Operation("/sync/v1/report", "post", "Take a device's report", "Report"),
    Operation("/sync/v1/advice", "get", "Which roll-outs fail"),
    Operation("/sync/v1/fleet", "get", "What devices reported"),
    Operation("/fleet", "get", "What devices reported, for people", content=HTML),
)
