"""An HTTP client that sends requests byte by byte, and the inference requests of the server's tests."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import TYPE_CHECKING, NamedTuple

import numpy

if TYPE_CHECKING:
    from edge_infer.server.http.in_thread import ServerThread

MODULE = b"export const answer = 42;\n" + b"// the quick brown fox jumps over the lazy dog\n" * 200


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Sends requests as they are written: no client library tidies the path or adds a header."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            if body is not None and "transfer_encoding" not in headers:
                headers.setdefault("content_length", str(len(body)))
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()


OCTETS = "application/octet-stream"


def row(value: float, rows: int = 1) -> bytes:
    return numpy.full((rows, 3), value, "float32").tobytes()


def ask(server: ServerThread, value: float = 1.0, name: str = "tiny", **headers: str) -> Answer:
    return Client(server.url)(f"/v2/models/{name}/infer", "POST", row(value), content_type=OCTETS, **headers)


def refusals(server: ServerThread) -> dict[str, float]:
    """What `/metrics` counts by code."""
    lines = Client(server.url)("/metrics").body.decode().splitlines()
    found = [line.split() for line in lines if line.startswith("edge_infer_refusals_total")]
    return {name.split('"')[1]: float(value) for name, value in found}
