"""The routes of a hosted store: `/store/`, `/sync/v1/` and `/fleet`."""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from edge_infer.errors import InputError, Unauthorized
from edge_infer.server.errors import PathNotFound
from edge_infer.server.ingestion.bodies import read_body
from edge_infer.server.protocol.reports import MAX_REPORT_BYTES, Report
from edge_infer.server.responses import NO_STORE, handle_error, json_answer
from edge_infer.server.static.assets import safe_path
from edge_infer.server.store.events import Events
from edge_infer.server.store.fleet import Fleet
from edge_infer.server.store.page import policy, render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request

    from edge_infer.server.static.assets import Assets

#: The store's files are public and signed: pages of other origins may read them, isolated ones too.
_PUBLIC = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Content-Range",  # without it a page cannot go on with a pack that broke off
    "Cross-Origin-Resource-Policy": "cross-origin",
}
_FOREVER = "public, max-age=31536000, immutable"
_NO_STORE_HERE = "edge-infer serve STORE"


class HostedStore(NamedTuple):
    """A store that the server hosts for devices.

    Attributes:
        folder: The store whose files it hosts; None for none.
        fleet: The database of what devices report; None to keep it in memory.
        token: What must be shown to report and to read what was reported, as `Authorization: Bearer TOKEN` or as a
            browser's password; empty for none.
        is_open: Whether anybody may where there is no token: on a server that other machines do not reach.
    """

    folder: Path | None = None
    fleet: Path | None = None
    token: str = ""
    is_open: bool = True


class StoreRoutes:
    """The routes of a hosted store.

    Args:
        hosted: What is hosted.
        assets: Answers for files.
        is_draining: Whether the server stops.
    """

    def __init__(self, hosted: HostedStore, assets: Assets, is_draining: Callable[[], bool]) -> None:
        self._hosted = hosted
        self._assets = assets
        self._events = None if hosted.folder is None else Events(hosted.folder, is_draining)
        self.fleet = Fleet(hosted.fleet)

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/store/{path:path}", self.file),
            Route("/sync/v1/events", self.events),
            Route("/sync/v1/report", self.report, methods=["POST", "OPTIONS"]),
            Route("/sync/v1/advice", self.advice),
            Route("/sync/v1/fleet", self.state),
            Route("/fleet", self.page),
        ]

    async def file(self, request: Request) -> Response:
        """Send a file of the store; all but the timestamp never change."""
        folder, path = self._hosted.folder, request.path_params["path"]
        if folder is None:
            raise PathNotFound("No store is hosted here", hint=_NO_STORE_HERE)
        if path.split("/")[0] not in ("tuf", "revisions", "packs"):
            raise PathNotFound(f"A store has no `/{path[:200]}`", hint="GET /store/tuf/timestamp.json", path=path[:200])
        try:
            response = await self._assets.answer(request, lambda: self._assets.open(safe_path(folder, path)))
        except PathNotFound as error:  # a page of another origin reads that there is no newer root
            response = await handle_error(request, error)
        response.headers.update(_PUBLIC)
        if path != "tuf/timestamp.json" and response.status_code in (200, 206, 304):
            response.headers["Cache-Control"] = _FOREVER
        return response

    async def events(self, _request: Request) -> Response:
        """Tell when something is published, as server-sent events."""
        if self._events is None:
            raise PathNotFound("No store is hosted here", hint=_NO_STORE_HERE)
        return self._events.answer()

    async def report(self, request: Request) -> Response:
        """Take a device's report."""
        public = {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Headers": "Content-Type, Authorization",
            "Access-Control-Max-Age": "86400",
        }
        if request.method == "OPTIONS":
            return Response(None, 204, public)
        if not self._may(request):
            return self._strange("This server takes reports from its own devices only", public)
        length = request.headers.get("content-length", "")
        declared = int(length) if length.isdecimal() else -1
        report = Report.from_bytes(await read_body(request.receive, declared, MAX_REPORT_BYTES))
        await to_thread.run_sync(self._take, report)
        return json_answer({"halts": await self._halts(report.model)}, NO_STORE | public)

    def _take(self, report: Report) -> None:
        """Take a report, where the store that is hosted here can have led to it."""
        if self._hosted.folder is not None:
            from edge_infer.sync.repository import Repository

            offered = Repository(self._hosted.folder).offered(report.model)
            if offered is None:
                raise InputError(f"The store has no model `{report.model}`", hint="edge-infer publish BUNDLE STORE")
            if max(report.wanted, report.sequence) > offered.sequence:
                raise InputError(
                    f"The report names a version of `{report.model}` that was not published",
                    hint=f"the newest has the number {offered.sequence}",
                )
        self.fleet.add(report)

    def _may(self, request: Request) -> bool:
        """Tell whether a request shows the token: a device as a bearer, a browser as the password."""
        if not self._hosted.token:
            return self._hosted.is_open
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        shown = given.encode()
        if kind.lower() == "basic":
            try:
                shown = base64.b64decode(shown, validate=True).partition(b":")[2]
            except ValueError:
                return False
        return kind.lower() in ("basic", "bearer") and hmac.compare_digest(shown, self._hosted.token.encode())

    async def advice(self, request: Request) -> Response:
        """Tell which roll-outs fail; devices that ask do not begin them."""
        return json_answer({"halts": await self._halts(request.query_params.get("model"))}, {**NO_STORE, **_PUBLIC})

    async def _halts(self, model: str | None) -> list[dict[str, object]]:
        return [halt._asdict() for halt in await to_thread.run_sync(self.fleet.halts, model)]

    async def state(self, request: Request) -> Response:
        """Describe the fleet as JSON."""
        if not self._may(request):
            return self._strange("This server shows its fleet only with its token")
        found = await to_thread.run_sync(self.fleet.overview)
        document = found._asdict() | {"halts": [halt._asdict() for halt in found.halts]}
        return json_answer(document, NO_STORE)

    async def page(self, request: Request) -> Response:
        """Show the fleet."""
        if not self._may(request):
            return self._strange(
                "This server shows its fleet only with its token", {"WWW-Authenticate": 'Basic realm="fleet"'}
            )
        text = await to_thread.run_sync(lambda: render(self.fleet))
        return HTMLResponse(text, headers={**NO_STORE, "Content-Security-Policy": policy()})

    def _strange(self, message: str, headers: dict[str, str] | None = None) -> Response:
        """Refuse who does not show the token; where there is none, nobody can, but its operator can set one."""
        hint = "Authorization: Bearer TOKEN, the one of --report-token"
        if not self._hosted.token:
            message = "This server is open to other machines and has no token for reports"
            hint = "start it with --report-token TOKEN, and give devices the same"
        response = json_answer(Unauthorized(message, hint=hint).to_json(), NO_STORE | (headers or {}))
        response.status_code = 401
        return response
