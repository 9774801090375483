"""Find the model that a path of inference names, without a router, and the path that the application answers under."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

_PREFIX = "/v2/models/"
#: How many spellings of paths are remembered.
_MAX_PATHS = 1024


def root_path(scope: Scope) -> str:
    """Return the path that the application answers under, without a `/` at its end; empty for the server's root.

    >>> root_path({"path": "/ml/livez", "root_path": "/ml"}), root_path({"path": "/livez"})
    ('/ml', '')
    """
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def route_path(scope: Scope) -> str:
    """Return a request's path within the application, which may be mounted below another one's.

    >>> route_path({"path": "/ml/livez", "root_path": "/ml"}), route_path({"path": "/livez"})
    ('/livez', '/livez')
    """
    path: str = scope["path"]
    root = root_path(scope)
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


class Targets:
    """Paths `/v2/models/NAME[/versions/VERSION]` with something behind.

    Args:
        suffix: What is behind, such as `/infer`.

    >>> Targets("/infer").find("/v2/models/digits/versions/2/infer")
    ('digits', '2')
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._known: dict[str, tuple[str, str | None]] = {}

    def find(self, path: str) -> tuple[str, str | None] | None:
        """Return the model and version that a path names; None for any other path."""
        found = self._known.get(path)
        if found is None:
            if not (path.startswith(_PREFIX) and path.endswith(self._suffix)):
                return None
            name, slash, rest = path[len(_PREFIX) : -len(self._suffix)].partition("/")
            version: str | None = rest.removeprefix("versions/") if slash else None
            if not name or (slash and (not rest.startswith("versions/") or not version or "/" in version)):
                return None
            found = (name, version)
            if len(self._known) < _MAX_PATHS:
                self._known[path] = found
        return found
