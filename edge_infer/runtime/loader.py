"""Try the ways to run a model in their order, until one works; on a server, where its address or a fallback says so."""

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
from edge_infer.runtime.open_session import Opening, open_session, open_session_async
from edge_infer.runtime.selection import Choice, best_measured, choices
from edge_infer.runtime.session import Session
from edge_infer.tensors.arrays import has_numpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edge_infer.runtime.measurements import Measurement
    from edge_infer.runtime.options import Wishes

ARRAYS = ("auto", "numpy", "tensor")


def opened(source: str | os.PathLike[str] | Bundle, wishes: Wishes) -> Session:
    """Load a model; see `edge_infer.load`."""
    _check(wishes)
    if _is_remote(source):
        return _remote(str(source), wishes)
    if _is_of_store(source):
        source = _pulled(str(source), wishes)
    bundle = source if isinstance(source, Bundle) else Bundle.open(source)
    wishes = _placed(wishes)
    failed: list[tuple[Choice, EdgeInferError]] = []
    try:
        for choice in _choices(bundle, wishes):
            try:
                return open_session(bundle, choice, bundle.model(choice.variant), _opening(wishes, failed))
            except (UnsupportedModel, BackendUnavailable) as error:
                _record(error, choice, failed, wishes)
        raise failed[0][1]
    except (BackendError, MemoryError) as error:
        return _fallen_back(error, failed, wishes)


async def opened_async(source: str | os.PathLike[str] | Bundle, wishes: Wishes) -> Session:
    """Load a model in a page; see `edge_infer.load_async`."""
    _check(wishes)
    if _is_remote(source):
        return _remote(str(source), wishes)
    if _is_of_store(source):
        source = _pulled(str(source), wishes)
    bundle = source if isinstance(source, Bundle) else await Bundle.open_async(source)
    wishes = _placed(wishes)
    failed: list[tuple[Choice, EdgeInferError]] = []
    try:
        for choice in _choices(bundle, wishes):
            try:
                return await open_session_async(bundle, choice, _opening(wishes, failed))
            except (UnsupportedModel, BackendUnavailable) as error:
                _record(error, choice, failed, wishes)
        raise failed[0][1]
    except (BackendError, MemoryError) as error:
        return _fallen_back(error, failed, wishes)


def _is_of_store(source: object) -> bool:
    """Tell whether a source is a model of a signed store."""
    return isinstance(source, str) and source.startswith("edge+")


def _pulled(address: str, wishes: Wishes) -> Path:
    """Bring the newest version of a model of a store into the user's cache; return its bundle folder.

    Where that cannot be had, the version of the last time is taken, with a warning.
    """
    if host.in_browser():
        raise UnsupportedError(
            "Python in a page does not read signed stores", hint="in JavaScript: load('edge+/store/MODEL')"
        )
    from edge_infer.sync.cache import bring

    def tried(path: Path) -> None:
        bundle = Bundle.open(path)
        has_examples = bundle.manifest.examples is not None
        opened(bundle, wishes._replace(self_test=has_examples, tune=False)).close()

    return bring(address, tried).active()


def _check(wishes: Wishes) -> None:
    arrays, threads, budget = wishes.arrays, wishes.threads, wishes.latency_budget_ms
    if arrays not in ARRAYS:
        raise InputError(f"`arrays` is `{arrays}`; choose from {listed(list(ARRAYS))}", allowed=list(ARRAYS))
    if arrays == "numpy" and not has_numpy():
        raise InputError("`arrays` is `numpy`, which is not installed here", hint="pip install numpy, or arrays='auto'")
    if threads is not None and threads < 1:
        raise InputError(f"`threads` is {threads}, expected at least 1", got=threads)
    if wishes.fallback is not None and not _is_remote(wishes.fallback):
        raise InputError(
            f"`fallback` is `{wishes.fallback}`, which is no model on a server",
            hint='fallback="http://127.0.0.1:8080/v2/models/NAME"',
        )
    if budget is not None and not budget > 0:
        raise InputError(f"`latency_budget_ms` is {budget}, expected more than 0", got=budget)


def _placed(wishes: Wishes) -> Wishes:
    """Return the wishes with the device and the backend that the engine's options are for."""
    options, device, backend = wishes.options, wishes.device, wishes.backend
    if options is None:
        return wishes
    if backend not in (None, options.backend):
        raise InputError(
            f"The options are for `{options.backend}`, the backend asked for is `{backend}`",
            hint=f'backend="{options.backend}"',
        )
    if wishes.tune:
        raise InputError("`tune` measures without an engine's options", hint="leave `options` or `tune` out")
    if device == "auto" and options.device is not None:
        device = options.device
    return wishes._replace(device=device, backend=options.backend)


def _fallen_back(error: Exception, failed: list[tuple[Choice, EdgeInferError]], wishes: Wishes) -> Session:
    """Open the model on the server where it cannot be run here, and keep why."""
    if wishes.fallback is None:
        raise error
    reasons = _told(failed) or [str(error).partition("\n")[0]]
    return _open_remote(wishes.fallback, wishes, reasons)


def _choices(bundle: Bundle, wishes: Wishes) -> Iterator[Choice]:
    """Give the ways to run a bundle here, the preferred first: by what was measured, else by rule.

    Warns of one that is known to be wrong here.

    Raises:
        BackendUnavailable: None was measured within the latency budget, and there is a server to fall back to.
    """
    rows = _measured(bundle, wishes)
    if wishes.fallback is not None and wishes.latency_budget_ms is not None:
        _check_budget(bundle, rows, wishes, wishes.latency_budget_ms)
    for choice in choices(
        bundle.manifest,
        device=wishes.device,
        backend=wishes.backend,
        variant=wishes.variant,
        threads=wishes.threads,
        measured=rows,
        latency_budget_ms=wishes.latency_budget_ms,
    ):
        if choice.has_failed:
            from warnings import warn

            warn(
                f"`{choice.variant.id}` by {choice.backend} on {choice.device} failed its golden examples when it was "
                f"measured here, and nothing else is left to take: edge-infer verify {bundle.location}",
                RuntimeWarning,
                stacklevel=4,
            )
        yield choice


def _check_budget(bundle: Bundle, rows: tuple[Measurement, ...], wishes: Wishes, budget_ms: float) -> None:
    best = _best_measured(bundle, rows, wishes)
    if best is not None and best.ms is not None and best.ms > budget_ms:
        raise BackendUnavailable(
            f"`{best.variant.id}` by {best.backend} takes {best.ms:.3g} ms here, more than {budget_ms:g} ms",
            hint="raise latency_budget_ms, or give fallback=URL of a server that has the model",
            got=best.ms,
        )


def _best_measured(bundle: Bundle, rows: tuple[Measurement, ...], wishes: Wishes) -> Choice | None:
    """Return the best of what was measured among what is wished; None where nothing was."""
    return best_measured(
        bundle.manifest,
        rows,
        device=wishes.device,
        backend=wishes.backend,
        variant=wishes.variant,
        threads=wishes.threads,
        latency_budget_ms=wishes.latency_budget_ms,
    )


def _measured(bundle: Bundle, wishes: Wishes) -> tuple[Measurement, ...]:
    """Return what was measured of the bundle here; measure it where that was asked for and is not done."""
    name = bundle.manifest.name
    rows: tuple[Measurement, ...] = ()
    if wishes.options is not None:
        return rows
    if not bundle.is_bare or wishes.tune or may_be_remembered(name):
        rows = remembered(name, bundle.revision)
    if wishes.tune:
        from edge_infer.runtime.tuning import tune

        if _best_measured(bundle, rows, wishes) is None:
            rows = tune(
                bundle,
                device=wishes.device,
                backend=wishes.backend,
                variant=wishes.variant,
                threads=None if wishes.threads is None else [wishes.threads],
            ).rows
    elif not rows and wishes.latency_budget_ms is not None:
        from warnings import warn

        warn(
            f"Nothing was measured of `{name}` on this machine, so `latency_budget_ms` cannot be kept: "
            f"`edge-infer tune {bundle.location}`, or load(..., tune=True)",
            RuntimeWarning,
            stacklevel=5,
        )
    return rows


def _opening(wishes: Wishes, failed: list[tuple[Choice, EdgeInferError]]) -> Opening:
    return Opening(
        strict=wishes.strict,
        arrays=wishes.arrays,
        asked=wishes.device,
        fallbacks=_told(failed),
        self_test=wishes.self_test,
        options=wishes.options,
        fallback=wishes.fallback,
        latency_budget_ms=wishes.latency_budget_ms,
    )


def _told(failed: list[tuple[Choice, EdgeInferError]]) -> list[str]:
    """Say in words what was tried and why it was not taken."""
    return [f"{one.variant.id} by {one.backend} on {one.device}: {error.message}" for one, error in failed]


def _record(error: EdgeInferError, choice: Choice, failed: list[tuple[Choice, EdgeInferError]], wishes: Wishes) -> None:
    """Note that a choice failed, so that the next one is tried; strictly, raise."""
    if wishes.strict:
        raise error
    failed.append((choice, error))


def _is_remote(source: object) -> bool:
    """Tell whether a source is a model on a v2 server."""
    if not isinstance(source, str) or "/v2/models/" not in source:
        return False
    return fetch.is_url(source) or source.startswith(("ws://", "wss://"))


def _remote(url: str, wishes: Wishes) -> Session:
    """Open a model on a server, which alone decides what it runs on."""
    wished = {
        "device": wishes.device != "auto",
        "backend": wishes.backend not in (None, "remote"),
        "variant": wishes.variant is not None,
        "threads": wishes.threads is not None,
        "latency_budget_ms": wishes.latency_budget_ms is not None,
        "tune": wishes.tune,
        "options": wishes.options is not None,
        "self_test": wishes.self_test,
        "fallback": wishes.fallback is not None,
    }
    refused = [name for name, is_wished in wished.items() if is_wished]
    if refused:
        raise InputError(
            f"A model on a server takes no {listed(refused)}: the server decides", hint="leave it out, or load a bundle"
        )
    return _open_remote(url, wishes)


def _open_remote(url: str, wishes: Wishes, fallbacks: Sequence[str] = ()) -> Session:
    from edge_infer.backends.remote.http import RemoteModel
    from edge_infer.bundle.manifest import Manifest, Variant

    model = RemoteModel(url)
    variant = Variant("remote/v2", "v2", "", "")
    manifest = Manifest(model.name, model.version, model.inputs, model.outputs, [variant], [])
    bundle = Bundle.of_server(manifest, url)
    choice = Choice(variant, "remote", "remote", why="the server decides")
    return Session(bundle, choice, model, arrays=wishes.arrays, asked=wishes.device, fallbacks=fallbacks)
