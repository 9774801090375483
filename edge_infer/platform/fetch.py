"""Fetch a URL: blocking sockets natively, JavaScript's `fetch` or a synchronous request in a page."""

from __future__ import annotations

import os

from edge_infer.errors import FetchError, InputError, Unauthorized, UnsupportedError
from edge_infer.platform.host import in_browser, in_worker, run_in_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

#: The most bytes that a fetch takes when its caller names no limit: a model file of 4 GiB is beyond every page.
MAX_FETCH_BYTES = 4 * 2**30
_TIMEOUT_S = 60.0
_SECRET_HEADERS = ("authorization", "x-api-key", "cookie")
_MAX_PROBLEM_BYTES = 64 * 2**10
_UNAUTHORIZED = 401
#: What OpenSSL says of a certificate that nobody vouches for: X509_V_ERR_… in x509_vfy.h, self-signed or of an issuer
#: that is not known here.
_UNKNOWN_ISSUER = (18, 19, 20, 21)


def is_url(source: object) -> bool:
    """Tell whether a model's source is a URL that `fetch` takes."""
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def api_key() -> dict[str, str]:
    """Return the header with the API key of the environment, `EDGE_INFER_API_KEY`; nothing where there is none."""
    key = os.environ.get("EDGE_INFER_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def key_told_to(url: str, source: str) -> dict[str, str]:
    """Return the header with an API key for a server that a bundle names, which anybody may have written.

    The environment's `EDGE_INFER_API_KEYS` has keys for origins: `https://HOST=KEY`, separated by spaces. The key of
    `EDGE_INFER_API_KEY` is told only to the origin that the bundle itself came from.

    Args:
        url: The model on the server.
        source: Where the bundle was opened from: a path or a URL.

    Raises:
        InputError: `EDGE_INFER_API_KEYS` has something else than pairs.
    """
    wanted = _origin(url)
    for pair in os.environ.get("EDGE_INFER_API_KEYS", "").split():
        origin, _, key = pair.partition("=")
        if not is_url(origin) or not key:
            raise InputError("EDGE_INFER_API_KEYS has something else than `ORIGIN=KEY`", hint="https://HOST=KEY")
        if _origin(origin) == wanted:
            return {"Authorization": f"Bearer {key}"}
    return api_key() if is_url(source) and _origin(source) == wanted else {}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    try:
        port = parts.port
    except ValueError:
        port = -1  # nobody's
    return scheme, parts.hostname, port or {"http": 80, "https": 443}.get(scheme)


def fetch(url: str, limit: int = MAX_FETCH_BYTES, headers: Mapping[str, str] | None = None) -> bytes:
    """Get the bytes of a URL, blocking.

    Args:
        url: An `http://` or `https://` URL.
        limit: The most bytes to take.
        headers: More headers to send, an API key for one.

    Raises:
        FetchError: It does not answer, answers with an error, or with more bytes than the limit.
        Unauthorized: It is a server of edge-infer, which wants an API key, or another one.
        UnsupportedError: This is Pyodide on a page's main thread, which may not block.
    """
    return _fetch_browser(url, limit, headers) if in_browser() else _fetch_native(url, limit, headers)


async def fetch_async(url: str, limit: int = MAX_FETCH_BYTES, headers: Mapping[str, str] | None = None) -> bytes:
    """Get the bytes of a URL as `fetch` does, without blocking."""
    if not in_browser():
        return await run_in_thread(lambda: _fetch_native(url, limit, headers))
    from pyodide.http import pyfetch

    try:
        response = await pyfetch(url, headers=dict(headers or {}))
        data = await response.bytes()
    except Exception as error:
        # Behind Pyodide's error is that of JavaScript, which alone says why a body broke off.
        raise _unreachable(url, error.__context__ or error) from error
    if not response.ok:
        raise _refused(url, response.status, data)
    return _limited(url, data, limit)


def _fetch_native(url: str, limit: int, headers: Mapping[str, str] | None = None) -> bytes:
    from http.client import HTTPException, IncompleteRead

    try:
        with open_url(url, headers) as response:
            data = _limited(url, response.read(limit + 1), limit)
            if response.length:  # what its Content-Length still promises
                raise IncompleteRead(data, response.length)
            return data
    except (OSError, ValueError, HTTPException) as error:
        raise translated(url, error) from error


def open_url(url: str, headers: Mapping[str, str] | None) -> Any:
    """Open a URL; its errors are those of urllib."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class KeepSecrets(HTTPRedirectHandler):
        """Follows a redirect, to another origin without what only the first one may know."""

        def redirect_request(self, req: Request, *rest: Any) -> Request | None:
            found = super().redirect_request(req, *rest)
            if found is not None and (found.type, found.host) != (req.type, req.host):
                for name in [name for name in found.headers if name.lower() in _SECRET_HEADERS]:
                    found.remove_header(name)
            return found

    request = Request(url, headers={"User-Agent": "edge-infer", "Accept-Encoding": "identity", **(headers or {})})
    return build_opener(KeepSecrets).open(request, timeout=_TIMEOUT_S)


def translated(url: str, error: Exception) -> FetchError | Unauthorized:
    """Describe what urllib raised."""
    from urllib.error import HTTPError

    if isinstance(error, HTTPError):
        return _refused(url, error.code, error.read(_MAX_PROBLEM_BYTES))
    return _unreachable(url, error)


def _fetch_browser(url: str, limit: int, headers: Mapping[str, str] | None = None) -> bytes:
    import js

    if not in_worker():
        raise UnsupportedError(
            f"A page's main thread may not block to fetch {url}", hint="write `await edge_infer.load_async(...)`"
        )
    request = js.XMLHttpRequest.new()
    try:
        request.open("GET", url, False)
        request.responseType = "arraybuffer"
        for name, value in (headers or {}).items():
            request.setRequestHeader(name, value)
        request.send(None)
    except Exception as error:
        raise _unreachable(url, error) from error
    if not 200 <= request.status < 300:
        raise _refused(url, request.status, request.response.to_bytes())
    return _limited(url, request.response.to_bytes(), limit)


def post_in_page(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> tuple[int, dict[str, str], bytes]:
    """Send a body from Pyodide by a synchronous request, in a worker: return status, headers and body of the answer.

    Raises:
        FetchError: The server cannot be reached, or is of another origin that does not let this page in.
        UnsupportedError: This is a page's main thread, which may not block.
    """
    import js
    from pyodide.ffi import to_js

    if not in_worker():
        raise UnsupportedError(
            f"A page's main thread may not block to ask {url}", hint="run Python in a worker, as the demo page does"
        )
    request = js.XMLHttpRequest.new()
    request.open("POST", url, False)
    request.responseType = "arraybuffer"
    request.timeout = int(timeout_s * 1000)
    for name, value in headers.items():
        request.setRequestHeader(name, value)
    try:
        request.send(to_js(body))
    except Exception as error:
        raise _unreachable(url, error) from error
    pairs = (line.partition(":") for line in str(request.getAllResponseHeaders()).splitlines() if ":" in line)
    return (
        request.status,
        {name.strip().lower(): value.strip() for name, _, value in pairs},
        request.response.to_bytes(),
    )


def _limited(url: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise FetchError(f"{url} answers with more than {limit} bytes", url=url, expected=limit)
    return data


def _refused(url: str, status: int, body: bytes) -> FetchError | Unauthorized:
    """Describe an answer that is not a success, in the server's own words where it is one of ours."""
    import json

    try:
        said = json.loads(body[:_MAX_PROBLEM_BYTES])
        reason, hint, code = f": {said['error']}", str(said["hint"]), said.get("code")
    except (ValueError, KeyError, TypeError):
        reason, hint, code = "", "check the address", None
    if status == _UNAUTHORIZED and code == Unauthorized.code:
        hint = hint if api_key() else "EDGE_INFER_API_KEY=KEY"
        return Unauthorized(f"{url} answers with status {status}{reason}", hint=hint, url=url, status=status)
    return FetchError(f"{url} answers with status {status}{reason}", hint=hint, url=url, status=status)


def _unreachable(url: str, error: Any) -> FetchError:
    return FetchError(f"{url} cannot be reached: {error}", hint=_remedy(url, error), url=url)


def _remedy(url: str, error: object) -> str:
    """Return what to do about a server that cannot be reached, by what the connection failed with."""
    hint = "is the server running? `edge-infer serve`"
    if in_browser():
        return hint  # a page is told nothing
    from http.client import BadStatusLine
    from ssl import SSLCertVerificationError, SSLError
    from urllib.error import URLError

    cause = error.reason if isinstance(error, URLError) else error
    scheme, _, rest = url.partition("://")
    if isinstance(cause, SSLCertVerificationError):
        if cause.verify_code in _UNKNOWN_ISSUER:
            return "SSL_CERT_FILE=chain.pem, with the certificate of the server or of who signed it"
        return "check the address, and the certificate of the server"
    if isinstance(cause, SSLError) and scheme == "https":
        return f"has the server TLS? If not, http://{rest}"
    if isinstance(cause, (BadStatusLine, BrokenPipeError, ConnectionResetError)) and scheme == "http":
        return f"is the server running? Has it TLS, then https://{rest}"
    return hint
