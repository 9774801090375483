"""A store in an OCI registry: one artifact whose layers are the store's files, each titled with its path.

By the OCI distribution specification 1.1 (github.com/opencontainers/distribution-spec); `oras pull` restores the
folder.
The tag is moved last, at once, so that a client that reads meanwhile sees the old state. Credentials come
from the environment, `EDGE_INFER_OCI_USER` and `EDGE_INFER_OCI_PASSWORD`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from edge_infer.errors import FetchError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import urllib3

SCHEME = "oci://"
ARTIFACT = "application/vnd.edge-infer.store.v1"
_FILE = "application/vnd.edge-infer.store.file.v1"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_TITLE = "org.opencontainers.image.title"
# The empty config that the image specification names for artifacts.
_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_TIMESTAMP = "tuf/timestamp.json"
_MAX_MANIFEST_BYTES = 16 * 2**20
_PIECE = 2**16
_LOCATION = re.compile(r"oci://([^/]+)/([a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?")


class OciStore:
    """A store in a registry, to be read and written.

    Args:
        location: `oci://HOST/REPOSITORY[:TAG]`, the tag being `latest` unless given. This machine is asked by http.

    Raises:
        StoreError: It is not a location of this form.
    """

    def __init__(self, location: str) -> None:
        import urllib3

        found = _LOCATION.fullmatch(location)
        if found is None:
            raise StoreError(f"`{location}` is not a place in a registry", hint="oci://HOST/REPOSITORY:TAG")
        self.location = location
        host, self._repository, tag = found[1], found[2], found[3] or "latest"
        is_here = host.partition(":")[0] in ("localhost", "127.0.0.1")
        self._base = f"{'http' if is_here else 'https'}://{host}/v2/{self._repository}/"
        self._tag = tag
        self._pool = urllib3.PoolManager(timeout=urllib3.Timeout(connect=10, read=30), retries=False)
        self._token = ""
        self._layers: dict[str, dict[str, Any]] = {}

    # -- reading --

    def names(self) -> dict[str, int]:
        """Return the files that the tag names now, with their sizes."""
        response = self._ask("GET", f"manifests/{self._tag}", {"Accept": _MANIFEST})
        with contextlib.closing(response):
            if response.status == 404:
                self._layers = {}
            else:
                self._require(response, 200)
                self._layers = _layers(response.read(_MAX_MANIFEST_BYTES))
        return {path: layer["size"] for path, layer in self._layers.items()}

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        """Yield the bytes of a file from an offset on, as `Source.stream` does."""
        if path == _TIMESTAMP or path not in self._layers:
            self.names()
        layer = self._layers.get(path)
        if layer is None:
            raise FetchError(f"`{self.location}` has no `{path}`", hint="edge-infer publish BUNDLE STORE", status=404)
        headers = {"Range": f"bytes={start}-"} if start else {}
        try:
            response = self._ask("GET", f"blobs/{layer['digest']}", headers)
            with contextlib.closing(response):
                self._require(response, 200, 206)
                skip = start if response.status == 200 else 0
                for piece in response.stream(_PIECE, decode_content=False):
                    rest = piece[skip:]
                    skip -= len(piece) - len(rest)
                    if rest:
                        yield rest
        except OSError as error:
            raise FetchError(f"{self.location} breaks off: {error}", status=0) from error

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a small file, as `Source.read` does."""
        data = bytearray()
        for piece in self.stream(path, 0):
            data += piece
            if len(data) > limit:
                raise FetchError(f"`{path}` in {self.location} has more than {limit} bytes", expected=limit, status=0)
        return bytes(data)

    # -- writing --

    def put(self, folder: Path, paths: list[str]) -> None:
        """Upload files of a folder; readers see all of them or none.

        Raises:
            StoreError: The registry refuses.
        """
        layers = dict(self._layers)
        for path in paths:
            with (folder / path).open("rb") as file:
                digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
                self._push(digest, file, size)
            layers[path] = {"mediaType": _FILE, "digest": digest, "size": size, "annotations": {_TITLE: path}}
        empty = "sha256:" + hashlib.sha256(_EMPTY).hexdigest()
        self._push(empty, _EMPTY, len(_EMPTY))
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "artifactType": ARTIFACT,
            "config": {"mediaType": _EMPTY_TYPE, "digest": empty, "size": len(_EMPTY)},
            "layers": [layers[path] for path in sorted(layers)],
        }
        body = json.dumps(manifest, separators=(",", ":")).encode()
        with contextlib.closing(
            self._ask("PUT", f"manifests/{self._tag}", {"Content-Type": _MANIFEST}, body)
        ) as response:
            self._require(response, 201)
        self._layers = layers

    def _push(self, digest: str, body: Any, size: int) -> None:
        with contextlib.closing(self._ask("HEAD", f"blobs/{digest}")) as response:
            if response.status == 200:
                return
        with contextlib.closing(self._ask("POST", "blobs/uploads/")) as response:
            self._require(response, 202)
            place = urljoin(self._base, response.headers["Location"])
        if hasattr(body, "seek"):
            body.seek(0)
        place += ("&" if "?" in place else "?") + urlencode({"digest": digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with contextlib.closing(self._ask("PUT", place, headers, body)) as response:
            self._require(response, 201)

    # -- http --

    def _ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: Any = None
    ) -> urllib3.BaseHTTPResponse:
        import urllib3

        url = urljoin(self._base, path)
        for attempt in range(2):
            sent = {"User-Agent": "edge-infer", **(headers or {})}
            if self._token and urlsplit(url).netloc == urlsplit(self._base).netloc:
                sent["Authorization"] = self._token
            try:
                response = self._pool.request(
                    method, url, headers=sent, body=body, preload_content=False, redirect=method in ("GET", "HEAD"),
                    retries=urllib3.Retry(connect=0, read=0, status=0, other=0, redirect=3),
                )  # fmt: skip
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise FetchError(
                    f"{url} cannot be reached: {error}", hint="is the registry running?", status=0
                ) from error
            if response.status != 401 or attempt:
                return response
            challenge = response.headers.get("WWW-Authenticate", "")
            response.close()
            self._token = self._login(challenge)
            if hasattr(body, "seek"):
                body.seek(0)
        raise AssertionError

    def _login(self, challenge: str) -> str:
        """Return the `Authorization` that a registry asks for: basic, or a token by docker's token protocol."""
        import urllib3

        user, password = os.environ.get("EDGE_INFER_OCI_USER", ""), os.environ.get("EDGE_INFER_OCI_PASSWORD", "")
        basic = urllib3.make_headers(basic_auth=f"{user}:{password}")["authorization"] if user else ""
        words = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer") or "realm" not in words:
            return basic
        if not self._may_know(words["realm"]):
            raise StoreError(
                f"The registry of {self.location} sends logins to {words['realm']}, which is not its own",
                hint="name the registry that the login is for",
            )
        scope = words.get("scope", f"repository:{self._repository}:pull,push")
        query = urlencode({"service": words.get("service", ""), "scope": scope}, quote_via=quote)
        try:
            response = self._pool.request(
                "GET", f"{words['realm']}?{query}", headers={"Authorization": basic} if basic else {}
            )
            document = response.json()
            return f"Bearer {document.get('token') or document['access_token']}"
        except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, AttributeError) as error:
            raise StoreError(f"The registry of {self.location} gives no token: {error}", hint=_CREDENTIALS) from error

    def _may_know(self, realm: str) -> bool:
        """Tell whether a token server is the registry's own: of its host, or by https of its domain."""
        own, other = urlsplit(self._base), urlsplit(realm)
        if other.netloc == own.netloc:
            return True
        domain = [(one.hostname or "").split(".")[-2:] for one in (own, other)]
        return other.scheme == "https" and len(domain[0]) == 2 and domain[0] == domain[1]

    def _require(self, response: urllib3.BaseHTTPResponse, *statuses: int) -> None:
        if response.status in statuses:
            return
        said = response.read(300).decode("utf-8", "replace")
        hint = _CREDENTIALS if response.status in (401, 403) else ""
        raise FetchError(
            f"{self.location} answers with status {response.status}: {said}", hint=hint, status=response.status
        )


_CREDENTIALS = "set EDGE_INFER_OCI_USER and EDGE_INFER_OCI_PASSWORD"


def _layers(data: bytes) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(data)
        if document.get("artifactType") != ARTIFACT:
            raise ValueError(f"it is of type {document.get('artifactType')!r}")
        found = {layer["annotations"][_TITLE]: layer for layer in document["layers"]}
        for layer in found.values():
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", layer["digest"]) or type(layer["size"]) is not int:
                raise ValueError("a layer is malformed")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FetchError(
            f"The artifact holds no store: {error}", hint="publish into a tag of its own", status=0
        ) from error
    return found
