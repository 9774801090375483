"""A live server as the doctor sees it: requests with a bound on their time, and what `/metrics` says."""

from __future__ import annotations

import json
import os
import re
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import inf, prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from edge_infer.errors import FetchError, InputError
from edge_infer.tensors.datatypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How long an answer may take, how much of it is read, and the most bytes of a trial, whose shape the server names.
TIMEOUT_S = 10.0
_MAX_BYTES = 8 * 2**20
MAX_TRIAL_BYTES = 64 * 2**20
#: Bytes of an element by the protocol's name of its datatype.
_WIDTHS = {name: dtype.bits // 8 for name, dtype in DTYPES.items() if dtype.bits >= 8}
#: What a free dimension other than the first is tried with.
_FREE_DIM = 8
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Reply(NamedTuple):
    """An answer: its status, its body, and the seconds it took."""

    status: int
    body: bytes
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return the JSON object of the body; an empty one where there is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Target:
    """A server that is asked.

    Args:
        url: Its root, `http://HOST:PORT` and perhaps a path, or the URL of one of its models.
        key: An API key; None for the environment's `EDGE_INFER_API_KEY`.

    Raises:
        InputError: It is not a URL of HTTP, or the key cannot be sent.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self.scheme, self.host, port = parts.scheme, parts.hostname or "", parts.port
            self.host.encode("idna")
        except ValueError as error:
            raise _no_url(url) from error
        if self.scheme not in ("http", "https") or not self.host:
            raise _no_url(url)
        place = f"[{self.host}]" if ":" in self.host else self.host
        self._port = port or (443 if self.scheme == "https" else 80)
        root, _, rest = parts.path.partition("/v2/")
        #: The path that all of the server's lie under; empty for most.
        self.root = root.removesuffix("/v2").rstrip("/")
        self.url = f"{self.scheme}://{place}" + ("" if port is None else f":{port}") + self.root
        model = re.match(r"models/([^/]+)", rest)
        #: The model that the URL names; None where it names none.
        self.model = unquote(model[1]) if model else None
        self.key = key if key is not None else os.environ.get("EDGE_INFER_API_KEY", "")
        if not (self.key.isascii() and self.key.isprintable()):
            raise InputError("The API key has characters that no header carries", hint="EDGE_INFER_API_KEY=...")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def connect(self) -> HTTPConnection:
        """Open a connection."""
        kind = HTTPSConnection if self.scheme == "https" else HTTPConnection
        return kind(self.host, self._port, timeout=TIMEOUT_S)

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        connection: HTTPConnection | None = None,
        method: str = "",
    ) -> Reply:
        """Send a request.

        Raises:
            FetchError: There is no answer; `timed_out` says whether there was none in time.
        """
        own = connection or self.connect()
        known = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        start = perf_counter()
        try:
            verb = method or ("GET" if body is None else "POST")
            own.request(verb, self.root + path, body, {**known, **(headers or {})})
            response = own.getresponse()
            data = response.read(_MAX_BYTES)
            if not response.isclosed():
                own.close()  # the rest of a long answer would be taken for the next one
            return Reply(response.status, data, perf_counter() - start)
        except (OSError, HTTPException) as error:
            own.close()
            raise FetchError(
                f"{self.url}{path} does not answer: {error}",
                hint="is the server running?",
                timed_out=isinstance(error, TimeoutError),
            ) from error
        finally:
            if connection is None:
                own.close()

    def models(self) -> list[str]:
        """List the models that are served: by the repository's index, which v2 servers have."""
        if self.model:
            return [self.model]
        try:
            entries = json.loads(self.ask("/v2/repository/index", b"{}").body)
            return list(dict.fromkeys(str(entry["name"]) for entry in entries))
        except (ValueError, KeyError, TypeError, RecursionError):
            return []

    def may_read_counts(self) -> bool:
        """Tell whether the key lets `/metrics` be read, where there is one."""
        return self.ask("/metrics").status not in (401, 403)

    def metrics(self) -> dict[str, list[tuple[str, float]]]:
        """Return what `/metrics` says: by name, the labels and the value of each sample; nothing where it has none."""
        reply = self.ask("/metrics")
        found: dict[str, list[tuple[str, float]]] = {}
        if reply.status != 200:
            return found
        for name, labels, value in _SAMPLE.findall(reply.body.decode("utf-8", "replace")):
            try:
                found.setdefault(name, []).append((labels, float(value)))
            except ValueError:
                continue
        return found


def _no_url(url: str) -> InputError:
    shown = re.sub(r"//.*@", "//", url)  # without a password
    return InputError(f"`{shown}` is not a URL of a server", hint="edge-infer doctor http://127.0.0.1:8080")


class Trial(NamedTuple):
    """A request of zeros that a model takes, binary tensors behind JSON."""

    path: str
    body: bytes
    headers: dict[str, str]


def trial(name: str, metadata: Mapping[str, Any], parameters: Mapping[str, Any] | None = None) -> Trial | None:
    """Make a request from a model's metadata.

    Returns:
        None where it takes texts or more than `MAX_TRIAL_BYTES`, or the metadata is not readable.
    """
    entries, whole = [], 0
    try:
        for entry in metadata["inputs"]:
            shape = [d if d >= 0 else (1 if axis == 0 else _FREE_DIM) for axis, d in enumerate(entry["shape"])]
            size = prod(shape) * _WIDTHS[entry["datatype"]]
            whole += size
            entries.append(
                {
                    "name": entry["name"],
                    "shape": shape,
                    "datatype": entry["datatype"],
                    "parameters": {"binary_data_size": size},
                }
            )
        if whole > MAX_TRIAL_BYTES:
            return None
        tensors = bytes(whole)
    except (KeyError, TypeError):
        return None
    head = json.dumps({"inputs": entries, "parameters": {"binary_data_output": True, **(parameters or {})}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return Trial(f"/v2/models/{quote(name, safe='')}/infer", head + tensors, headers)


def quantile(buckets: list[tuple[str, float]], part: float) -> float:
    """Estimate a quantile of a Prometheus histogram by the bound under which it lies; infinity beyond the last.

    >>> quantile([('le="0.1"', 90.0), ('le="1.0"', 99.0), ('le="+Inf"', 100.0)], 0.99)
    1.0
    """
    totals: dict[float, float] = {}
    for labels, count in buckets:
        bound = re.search(r'le="(\+Inf|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"', labels)
        if bound:
            key = inf if bound[1] == "+Inf" else float(bound[1])
            totals[key] = totals.get(key, 0.0) + count
    whole = max(totals.values(), default=0.0)
    return next((bound for bound, count in sorted(totals.items()) if count >= part * whole), inf)
