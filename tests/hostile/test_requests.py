"""Requests that a server must survive: each has the right status, one clear error with a hint, and harms nobody."""

from __future__ import annotations

import gzip
import json
import socket
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.protocol.requests import parse_request
from edge_infer.server.scheduling.shares import Tenant
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Answer, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_BODY_BYTES = 2**20
JSON = "application/json"


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with one model, `tiny`: input `x` FP32 [batch, 3], output `y` the same."""
    folder = write_bundle(tmp_path_factory.mktemp("hostile") / "tiny.bundle", bundle_files())
    with ServerThread(create_app({"tiny": folder}, limits=Limits(max_body_bytes=MAX_BODY_BYTES))) as server:
        yield Client(server.url)


def infer(send: Client, body: bytes, **headers: str) -> Answer:
    return send("/v2/models/tiny/infer", "POST", body, **{"content_type": JSON, **headers})


def assert_refused(answer: Answer, status: int, message: str) -> None:
    document = json.loads(answer.body)
    assert set(document) == {"error", "code", "hint", "details"}
    assert answer.status == status, document
    assert message in document["error"]
    assert document["hint"]
    assert "Traceback" not in document["error"]
    assert answer.headers["content-type"] == JSON
    assert len(answer.body) < 2000


def assert_alive(send: Client) -> None:
    answer = infer(send, json.dumps(request()).encode())
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2, 3]


def request(top: dict[str, Any] | None = None, **tensor: Any) -> dict[str, Any]:
    """A right request, but for the fields given."""
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3], **tensor}
    return {"inputs": [entry], **(top or {})}


BROKEN_BODIES = {
    "nothing": (b"", "The body is empty"),
    "cut short": (b'{"inputs": [', "The body is not JSON"),
    "two documents": (b"{}{}", "The body is not JSON"),
    "a comment": (b'{"inputs": [] /* no */}', "The body is not JSON"),
    "not UTF-8": (b'{"id": "\xff\xfe"}', "The body is not JSON"),
    "UTF-16 nonsense": (b"\xff\xfe{\x00", "The body is not JSON"),
    "bytes": (bytes(range(256)), "The body is not JSON"),
    "deep lists": (b"[" * 100_000 + b"]" * 100_000, "The body is not JSON"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "The body is not JSON"),
    "deep data": (b'{"inputs": [{"data": ' + b"[" * 500 + b"]" * 500 + b"}]}", "`name` is nothing"),
    "endless number": (b'{"id": ' + b"9" * 100_000 + b"}", "The body is not JSON"),
    "NaN": (b'{"inputs": [{"name": "x", "data": [NaN]}]}', "the literal NaN"),
    "Infinity": (b'{"inputs": [{"name": "x", "data": [-Infinity]}]}', "the literal -Infinity"),
    "a list": (b"[]", "The request is a list, expected an object"),
    "text": (b'"inputs"', "The request is text, expected an object"),
    "null": (b"null", "The request is nothing, expected an object"),
    "an empty object": (b"{}", "`inputs` is nothing, expected a list"),
}


@pytest.mark.parametrize("name", list(BROKEN_BODIES))
def test_a_body_that_is_no_request(send: Client, name: str) -> None:
    body, message = BROKEN_BODIES[name]
    assert_refused(infer(send, body), 400, message)
    assert_alive(send)


WRONG_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": (request({"input": []}), "The request has an unknown field `input`"),
    "long unknown field": (request({"z" * 100_000: 1}), "The request has an unknown field `zzz"),
    "id of a number": (request({"id": 7}), "`id` is a number"),
    "parameters of a list": (request({"parameters": []}), "`parameters` is a list"),
    "inputs of an object": ({"inputs": {"x": [1, 2, 3]}}, "`inputs` is an object, expected a list"),
    "input of a list": ({"inputs": [[1, 2, 3]]}, "Inputs[0] is a list, expected an object"),
    "no inputs": ({"inputs": []}, "Input `x` is missing"),
    "unknown input": (request(name="image"), "Input `image` is not known; choose from `x`"),
    "long input name": (request(name="x" * 100_000), "Input `xxx"),
    "name of null": (request(name=None), "`name` is nothing"),
    "twice": ({"inputs": request()["inputs"] * 2}, "Input `x` is given twice"),
    "unknown input field": (request(dtype="FP32"), "Inputs[0] has an unknown field `dtype`"),
    "other datatype": (request(datatype="FP64"), 'datatype "FP64", expected FP32'),
    "numpy's datatype": (request(datatype="float32"), 'datatype "float32", expected FP32'),
    "no datatype": (request(datatype=None), "datatype null, expected FP32"),
    "other rank": (request(shape=[3]), "has shape [3], expected ['batch', 3]"),
    "other dimension": (request(shape=[1, 4], data=[1, 2, 3, 4]), "has shape [1, 4], expected ['batch', 3]"),
    "negative dimension": (request(shape=[-1, 3]), "has shape [-1, 3], expected a list of whole numbers"),
    "dimension of a fraction": (request(shape=[1.0, 3]), "expected a list of whole numbers"),
    "dimension of true": (request(shape=[True, 3]), "expected a list of whole numbers"),
    "dimension of text": (request(shape=["1", 3]), "expected a list of whole numbers"),
    "shape of a number": (request(shape=3), "has shape 3, expected a list of whole numbers"),
    "huge dimension": (request(shape=[10**30, 3]), f"has {10**30} rows, the server takes 16384"),
    "huge tensor": (request(shape=[2**62, 3]), f"has {2**62} rows, the server takes 16384"),
    "long, too few": (request(shape=[10_000, 3], data=[1] * 29_999), "has 29999 numbers, expected 30000"),
    "long, too many": (request(shape=[10_000, 3], data=[1] * 30_001), "has 30001 numbers, expected 30000"),
    "long, too many rows": (request(shape=[20_000, 3], data=[1] * 60_000), "has 20000 rows, the server takes 16384"),
    "long, ragged": (request(shape=[10_000, 3], data=[[1, 2, 3]] * 9_999 + [[4]]), "has a list of 1 at depth 2"),
    "long, a text": (request(shape=[10_000, 3], data=[1] * 29_999 + ["2"]), 'has the text "2" in its data'),
    "long, beyond FP32": (request(shape=[10_000, 3], data=[1] * 29_999 + [1e39]), "does not fit FP32"),
    "long and no list": (request(shape=[10_000, 3], data="[" * 60_000), "has as data text, expected a list"),
    "endless shape": (request(shape=[1] * 10_000), "has shape [1, 1,"),
    "no data": (request(data=None), "has as data nothing, expected a list"),
    "data of text": (request(data="AAAA"), "has as data text, expected a list"),
    "too few": (request(data=[1, 2]), "has 2 numbers, expected 3"),
    "too many": (request(data=[1, 2, 3, 4]), "has 4 numbers, expected 3"),
    "nothing in it": (request(data=[]), "has 0 numbers, expected 3"),
    "ragged": (request(shape=[2, 3], data=[[1, 2, 3], [4, 5]]), "has a list of 2 at depth 2, expected 3"),
    "half nested": (request(shape=[2, 3], data=[[1, 2, 3], 4]), "has a number at depth 2, expected 3"),
    "too deep": (request(data=[[[1], [2], [3]]]), "has a list in its data, expected numbers"),
    "a text": (request(data=[1, "2", 3]), 'has the text "2" in its data'),
    "a truth value": (request(data=[1, True, 3]), "has a truth value in its data, expected numbers"),
    "a null": (request(data=[1, None, 3]), "has nothing in its data, expected numbers"),
    "an object": (request(data=[1, {}, 3]), "has an object in its data, expected numbers"),
    "beyond FP32": (request(data=[1, 1e39, 3]), "does not fit FP32"),
    "a long integer": (request(data=[1, 10**400, 3]), "does not fit FP32"),
    "unknown output": (request({"outputs": [{"name": "z"}]}), "Output `z` is not known; choose from `y`"),
    "output twice": (request({"outputs": [{"name": "y"}] * 2}), "Output `y` is given twice"),
    "output of text": (request({"outputs": ["y"]}), "Outputs[0] is text, expected an object"),
    "outputs of an object": (request({"outputs": {}}), "`outputs` is an object, expected a list"),
    "classification": (
        request({"outputs": [{"name": "y", "parameters": {"classification": 3}}]}),
        "the extension `classification`",
    ),
}


@pytest.mark.parametrize("name", list(WRONG_REQUESTS))
def test_a_request_that_does_not_fit_the_model(send: Client, name: str) -> None:
    document, message = WRONG_REQUESTS[name]
    assert_refused(infer(send, json.dumps(document).encode()), 400, message)
    assert_alive(send)


def test_a_number_that_overflows(send: Client) -> None:
    body = json.dumps(request()).replace("[1, 2, 3]", "[1, 1e999, 3]").encode()
    assert_refused(infer(send, body), 400, "a number that no float can hold")


def test_a_body_over_the_limit(send: Client) -> None:
    assert_refused(infer(send, b" " * (MAX_BODY_BYTES + 1)), 413, f"more than {MAX_BODY_BYTES} bytes")
    assert_refused(infer(send, b"", content_length=str(2**40)), 413, f"more than {MAX_BODY_BYTES} bytes")
    assert_alive(send)


def test_chunks_over_the_limit(send: Client) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    body = chunk * 20 + b"0\r\n\r\n"
    answer = send("/v2/models/tiny/infer", "POST", body, transfer_encoding="chunked", content_type=JSON)
    assert_refused(answer, 413, f"more than {MAX_BODY_BYTES} bytes")
    assert_alive(send)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"content_type": "text/plain"}, "The body is `text/plain`"),
        ({"content_type": "multipart/form-data; boundary=x"}, "The body is `multipart/form-data`"),
        ({"content_type": ""}, "The body is ``"),
        ({"content_type": "x" * 5000}, "The body is `xxx"),
        ({"content_encoding": "br"}, "The body is encoded as `br`"),
    ],
)
def test_a_body_in_another_form(send: Client, headers: dict[str, str], message: str) -> None:
    assert_refused(infer(send, json.dumps(request()).encode(), **headers), 415, message)
    assert_alive(send)


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer_stream", "/inference"])
def test_json_that_curl_calls_a_form_is_read_unless_a_page_sends_it(send: Client, path: str) -> None:
    body = json.dumps(request()).encode()

    as_json = send(path, "POST", body, content_type="application/json")
    assert send(path, "POST", body, content_type=FORM).body == as_json.body
    for said in ({"origin": "https://shop.example"}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}):
        assert_refused(send(path, "POST", body, content_type=FORM, **said), 415, f"The body is `{FORM}`")
    for own in ("same-origin", "none"):
        assert send(path, "POST", body, content_type=FORM, sec_fetch_site=own).body == as_json.body
    for other in (b"a=1&b=2", b"", b"\0" * 12):
        assert_refused(send(path, "POST", other, content_type=FORM), 415, f"The body is `{FORM}`")
    raw = send(path, "POST", b"{" * 12, content_type=FORM, inference_header_content_length="0")
    assert_refused(raw, 415, f"The body is `{FORM}`")


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_a_packed_body_in_two_parts_that_is_cut_short(
    send: Client, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(bytes(12)) + pack(bytes(24))
    headers = {"content_encoding": encoding, "content_type": "application/octet-stream"}
    assert send("/v2/models/tiny/infer", "POST", body, **headers).body == bytes(36)
    cut = send("/v2/models/tiny/infer", "POST", body[:-3], **headers)
    assert_refused(cut, 400, f"The body is not {encoding}: it is cut short")
    assert_alive(send)


def test_shared_memory(send: Client) -> None:
    document = request(parameters={"shared_memory_region": "x"})
    assert_refused(infer(send, json.dumps(document).encode()), 415, "uses `shared_memory_region`")


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v2/models/tiny/infer", 405, "does not take GET"),
        ("GET", "/v2/models/tiny/predict", 405, "does not take GET"),
        ("POST", "/v2/models/tiny", 405, "does not take POST"),
        ("DELETE", "/models/tiny/manifest.json", 405, "does not take DELETE"),
        ("PUT", "/models/tiny/manifest.json", 405, "does not take PUT"),
        ("PROPFIND", "/", 405, "does not take PROPFIND"),
        ("GET", "/v2/models/none", 404, "Model `none` is not served"),
        ("GET", "/v2/models/" + "n" * 5000, 404, "Model `nnn"),
        ("GET", "/v2/models/tiny/versions/7/ready", 404, "has no version `7`"),
        ("GET", "/v2/models/%00", 404, "is not served"),
        ("GET", "/v2/models/%ff%fe", 404, "is not served"),
        ("GET", "/v2/models/<script>alert(1)<%2fscript>", 404, "There is nothing at"),
        ("GET", "/%0d%0aset-cookie:%20a=b", 404, "There is nothing at"),
        ("GET", "/nothing", 404, "There is nothing at /nothing"),
        ("POST", "/v2/models/tiny/infer/", 404, "There is nothing at /v2/models/tiny/infer/"),
        ("POST", "/v2/models/tiny//", 404, "There is nothing at /v2/models/tiny//"),
        ("GET", "/models/tiny/manifest.json?sha256=" + "f" * 64, 404, "not the one that the request names"),
        ("GET", "/models/tiny/manifest.json?sha256=" + "f" * 5000, 404, "not the one that the request names"),
    ],
)
def test_a_path_or_method_that_is_not_there(send: Client, method: str, path: str, status: int, message: str) -> None:
    assert_refused(send(path, method), status, message)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/embeddings", "/v1/embeddings"),
        ("/v1/completions/", "/v1/completions"),
    ],
)
def test_a_client_whose_base_url_is_wrong_is_told_where_the_route_is(send: Client, path: str, route: str) -> None:
    answer = send(path, "POST", b"{}")
    assert_refused(answer, 404, "There is nothing at")
    assert json.loads(answer.body)["hint"] == f"POST {route}; a client's base URL ends with /v1"


def test_a_post_with_a_slash_behind_is_told_the_path_and_not_sent_there(send: Client) -> None:
    for path in ("/v2/models/tiny/infer", "/v2/repository/index", "/inference"):
        answer = send(f"{path}/", "POST", b"{}")
        assert (answer.status, json.loads(answer.body)["hint"]) == (404, f"POST {path}")


def test_headers_without_sense_are_ignored(send: Client) -> None:
    for headers in (
        {"range": "bytes=" + ",".join(f"{i}-{i}" for i in range(2000))},
        {"range": "bytes=" + "9" * 5000 + "-"},
        {"accept_encoding": "br;q=" + "9" * 5000},
        {"accept_encoding": ";;;,,,===q"},
        {"if_none_match": '"' * 5000},
        {"if_range": "W/" * 2000, "range": "bytes=0-1"},
        {"accept": "\xff" * 100},
    ):
        assert send("/models/tiny/manifest.json", "GET", None, **headers).status == 200
        assert send("/simple/edge-infer/", "GET", None, **headers).status == 200


@pytest.mark.parametrize(
    "line",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 200_000,
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 200_000,
    ],
)
def test_what_is_no_http_at_all(send: Client, line: bytes) -> None:
    host, _, port = send.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        except OSError:  # the server hung up while the line was still being sent
            answer = b""
    assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert_alive(send)


def test_a_client_that_hangs_up(send: Client) -> None:
    host, _, port = send.url.removeprefix("http://").partition(":")
    head = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n"
    for part in (head[:30], head, head + b'{"inputs"'):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(part)
    assert_alive(send)


def exchanged(send: Client, sent: bytes) -> bytes:
    """What a server answers until it hangs up."""
    host, _, port = send.url.removeprefix("http://").partition(":")
    data = b""
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        while chunk := connection.recv(65536):
            data += chunk
    return data


@pytest.mark.parametrize(
    ("head", "more", "status", "message"),
    [
        (b"GET %b", b"Content-Length: 5\r\n\r\nhello", 400, "unsupported request body"),
        (b"GET %b", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "transfer codings"),
        (b"GET %b", b"A: b\r\n" * 130 + b"\r\n", 431, "128 headers"),
        (b"GET %b", b"Cookie: " + b"a" * 9000 + b"\r\n\r\n", 431, "8192 bytes"),
        (b"GET %b?" + b"q" * 9000, b"\r\n", 431, "8192 bytes"),
        (b"POST %b", b"Content-Length: 0\r\n\r\n", 400, "method"),
        (b"HEAD %b", b"\r\n", 400, "method"),
        (b"GET %b", b"Sec-WebSocket-Version: 8\r\n\r\n", 400, "Sec-WebSocket-Version"),
    ],
    ids=["length", "chunks", "many headers", "long header", "long path", "POST", "HEAD", "two versions"],
)
def test_a_handshake_that_is_wrong_is_one_clear_error(
    send: Client, head: bytes, more: bytes, status: int, message: str
) -> None:
    lines = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    start = head % b"/v2/models/tiny/stream" + b" HTTP/1.1\r\n"
    for sent, text in ((start + lines + key + more, message), (start + lines + more, "")):
        answer, _, body = exchanged(send, sent).partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status) or not text
        document = json.loads(body)
        assert set(document) == {"error", "code", "hint", "details"}
        assert document["error"].startswith("The handshake of the WebSocket is refused: ")
        assert text in document["error"]
    assert_alive(send)


H2C = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
@pytest.mark.parametrize("way", ["length", "chunks", "another protocol"])
def test_a_request_that_would_rather_speak_http_2_is_answered(send: Client, path: str, way: str) -> None:
    """So begin Java's own client and `curl --http2`; RFC 9110 section 7.8."""
    body = json.dumps(request()).encode()
    head = f"POST {path} HTTP/1.1\r\n".encode() + H2C
    if way == "chunks":
        whole = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if way == "another protocol":
        whole = whole.replace(b"h2c", b"TLS/1.2, websocket")
    host, _, port = send.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in (len(whole), whole.index(b"\r\n\r\n") + 4, whole.index(b"\r\n\r\n") + 2, 40, len(whole) - 3):
            connection.sendall(whole[:cut])
            send("/livez")  # the first part has come by itself
            connection.sendall(whole[cut:])
            data = b""
            while not data.endswith(b"]}]}"):
                data += connection.recv(65536)
            assert data.startswith(b"HTTP/1.1 200 ")
            assert data.count(b"HTTP/1.1 ") == 1


def test_the_body_of_a_request_for_another_protocol_is_no_request(send: Client) -> None:
    smuggled = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /v2/models/tiny/infer HTTP/1.1\r\n" + H2C + b"Content-Length: %d\r\n\r\n" % len(smuggled)
    close = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answers = exchanged(send, head + smuggled + close).split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == [400, 200]


def test_many_requests_for_another_protocol_at_once_are_answered(send: Client) -> None:
    one = b"GET /livez HTTP/1.1\r\n" + H2C + b"\r\n"
    last = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert exchanged(send, one * 1200 + last).count(b"HTTP/1.1 200 OK") == 1201


@pytest.mark.parametrize("target", [b"example.com:443", b"/livez", b"http://x/livez"])
@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["first", "later"])
def test_a_tunnel_is_refused(send: Client, target: bytes, before: bytes) -> None:
    smuggled = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"CONNECT %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (target, len(smuggled))
    answers = exchanged(send, before + head + smuggled).split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == ([200, 400] if before else [400])
    assert_alive(send)


@pytest.mark.parametrize(
    ("path", "header", "status", "code"),
    [
        ("infer", b"", 401, "unauthorized"),
        ("infer?a=b", b"Authorization: Bearer wrong\r\n", 401, "unauthorized"),
        ("unload", b"Authorization: Bearer guest\r\n", 403, "not_admin"),
    ],
)
def test_what_comes_behind_a_chunked_body_is_no_header(
    tmp_path: Path, path: str, header: bytes, status: int, code: str
) -> None:
    """RFC 9110 section 6.5.1: or a proxy that looks at the headers is passed by."""
    tenants = {
        Tenant("guest"): [sha256(b"guest").digest()],
        Tenant("owner", is_admin=True): [sha256(b"owner").digest()],
    }
    app = create_app({"tiny": write_bundle(tmp_path, bundle_files())}, settings=Settings(tenants=tenants))
    place = f"repository/models/tiny/{path}" if path == "unload" else f"models/tiny/{path}"
    head = f"POST /v2/{place} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n".encode()
    body = json.dumps(request()).encode()
    behind = b"\r\n%x\r\n%b\r\n0\r\nX-Api-Key: owner\r\n\r\n" % (len(body), body)
    with ServerThread(app) as server:
        answer = exchanged(Client(server.url), head + header + behind)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert f'"code": "{code}"'.encode() in answer
        assert b" 200 " in exchanged(Client(server.url), head + b"Authorization: Bearer owner\r\n" + behind)


INPUTS = [TensorSpec("x", DType.FLOAT32, ("batch", 3)), TensorSpec("n", DType.INT8, ())]
OUTPUTS = [TensorSpec("y", DType.FLOAT32, ("batch", 3))]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "n", "z"]) | JSON_VALUES,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | JSON_VALUES,
        "datatype": st.sampled_from(["FP32", "INT8", "BYTES"]) | JSON_VALUES,
        "data": st.lists(JSON_VALUES, max_size=6),
        "parameters": JSON_VALUES,
    },
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={"id": JSON_VALUES, "inputs": st.lists(TENSORS, max_size=3) | JSON_VALUES, "outputs": JSON_VALUES},
)


@settings(max_examples=300, deadline=None)
@given(REQUESTS | JSON_VALUES)
def test_no_json_gets_past_the_parser_or_breaks_it(document: Any) -> None:
    """It gives tensors that fit the specs, or raises one of our own errors with a message of a sane size."""
    try:
        parsed = parse_request(json.dumps(document).encode(), INPUTS, OUTPUTS)
    except EdgeInferError as error:
        assert len(error.message) < 1000
    else:
        assert {name: spec.accepts(parsed.inputs[name].shape) for name, spec in zip("xn", INPUTS, strict=True)}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(body: bytes) -> None:
    with pytest.raises(EdgeInferError):
        parse_request(body, INPUTS, OUTPUTS)
