"""The registry of backends: their names, where they run, and their classes, imported at first use.

To add one: a file in `backends/`, a line in `_BUILT_IN`, an extra in `pyproject.toml`. Another distribution adds its
own by the entry-point group `edge_infer.backends`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder

from edge_infer import backends
from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.platform.host import in_browser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from edge_infer.backends.base import Backend

# Where each runs (an engine for `page` has no native build, one that is `native` none for Pyodide), and its class. The
# order is the order of preference where several can run a variant; those of the other kind of place come last.
_BUILT_IN = {
    "onnxruntime": ("native", "edge_infer.backends.onnxruntime.backend:OnnxRuntimeBackend"),
    "litert": ("native", "edge_infer.backends.litert.backend:LiteRTBackend"),
    "compiled": ("native", "edge_infer.backends.compiled:CompiledBackend"),
    "compiled-web": ("page", "edge_infer.backends.web.compiled:CompiledWebBackend"),
    "ort-web": ("page", "edge_infer.backends.web.ort:OrtWebBackend"),
    "litert-web": ("page", "edge_infer.backends.web.litert:LiteRTWebBackend"),
    "remote": ("both", "edge_infer.backends.remote.http:RemoteBackend"),
    "reference": ("both", "edge_infer.backends.reference.backend:ReferenceBackend"),
}
#: The one format that an engine of ours reads: where nothing has it, the engine's module need not be imported.
_FORMATS = {
    "onnxruntime": "onnx",
    "litert": "tflite",
    "compiled": "compiled",
    "compiled-web": "compiled",
    "ort-web": "onnx",
    "litert-web": "tflite",
    "reference": "onnx",
}
_ENTRY_POINTS = "edge_infer.backends"
_MADE: dict[str, Backend] = {}
_HERE: dict[str, bool] = {}
_FROM_OTHERS: dict[str, str] | None = None


def backend_names() -> Iterator[str]:
    """Give the names of all backends, the preferred here first; it imports none of them."""
    yield from _built_in()
    yield from _from_other_distributions()


def get_backend(name: str) -> Backend:
    """Return the backend of this name; the same object each time.

    Raises:
        InputError: There is none.
    """
    if name in _MADE:
        return _MADE[name]
    place = _BUILT_IN[name][1] if name in _built_in() else _from_other_distributions().get(name)
    if place is None:
        names = list(backend_names())
        raise InputError(
            f"Backend `{name}` is not known; choose from {listed(names)}", hint=did_you_mean(name, names), allowed=names
        )
    module, _, attribute = place.partition(":")
    # Of two threads that make it at once, the first one's is taken by both.
    return _MADE.setdefault(name, getattr(import_module(module), attribute)())


def may_read(name: str, formats: Collection[str]) -> bool:
    """Tell, without importing it, whether a backend can read one of some formats; True where only it knows."""
    return name not in _FORMATS or name in _MADE or _FORMATS[name] in formats


def _built_in() -> Iterator[str]:
    """Give the names of our own that may run here; natively also those of a page, which commands start there.

    Each is looked for when its turn comes: most loads take one of the first.
    """
    unfit = "native" if in_browser() else ""
    for name in sorted(_BUILT_IN, key=lambda name: _BUILT_IN[name][0] == "page" and not unfit):
        kind, place = _BUILT_IN[name]
        if kind != unfit and _is_here(place):
            yield name


def _is_here(place: str) -> bool:
    """Tell whether the file of a backend is here: a slim folder has some of them."""
    if place not in _HERE:
        folder, _, file = place.partition(":")[0].removeprefix(f"{__package__}.").rpartition(".")
        name = f"{__package__}.{folder or file}"
        _HERE[place] = not place.startswith(name) or PathFinder.find_spec(name, backends.__path__) is not None
    return _HERE[place]


def _from_other_distributions() -> dict[str, str]:
    global _FROM_OTHERS
    if _FROM_OTHERS is None:
        from importlib.metadata import entry_points

        _FROM_OTHERS = {point.name: point.value for point in entry_points(group=_ENTRY_POINTS)}
    return _FROM_OTHERS
