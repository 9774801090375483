"""Open a session by one choice: prepare the variant on the engine, check its interface, test it if asked."""

from __future__ import annotations

import os

from edge_infer.backends.registry import get_backend
from edge_infer.errors import (
    BackendUnavailable,
    EdgeInferError,
    ExecutionError,
    InputError,
    ManifestError,
    UnsupportedError,
    listed,
)
from edge_infer.platform import host
from edge_infer.runtime.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.backends.base import Runnable
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
    from edge_infer.runtime.options import LoadOptions
    from edge_infer.runtime.selection import Choice


async def open_session(
    bundle: Bundle, choice: Choice, asked: LoadOptions, fallbacks: Sequence[str] = (), *, may_wait: bool = False
) -> Session:
    """Make the session of one choice.

    Args:
        bundle: The bundle of the model.
        choice: The variant, the engine, the device and the threads.
        asked: The options of `load`.
        fallbacks: The choices that failed before this one, in words.
        may_wait: Whether to await the download, the start of the engine and its calls, as in a page.

    Raises:
        UnsupportedModel: The engine cannot load it.
        BackendUnavailable: The engine cannot work here, or strictly not on that device.
        ManifestError: The model has another interface than the manifest promises.
        InputError: The engine takes no number of threads; or there is nothing to test with.
        ExecutionError: The self-test did not give the golden outputs.
        UnsupportedError: There is a fallback, and the engine is one that only runs asynchronously.
    """
    backend, settings = get_backend(choice.backend), _settings(choice, asked)
    if may_wait:
        await backend.start()
        model = await bundle.model_async(choice.variant)
        runnable = await backend.prepare_async(model, choice.variant, device=choice.device, options=settings)
        if asked.fallback is not None and runnable.is_asynchronous:
            runnable.close()
            raise UnsupportedError(
                f"`fallback` needs an engine that runs at once, `{choice.backend}` answers later",
                hint="device='wasm'",
            )
    else:
        model = bundle.model(choice.variant)
        runnable = backend.prepare(model, choice.variant, device=choice.device, options=settings)
    _check_placement(choice, runnable, strict=asked.strict)
    _check_specs(bundle, choice, runnable)
    runnable = _with_fallback(runnable, asked.fallback, asked.latency_budget_ms)
    session = Session(bundle, choice, runnable, asked, fallbacks)
    if asked.self_test:
        await _self_test(session, choice.variant, may_wait=may_wait)
    return session


def _with_fallback(runnable: Runnable, url: str | None, latency_budget_ms: float | None) -> Runnable:
    """Put a server behind a model, for what cannot be run here."""
    if url is None:
        return runnable
    from edge_infer.backends.remote.fallback import FallbackModel
    from edge_infer.backends.remote.http import RemoteModel

    return FallbackModel(runnable, url, RemoteModel, None if latency_budget_ms is None else latency_budget_ms / 1000)


def _settings(choice: Choice, asked: LoadOptions) -> dict[str, str]:
    """Return what the engine is told: the bundle's own options, the program's, and the threads."""
    own = choice.variant.options.get(choice.backend, {})
    for key in own:
        if key in ("strict", "arena") or key.partition(".")[0] in ("user", "provider"):
            raise ManifestError(f"The variant `{choice.variant.id}` sets `{key}`, which only a program may", got=key)
    settings = {**_thread_option(choice), **own}
    if asked.options is not None:
        settings |= asked.options.settings()
    if choice.threads is not None:
        settings["intra_op_threads"] = str(choice.threads)
    if asked.strict and (asked.options is not None or choice.device.startswith("cuda")):
        settings["strict"] = "1"
    return settings


def _check_placement(choice: Choice, runnable: Runnable, *, strict: bool) -> None:
    """Warn where the model is not on the device that was chosen; strictly, raise."""
    placement = runnable.placement
    if strict and placement.device != choice.device.partition(":")[0]:
        runnable.close()
        raise BackendUnavailable(
            f"Device `{choice.device}` is not used: {'; '.join(placement.fallbacks) or f'runs on {placement.device}'}",
            hint="leave `strict` out" if host.in_browser() else "edge-infer backends",
            expected=choice.device,
            got=placement.device,
        )
    if placement.fallbacks:
        from warnings import warn

        warn(f"{choice.backend}: {'; '.join(placement.fallbacks)}", RuntimeWarning, stacklevel=7)


def _thread_option(choice: Choice) -> dict[str, str]:
    """Return the threads that an engine is told to use where nobody asks for a number.

    Left alone, engines start a thread for each core of the machine, pinned to it, whatever share of the machine this
    process has; where that is less than the machine, it is told.
    """
    if not get_backend(choice.backend).takes_threads:
        if choice.threads is not None:
            raise InputError(
                f"Backend `{choice.backend}` takes no number of threads", hint="leave `threads` out", got=choice.threads
            )
        return {}
    if choice.threads is not None:
        return {}
    usable = host.available_cpus()
    return {"intra_op_threads": str(usable)} if usable < (os.cpu_count() or 1) else {}


def _check_specs(bundle: Bundle, choice: Choice, runnable: Runnable) -> None:
    """Refuse a model whose inputs or outputs are not those that the manifest promises."""
    variant, manifest = choice.variant, bundle.manifest
    sides = (
        ("input", variant.inputs or manifest.inputs, runnable.inputs),
        ("output", variant.outputs or manifest.outputs, runnable.outputs),
    )
    for side, promised, found in sides:
        if not promised:
            continue  # a bare model: the engine tells
        own = {spec.name: spec for spec in found}
        for spec in promised:
            other = own.pop(spec.name, None)
            is_same_rank = other is None or not other.is_rank_known or len(other.shape) == len(spec.shape)
            if other is None or other.dtype != spec.dtype or not is_same_rank:
                runnable.close()
                raise ManifestError(
                    f"The manifest of `{bundle.label}` promises the {side} `{spec}`, the model of `{variant.id}` has "
                    f"{f'`{other}`' if other is not None else listed([str(one) for one in found])}",
                    hint="convert the bundle again",
                )
        if own and side == "input":
            runnable.close()
            raise ManifestError(
                f"The model of `{variant.id}` needs {listed(list(own))}, which the manifest of `{bundle.label}` lacks",
                hint="convert the bundle again",
            )


async def _self_test(session: Session, variant: Variant, *, may_wait: bool) -> None:
    """Close the session and raise if it does not give the golden outputs of its bundle."""
    examples = session.bundle.examples()
    try:
        if not examples:
            raise InputError(
                f"`{session.bundle.manifest.name}` has no golden examples to test itself with",
                hint="edge-infer convert model.onnx -o model.bundle",
            )
        try:
            results = [await session.run_async(one) if may_wait else session.run(one) for one, _ in examples]
        except InputError as error:
            raise ExecutionError(
                f"Self-test failed: the golden examples do not fit the model: {error.message}"
            ) from error
        from edge_infer.parity.comparison import compare_outputs
        from edge_infer.parity.verdict import judge_variant

        verdict = judge_variant(compare_outputs([outputs for _, outputs in examples], results), variant)
        if verdict.word == "fail":
            raise ExecutionError(
                f"Self-test failed: {session!r} against its golden examples: {verdict.reason}",
                hint=f"edge-infer verify {session.bundle.location}",
            )
    except EdgeInferError:
        session.close()
        raise
