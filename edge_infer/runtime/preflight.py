"""Public `check`: tell what `load` would do, before it does it."""

from __future__ import annotations

import os

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.bundle.bundle import MODEL_FORMATS, Bundle
from edge_infer.errors import InputError
from edge_infer.platform import fetch, host
from edge_infer.platform.records import Record
from edge_infer.runtime.measurements import may_be_remembered, remembered
from edge_infer.runtime.options import LoadOptions, from_environment
from edge_infer.runtime.selection import choices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from edge_infer.bundle.manifest import Manifest
    from edge_infer.runtime.selection import Choice


class NeededFile(Record):
    """A file that a load needs: its path or URL, the bytes that it has, and how many of them are here."""

    url: str
    bytes: int
    here: int


class Preflight(Record):
    """What `load` would do with a bundle; the fields are those of JavaScript's `check`.

    Attributes:
        model: The bundle's name and the first digits of its revision.
        variant: The id of the variant that would be taken.
        why: What decides on it: `asked for`, or `rule`, `measured` or `last` with the reason.
        engine: The engine that would run it.
        device: Where it would run: `cpu`, `cuda`, `wasm` or `webgpu`.
        files: The model's files. The engine is installed, or has started with the page.
        bytes_to_fetch: The bytes that come over the network.
        bytes_here: The bytes that are on this machine.
        expected_ms: The time of a call in milliseconds, where it was measured on this machine; else None.
        memory_bytes: About what the model takes while it loads: its files, and the weights in the engine.
        not_better: Why something that may be faster is not used, in words.
    """

    model: str
    variant: str
    why: str
    engine: str
    device: str
    files: tuple[NeededFile, ...]
    bytes_to_fetch: int
    bytes_here: int
    expected_ms: float | None
    memory_bytes: int
    not_better: tuple[str, ...]


def check(
    source: str | os.PathLike[str] | Bundle,
    *,
    device: str = "auto",
    backend: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
) -> Preflight:
    """Tell what `load` would do with a bundle: of a URL nothing but the manifest is fetched, and no engine starts.

    A model that the engine turns out not to load, after which `load` takes the next choice, is not foreseen.

    Args:
        source: A bundle (folder, `.zip` or URL) or a model file of this machine.
        device: As `load` takes it, like the arguments below.
        backend: The engine to use.
        variant: The id of the variant to use.
        threads: The threads that one operator may use.

    Raises:
        InputError: The source is an address that has to be downloaded whole to be looked at.
        BundleError: The source is not a bundle or model.
        BackendUnavailable: No engine can run it here, or not on that device.
    """
    asked = from_environment(LoadOptions(device, backend, variant, threads))
    bundle = source if isinstance(source, Bundle) else _open(os.fspath(source))
    manifest = bundle.manifest
    is_known = not bundle.is_bare or may_be_remembered(manifest.name)
    rows = remembered(manifest.name, bundle.revision) if is_known else ()
    choice = next(iter(choices(manifest, asked, rows)))
    is_far = fetch.is_url(bundle.location)
    sizes = {path: manifest.files[path].size for path in (choice.variant.file, *choice.variant.external)}
    files = tuple(NeededFile(_place(bundle, path), size, 0 if is_far else size) for path, size in sizes.items())
    total = sum(file.bytes for file in files)
    here = sum(file.here for file in files)
    return Preflight(
        bundle.label,
        choice.variant.id,
        choice.why,
        choice.backend,
        choice.device,
        files,
        total - here,
        here,
        choice.ms,
        2 * total,
        tuple(_not_better(manifest, choice)),
    )


def _open(source: str) -> Bundle:
    """Open a bundle without downloading more than its manifest."""
    is_address = fetch.is_url(source) or source.startswith(("hf:", "edge+", "ws:", "wss:"))
    path = source.partition("?")[0]
    is_whole = path.endswith((*MODEL_FORMATS, ".zip")) or not fetch.is_url(source) or "/v2/models/" in path
    if is_address and is_whole:
        raise InputError(
            f"`{source}` is no bundle at a URL: there is nothing to look at before it is fetched",
            hint='check("https://HOST/models/NAME"), or edge_infer.load(...)',
        )
    return Bundle.open(source)


def _place(bundle: Bundle, path: str) -> str:
    """Return where a file lies, in words of the bundle's location."""
    return bundle.location if bundle.is_bare else f"{bundle.location.rstrip('/')}/{path}"


def _not_better(manifest: Manifest, choice: Choice) -> list[str]:
    found = []
    formats = {one.format for one in manifest.variants}
    known = [get_backend(name) for name in backend_names()]
    engines = [one for one in known if bool(one.page_devices) == host.in_browser()]
    for engine in engines:
        if engine.is_reference or not formats.intersection(engine.formats):
            continue
        state = engine.availability()
        if not state.ready and state.reason:
            found.append(f"{engine.name}: {state.reason}" + (f" ({state.hint})" if state.hint else ""))
    gpu = "webgpu" if host.in_browser() else "cuda"
    if choice.device.partition(":")[0] not in ("cuda", "webgpu"):
        offered = [one.name for one in engines if gpu in one.availability().devices]
        ask = f'offered by {", ".join(offered)}, and not taken: device="{gpu}"'
        found.append(f"{gpu}: {ask if offered else 'no engine here offers it'}")
    if choice.ms is None and len(manifest.variants) > 1:
        found.append("nothing was measured here: edge_infer.tune(bundle) measures which variant is the fastest")
    return found
