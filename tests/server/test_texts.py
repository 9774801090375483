"""Models that generate text: OpenAI's routes, `/inference`, tokens, and what becomes of slots."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import ExecutionError
from edge_infer.generation.generate import generate
from edge_infer.generation.vectors import GenerationVector
from edge_infer.server.app import create_app
from edge_infer.server.config import Settings
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.shares import Bounds, Tenant
from tests.support.generation.bundles import write_bundle as write_text_bundle
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, row
from tests.support.server.texts import (
    CHAT,
    PROMPT,
    USER,
    app_of,
    endless,
    events_of,
    is_empty,
    post,
    spelling,
    text_bundle,
    use_fakes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server.texts import HeldDecoder


@pytest.fixture
def server(tmp_path: Path, decoders: list[HeldDecoder]) -> Iterator[ServerThread]:
    assert decoders == []
    with ServerThread(app_of(text_bundle(tmp_path / "chat"))) as running:
        yield running


# -- answers --


def test_a_chat_gives_what_the_generator_gives(server: ServerThread, tmp_path: Path) -> None:
    asked = {"model": "chat", "messages": USER, "seed": 3, "max_tokens": 20, "temperature": 1.5, "unknown": [1]}
    answer = post(server, CHAT, asked)
    expected = generate(tmp_path / "chat").chat(USER, seed=3, max_tokens=20, temperature=1.5)
    found = json.loads(answer.body)
    assert answer.status == 200
    assert found["choices"][0]["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    assert found["choices"][0]["finish_reason"] == expected.finish_reason
    assert found["usage"] == {
        "prompt_tokens": PROMPT,
        "completion_tokens": expected.usage.completion_tokens,
        "total_tokens": PROMPT + expected.usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (found["object"], found["model"]) == ("chat.completion", "chat")
    again = json.loads(post(server, CHAT, asked).body)
    assert again["choices"] == found["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert again["id"] != found["id"]


def test_a_machine_of_many_processors_serves_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text_bundle(tmp_path / "chat")
    monkeypatch.setattr("edge_infer.platform.host.available_cpus", lambda: 8)
    with ServerThread(app_of(tmp_path / "chat")) as running:
        assert post(running, CHAT, {"messages": USER, "max_tokens": 2}).status == 200


def test_a_stream_gives_the_same_in_pieces(server: ServerThread) -> None:
    asked = {"model": "chat", "messages": USER, "seed": 3, "max_tokens": 20}
    whole = json.loads(post(server, CHAT, asked).body)
    answer = post(server, CHAT, {**asked, "stream": True, "stream_options": {"include_usage": True}})
    assert answer.headers["content-type"] == "text/event-stream"
    found = events_of(answer.body)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    pieces = [one["choices"][0]["delta"].get("content", "") for one in found if one["choices"]]
    assert "".join(pieces) == whole["choices"][0]["message"]["content"]
    assert [one["choices"][0]["finish_reason"] for one in found[:-1]] == [None] * (len(found) - 2) + ["length"]
    usage = whole["usage"] | {"prompt_tokens_details": {"cached_tokens": PROMPT - 1}}
    assert (found[-1]["choices"], found[-1]["usage"]) == ([], usage)
    assert {one["object"] for one in found} == {"chat.completion.chunk"}
    assert len({one["id"] for one in found}) == 1
    assert all(one["usage"] is None for one in found[:-1])


def test_a_text_ends_at_its_mark_at_a_stop_string_and_at_the_end_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fakes(monkeypatch, spelling("Größe, STOP here", 2))
    with ServerThread(app_of(text_bundle(tmp_path / "chat", context=32))) as server:

        def text(**more: Any) -> tuple[str, str]:
            answer = post(server, "/v1/completions", {"model": "chat", "prompt": "ab", "max_tokens": 100, **more})
            (choice,) = json.loads(answer.body)["choices"]
            return choice["text"], choice["finish_reason"]

        assert text() == ("Größe, STOP here", "stop")
        assert text(stop="STOP") == ("Größe, ", "stop")
        assert text(stop=["x", "ST"]) == ("Größe, ", "stop")
        assert text(stop=[]) == ("Größe, STOP here", "stop")
        assert text(max_tokens=4) == ("Grö", "length")
        assert text(max_tokens=3) == ("Gr\ufffd", "length")
        assert text(echo=True) == ("abGröße, STOP here", "stop")
        assert text(prompt=[97, 98], echo=True) == ("abGröße, STOP here", "stop")
        stream = post(server, "/v1/completions", {"prompt": "ab", "max_tokens": 100, "stream": True, "stop": "STOP"})
        found = events_of(stream.body)
        assert "".join(one["choices"][0]["text"] for one in found) == "Größe, "
        too_long = post(server, "/v1/completions", {"model": "chat", "prompt": "x" * 33})
        assert too_long.status == 400
        assert "has 33 tokens, the context has room for 32" in json.loads(too_long.body)["error"]["message"]


def test_a_top_k_of_minus_one_is_all_tokens(server: ServerThread) -> None:
    asked = {"model": "chat", "messages": USER, "seed": 3, "max_tokens": 12, "temperature": 2.0}
    found, expected = (json.loads(post(server, CHAT, {**asked, "top_k": k}).body)["choices"] for k in (-1, 0))
    assert found == expected


def test_several_answers_have_seeds_of_their_own(server: ServerThread) -> None:
    asked = {"model": "chat", "messages": USER, "seed": 3, "max_tokens": 12, "temperature": 2.0}
    found = json.loads(post(server, CHAT, {**asked, "n": 3}).body)
    texts = [choice["message"]["content"] for choice in found["choices"]]
    alone = [json.loads(post(server, CHAT, {**asked, "seed": 3 + i}).body) for i in range(3)]
    assert texts == [one["choices"][0]["message"]["content"] for one in alone]
    assert len(set(texts)) == 3
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (PROMPT, 36)
    pieces = ["", "", ""]
    for one in events_of(post(server, CHAT, {**asked, "n": 3, "stream": True}).body):
        choice = one["choices"][0]
        pieces[choice["index"]] += choice["delta"].get("content", "")
    assert pieces == texts
    many = json.loads(post(server, "/v1/completions", {"prompt": ["a", "bc"], "n": 2, "seed": 1}).body)
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2, 3]
    assert many["usage"]["prompt_tokens"] == 3


def test_logprobs_are_those_of_the_model(server: ServerThread) -> None:
    asked = {"model": "chat", "messages": USER, "temperature": 0, "max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    (choice,) = json.loads(post(server, CHAT, asked).body)["choices"]
    tokens = choice["logprobs"]["content"]
    assert len(tokens) == 5
    for token in tokens:
        assert token["top_logprobs"][0]["logprob"] == token["logprob"]
        assert len(token["top_logprobs"]) == 2
        assert bytes(token["bytes"]).decode("utf-8", "replace") == token["token"]
    streamed = events_of(post(server, CHAT, {**asked, "stream": True}).body)
    pieces = [one["choices"][0]["logprobs"] for one in streamed]
    assert [token for piece in pieces if piece for token in piece["content"]] == tokens
    asked = {"prompt": "ab", "temperature": 0, "max_tokens": 5, "logprobs": 2}
    (choice,) = json.loads(post(server, "/v1/completions", asked).body)["choices"]
    found = choice["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["top_logprobs"]) == 5
    assert found["text_offset"][0] == 0


def test_the_short_form_and_tokens(server: ServerThread) -> None:
    answer = json.loads(post(server, "/inference", {"prompt": "Hello", "max_tokens": 7, "temperature": 0}).body)
    assert set(answer) == {"text", "tokens_generated", "latency_ms"}
    assert (answer["tokens_generated"], answer["latency_ms"] > 0) == (7, True)
    longer = json.loads(post(server, "/v1/completions", {"prompt": "Hello", "max_tokens": 7, "temperature": 0}).body)
    assert longer["choices"][0]["text"] == answer["text"]
    cut = json.loads(post(server, "/tokenize", {"content": "Grüße"}).body)
    assert cut == {"tokens": list("Grüße".encode()), "count": 7}
    assert json.loads(post(server, "/detokenize", {"tokens": cut["tokens"]}).body) == {"content": "Grüße"}
    assert json.loads(post(server, "/inference", {}).body)["code"] == "input_error"  # in the server's own form
    assert post(server, "/tokenize", {"content": 1}).status == 400
    assert post(server, "/detokenize", {"tokens": ["a"]}).status == 400


def test_tools_and_template_values_reach_the_template(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    template = "{{ tools | length if tools else 'none' }}{{ mood }}{{ messages[0].content }}"
    with ServerThread(app_of(text_bundle(tmp_path / "chat", template=template))) as server:
        asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "max_tokens": 1}
        tools = [{"type": "function", "function": {"name": "f"}}]
        post(server, CHAT, {**asked, "tools": tools, "chat_template_kwargs": {"mood": "!"}})
        post(server, CHAT, {**asked, "tools": tools, "tool_choice": "none"})
        must = post(server, CHAT, {**asked, "tools": tools, "tool_choice": "required"})
    assert ["".join(map(chr, run[0])) for run in decoders[0].runs] == ["1!x", "nonex"]
    assert (must.status, json.loads(must.body)["error"]["param"]) == (400, "tool_choice")


def test_the_models_for_texts_are_listed(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    places = {
        "chat": text_bundle(tmp_path / "chat"),
        "other": text_bundle(tmp_path / "other", "other", template=None),
        "tiny": write_bundle(tmp_path / "tiny", bundle_files()),
    }
    with ServerThread(create_app(places)) as server:
        send = Client(server.url)
        listed = json.loads(send("/v1/models").body)
        assert [one["id"] for one in listed["data"]] == ["chat", "other"]
        assert json.loads(send("/v1/models/chat").body) == listed["data"][0]
        assert send("/v1/models/tiny").status == 404
        assert (send("/v1/models", "POST", b"").status, send(CHAT).status) == (405, 405)
        unnamed = post(server, "/v1/completions", {"prompt": "x"})
        assert (unnamed.status, json.loads(unnamed.body)["error"]["param"]) == (400, "model")
        wrong = post(server, "/v1/completions", {"model": "tiny", "prompt": "x"})
        assert "`tiny` generates no text" in json.loads(wrong.body)["error"]["message"]
        without = post(server, CHAT, {"model": "other", "messages": USER})
        assert "no chat template" in json.loads(without.body)["error"]["message"]
        assert post(server, "/inference", {"prompt": "x"}).status == 400  # which of the two?
        assert post(server, "/v2/models/tiny/infer", b"").status == 400
        assert send("/v2/models/tiny/infer", "POST", row(1.0), content_type="application/octet-stream").status == 200
    assert len(decoders) == 1  # `other` alone was asked for tokens


def test_tensors_are_refused_in_words(server: ServerThread) -> None:
    tensor = {"name": "input_ids", "shape": [2], "datatype": "INT32", "data": [1, 2]}
    for path in ("infer", "infer_stream"):
        answer = post(server, f"/v2/models/chat/{path}", {"inputs": [tensor]})
        assert answer.status == 400, path
    assert "generates text" in json.loads(post(server, "/v2/models/chat/infer", {"inputs": [tensor]}).body)["error"]
    assert "generates text" in json.loads(post(server, "/v2/models/chat/predict", {"inputs": "x"}).body)["error"]
    send = Client(server.url)
    config = json.loads(send("/v2/models/chat/config").body)
    assert config["parameters"]["variant"]["string_value"] == "decoder/int4"
    assert send("/v2/models/chat/ready").status == 200
    assert json.loads(send("/v2/models/chat").body)["inputs"][0]["name"] == "input_ids"


# -- errors --


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": USER, "temperature": -1}, "temperature"),
        ({"messages": USER, "temperature": "hot"}, "temperature"),
        ({"messages": USER, "max_tokens": 0}, "max_tokens"),
        ({"messages": USER, "n": 17}, "n"),
        ({"messages": USER, "n": 0}, "n"),
        ({"messages": USER, "stop": ["x"] * 1025}, "stop"),
        ({"messages": USER, "stop": [""]}, "stop"),
        ({"messages": USER, "logit_bias": {"x": 1}}, "logit_bias"),
        ({"messages": USER, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": USER, "logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"messages": USER, "stream": "yes"}, "stream"),
        ({"messages": USER, "stream_options": 1}, "stream_options"),
        ({"messages": USER, "response_format": {"type": "xml"}}, "response_format"),
        ({"messages": USER, "tools": "f"}, "tools"),
        ({"messages": USER, "model": 1}, "model"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"),
        ({"messages": USER, "top_k": -2}, "top_k"),
    ],
)
def test_a_wrong_field_is_named(server: ServerThread, document: Any, param: str | None) -> None:
    answer = post(server, CHAT, document)
    error = json.loads(answer.body)["error"]
    assert answer.status == 400
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, "input_error")
    assert answer.headers["cache-control"] == "no-store"


def test_errors_have_openais_form_and_its_kinds(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    settings = Settings(tenants={Tenant("a", bounds=Bounds(max_requests_per_s=1)): [hashlib.sha256(b"k").digest()]})
    with ServerThread(app_of(text_bundle(tmp_path / "chat"), settings=settings)) as server:
        asked = {"model": "chat", "messages": USER, "max_tokens": 1}
        statuses = [post(server, CHAT, asked, authorization=f"Bearer {key}") for key in ("x", "k", "k")]
        missing = post(server, CHAT, {**asked, "model": "gpt"}, authorization="Bearer k")
        models = Client(server.url)("/v1/models")
    kinds = [(one.status, json.loads(one.body).get("error", {}).get("type")) for one in (*statuses, missing, models)]
    assert kinds == [
        (401, "authentication_error"),
        (200, None),
        (429, "rate_limit_error"),
        (404, "invalid_request_error"),
        (401, "authentication_error"),
    ]
    assert json.loads(missing.body)["error"]["code"] == "model_not_found"
    assert statuses[2].headers["retry-after"] == "1"
    assert len(decoders) == 1


def test_numbers_that_are_none_are_an_error_and_free_the_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(seen: list[int], logits: memoryview[float]) -> None:
        endless(seen, logits)
        if len(seen) == PROMPT + 2:
            logits[:] = memoryview(bytes(4 * len(logits))).cast("f")
            logits[3] = float("nan")

    use_fakes(monkeypatch, change)
    app = app_of(text_bundle(tmp_path / "chat"))
    with ServerThread(app) as server:
        asked = {"model": "chat", "messages": USER, "max_tokens": 9}
        whole = post(server, CHAT, asked)
        assert (whole.status, json.loads(whole.body)["error"]["type"]) == (500, "server_error")
        found = events_of(post(server, CHAT, {**asked, "stream": True}).body)
        assert found[-1]["error"]["code"] == "execution_error"
        assert post(server, CHAT, {**asked, "max_tokens": 2}).status == 200
        assert is_empty(app)


def test_a_decoder_that_fails_ends_all_answers_and_goes_on(
    tmp_path: Path, decoders: list[HeldDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(text_bundle(tmp_path / "chat"))
    with ServerThread(app) as server:
        asked = {"model": "chat", "messages": USER, "max_tokens": 9}
        assert post(server, CHAT, asked).status == 200
        for failure in (ExecutionError("no memory"), ZeroDivisionError()):
            with monkeypatch.context() as patch:
                patch.setattr(decoders[0], "run", lambda *_, error=failure: raise_(error))
                assert post(server, CHAT, asked).status == 500
        assert post(server, CHAT, asked).status == 200
        assert is_empty(app)


def raise_(error: Exception) -> None:
    raise error


def test_an_answer_can_be_bound_to_json(server: ServerThread) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "size": {"enum": [1, 2]}},
        "required": ["ok", "size"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    asked = {"messages": USER, "max_tokens": 200, "seed": 1, "n": 2, "response_format": wanted}
    for choice in json.loads(post(server, CHAT, asked).body)["choices"]:
        found = json.loads(choice["message"]["content"])
        assert set(found) == {"ok", "size"}
        assert choice["finish_reason"] == "stop"


def test_a_bundle_with_weights_gives_each_the_tokens_that_it_gets_alone(tmp_path: Path) -> None:
    bundle = write_text_bundle(tmp_path / "chat")
    with generate(bundle) as alone:
        expected = [alone.chat(USER, seed=seed, max_tokens=12).text for seed in range(8)]
    with ServerThread(app_of(bundle, slots=3)) as server, ThreadPoolExecutor(8) as threads:
        asked = [{"messages": USER, "seed": seed, "max_tokens": 12} for seed in range(8)]
        answers = threads.map(lambda one: json.loads(post(server, CHAT, one).body), asked)
        assert [one["choices"][0]["message"]["content"] for one in answers] == expected


def test_a_model_is_proven_by_its_vectors_before_it_answers(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    options = {"temperature": 0, "max_tokens": 4}
    found = generate(text_bundle(tmp_path / "first")).complete("ab", **options)
    vector = GenerationVector("decoder/int4", "ab", None, None, list(b"ab"), options, list(found.tokens), found.text)
    others = [vector._replace(variant="decoder/int8", tokens=[1]), vector._replace(ids=[97] * 600)]
    right = text_bundle(tmp_path / "right", vectors=[vector, *others])
    wrong = text_bundle(tmp_path / "wrong", "wrong", vectors=[vector._replace(tokens=[*found.tokens[:3], 5])])
    with ServerThread(create_app({"right": right, "wrong": wrong})) as server:
        assert post(server, CHAT, {"model": "right", "messages": USER, "max_tokens": 2}).status == 200
        refused = json.loads(post(server, CHAT, {"model": "wrong", "messages": USER}).body)["error"]["message"]
    assert f"greedy token 3 is {found.tokens[3]}, expected 5" in refused
    assert [decoder.is_closed for decoder in decoders[1:]] == [True, True]
