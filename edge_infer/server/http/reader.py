"""Bytes of a connection into requests: their heads and bodies, and what is wrong with them."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

import httptools

from edge_infer.errors import EdgeInferError, InputError
from edge_infer.server.errors import TooManyHeaders, expected
from edge_infer.server.http.progress import BodyProgress
from edge_infer.server.http.upgrade import head_of, without_upgrade

if TYPE_CHECKING:
    from edge_infer.server.http.connections import Connections
    from edge_infer.server.http.exchange import Exchange

log = logging.getLogger(__name__)
#: What is read: nothing (the connection is idle), a head, a body.
NOTHING, HEAD, BODY = range(3)
#: How much is read of a request's body before it begins.
_MAX_UNBEGUN_BYTES = 2**16
_TWO_HOSTS = InputError("The request has two headers `Host`", hint="send one")
_NO_HOST = InputError("The request has no header `Host`, which HTTP/1.1 needs", hint="Host: example.com")


class RequestReader(asyncio.Protocol):
    """Reads the requests of one connection; what becomes of them is for the class above it.

    Args:
        shared: What it shares with other connections.

    Attributes:
        shared: As given.
        since: When it began to wait for its client to send, in seconds of `Connections.now`.
        patience: How many seconds it waits.
        body: The progress of the body that is being read.
    """

    __slots__ = (
        "_expects",
        "_head_since",
        "_header_bytes",
        "_headers",
        "_is_over",
        "_parser",
        "_phase",
        "_receiving",
        "_unparsed",
        "_url",
        "body",
        "patience",
        "shared",
        "since",
    )

    def __init__(self, shared: Connections) -> None:
        self.shared = shared
        self._parser = httptools.HttpRequestParser(self)
        self._receiving: Exchange | None = None  # whose body is being read, answered or not
        self._phase = HEAD
        self._is_over = False  # nothing more is parsed
        self._unparsed = 0  # the bytes since a head began, or a piece of a body was read
        self._head_since = perf_counter()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._header_bytes = 0
        self.body = BodyProgress(shared.limits)
        self.since, self.patience = shared.now, shared.header_s

    # -- what the class above it does --

    @property
    def _is_answering(self) -> bool:
        """Whether a request has no answer yet."""
        raise NotImplementedError

    def _take(self, method: bytes, version: str, *, keep_alive: bool) -> None:
        """Begin a request whose head is complete, or let it wait."""
        raise NotImplementedError

    def _refuse(self, error: EdgeInferError) -> None:
        """Answer with an error once it is its turn, and close."""
        raise NotImplementedError

    def _hand_over(self, rest: bytes) -> None:
        """Open a WebSocket."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Read nothing for now."""
        raise NotImplementedError

    def close(self) -> None:
        """Close once everything was sent."""
        raise NotImplementedError

    # -- the parser --

    def _read(self, data: bytes) -> None:
        """Parse what arrived."""
        self._unparsed += len(data)
        self._parse(data)
        if self._unparsed > self.shared.limits.max_header_bytes:  # of a head, or of what is behind the last chunk
            self._refuse(self._too_long())

    def _parse(self, data: bytes) -> None:
        while not self._is_over:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(data)[upgrade.args[0] :]
                if (b"upgrade", b"websocket") not in [(name, value.lower()) for name, value in self._headers]:
                    data = self._without_upgrade(rest)
                    continue
                self._hand_over(bytes(rest))
            except httptools.HttpParserCallbackError as error:
                self._fail(_cause_of(error))
            except httptools.HttpParserError:
                log.warning("Invalid HTTP request received.")
                self._refuse(InputError("Invalid HTTP request received.", hint="speak HTTP/1.1; over TLS, https://"))
            return

    def _fail(self, error: Exception) -> None:
        """Answer a request that could not begin, or whose body could not be taken."""
        if self._is_answering:
            self._refuse(expected(error))
        else:  # its request has an answer
            self.close()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._url, self._headers, self._expects = b"", [], False
        self._unparsed = self._header_bytes = 0
        self._head_since = perf_counter()
        if self._phase == NOTHING:
            self._phase = HEAD
            self.since, self.patience = self.shared.now, self.shared.header_s

    def on_url(self, url: bytes) -> None:
        """Keep a piece of the target."""
        self._header_bytes += len(url)
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those beyond the limit are counted only."""
        self._header_bytes += len(name) + len(value) + 4
        if self._phase == HEAD and self._header_bytes <= self.shared.limits.max_header_bytes:
            name = name.lower()
            self._headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                self._expects = True

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head was too long."""
        if self._is_over:
            return
        if self._header_bytes > self.shared.limits.max_header_bytes:
            self._refuse(self._too_long())
            return
        parser = self._parser
        method = parser.get_method()
        self._receiving = None
        hosts = [name for name, _ in self._headers].count(b"host")
        version = parser.get_http_version()
        if hosts != 1 and (hosts or version == "1.1"):  # RFC 9112 section 3.2
            self._refuse(_TWO_HOSTS if hosts else _NO_HOST)
            return
        if parser.should_upgrade():
            if method == b"CONNECT":
                self._refuse(InputError("The server is not a proxy", hint="GET or POST, not CONNECT"))
            return  # `_parse` goes on
        self._phase = BODY
        self.body.begin(self.shared.now)
        self.since, self.patience = self.shared.now, self.shared.body_s
        keep_alive = version == "1.1" and parser.should_keep_alive()
        self._take(method, version, keep_alive=keep_alive)

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body, unless its request was answered already."""
        self._unparsed = 0
        self.body.received += len(piece)
        exchange = self._receiving
        if self._is_over or exchange is None or exchange.is_done:
            return
        exchange.chunks.append(piece)
        exchange.received += len(piece)
        if exchange.handler is not None:
            exchange.handler.body_arrived()
        elif exchange.received > _MAX_UNBEGUN_BYTES:
            self.pause_reading()

    def on_message_complete(self) -> None:
        """Take note that the request is whole."""
        exchange = self._receiving
        if self._is_over or exchange is None:
            return
        self._read_nothing()
        exchange.is_whole = True
        if exchange.handler is not None:
            exchange.handler.body_arrived()

    def _read_nothing(self) -> None:
        """Read nothing more of a request; with requests to answer the connection is not idle."""
        self._receiving = None
        self._phase = NOTHING
        self.since, self.patience = self.shared.now, inf if self._is_answering else self.shared.keep_alive_s

    def _too_long(self) -> TooManyHeaders:
        most = self.shared.limits.max_header_bytes
        return TooManyHeaders(
            f"The headers have more than {most} bytes", hint="send tensors in the body", expected=most
        )

    def _without_upgrade(self, rest: memoryview) -> bytes:
        """Return the request and what is behind its head as if it did not ask for another protocol.

        RFC 9110 section 7.8 allows that; else the body would be taken for the next request.
        """
        method, version = self._parser.get_method(), self._parser.get_http_version()
        self._parser = httptools.HttpRequestParser(self)
        return head_of(method, self._url, version, without_upgrade(self._headers)) + rest


def _cause_of(error: Exception) -> Exception:
    """Return what a callback of the parser raised."""
    return error.__context__ if isinstance(error.__context__, Exception) else error
