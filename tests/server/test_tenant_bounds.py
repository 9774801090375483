"""A tenant's own bounds: priority, rate, connections, bytes and answers; and routes for ranges of versions."""

from __future__ import annotations

import json
import socket
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import InputError, OverShare, PayloadTooLarge, QueueFull
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings, parse_settings
from edge_infer.server.errors import PriorityRefused
from edge_infer.server.execution.routing import Pool, Route, RoutingTable
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion.memory_budget import BodyMemory
from edge_infer.server.ingestion.tenant_bounds import TenantBounds, priority_of
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.server.scheduling.shares import Bounds, Tenant
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import OCTETS, Client, ask, row
from tests.support.server.streams import UPGRADE, masked, opened_by_who_never_reads
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server.client import Answer

PATH = "/v2/models/tiny/infer"
ANY_ROWS = Limits(batch=BatchLimits(max_rows=0, max_wait_ms=1e6))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bounds") / "tiny", bundle_files())


def serving(tiny: Path, bounds: Bounds) -> ServerThread:
    tenants = {Tenant("a", bounds=bounds): [sha256(b"a").digest()], Tenant("b"): [sha256(b"b").digest()]}
    return ServerThread(create_app({"tiny": tiny}, limits=ANY_ROWS, settings=Settings(tenants=tenants)))


def told(answer: Answer) -> tuple[int, str]:
    body = json.loads(answer.body)
    assert body["hint"]
    return answer.status, body["code"]


def large(server: ServerThread, key: str, rows: int) -> Answer:
    return Client(server.url)(PATH, "POST", row(1.0, rows), content_type="application/octet-stream", x_api_key=key)


def test_a_request_is_not_more_urgent_than_its_tenant_may_be(tiny: Path) -> None:
    document: dict[str, Any] = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    urgent = json.dumps({**document, "parameters": {"priority": 63}}).encode()
    with serving(tiny, Bounds(highest_priority=64)) as server:
        assert told(ask(server, x_api_key="a", x_priority="63")) == (403, "priority_refused")
        assert told(Client(server.url)(PATH, "POST", urgent, x_api_key="a")) == (403, "priority_refused")
        for priority in ("0", "64", "255"):
            assert ask(server, x_api_key="a", x_priority=priority).status == 200
        assert ask(server, x_api_key="a").status == 200
        assert ask(server, x_api_key="b", x_priority="1").status == 200


def test_an_unsaid_priority_is_the_default_or_the_tenants_highest() -> None:
    assert priority_of(Tenant("a", bounds=Bounds(200)), 0) == 200
    assert priority_of(Tenant("a", bounds=Bounds(64)), 0) == 0
    assert priority_of(Tenant("a"), 1) == 1
    with pytest.raises(PriorityRefused, match="has priority 199, `a` may have 200 at most"):
        priority_of(Tenant("a", bounds=Bounds(200)), 199)


def test_requests_beyond_a_tenants_rate_are_refused_until_time_has_passed() -> None:
    now = 0.0
    bounds, tenant = TenantBounds(lambda: now), Tenant("a", bounds=Bounds(max_requests_per_s=4))
    slow = Tenant("slow", bounds=Bounds(max_requests_per_s=0.5))

    def taken(who: Tenant, asked: int) -> int:
        return sum(bounds.check_rate(who) is None for _ in range(asked))

    assert taken(tenant, 10) == 4
    assert isinstance(bounds.check_rate(tenant), OverShare)
    assert taken(Tenant("b"), 10) == 10
    now = 0.5
    assert taken(tenant, 10) == 2
    now = 100.0
    assert taken(tenant, 10) == 4
    assert taken(slow, 3) == 1
    now = 101.0
    assert taken(slow, 3) == 0
    now = 102.0
    assert taken(slow, 3) == 1


def test_a_rate_is_that_of_the_tenants_requests_together(tiny: Path) -> None:
    with serving(tiny, Bounds(max_requests_per_s=1e-6)) as server:
        assert ask(server, x_api_key="b").status == 200
        assert ask(server, x_api_key="a").status == 200
        refused = ask(server, x_api_key="a")
        assert told(refused) == (429, "over_share")
        assert refused.headers["retry-after"] == "1"
        assert ask(server, x_api_key="b").status == 200


def test_a_tenant_uses_no_more_connections_than_it_may(tiny: Path) -> None:
    with serving(tiny, Bounds(max_connections=1)) as server:
        ask(server, x_api_key="b")
        host, _, port = server.url.removeprefix("http://").partition(":")
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-Api-Key: a\r\nContent-Type: application/octet-stream\r\n"
        with socket.create_connection((host, int(port)), timeout=30) as held:
            held.sendall(head.encode() + b"Content-Length: 12\r\n\r\n" + row(1.0)[:8])
            wait_until(lambda: ask(server, x_api_key="a").status == 429)
            assert told(ask(server, x_api_key="a")) == (429, "over_share")
            assert ask(server, x_api_key="b").status == 200
            held.sendall(row(1.0)[8:])
            assert held.recv(65536).startswith(b"HTTP/1.1 200")
            for _ in range(3):
                assert ask(server, x_api_key="a").status == 200


def test_a_websocket_is_a_connection_and_its_requests_are_not(tiny: Path) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with serving(tiny, Bounds(max_connections=1)) as server:
        url = server.url.replace("http", "ws", 1) + "/v2/models/tiny/stream"
        key = {"X-Api-Key": "a"}
        frames = b"".join(
            number.to_bytes(4, "little") + bytes(4) + (12).to_bytes(4, "little") + row(1.0) for number in range(3)
        )
        with connect(url, additional_headers=key, max_size=None) as stream:
            assert told(ask(server, x_api_key="a")) == (429, "over_share")
            with pytest.raises(InvalidStatus) as caught, connect(url, additional_headers=key):
                pass
            assert caught.value.response.status_code == 429
            stream.send(frames)
            found = b""
            while len(found) < 3 * (12 + 12):
                message = stream.recv(30)
                assert isinstance(message, bytes)
                found += message
            assert found.count(row(1.0)) == 3
        wait_until(lambda: ask(server, x_api_key="a").status == 200)


def test_a_tenants_bytes_are_bounded_though_it_is_alone(tiny: Path) -> None:
    memory = BodyMemory(1000, {"a": 100})
    assert memory.refusal(100, "a") is None
    memory.take(60, "a")
    assert isinstance(memory.refusal(50, "a"), OverShare)
    assert memory.refusal(50, "b") is None
    assert isinstance(memory.refusal(50, "a", own=60), PayloadTooLarge)
    memory.take(-60, "a")
    assert isinstance(memory.refusal(101, "a"), PayloadTooLarge)
    with serving(tiny, Bounds(max_held_bytes=30_000)) as server:
        assert large(server, "a", 1000).status == 200
        assert told(large(server, "a", 2000)) == (413, "payload_too_large")  # its body fits, its answer beside it not
        assert told(large(server, "a", 5000)) == (413, "payload_too_large")
        assert large(server, "b", 5000).status == 200
        assert large(server, "a", 1000).status == 200  # what was refused is not held


@pytest.mark.parametrize(
    ("bounds", "most", "refusal"),
    [
        (Bounds(max_held_bytes=8_000_000), 2**29, (429, "over_share")),
        (Bounds(), 6_000_000, (503, "queue_full")),
    ],
    ids=["its own bound", "an eighth of all"],
)
@pytest.mark.parametrize("way", ["HTTP", "WebSocket"])
def test_answers_that_a_tenant_does_not_read_count_for_it_on_its_other_connections(
    tiny: Path, bounds: Bounds, most: int, refusal: tuple[int, str], way: str
) -> None:
    tenants = {Tenant("a", bounds=bounds): [sha256(b"a").digest()], Tenant("b"): [sha256(b"b").digest()]}
    app = create_app(
        {"tiny": tiny}, limits=ANY_ROWS._replace(max_bodies_bytes=most), settings=Settings(tenants=tenants)
    )
    body = row(1.0, 300_000)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-Api-Key: a\r\nContent-Type: {OCTETS}\r\nContent-Length: {len(body)}"
    with ServerThread(app) as server:
        ask(server, x_api_key="b")
        (model,) = app.engine.active()
        with opened_by_who_never_reads(server.url) as connection:
            connection.settimeout(60)
            if way == "HTTP":
                connection.sendall(f"{head}\r\n\r\n".encode() + body)
            else:
                connection.sendall(UPGRADE.replace(b"\r\n\r\n", b"\r\nX-Api-Key: a\r\n\r\n"))
                assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
                connection.sendall(masked(FRAME.pack(1, 0, len(body)) + body))
            wait_until(lambda: model.statistics.requests == 2 and not model.in_flight)
            wait_until(lambda: len(body) <= app.direct.context.memory.taken < 1.5 * len(body))
            rows = 300_000 if bounds.max_held_bytes else 1
            assert told(large(server, "a", rows)) == refusal
            assert large(server, "b", 1000).status == 200
        wait_until(lambda: not app.direct.context.memory.taken)
        assert large(server, "a", 1000).status == 200


def test_the_only_request_of_a_tenant_has_room_though_it_has_more_than_an_eighth() -> None:
    memory = BodyMemory(800)
    memory.take(500, "b")
    assert memory.refusal(250, "a") is None  # announced
    memory.take(90, "a")
    assert memory.refusal(150, "a", own=90) is None  # as it comes
    memory.take(150, "a")
    assert memory.refusal(10, "a", own=240) is None  # its answer
    assert isinstance(memory.refusal(10, "a"), QueueFull)  # another one beside it
    assert isinstance(memory.refusal(10, "a", own=200), QueueFull)
    assert isinstance(memory.refusal(61, "a", own=240), QueueFull)  # more than all may have


def test_a_tenants_answer_is_bounded(tiny: Path) -> None:
    with serving(tiny, Bounds(max_answer_bytes=1200)) as server:
        assert large(server, "a", 100).status == 200
        assert told(large(server, "a", 101)) == (413, "payload_too_large")
        assert large(server, "b", 101).status == 200


KEYS = {"keys": ["sha256:" + sha256(b"a").hexdigest()]}


def test_the_bounds_come_from_the_file_of_settings() -> None:
    entry = {
        **KEYS,
        "highest_priority": 64,
        "max_requests_per_s": 0.5,
        "max_connections": 8,
        "max_bodies_mb": 1.5,
        "max_answer_mb": 2,
    }
    (tenant,) = parse_settings({"tenants": {"a": entry}}).tenants
    assert tenant.bounds == Bounds(64, 0.5, 8, 3 * 2**19, 2**21)
    (tenant,) = parse_settings({"tenants": {"a": KEYS}}).tenants
    assert tenant.bounds == Bounds()
    for key, value, message in (
        ("highest_priority", 256, "not a number from 0 to 255"),
        ("highest_priority", 1.5, "expected a whole number above 0"),
        ("max_connections", 0, "expected a whole number above 0"),
        ("max_requests_per_s", 0, "expected above 0"),
        ("max_answer_mb", "4", "is not a number"),
        ("max_body_mb", 4, "is not known"),
    ):
        with pytest.raises(InputError, match=message):
            parse_settings({"tenants": {"a": {**KEYS, key: value}}})


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=4", ["4", "5", "10", "4.1"], ["3", "3.9"]),
        (">4, <=6", ["5", "6"], ["4", "7", "10"]),
        ("<2.10", ["2.9", "1"], ["2.10", "2.11", "3"]),
        ("4", ["4"], ["5", "4.0"]),
    ],
)
def test_a_route_may_be_for_a_range_of_versions(text: str, inside: list[str], outside: list[str]) -> None:
    table = RoutingTable({"new": Pool(1)}, [Route("new", "tiny", text)])
    for version in inside:
        assert table.pool_of("tiny", version, "") == "new", version
    for version in outside:
        assert table.pool_of("tiny", version, "") == "default", version
    assert table.pool_of("tiny", None, "") == "default"


@pytest.mark.parametrize("text", [">=", ">=4,", "=>4", ">4<6", "4,5", "~>4>"])
def test_what_is_not_a_range_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a range of versions"):
        parse_settings({"routes": [{"pool": "default", "version": text}]})


def test_a_range_that_no_version_is_in_is_refused_at_the_start(tiny: Path) -> None:
    create_app({"tiny": tiny}, settings=parse_settings({"routes": [{"pool": "default", "version": ">=1"}]}))
    for document in (
        {"routes": [{"pool": "default", "version": ">=4"}]},
        {"models": {"tiny": {"canary": {"version": ">=1", "percent": 5}}}},
    ):
        with pytest.raises(InputError, match="there is `1`"):
            create_app({"tiny": tiny}, settings=parse_settings(document))
