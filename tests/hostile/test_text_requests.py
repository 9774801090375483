"""Requests for text that a server must survive: one clear error each, no slot in use, and others are answered."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.errors import status_of
from edge_infer.server.execution.text_model import TextLimits
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion.text_fields import (
    read_chat,
    read_completion,
    read_content,
    read_inference,
    read_tokens,
)
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.texts import USER, post, text_bundle, use_fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
#: Templates that would take all time, all memory, or another's data.
TEMPLATE = (
    "{% if messages[0].content == 'time' %}"
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    "{% elif messages[0].content == 'memory' %}{{ ('x' * 99999) * 99999 }}"
    "{% elif messages[0].content == 'inside' %}{{ ''.__class__.__mro__ }}"
    "{% elif messages[0].content == 'refuse' %}{{ raise_exception('no') }}"
    "{% else %}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}{% endif %}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with pytest.MonkeyPatch.context() as patch:
        use_fakes(patch)
        folder = text_bundle(tmp_path_factory.mktemp("hostile") / "chat", template=TEMPLATE)
        limits = Limits(
            text=TextLimits(2), batch=BatchLimits(max_wait_ms=1e6), max_body_bytes=2**22, max_json_bytes=2**21
        )
        with ServerThread(create_app({"chat": folder}, limits=limits)) as running:
            yield running


def chat(**more: Any) -> bytes:
    return json.dumps({"messages": USER, "max_tokens": 2, **more}).encode()


def said(content: Any) -> bytes:
    return chat(messages=[{"role": "user", "content": content}])


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


BODIES: dict[str, tuple[str, bytes, int]] = {
    "nothing": (CHAT, b"", 400),
    "no JSON": (CHAT, b"{", 400),
    "a list": (CHAT, b"[]", 400),
    "not UTF-8": (CHAT, b'{"messages": "\xff"}', 400),
    "NaN": (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400),
    "infinity": (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "top_p": 1e999}', 400),
    "half a surrogate": (CHAT, rb'{"messages": [{"role": "user", "content": "\ud800"}], "max_tokens": 2}', 400),
    "a number of 5000 digits": (CHAT, b'{"messages": [], "seed": ' + b"9" * 5000 + b"}", 400),
    "messages that are none": (CHAT, chat(messages=["x"]), 400),
    "a role that is a number": (CHAT, chat(messages=[{"role": 1, "content": "x"}]), 400),
    "no content": (CHAT, chat(messages=[{"role": "user"}]), 200),
    "a content that is a number": (CHAT, said(1), 400),
    "a picture": (CHAT, said([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]), 400),
    "a nest": (CHAT, said(deep(400)), 400),
    "a deep nest": (CHAT, b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "a long message": (CHAT, said("x" * 200_001), 413),
    "a prompt over the context": (CHAT, said("x" * 1000), 400),
    "many values": (CHAT, b'{"messages": [' + b"0," * 600_000 + b"0]}", 413),
    "a template without end": (CHAT, said("time"), 400),
    "a template that fills the memory": (CHAT, said("memory"), 400),
    "a template that looks inside": (CHAT, said("inside"), 400),
    "a template that refuses": (CHAT, said("refuse"), 400),
    "names that the template's own have": (CHAT, chat(chat_template_kwargs={"messages": 1, "tools": 2}), 400),
    "names of the renderer": (CHAT, chat(chat_template_kwargs={"now": 1, "self": 2, "add_generation_prompt": []}), 400),
    "a million stop strings": (CHAT, chat(stop=["x"] * 400_000), 400),
    "a stop string of 1 MB": (CHAT, chat(stop="x" * 1_000_000), 400),
    "stop strings that are none": (CHAT, chat(stop=[1]), 400),
    "many biases": (CHAT, chat(logit_bias={str(i): 1 for i in range(70_000)}), 400),
    "a bias of a token that is not there": (CHAT, chat(logit_bias={"99999": 1}), 400),
    "a bias that is no number": (CHAT, chat(logit_bias={"1": "x"}), 400),
    "a negative temperature": (CHAT, chat(temperature=-1), 400),
    "a huge temperature": (CHAT, chat(temperature=1e308), 400),
    "no tokens": (CHAT, chat(max_tokens=0), 400),
    "tokens without end": (CHAT, chat(max_tokens=2**40), 400),
    "half a token": (CHAT, chat(max_tokens=1.5), 400),
    "a seed of 100 bits": (CHAT, chat(seed=2**100), 400),
    "the largest seed": (CHAT, chat(seed=2**64 - 1, n=2), 200),
    "the least seed": (CHAT, chat(seed=-(2**63), n=2), 200),
    "a thousand answers": (CHAT, chat(n=1000), 400),
    "a schema that calls itself": (
        CHAT,
        chat(response_format={"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}),
        400,
    ),
    "a schema of 1 MB": (
        CHAT,
        chat(response_format={"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 1_000_000]}}}),
        400,
    ),
    "a schema that is none": (CHAT, chat(response_format={"type": "json_schema", "json_schema": {"schema": 1}}), 400),
    "an unknown field": (CHAT, chat(whatever={"a": [1]}), 200),
    "a model that is not there": (CHAT, chat(model="x" * 100_000), 404),
    "no prompt": (COMPLETIONS, b"{}", 400),
    "an empty prompt": (COMPLETIONS, b'{"prompt": ""}', 400),
    "no prompts": (COMPLETIONS, b'{"prompt": []}', 400),
    "a prompt of numbers that are no tokens": (COMPLETIONS, b'{"prompt": [99999]}', 400),
    "a prompt of fractions": (COMPLETIONS, b'{"prompt": [1.5]}', 400),
    "17 prompts": (COMPLETIONS, json.dumps({"prompt": ["x"] * 17}).encode(), 400),
    "a suffix": (COMPLETIONS, b'{"prompt": "x", "suffix": "y"}', 400),
    "the best of two": (COMPLETIONS, b'{"prompt": "x", "best_of": 2}', 400),
    "all logprobs": (COMPLETIONS, b'{"prompt": "x", "logprobs": 100000}', 400),
    "a truth of logprobs": (COMPLETIONS, b'{"prompt": "x", "logprobs": "all"}', 400),
    "an inference without a prompt": ("/inference", b'{"inputs": []}', 400),
    "an inference of a list": ("/inference", b'{"prompt": ["x"]}', 400),
    "a content that is none": ("/tokenize", b'{"content": null}', 400),
    "a long content": ("/tokenize", json.dumps({"content": "x" * 200_001}).encode(), 413),
    "a content of one character, 200,000 times": ("/tokenize", json.dumps({"content": " " * 200_000}).encode(), 200),
    "tokens that are none": ("/detokenize", b'{"tokens": [-1]}', 400),
    "tokens that the model lacks": ("/detokenize", b'{"tokens": [99999]}', 400),
    "too many tokens": ("/detokenize", json.dumps({"tokens": [1] * 200_001}).encode(), 413),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_has_one_clear_error(server: ServerThread, name: str) -> None:
    path, body, status = BODIES[name]
    answer = post(server, path, body)
    found = json.loads(answer.body)
    assert answer.status == status, found
    if status != 200:
        error = found["error"]
        assert error["message"] if path.startswith("/v1") else error, found
        assert len(answer.body) < 3000
    assert post(server, CHAT, chat()).status == 200


def test_bodies_that_are_packed_or_of_another_kind(server: ServerThread) -> None:
    bomb = gzip.compress(b'{"messages": "' + b"x" * 2**23 + b'"}')
    assert post(server, CHAT, bomb, content_encoding="gzip").status == 413
    assert post(server, CHAT, gzip.compress(chat()), content_encoding="gzip").status == 200
    assert post(server, CHAT, chat(), content_encoding="br").status == 415
    assert post(server, CHAT, chat(x="y" * 2**21)).status == 413


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = (
    *(
        "model",
        "messages",
        "prompt",
        "content",
        "tokens",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
    ),
    *("stop", "n", "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias", "response_format", "tools"),
    *("tool_choice", "chat_template_kwargs", "echo", "best_of", "suffix"),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6) | VALUES, st.booleans())
def test_any_document_is_read_or_refused(document: Any, has_basis: bool) -> None:
    if has_basis and isinstance(document, dict):
        document = {"messages": USER, "prompt": "x", "content": "x", "tokens": [1], **document}
    body = json.dumps(document).encode()
    readers: list[Callable[[bytes], Any]] = [read_chat, read_completion, read_inference, read_content, read_tokens]
    for read in readers:
        try:
            found = read(body)
            if read in (read_chat, read_completion, read_inference):
                found.options({}, 1, 100)
        except EdgeInferError as error:
            assert 400 <= status_of(error) < 500
            assert error.message
