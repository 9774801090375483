"""What `/openapi.json` says of answers is what they are: each field is described, and so is each media type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.openapi import openapi
from edge_infer.server.static.operations import OPERATIONS, Operation
from edge_infer.server.static.schemas import SCHEMAS, schema_of
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client
from tests.support.server.texts import USER, text_bundle, use_fakes
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROW = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
#: What is asked of a model for tensors and of one for texts: the route, the schema of its answer, the document.
ASKED: list[tuple[str, str, Any]] = [
    ("/v2/models/tiny/infer", "Answer", ROW),
    ("/v2/models/tiny/infer", "Answer", {**ROW, "id": "seven"}),
    ("/v2/models/chat/infer", "Error", ROW),
    ("/v1/chat/completions", "Completion", {"messages": USER, "max_tokens": 3}),
    ("/v1/chat/completions", "Completion", {"messages": USER, "max_tokens": 3, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", "OpenAIError", {"messages": []}),
    ("/v1/completions", "Completion", {"prompt": "Hi", "max_tokens": 3, "logprobs": 2, "n": 2}),
    ("/v1/embeddings", "OpenAIError", {"input": "Hi", "model": "tiny"}),
    ("/v1/embeddings", "Embeddings", {"input": "good film", "model": "words"}),
    ("/v1/embeddings", "Embeddings", {"input": ["paris"], "model": "words", "encoding_format": "base64"}),
    ("/inference", "Error", ROW),
    ("/inference", "Inferred", {"model": "chat", "prompt": "Hi", "max_tokens": 3}),
    ("/tokenize", "Tokenized", {"content": "Hi"}),
    ("/detokenize", "Content", {"tokens": [72, 105]}),
]


def closed(schema: Any) -> Any:
    """The schema, with no fields but those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(one) for key, one in schema.items()}
    if isinstance(found.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def problems(name: str, document: Any) -> list[str]:
    schema = {**schema_of(name), "components": {"schemas": closed(SCHEMAS)}}
    return [f"{list(error.path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(document)]


@pytest.fixture
def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    use_fakes(monkeypatch)
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files()), "chat": text_bundle(tmp_path / "chat")}
    models["words"] = pipelines.words(tmp_path / "words.bundle", "feature-extraction", [{"step": "post.pool"}])
    with ServerThread(create_app(models)) as server:
        yield Client(server.url)


@pytest.mark.parametrize(("path", "schema", "document"), ASKED)
def test_each_field_of_an_answer_is_described(send: Client, path: str, schema: str, document: Any) -> None:
    found = send(path, "POST", json.dumps(document).encode())
    assert problems(schema, json.loads(found.body)) == []
    operation = openapi()["paths"][path.replace("/tiny/", "/{name}/").replace("/chat/inf", "/{name}/inf")]["post"]
    assert str(found.status) in operation["responses"]


@pytest.mark.parametrize("path", ["/readyz", "/v2/health/ready"])
def test_what_is_not_ready_and_what_failed_is_described(tmp_path: Path, path: str) -> None:
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files()), "broken": tmp_path / "broken.bundle"}
    write_bundle(tmp_path / "broken.bundle", {**bundle_files("broken"), "onnx/model.onnx": b"no model"})
    app = create_app(models)
    with ServerThread(app) as server:
        send = Client(server.url)
        assert send("/v2/models/broken/ready").status >= 400
        found = json.loads(send(path).body)
        assert found["failed"].keys() == {"broken"}
        assert problems("Readiness", found) == []


#: All but the events of a store, which have no end: tests/server/test_store_routes.py reads them.
GETS = [one for one in OPERATIONS if one.method == "get" and one.path != "/sync/v1/events"]


@pytest.mark.parametrize("operation", GETS, ids=lambda one: one.path)
@pytest.mark.parametrize("name", ["tiny", "chat", "nobody"])
def test_each_route_gives_the_status_and_media_type_that_are_described(
    send: Client, operation: Operation, name: str
) -> None:
    found = send(operation.path.format(name=name, version="1", path="latest"))
    described = openapi()["paths"][operation.path]["get"]["responses"]
    assert str(found.status) in described
    kind = found.headers["content-type"].partition(";")[0]
    if found.status == 200:
        assert kind in described["200"]["content"]
        if operation.answer:
            assert problems(operation.answer, json.loads(found.body)) == []
    else:
        assert kind == "application/json"
        assert problems("OpenAIError" if operation.is_openai else "Error", json.loads(found.body)) == []
