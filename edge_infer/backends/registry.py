"""Names of backends, and how each is made. A backend's module is imported when it is first asked for.

Adding one: a file in `backends/`, a line in `_BUILT_IN`, an extra in `pyproject.toml`. Another distribution adds its
own by the entry-point group `edge_infer.backends`.
"""

from __future__ import annotations

from importlib import import_module

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.platform.host import in_browser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.backends.base import Backend

# The order is the order of preference where several can run a variant; those of the other kind of place come last.
_BUILT_IN = {
    "onnxruntime": "edge_infer.backends.onnxruntime.backend:OnnxRuntimeBackend",
    "litert": "edge_infer.backends.litert:LiteRTBackend",
    "ort-web": "edge_infer.backends.web.ort:OrtWebBackend",
    "litert-web": "edge_infer.backends.web.litert:LiteRTWebBackend",
    "remote": "edge_infer.backends.remote.http:RemoteBackend",
    "reference": "edge_infer.backends.reference:ReferenceBackend",
}
# What can work in a page: the others have no build for Pyodide, and are not in what a page fetches of this package.
_IN_PAGE = ("ort-web", "litert-web", "remote")
_ENTRY_POINTS = "edge_infer.backends"
_MADE: dict[str, Backend] = {}
_FROM_OTHERS: dict[str, str] | None = None


def backend_names() -> Iterator[str]:
    """Give the names of all backends, the preferred here first; it imports none of them."""
    yield from _IN_PAGE if in_browser() else sorted(_BUILT_IN, key=lambda name: name.endswith("-web"))
    yield from _from_other_distributions()


def get_backend(name: str) -> Backend:
    """Return the backend of this name; the same object each time.

    Raises:
        InputError: There is none.
    """
    if name in _MADE:
        return _MADE[name]
    places = _BUILT_IN if name in _BUILT_IN else _from_other_distributions()
    if name not in places or (in_browser() and places is _BUILT_IN and name not in _IN_PAGE):
        names = list(backend_names())
        raise InputError(
            f"Backend `{name}` is not known; choose from {listed(names)}", hint=did_you_mean(name, names), allowed=names
        )
    module, _, attribute = places[name].partition(":")
    # Of two threads that make it at once, the first one's is taken by both.
    return _MADE.setdefault(name, getattr(import_module(module), attribute)())


def _from_other_distributions() -> dict[str, str]:
    global _FROM_OTHERS
    if _FROM_OTHERS is None:
        from importlib.metadata import entry_points

        _FROM_OTHERS = {point.name: point.value for point in entry_points(group=_ENTRY_POINTS)}
    return _FROM_OTHERS
