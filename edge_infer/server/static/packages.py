"""The routes `/wheels/` and `/simple/`: the wheel of edge-infer and a package index of this one project."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.responses import Response
from starlette.routing import Route

from edge_infer.errors import did_you_mean
from edge_infer.server.errors import PathNotFound
from edge_infer.server.ingestion.model_paths import root_path
from edge_infer.server.response.negotiation import prefers_html
from edge_infer.server.responses import NO_CACHE, json_answer
from edge_infer.server.static.assets import Asset, Assets
from edge_infer.server.static.lockfile import LOCK_NAME, lock_file
from edge_infer.server.static.wheel import DISTRIBUTION, WheelBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
#: What JSON or HTML depends on.
_SIMPLE_HEADERS = {**NO_CACHE, "Vary": "Accept"}


class PackageRoutes:
    """`/wheels/` and `/simple/`: the wheel of edge-infer and a package index (PEP 503, PEP 691) that has only it.

    Args:
        assets: Answers for files.
        web_root: The folder that has `vendor`, whose Pyodide's lock file is extended.
    """

    def __init__(self, assets: Assets, web_root: Path | None = None) -> None:
        self._assets = assets
        self._web_root = web_root
        self._builder = WheelBuilder()

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(f"/wheels/{LOCK_NAME}", self.lock),
            Route("/wheels/{name}", self.wheel),
            Route("/simple/", self.projects),
            Route("/simple/{project}/", self.project),
        ]

    async def wheel(self, request: Request) -> Response:
        """Send the wheel, or a part of it that a page needs."""
        name = request.path_params["name"]

        def open_wheel() -> Asset:
            wheel, archives = self._builder.build(), self._builder.archive_names()
            if name in archives:
                return Asset.of_bytes(name, self._builder.archive(name))
            if name != wheel.name:
                hint = did_you_mean(name[:128], [wheel.name, *archives]) or f"there is `{wheel.name}`"
                raise PathNotFound(f"There is no wheel `{name[:128]}`", hint=hint)
            return Asset.of_bytes(wheel.name, wheel.data, wheel.sha256)

        return await self._assets.answer(request, open_wheel)

    async def lock(self, request: Request) -> Response:
        """Send a lock file for `loadPyodide({ lockFileURL })`, by which `loadPackage("edge-infer")` finds the wheel."""

        def open_lock() -> Asset:
            if self._web_root is None:
                raise PathNotFound("The web files are not installed", hint="pip install 'edge-infer[web]'")
            return Asset.of_bytes(
                LOCK_NAME, lock_file(self._web_root / "vendor/pyodide" / LOCK_NAME, self._builder.build())
            )

        return await self._assets.answer(request, open_lock)

    async def projects(self, request: Request) -> Response:
        """List the one project."""
        if prefers_html(request.headers):
            return _index_page(f'<a href="{DISTRIBUTION}/">{DISTRIBUTION}</a>')
        document = {"meta": {"api-version": "1.1"}, "projects": [{"name": DISTRIBUTION}]}
        return json_answer(document, _SIMPLE_HEADERS, _SIMPLE_JSON)

    async def project(self, request: Request) -> Response:
        """List the one wheel of the one project; its URL is absolute because micropip resolves no other in JSON."""
        project = request.path_params["project"]
        # PEP 503: runs of `-`, `_` and `.` are one `-`, and case does not matter.
        if re.sub(r"[-_.]+", "-", project).lower() != DISTRIBUTION:
            raise PathNotFound(f"This index has no project `{project[:128]}`", hint=f"it has `{DISTRIBUTION}` only")
        wheel = await to_thread.run_sync(self._builder.build)
        path = f"{root_path(request.scope)}/wheels/{wheel.name}"
        url = str(request.base_url.replace(path=path, query="", fragment=""))
        if prefers_html(request.headers):
            python = html.escape(wheel.requires_python)
            link = f"../../wheels/{wheel.name}#sha256={wheel.sha256}"
            return _index_page(f'<a href="{link}" data-requires-python="{python}">{wheel.name}</a>')
        file = {
            "filename": wheel.name,
            "url": url,
            "hashes": {"sha256": wheel.sha256},
            "requires-python": wheel.requires_python,
            "size": len(wheel.data),
            "yanked": False,
        }
        version = wheel.name.split("-")[1]
        document = {"meta": {"api-version": "1.1"}, "name": DISTRIBUTION, "versions": [version], "files": [file]}
        return json_answer(document, _SIMPLE_HEADERS, _SIMPLE_JSON)


def _index_page(link: str) -> Response:
    page = f'<!doctype html><meta charset="utf-8"><title>edge-infer</title>\n{link}\n'
    return Response(page, 200, _SIMPLE_HEADERS, "text/html; charset=utf-8")
