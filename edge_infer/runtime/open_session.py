"""Open a session by one choice: prepare the variant on the engine, check its interface, test it if asked."""

from __future__ import annotations

import os

from edge_infer.backends.base import loads_asynchronously
from edge_infer.backends.registry import get_backend
from edge_infer.errors import BackendUnavailable, ExecutionError, InputError, ManifestError, UnsupportedError, listed
from edge_infer.platform import host
from edge_infer.platform.records import Record
from edge_infer.runtime.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.backends.base import EngineOptions, Runnable
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.formats.safetensors import Example
    from edge_infer.runtime.selection import Choice
    from edge_infer.tensors.tensor import Array


class Opening(Record):
    """What a session is to be besides its choice.

    Attributes:
        strict: Whether to raise where another device than the chosen one is used.
        arrays: What outputs are, as in `edge_infer.load`.
        asked: The device that the user asked for.
        fallbacks: What was tried before and failed, in words.
        self_test: Whether to run the golden examples first and compare.
        options: Settings of the engine.
        fallback: The same model on a server, for what cannot be run here; None for nowhere.
        latency_budget_ms: The time after which a call is too slow to run here, where there is a fallback.
    """

    strict: bool
    arrays: str
    asked: str
    fallbacks: Sequence[str] = ()
    self_test: bool = False
    options: EngineOptions | None = None
    fallback: str | None = None
    latency_budget_ms: float | None = None


def open_session(bundle: Bundle, choice: Choice, model: str | bytes, wishes: Opening) -> Session:
    """Make the session of one choice.

    Args:
        bundle: The bundle of the model.
        choice: The variant, the engine, the device and the threads.
        model: The path of the variant's model file, or its bytes.
        wishes: What else was asked for.

    Raises:
        UnsupportedModel: The engine cannot load it.
        BackendUnavailable: The engine cannot work here, or strictly not on that device.
        ManifestError: The model has another interface than the manifest promises.
        InputError: The engine takes no number of threads; or there is nothing to test with.
        ExecutionError: The self-test did not give the golden outputs.
    """
    settings = _settings(choice, wishes)
    runnable = get_backend(choice.backend).prepare(model, choice.variant, device=choice.device, options=settings)
    session = _session(bundle, choice, runnable, wishes)
    return _self_tested(session) if wishes.self_test else session


async def open_session_async(bundle: Bundle, choice: Choice, wishes: Opening) -> Session:
    """Make the session of one choice as `open_session` does, in a page: start the engine, fetch and load the model.

    Raises:
        The errors of `open_session`.
        UnsupportedError: There is a fallback, and the engine is one that only runs asynchronously.
    """
    backend = get_backend(choice.backend)
    settings = _settings(choice, wishes)
    await backend.start()
    model = await bundle.model_async(choice.variant)
    runnable: Runnable
    if loads_asynchronously(backend):
        if wishes.fallback is not None:
            raise UnsupportedError(
                f"`fallback` needs an engine that runs at once, `{choice.backend}` answers later",
                hint="backend='ort-web'",
            )
        runnable = await backend.prepare_async(model, choice.variant, device=choice.device, options=settings)
    else:
        runnable = backend.prepare(model, choice.variant, device=choice.device, options=settings)
    session = _session(bundle, choice, runnable, wishes)
    return await _self_tested_async(session) if wishes.self_test else session


def _session(bundle: Bundle, choice: Choice, runnable: Runnable, wishes: Opening) -> Session:
    """Check what an engine has loaded, and make a session of it."""
    _check_placement(choice, runnable, strict=wishes.strict)
    _check_specs(bundle, choice, runnable)
    runnable = _with_fallback(runnable, wishes.fallback, wishes.latency_budget_ms)
    return Session(bundle, choice, runnable, arrays=wishes.arrays, asked=wishes.asked, fallbacks=wishes.fallbacks)


def _with_fallback(runnable: Runnable, url: str | None, latency_budget_ms: float | None) -> Runnable:
    """Put a server behind a model, for what cannot be run here."""
    if url is None:
        return runnable
    from edge_infer.backends.remote.fallback import FallbackModel
    from edge_infer.backends.remote.http import RemoteModel

    return FallbackModel(runnable, url, RemoteModel, None if latency_budget_ms is None else latency_budget_ms / 1000)


def takes_threads(backend: str) -> bool:
    """Tell whether an engine takes the number of threads of an operator, as its option `intra_op_threads`."""
    return bool(getattr(get_backend(backend), "takes_threads", False))


def _settings(choice: Choice, wishes: Opening) -> dict[str, str]:
    """Return what the engine is told: the bundle's own options, the program's, and the threads."""
    own = choice.variant.options.get(choice.backend, {})
    for key in own:
        if key in ("strict", "arena") or key.partition(".")[0] in ("user", "provider"):
            raise ManifestError(f"The variant `{choice.variant.id}` sets `{key}`, which only a program may", got=key)
    settings = {**_thread_option(choice), **own}
    if wishes.options is not None:
        settings |= wishes.options.settings()
    if choice.threads is not None:
        settings["intra_op_threads"] = str(choice.threads)
    if wishes.strict and (wishes.options is not None or choice.device.startswith("cuda")):
        settings["strict"] = "1"
    return settings


def _check_placement(choice: Choice, runnable: Runnable, *, strict: bool) -> None:
    """Warn where the model is not on the device that was chosen; strictly, raise."""
    placement = runnable.placement
    if strict and placement.device != choice.device.partition(":")[0]:
        runnable.close()
        raise BackendUnavailable(
            f"Device `{choice.device}` is not used: {'; '.join(placement.fallbacks) or f'runs on {placement.device}'}",
            hint="edge-infer backends",
            expected=choice.device,
            got=placement.device,
        )
    if placement.fallbacks:
        from warnings import warn

        warn(f"{choice.backend}: {'; '.join(placement.fallbacks)}", RuntimeWarning, stacklevel=6)


def _thread_option(choice: Choice) -> dict[str, str]:
    """Return the threads that an engine is told to use where nobody asks for a number.

    Left alone, engines start a thread for each core of the machine, pinned to it, whatever share of the machine this
    process has; where that is less than the machine, it is told.
    """
    if not takes_threads(choice.backend):
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


def _self_tested(session: Session) -> Session:
    """Return the session if it gives the golden outputs of its bundle; else close it and raise."""
    examples = _golden_examples(session)
    try:
        results = [session.run(inputs) for inputs, _ in examples]
    except InputError as error:
        raise _unfit(session, error) from error
    return _judged(session, examples, results)


async def _self_tested_async(session: Session) -> Session:
    """Do as `_self_tested` does, on an engine that may be asynchronous."""
    examples = _golden_examples(session)
    try:
        results = [await session.run_async(inputs) for inputs, _ in examples]
    except InputError as error:
        raise _unfit(session, error) from error
    return _judged(session, examples, results)


def _unfit(session: Session, error: InputError) -> ExecutionError:
    session.close()
    return ExecutionError(f"Self-test failed: the golden examples do not fit the model: {error.message}")


def _golden_examples(session: Session) -> list[Example]:
    examples = session.bundle.examples()
    if not examples:
        session.close()
        raise InputError(
            f"`{session.bundle.manifest.name}` has no golden examples to test itself with",
            hint="edge-infer convert model.onnx -o model.bundle",
        )
    return examples


def _judged(session: Session, examples: list[Example], results: list[dict[str, Array]]) -> Session:
    from edge_infer.parity.comparison import compare, judge

    verdict = judge(compare([outputs for _, outputs in examples], results), session._choice.variant.precision)
    if verdict.word == "fail":
        name = repr(session)
        session.close()
        raise ExecutionError(
            f"Self-test failed: {name} against its golden examples: {verdict.reason}",
            hint=f"edge-infer verify {session.bundle.location}",
        )
    return session
