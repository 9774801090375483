"""What a connection may take: its number, its headers, its time; TLS, and pages of other servers."""

from __future__ import annotations

import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from websockets.exceptions import InvalidStatus

from edge_infer.errors import ServingError
from edge_infer.notify import answers
from edge_infer.server.app import Limits, create_app
from edge_infer.server.ingestion.guard import DoorLimits
from edge_infer.server.listener import Tls
from edge_infer.server.thread import ServerThread
from tests.server.bundles import bundle_files, write_bundle
from tests.server.conftest import Client
from tests.server.test_serving import ask, row
from tests.server.test_stream import stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMITS = DoorLimits(max_connections=6, max_header_bytes=4096, header_timeout_s=0.3, body_timeout_s=0.3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("door") / "tiny", bundle_files())


@pytest.fixture(scope="module")
def server(tiny: Path) -> Iterator[ServerThread]:
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(door=LIMITS))) as running:
        yield running


def opened(server: ServerThread) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answer(connection: socket.socket) -> tuple[int, str]:
    """The status and the code of an answer, once the server has hung up."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["code"]


POST = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (
            b"GET /v2/models/tiny/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX: "
            + b"a" * 5000
            + b"\r\n\r\n",
            431,
            "headers_too_large",
        ),
        (b"", 408, "request_timeout"),
        (b"GET /hea", 408, "request_timeout"),
        (POST, 408, "request_timeout"),
        (POST + b"Content-Length: 12\r\n\r\n1234", 408, "request_timeout"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n", 408, "request_timeout"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n", 431, "headers_too_large"),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, "headers_too_large"),
    ],
    ids=[
        "upgrade",
        "nothing",
        "half a line",
        "half the headers",
        "half a body",
        "half a chunk",
        "long",
        "many",
        "long path",
    ],
)
def test_what_takes_too_long_or_too_much_is_hung_up_on(
    server: ServerThread, sent: bytes, status: int, code: str
) -> None:
    with opened(server) as connection:
        connection.sendall(sent)
        assert answer(connection) == (status, code)
    assert ask(server).body == row(1.0)


def test_one_connection_too_many_is_refused_and_the_others_go_on(server: ServerThread) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    kept = [opened(server) for _ in range(6)]
    try:
        for connection in kept:
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with opened(server) as another:
            assert answer(another) == (503, "queue_full")
        for connection in kept:
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in kept:
            connection.close()


def test_slow_clients_hold_up_nobody(server: ServerThread) -> None:
    with opened(server) as one, opened(server) as two:
        one.sendall(POST)
        two.sendall(POST + b"Content-Length: 12\r\n\r\n")
        assert {ask(server, float(i)).body == row(float(i)) for i in range(10)} == {True}


# -- pages of other servers --


def test_pages_of_allowed_servers_may_ask_and_read_our_headers(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, cors_origins=["https://shop.example"])
    with ServerThread(app) as server:
        preflight = Client(server.url)(
            "/v2/models/tiny/infer",
            "OPTIONS",
            origin="https://shop.example",
            access_control_request_method="POST",
            access_control_request_headers="content-type,x-api-key",
        )
        assert preflight.status == 200
        assert "x-api-key" in preflight.headers["access-control-allow-headers"]
        allowed = ask(server, origin="https://shop.example")
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        assert "Server-Timing" in allowed.headers["access-control-expose-headers"]
        assert "access-control-allow-origin" not in ask(server, origin="https://evil.example").headers


def test_a_page_of_another_server_opens_no_stream(tiny: Path) -> None:
    with ServerThread(create_app({"tiny": tiny}, cors_origins=["https://shop.example"])) as server:
        with pytest.raises(InvalidStatus) as caught:
            stream(server.url, origin="https://evil.example")
        assert caught.value.response.status_code == 403
        for origin in ("https://shop.example", server.url, None):
            with stream(server.url, origin=origin):
                pass


@pytest.mark.parametrize("what", ["load", "unload", "canary"])
def test_a_page_of_another_server_changes_no_model(tiny: Path, what: str) -> None:
    with ServerThread(create_app({"tiny": tiny}, cors_origins=["https://shop.example"])) as server:
        path = f"/v2/repository/models/tiny/{what}"
        for origin in ("https://evil.example", "null", "http://["):
            refused = Client(server.url)(path, "POST", b"", origin=origin, content_type="text/plain")
            assert (refused.status, json.loads(refused.body)["code"]) == (403, "origin_refused"), origin
        assert ask(server).status == 200
        for origin in ("https://shop.example", server.url):
            assert Client(server.url)(path, "POST", b"", origin=origin).status == 200


# -- TLS --


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate of 127.0.0.1, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "edge-infer test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    return Tls(folder / "cert.pem", folder / "key.pem")


def test_with_a_certificate_requests_travel_encrypted(tiny: Path, certificate: Tls) -> None:
    trusted = ssl.create_default_context(cafile=certificate.certificate)
    with ServerThread(create_app({"tiny": tiny}), certificate) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with urlopen(f"{server.url}/health", context=trusted) as response:
            assert response.read() == b"OK"
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urlopen(f"{server.url}/health")
        with stream(server.url, ssl=trusted):
            pass


def test_the_watchdog_asks_whatever_name_the_certificate_has(tiny: Path, certificate: Tls) -> None:
    with ServerThread(create_app({"tiny": tiny}), certificate) as server:
        assert answers(f"{server.url}/v2/health/live")
        assert not answers(f"{server.url}/v2/nothing")


def test_a_certificate_that_is_none_is_one_clear_error(tiny: Path, certificate: Tls, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    for tls in (Tls(wrong, certificate.key), Tls(tmp_path / "none.pem", certificate.key)):
        with pytest.raises(ServingError, match="cannot be used"), ServerThread(create_app({"tiny": tiny}), tls):
            pass
