"""Read the headers of an inference request in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError, listed
from edge_infer.server.errors import UnsupportedMediaType
from edge_infer.server.scheduling.request import LOWEST_PRIORITY, QUALITIES

if TYPE_CHECKING:
    from collections.abc import Iterable

JSON = "application/json"
OCTETS = "application/octet-stream"
#: What `curl -d` says of any body. A page of another server may send it without being asked, so it counts as JSON only
#: where no page sends it.
FORM = "application/x-www-form-urlencoded"
#: What a browser says of a page of this server, and of an address that somebody typed (Fetch Metadata, W3C).
_OWN_SITE = (b"same-origin", b"none")
#: More digits than any length, priority or timeout has.
_MAX_DIGITS = 12


class RequestHead:
    """The headers that matter to inference.

    Attributes:
        media_type: Of the body, lower case, without parameters; JSON where there is none, as in tritonclient.
        content_encoding: How the body is compressed.
        content_length: Its bytes, -1 where it is not said.
        json_length: The bytes of JSON in front of binary tensors; None where there are no binary tensors.
        priority: `X-Priority`: 1 is the most urgent, 255 the least, 0 unsaid.
        quality: `X-Quality`, which of a model's two variants is wanted; empty unsaid.
        timeout_s: `X-Timeout-Ms`, in seconds; 0 unsaid.
        request_id: `X-Request-Id`, which comes back in the answer.
        traceparent: The W3C trace context, which comes back in the answer.
        tracestate: What the systems of that trace add to it.
        accept_encoding: The encodings that it reads.
        has_origin: Whether a page of some server asks.
        is_raw: Whether the body is one tensor's bytes and nothing else.
    """

    __slots__ = (
        "accept_encoding",
        "content_encoding",
        "content_length",
        "has_origin",
        "is_raw",
        "json_length",
        "media_type",
        "priority",
        "quality",
        "request_id",
        "timeout_s",
        "traceparent",
        "tracestate",
    )

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.media_type = JSON
        self.content_encoding = b""
        self.content_length = -1
        self.json_length: int | None = None
        self.priority = 0
        self.quality = ""
        self.timeout_s = 0.0
        self.request_id = b""
        self.traceparent = b""
        self.tracestate = b""
        self.accept_encoding = b""
        self.has_origin = False
        for name, value in headers:
            if name == b"content-length":
                self.content_length = int(value) if value.isdigit() else -1
            elif name == b"content-type":
                self.media_type = value.partition(b";")[0].strip().lower().decode("latin-1")
            elif name == b"inference-header-content-length":
                self.json_length = _number("Inference-Header-Content-Length", value)
            elif name == b"accept-encoding":
                self.accept_encoding = value
            elif name == b"content-encoding":
                self.content_encoding = value.strip().lower()
            elif name == b"x-priority":
                self.priority = _number("X-Priority", value, LOWEST_PRIORITY)
            elif name == b"x-timeout-ms":
                self.timeout_s = _number("X-Timeout-Ms", value) / 1000
            elif name == b"x-quality":
                self.quality = _quality(value)
            elif name == b"x-request-id":
                self.request_id = value[:128]
            elif name == b"origin":
                self.has_origin = True
            elif name == b"sec-fetch-site":  # a browser says it also where it leaves Origin out
                self.has_origin = self.has_origin or value not in _OWN_SITE
            elif name == b"traceparent":
                self.traceparent = value[:128]
            elif (
                name == b"tracestate"
            ):  # it may come in several lines: https://www.w3.org/TR/trace-context/#tracestate-header
                self.tracestate = self.tracestate + b"," + value if self.tracestate else value
        self.is_raw = self.json_length == 0 or (self.media_type == OCTETS and self.json_length is None)

    def check_media_type(self) -> None:
        """Refuse a body in a form that the server does not read, before it comes.

        Raises:
            UnsupportedMediaType: It is neither JSON nor octets, nor a form that may turn out to be JSON.
        """
        kind = self.media_type
        if kind != JSON and kind != OCTETS and not kind.endswith("+json") and not self._may_be_json:
            raise self._unsupported()

    def check_body(self, body: bytes | memoryview) -> None:
        """Refuse a body that is called a form and is not JSON.

        Raises:
            UnsupportedMediaType: It does not begin with `{`.
        """
        if self.media_type == FORM and bytes(body[:64]).lstrip()[:1] != b"{":
            raise self._unsupported()

    @property
    def _may_be_json(self) -> bool:
        return self.media_type == FORM and not self.has_origin and self.json_length is None

    def _unsupported(self) -> UnsupportedMediaType:
        kind = self.media_type[:128]
        return UnsupportedMediaType(
            f"The body is `{kind}`, expected `{JSON}` or `{OCTETS}`", hint=f"Content-Type: {JSON}"
        )


def _quality(value: bytes) -> str:
    found = value.decode("latin-1")
    if found not in QUALITIES:
        raise InputError(
            f"`X-Quality` is `{found[:64]}`; choose from {listed(list(QUALITIES))}", hint="X-Quality: best"
        )
    return found


def _number(name: str, value: bytes, largest: int | None = None) -> int:
    if value.isdigit() and len(value) <= _MAX_DIGITS:
        number = int(value)
        if largest is None or number <= largest:
            return number
    expected = "a whole number" if largest is None else f"a whole number up to {largest}"
    raise InputError(f"`{name}` is `{value[:64].decode('latin-1')}`, expected {expected}", hint=f"{name}: 1")
