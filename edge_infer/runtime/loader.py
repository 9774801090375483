"""Try candidate choices in order; use a server if one is named or configured as fallback."""

from __future__ import annotations

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import (
    BackendError,
    BackendUnavailable,
    EdgeInferError,
    InputError,
    UnsupportedError,
    UnsupportedModel,
    listed,
)
from edge_infer.platform import fetch, host
from edge_infer.runtime.measurements import may_be_remembered, remembered
from edge_infer.runtime.open_session import open_session
from edge_infer.runtime.options import DEFAULTS
from edge_infer.runtime.selection import Choice, best_measured, choices
from edge_infer.runtime.session import Session
from edge_infer.tensors.arrays import has_numpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edge_infer.runtime.measurements import Measurement
    from edge_infer.runtime.options import LoadOptions

ARRAYS = ("auto", "numpy", "tensor")


async def opened(source: str | os.PathLike[str] | Bundle, asked: LoadOptions, *, may_wait: bool = False) -> Session:
    """Load a model; see `edge_infer.load`.

    Args:
        source: The bundle, model or address.
        asked: The options of `load`.
        may_wait: Whether to await downloads and asynchronous engines, as `load_async` does in a page. Without it no
            `await` suspends, so that `host.at_once` runs this to its end.
    """
    _check(asked)
    if _is_remote(source):
        return _remote(str(source), asked)
    if _is_of_store(source):
        source = _pulled(str(source), asked)
    if isinstance(source, Bundle):
        bundle = source
    else:
        bundle = await Bundle.open_async(source) if may_wait else Bundle.open(source, key=asked.key)
    asked = _placed(asked)
    failed: list[tuple[Choice, EdgeInferError]] = []
    try:
        for choice in _choices(bundle, asked):
            try:
                return await open_session(bundle, choice, asked, _told(failed), may_wait=may_wait)
            except (UnsupportedModel, BackendUnavailable) as error:
                if asked.strict:
                    raise
                failed.append((choice, error))
        raise failed[0][1]
    except (BackendError, MemoryError) as error:
        if asked.fallback is None:
            raise
        return _open_remote(asked.fallback, asked, _told(failed) or [str(error).partition("\n")[0]])


def trial(path: Path, asked: LoadOptions = DEFAULTS) -> None:
    """Load a bundle folder and run its golden examples, where it has any.

    Raises:
        UnsupportedError: It is an index: nothing is wrong with it, but it cannot be loaded.
        EdgeInferError: It does not load, or does not give its golden outputs.
    """
    from edge_infer.sync.revision import HEADS  # only hosts try versions of a store

    if next((name for name in HEADS if (path / name).is_file()), HEADS[0]) != HEADS[0]:
        raise UnsupportedError(
            "It is an index of vectors, and no model",
            hint="edge-infer pull STORE/NAME --into DIR brings it",
            is_index=True,
        )
    bundle = Bundle.open(path, key=asked.key)
    has_examples = bundle.manifest.examples is not None
    host.at_once(opened(bundle, asked._replace(self_test=has_examples, tune=False))).close()


def _is_of_store(source: object) -> bool:
    """Tell whether a source is a model of a signed store."""
    return isinstance(source, str) and source.startswith("edge+")


def _pulled(address: str, asked: LoadOptions) -> Path:
    """Bring the newest version of a model of a store into the user's cache; return its bundle folder.

    Where that cannot be had, the version of the last time is taken, with a warning.
    """
    if host.in_browser():
        raise UnsupportedError(
            "Python in a page does not read signed stores", hint="in JavaScript: load('edge+/store/MODEL')"
        )
    from edge_infer.sync.cache import bring

    return bring(address, lambda path: trial(path, asked), asked.key).active()


def _check(asked: LoadOptions) -> None:
    arrays, threads, budget = asked.arrays, asked.threads, asked.latency_budget_ms
    if arrays not in ARRAYS:
        raise InputError(f"`arrays` is `{arrays}`; choose from {listed(list(ARRAYS))}", allowed=list(ARRAYS))
    if arrays == "numpy" and not has_numpy():
        raise InputError("`arrays` is `numpy`, which is not installed here", hint="pip install numpy, or arrays='auto'")
    if threads is not None and threads < 1:
        raise InputError(f"`threads` is {threads}, expected at least 1", got=threads)
    if asked.fallback is not None and not _is_remote(asked.fallback):
        raise InputError(
            f"`fallback` is `{asked.fallback}`, which is not a model on a server",
            hint='fallback="http://127.0.0.1:8080/v2/models/NAME"',
        )
    if budget is not None and not budget > 0:
        raise InputError(f"`latency_budget_ms` is {budget}, expected more than 0", got=budget)


def _placed(asked: LoadOptions) -> LoadOptions:
    """Return the options of `load` with the device and the backend that the engine's options are for."""
    engine, device, backend = asked.options, asked.device, asked.backend
    if engine is None:
        return asked
    if backend not in (None, engine.backend):
        raise InputError(
            f"The options are for `{engine.backend}`, the backend asked for is `{backend}`",
            hint=f'backend="{engine.backend}"',
        )
    if asked.tune:
        raise InputError("`tune` measures without an engine's options", hint="leave `options` or `tune` out")
    if device == "auto" and engine.device is not None:
        device = engine.device
    return asked._replace(device=device, backend=engine.backend)


def _choices(bundle: Bundle, asked: LoadOptions) -> Iterator[Choice]:
    """Give the ways to run a bundle here, the preferred first: by what was measured, else by rule.

    Warns of one that is known to be wrong here.

    Raises:
        BackendUnavailable: None was measured within the latency budget, and there is a server to fall back to.
    """
    rows = _measured(bundle, asked)
    if asked.fallback is not None and asked.latency_budget_ms is not None:
        _check_budget(bundle, rows, asked, asked.latency_budget_ms)
    for choice in choices(bundle.manifest, asked, rows):
        if choice.has_failed:
            from warnings import warn

            warn(
                f"`{choice.variant.id}` by {choice.backend} on {choice.device} failed its golden examples when it was "
                f"measured here, and nothing else is left to take: edge-infer verify {bundle.location}",
                RuntimeWarning,
                stacklevel=6,
            )
        yield choice


def _check_budget(bundle: Bundle, rows: tuple[Measurement, ...], asked: LoadOptions, budget_ms: float) -> None:
    best = best_measured(bundle.manifest, asked, rows)
    if best is not None and best.ms is not None and best.ms > budget_ms:
        raise BackendUnavailable(
            f"`{best.variant.id}` by {best.backend} takes {best.ms:.3g} ms here, more than {budget_ms:g} ms",
            hint="raise latency_budget_ms, or give fallback=URL of a server that has the model",
            got=best.ms,
        )


def _measured(bundle: Bundle, asked: LoadOptions) -> tuple[Measurement, ...]:
    """Return what was measured of the bundle here; measure it where that was asked for and is not done."""
    name = bundle.manifest.name
    rows: tuple[Measurement, ...] = ()
    if asked.options is not None:
        return rows
    if not bundle.is_bare or asked.tune or may_be_remembered(name):
        rows = remembered(name, bundle.revision)
    if asked.tune:
        from edge_infer.runtime.tuning import tune

        if best_measured(bundle.manifest, asked, rows) is None:
            rows = tune(
                bundle,
                device=asked.device,
                backend=asked.backend,
                variant=asked.variant,
                threads=None if asked.threads is None else [asked.threads],
            ).rows
    elif not rows and asked.latency_budget_ms is not None:
        from warnings import warn

        warn(
            f"Nothing was measured of `{name}` on this machine, so `latency_budget_ms` cannot be kept: "
            f"`edge-infer tune {bundle.location}`, or load(..., tune=True)",
            RuntimeWarning,
            stacklevel=7,
        )
    return rows


def _told(failed: list[tuple[Choice, EdgeInferError]]) -> list[str]:
    """Say in words what was tried and why it was not taken."""
    return [f"{one.variant.id} by {one.backend} on {one.device}: {error.message}" for one, error in failed]


def _is_remote(source: object) -> bool:
    """Tell whether a source is a model on a v2 server."""
    if not isinstance(source, str) or "/v2/models/" not in source:
        return False
    return fetch.is_url(source) or source.startswith(("ws://", "wss://"))


def _remote(url: str, asked: LoadOptions) -> Session:
    """Open a model on a server, which alone decides what it runs on."""
    given = {
        "device": asked.device != "auto",
        "backend": asked.backend not in (None, "remote"),
        "variant": asked.variant is not None,
        "threads": asked.threads is not None,
        "latency_budget_ms": asked.latency_budget_ms is not None,
        "tune": asked.tune,
        "options": asked.options is not None,
        "self_test": asked.self_test,
        "fallback": asked.fallback is not None,
        "key": asked.key is not None,
    }
    refused = [name for name, is_given in given.items() if is_given]
    if refused:
        raise InputError(
            f"A model on a server takes no {listed(refused)}: the server decides", hint="leave it out, or load a bundle"
        )
    return _open_remote(url, asked)


def _open_remote(url: str, asked: LoadOptions, fallbacks: Sequence[str] = ()) -> Session:
    from edge_infer.backends.remote.http import RemoteModel
    from edge_infer.bundle.manifest import Manifest
    from edge_infer.bundle.variant import Variant

    model = RemoteModel(url)
    variant = Variant("remote/v2", "v2", "", "")
    manifest = Manifest(model.name, model.version, model.inputs, model.outputs, [variant], [])
    bundle = Bundle.of_server(manifest, url)
    choice = Choice(variant, "remote", "remote", why="the server decides")
    return Session(bundle, choice, model, asked, fallbacks)
