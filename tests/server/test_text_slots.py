"""Slots of models that generate text: who waits, who leaves, who never reads, and what becomes of the model."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution.text_model import TextLimits
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.client import Client
from tests.support.server.texts import (
    CHAT,
    PROMPT,
    USER,
    app_of,
    is_empty,
    model_of,
    post,
    text_bundle,
)
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server.texts import HeldDecoder


def test_no_slot_leaks_when_many_ask_and_many_leave(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    app = app_of(text_bundle(tmp_path / "chat"), slots=4)
    with ServerThread(app) as server:
        asked = {"model": "chat", "messages": USER, "max_tokens": 6, "temperature": 0}
        expected = str(json.loads(post(server, CHAT, asked).body)["choices"][0]["message"]["content"])

        def one(number: int) -> str:
            if number % 3:
                return str(json.loads(post(server, CHAT, asked).body)["choices"][0]["message"]["content"])
            connection = begin(server, {**asked, "stream": number % 2 == 0, "max_tokens": 400})
            if number % 2 == 0:
                connection.recv(1000)  # it leaves in the midst of its answer
            connection.close()
            return expected

        with ThreadPoolExecutor(64) as threads:
            texts = list(threads.map(one, range(200)))
        assert set(texts) == {expected}
        wait_until(lambda: is_empty(app))
        held = [line for line in metrics(server) if line.startswith("edge_infer_held_bytes")]
        assert held == ["edge_infer_held_bytes 0.0"]
        assert decoders[0].slots == 4


def begin(server: ServerThread, document: Any) -> socket.socket:
    """Send a request, and read nothing."""
    place = urlsplit(server.url)
    connection = socket.create_connection((place.hostname, place.port), timeout=60)
    body = json.dumps(document).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def metrics(server: ServerThread) -> list[str]:
    return Client(server.url)("/metrics").body.decode().splitlines()


def test_a_client_that_leaves_frees_its_slot_within_a_token(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    app = app_of(text_bundle(tmp_path / "chat"), slots=1)
    with ServerThread(app) as server:
        for stream in (True, False):
            connection = begin(server, {"messages": USER, "max_tokens": 400, "stream": stream})
            wait_until(lambda: decoders and decoders[0].entered.is_set())
            decoder = decoders[0]
            decoder.go.clear()
            wait_until(lambda: model_of(app).runner.running)
            connection.close()
            wait_until(lambda: app.engine.active()[0].in_flight == 0)
            runs = len(decoder.runs)
            decoder.go.set()
            wait_until(lambda: is_empty(app))
            assert len(decoder.runs) <= runs + 1
            decoder.entered.clear()


def test_who_waits_is_served_in_turn_and_who_leaves_the_queue_takes_no_slot(
    tmp_path: Path, decoders: list[HeldDecoder]
) -> None:
    app = app_of(text_bundle(tmp_path / "chat"), slots=1)
    with ServerThread(app) as server, ThreadPoolExecutor(2) as threads:
        asked = {"messages": USER, "max_tokens": 3}
        assert post(server, CHAT, asked).status == 200
        decoder = decoders[0]
        decoder.go.clear()
        first = threads.submit(post, server, CHAT, asked)
        wait_until(lambda: model_of(app).runner.running)
        leaving = begin(server, asked)
        wait_until(lambda: len(model_of(app).batcher) == 1)
        last = threads.submit(post, server, CHAT, asked)
        wait_until(lambda: len(model_of(app).batcher) == 2)
        leaving.close()
        wait_until(lambda: len(model_of(app).batcher) == 1)
        runs = len(decoder.runs)
        decoder.go.set()
        assert (first.result().status, last.result().status) == (200, 200)
        assert len(decoder.runs) - runs <= 6
        wait_until(lambda: is_empty(app))


def test_a_full_queue_is_refused_and_a_timeout_ends_an_answer(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    limits = Limits(text=TextLimits(1), batch=BatchLimits(max_wait_ms=1e6, max_queue_size=1))
    app = create_app({"chat": text_bundle(tmp_path / "chat")}, limits=limits)
    with ServerThread(app) as server, ThreadPoolExecutor(3) as threads:
        asked = {"messages": USER, "max_tokens": 3}
        assert post(server, CHAT, asked).status == 200
        decoders[0].go.clear()
        late = threads.submit(post, server, CHAT, asked, x_timeout_ms="300")
        wait_until(lambda: model_of(app).runner.running)
        waiting = threads.submit(post, server, CHAT, asked, x_timeout_ms="300")
        wait_until(lambda: len(model_of(app).batcher) == 1)
        refused = post(server, CHAT, asked)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        error = json.loads(refused.body)["error"]
        assert (error["code"], error["type"]) == ("queue_full", "server_error")
        assert (late.result().status, waiting.result().status) == (504, 504)
        decoders[0].go.set()
        wait_until(lambda: is_empty(app))
        assert post(server, CHAT, asked).status == 200


def test_a_client_that_never_reads_holds_up_nobody(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    app = app_of(text_bundle(tmp_path / "chat", context=2000), slots=2)
    with ServerThread(app) as server:
        asked = {"messages": USER, "max_tokens": 1500, "stream": True, "logprobs": True, "top_logprobs": 20}
        silent = [begin(server, asked) for _ in range(2)]
        for one in silent:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wait_until(lambda: decoders and decoders[0].entered.is_set())
        assert post(server, CHAT, {"messages": USER, "max_tokens": 3}, x_timeout_ms="60000").status == 200
        for one in silent:
            one.close()
        wait_until(lambda: is_empty(app))


def test_a_step_that_hangs_is_given_up(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    limits = Limits(text=TextLimits(1), hang_s=0.3, batch=BatchLimits(max_wait_ms=1e6))
    app = create_app({"chat": text_bundle(tmp_path / "chat")}, limits=limits)
    with ServerThread(app) as server, ThreadPoolExecutor(2) as threads:
        asked = {"messages": USER, "max_tokens": 3}
        assert post(server, CHAT, asked).status == 200
        decoders[0].go.clear()
        both = [threads.submit(post, server, CHAT, asked) for _ in range(2)]
        assert sorted(one.result().status for one in both) == [503, 504]
        refused = post(server, CHAT, asked)
        assert json.loads(refused.body)["error"]["code"] == "model_hangs"
        decoders[0].go.set()
        wait_until(lambda: post(server, CHAT, asked).status == 200)
        wait_until(lambda: is_empty(app))


def test_a_model_that_is_unloaded_finishes_its_answers_and_is_closed(
    tmp_path: Path, decoders: list[HeldDecoder]
) -> None:
    app = app_of(text_bundle(tmp_path / "chat"))
    with ServerThread(app) as server, ThreadPoolExecutor(1) as threads:
        asked = {"messages": USER, "max_tokens": 3, "model": "chat"}
        assert post(server, CHAT, asked).status == 200
        decoders[0].go.clear()
        under_way = threads.submit(post, server, CHAT, asked)
        wait_until(lambda: model_of(app).runner.running)
        assert post(server, "/v2/repository/models/chat/unload", b"").status == 200
        assert post(server, CHAT, asked).status == 404
        assert not decoders[0].is_closed
        decoders[0].go.set()
        assert under_way.result().status == 200
        wait_until(lambda: decoders[0].is_closed)
        assert post(server, "/v2/repository/models/chat/load", b"").status == 200
        assert post(server, CHAT, asked).status == 200
        assert len(decoders) == 2
    assert decoders[1].is_closed


def test_metrics_count_tokens_and_slots(tmp_path: Path, decoders: list[HeldDecoder]) -> None:
    with ServerThread(app_of(text_bundle(tmp_path / "chat"))) as server:
        for _ in range(2):
            assert post(server, CHAT, {"messages": USER, "max_tokens": 5}).status == 200
        found = dict(line.rsplit(" ", 1) for line in metrics(server) if not line.startswith("#"))
    labels = '{model="chat",pool="default",version="1"}'
    assert found[f"edge_infer_generated_tokens_total{labels}"] == "10.0"
    assert found[f"edge_infer_prompt_tokens_total{labels}"] == f"{2 * PROMPT}.0"
    assert found[f"edge_infer_cached_prompt_tokens_total{labels}"] == f"{PROMPT - 1}.0"
    assert found[f"edge_infer_slots{labels}"] == "2.0"
    assert found[f"edge_infer_slots_busy{labels}"] == "0.0"
    assert float(found[f"edge_infer_generated_tokens_per_second{labels}"]) == 1.0
    assert found[f"edge_infer_first_token_seconds_count{labels}"] == "2.0"
    assert found[f"edge_infer_token_seconds_count{labels}"] == "8.0"
    assert found[f"edge_infer_requests_total{labels}"] == "2.0"
    assert decoders[0].slots == 2
