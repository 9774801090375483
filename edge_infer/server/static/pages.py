"""The web files: where they lie, and the routes that serve them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

import edge_infer
from edge_infer.errors import BundleError
from edge_infer.server.errors import PathNotFound
from edge_infer.server.ingestion.model_paths import route_path
from edge_infer.server.static.assets import Asset, Assets, safe_path

if TYPE_CHECKING:
    from starlette.requests import Request

_FOLDERS = ("src", "studio", "demo", "vendor")
_INSTALL = "pip install 'edge-infer[web]'"
_BLANK = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>edge-infer</title><link rel="icon" href="data:,">\n'
)


def find_web_root(given: Path | None = None) -> Path:
    """Return the folder that has `src`, `studio`, `demo` and `vendor`.

    Args:
        given: Where the user says it is; else it is the installed `edge_infer_web`, or `web/` of a checkout.

    Raises:
        BundleError: There is none.
    """
    if given is not None:
        if not (given / "src").is_dir():
            raise BundleError(f"`{given}` has no folder `src`", hint="--web-root web", path=str(given))
        return given
    try:
        import edge_infer_web
    except ImportError:
        checkout = Path(edge_infer.__file__).parent.parent / "web"
        if (checkout / "src").is_dir() and (checkout / "studio").is_dir():
            return checkout
        raise BundleError("The web files are not installed", hint=_INSTALL) from None
    return Path(edge_infer_web.root())


class PageRoutes:
    """The studio, the digits demo, the JavaScript modules, the engine files, and the user's own page.

    Args:
        root: The folder that has `src`, `studio`, `demo` and `vendor`, or None where they are not installed.
        assets: Answers for files.
        page: The folder of the user's own page, which stands at `/` in place of the studio; None for none.
    """

    def __init__(self, root: Path | None, assets: Assets, page: Path | None = None) -> None:
        self._root = root
        self._assets = assets
        self._page = page

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/", self.studio if self._page is None else self.own_page),
            Route("/studio/", self.studio),
            Route("/demo/", self.demo),
            Route("/blank.html", self.blank),
            Route("/favicon.ico", self.icon),
            *(Route(f"/{folder}/{{path:path}}", self.file, name=folder) for folder in _FOLDERS),
        ]

    def own_routes(self) -> list[Route]:
        """List the routes of the user's own page: every path that no other route takes, so they come last."""
        return [] if self._page is None else [Route("/{path:path}", self.own_page)]

    async def own_page(self, request: Request) -> Response:
        """Send a file of the user's own page; a folder is its `index.html`."""
        path = request.path_params.get("path", "")
        root = self._page
        if root is None:
            raise PathNotFound("This server has no page of its own", hint="edge-infer serve --page DIR")
        name = f"{path}index.html" if path == "" or path.endswith("/") else path
        return await self._assets.answer(request, lambda: self._assets.open(safe_path(root, name)))

    async def studio(self, request: Request) -> Response:
        """Send the studio; at the root of the server its files lie in a folder below it."""

        def open_page() -> Asset:
            page = self._open("studio", "index.html")
            if route_path(request.scope) == "/studio/":
                return page
            with page.file:
                return Asset.of_bytes(page.name, page.read().replace(b'"studio.', b'"studio/studio.'))

        return await self._assets.answer(request, open_page)

    async def demo(self, request: Request) -> Response:
        """Send the page of the digits model, in JavaScript and in Python."""
        return await self._assets.answer(request, lambda: self._open("demo", "index.html"))

    async def blank(self, request: Request) -> Response:
        """Send a page with nothing in it, for whoever drives a browser."""
        return await self._assets.answer(request, lambda: Asset.of_bytes("blank.html", _BLANK))

    async def icon(self, request: Request) -> Response:
        """Send the demo's icon; browsers ask for it unasked."""
        if self._root is None or not (self._root / "demo" / "favicon.ico").is_file():
            return Response(None, 204)
        return await self._assets.answer(request, lambda: self._open("demo", "favicon.ico"))

    async def file(self, request: Request) -> Response:
        """Send a file of one of the folders."""
        folder, path = route_path(request.scope).split("/")[1], request.path_params["path"]
        response = await self._assets.answer(request, lambda: self._open(folder, path))
        if (folder, path) == ("src", "service-worker.js"):
            response.headers["Service-Worker-Allowed"] = "/"  # unasked, it may serve pages under /src/ only
        return response

    def _open(self, folder: str, path: str) -> Asset:
        if self._root is None:
            raise PathNotFound("The web files are not installed", hint=_INSTALL)
        is_checkout = (self._root / "vendor.py").is_file()
        if folder == "vendor" and not (self._root / folder / "versions.json").is_file():
            raise PathNotFound(
                "The engine files of the page are not there",
                hint="make setup" if is_checkout else _INSTALL,
            )
        if is_checkout and folder == "vendor" and path.startswith("examples/"):
            # Where they are edited; `vendor/` has a copy for the wheel.
            return self._assets.open(safe_path(self._root.parent / "examples", path.removeprefix("examples/")))
        return self._assets.open(safe_path(self._root / folder, path))
