"""Load a model: open the bundle, choose a variant and an engine, prepare it, and test it if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer import platform
from edge_infer.backends.base import AsyncBackend
from edge_infer.bundle import Bundle
from edge_infer.errors import (
    BackendUnavailable,
    EdgeInferError,
    ExecutionError,
    InputError,
    ManifestError,
    UnsupportedModel,
    listed,
)
from edge_infer.registry import get_backend
from edge_infer.select import Choice, choices
from edge_infer.session import Session
from edge_infer.values import has_numpy

if TYPE_CHECKING:
    import os

    from edge_infer.backends.base import Runnable

ARRAYS = ("auto", "numpy", "tensor")


def load(
    source: str | os.PathLike[str] | Bundle,
    *,
    device: str = "auto",
    backend: str | None = None,
    variant: str | None = None,
    strict: bool = False,
    self_test: bool = False,
    arrays: str = "auto",
) -> Session:
    """Load a model.

    Args:
        source: A bundle (folder, `.zip` or URL), a bare `.onnx`, `.ort` or `.tflite` file or URL, or the URL of a model
            on a server, `http://HOST/v2/models/NAME`, which then runs there.
        device: `auto`, `cpu`, `cuda` (or `cuda:1`), `wasm` or `webgpu`. In a page `cpu` is `wasm`.
        backend: The engine to use; None to choose.
        variant: The id of the variant to use, such as `onnx/int8`; None to choose.
        strict: Whether to raise where the first choice fails instead of taking the next one.
        self_test: Whether to run the bundle's golden examples first and compare.
        arrays: What outputs are: `numpy`, `tensor`, or `auto` for numpy where it can be imported.

    Raises:
        BundleError: The source is no bundle or model, or its files are not what they must be.
        InputError: An argument is not one of its choices.
        BackendUnavailable: No engine can run it here, or not on that device.
        UnsupportedModel: The engine cannot load the model.
        ExecutionError: The self-test did not give the golden outputs.
        UnsupportedError: This is a page whose engine has not started; `load_async` starts it.

    >>> load("examples/digits/digits.onnx", backend="onnxruntime").inputs
    (TensorSpec('image', 'float32', ('batch', 1, 8, 8)),)
    """
    _check_arrays(arrays)
    if _is_remote(source):
        wishes = {
            "device": device != "auto",
            "backend": backend not in (None, "remote"),
            "variant": variant is not None,
        }
        return _remote(str(source), wishes | {"self_test": self_test}, arrays=arrays, asked=device)
    bundle = source if isinstance(source, Bundle) else Bundle.open(source)
    failed: list[tuple[Choice, EdgeInferError]] = []
    for choice in choices(bundle.manifest, device=device, backend=backend, variant=variant):
        try:
            options = choice.variant.options.get(choice.backend, {})
            model = bundle.model(choice.variant)
            made = get_backend(choice.backend).prepare(model, choice.variant, device=choice.device, options=options)
            runnable = _placed(choice, made, strict=strict)
        except (UnsupportedModel, BackendUnavailable) as error:
            _record(error, choice, failed, strict=strict)
        else:
            return _session(bundle, choice, runnable, failed, arrays=arrays, asked=device, self_test=self_test)
    raise failed[0][1]


async def load_async(
    source: str | os.PathLike[str] | Bundle,
    *,
    device: str = "auto",
    backend: str | None = None,
    variant: str | None = None,
    strict: bool = False,
    self_test: bool = False,
    arrays: str = "auto",
) -> Session:
    """Load a model as `load` does, without blocking; in a page it starts the engine where nobody has yet."""
    if not platform.in_browser():
        return await platform.run_in_thread(
            lambda: load(
                source,
                device=device,
                backend=backend,
                variant=variant,
                strict=strict,
                self_test=self_test,
                arrays=arrays,
            )
        )
    _check_arrays(arrays)
    if _is_remote(source):
        return load(
            source,
            device=device,
            backend=backend,
            variant=variant,
            strict=strict,
            self_test=self_test,
            arrays=arrays,
        )
    bundle = source if isinstance(source, Bundle) else await Bundle.open_async(source)
    failed: list[tuple[Choice, EdgeInferError]] = []
    for choice in choices(bundle.manifest, device=device, backend=backend, variant=variant):
        try:
            runnable = _placed(choice, await _prepare_async(bundle, choice), strict=strict)
        except (UnsupportedModel, BackendUnavailable) as error:
            _record(error, choice, failed, strict=strict)
        else:
            return _session(bundle, choice, runnable, failed, arrays=arrays, asked=device, self_test=self_test)
    raise failed[0][1]


def _is_remote(source: object) -> bool:
    """Tell whether a source is a model on a v2 server."""
    return isinstance(source, str) and "/v2/models/" in source and platform.is_url(source)


def _remote(url: str, wishes: dict[str, bool], *, arrays: str, asked: str) -> Session:
    """Open a model on a server, which alone decides what it runs on."""
    refused = [name for name, is_wished in wishes.items() if is_wished]
    if refused:
        raise InputError(
            f"A model on a server takes no {listed(refused)}: the server decides", hint="leave it out, or load a bundle"
        )
    from edge_infer.backends.remote import RemoteModel
    from edge_infer.manifest import Manifest, Variant

    model = RemoteModel(url)
    variant = Variant("remote/v2", "v2", "", "")
    manifest = Manifest(model.name, model.version, model.inputs, model.outputs, [variant], [])
    bundle = Bundle.of_server(manifest, url)
    return Session(bundle, Choice(variant, "remote", "remote"), model, arrays=arrays, asked=asked, fallbacks=())


def _check_arrays(arrays: str) -> None:
    if arrays not in ARRAYS:
        raise InputError(f"`arrays` is `{arrays}`; choose from {listed(list(ARRAYS))}", allowed=list(ARRAYS))
    if arrays == "numpy" and not has_numpy():
        raise InputError("`arrays` is `numpy`, which is not installed here", hint="pip install numpy, or arrays='auto'")


async def _prepare_async(bundle: Bundle, choice: Choice) -> Runnable:
    """Load a model in a page, whose engine is started where nobody has."""
    backend = get_backend(choice.backend)
    options = choice.variant.options.get(choice.backend, {})
    await backend.start()
    model = await bundle.model_async(choice.variant)
    if isinstance(backend, AsyncBackend):
        return await backend.prepare_async(model, choice.variant, device=choice.device, options=options)
    return backend.prepare(model, choice.variant, device=choice.device, options=options)


def _placed(choice: Choice, runnable: Runnable, *, strict: bool) -> Runnable:
    """Return a loaded model; where it is not on the device that was chosen, warn, or strictly raise."""
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

        warn(f"{choice.backend}: {'; '.join(placement.fallbacks)}", RuntimeWarning, stacklevel=3)
    return runnable


def _record(
    error: EdgeInferError, choice: Choice, failed: list[tuple[Choice, EdgeInferError]], *, strict: bool
) -> None:
    """Note that a choice failed, so that the next one is tried; strictly, raise."""
    if strict:
        raise error
    failed.append((choice, error))


def _session(
    bundle: Bundle,
    choice: Choice,
    runnable: Runnable,
    failed: list[tuple[Choice, EdgeInferError]],
    *,
    arrays: str,
    asked: str,
    self_test: bool,
) -> Session:
    _check_specs(bundle, choice, runnable)
    fallbacks = [f"{one.variant.id} by {one.backend} on {one.device}: {error.message}" for one, error in failed]
    session = Session(bundle, choice, runnable, arrays=arrays, asked=asked, fallbacks=fallbacks)
    return _self_tested(session) if self_test else session


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
    from edge_infer.parity import compare, judge

    examples = session.bundle.examples()
    if not examples:
        session.close()
        raise InputError(
            f"`{session.bundle.manifest.name}` has no golden examples to test itself with",
            hint="edge-infer convert model.onnx -o model.bundle",
        )
    results = [session.run(inputs) for inputs, _ in examples]
    verdict = judge(compare([outputs for _, outputs in examples], results), session._choice.variant.precision)
    if verdict.word == "fail":
        name = repr(session)
        session.close()
        raise ExecutionError(
            f"Self-test failed: {name} against its golden examples: {verdict.reason}",
            hint=f"edge-infer verify {session.bundle.location}",
        )
    return session
