"""Public `load`: starts the engine, then imports the rest of the package."""

from __future__ import annotations

import os

from edge_infer.platform import host
from edge_infer.runtime.options import LoadOptions, from_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from edge_infer.backends.base import EngineOptions
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.keys import KeySource
    from edge_infer.runtime.session import Session

# The engine that is preferred for what it reads (`registry.py`); its start is what a first result waits for.
_FIRST = "onnxruntime"


def load(
    source: str | os.PathLike[str] | Bundle,
    *,
    device: str = "auto",
    backend: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    latency_budget_ms: float | None = None,
    tune: bool = False,
    strict: bool = False,
    self_test: bool = False,
    arrays: str = "auto",
    options: EngineOptions | None = None,
    fallback: str | None = None,
    key: KeySource = None,
) -> Session:
    """Load a model.

    Args:
        source: A bundle (folder, `.zip` or URL), `hf:owner/name` of the Hugging Face Hub, a bare `.onnx`, `.ort` or
            `.tflite` file or URL, a model that `edge-infer compile` wrote (`.wasm`), the URL of a model on a server,
            `http://HOST/v2/models/NAME`, which then runs there (`ws://…` keeps one WebSocket open), or a
            model of a signed store, `edge+https://HOST/STORE/NAME`, whose newest version is brought here first.
        device: `auto`, `cpu`, `cuda` (or `cuda:1`), `wasm` or `webgpu`. In a page `cpu` is `wasm`. `auto` is what the
            environment's `EDGE_INFER_DEVICE` names, where it is set.
        backend: The engine to use; None for the environment's `EDGE_INFER_BACKEND`, where it is set, else to choose.
        variant: The id of the variant to use, such as `onnx/int8`; None to choose.
        threads: The threads that one operator may use; None for what was measured, else as many as this process may.
        latency_budget_ms: The time that a call may take: of the variants that were measured within it on this machine,
            the one nearest to the source is taken. Where nothing was measured, `tune` or warn.
        tune: Whether to measure the ways to run it first, where that has not been done on this machine.
        strict: Whether to raise where the first choice fails instead of taking the next one, or where some of the
            model would run elsewhere than on the device: on a GPU it is proven by a run on zeros.
        self_test: Whether to run the bundle's golden examples first and compare.
        arrays: What outputs are: `numpy`, `tensor`, or `auto` for numpy where it can be imported.
        options: Settings of one engine, such as `OnnxRuntimeOptions(provider="tensorrt")`, which is then the one used;
            what was measured without them does not count.
        fallback: The URL of the same model on a server, used where no engine here can load the model, where it was
            measured to be slower than the latency budget, or turns out to be; and for calls that fail for want
            of memory. `Session.report()` says what went there. `load` asks the server only where it must. Prepared
            calls and runs that keep tensors stay here.
        key: The key file of weights that are encrypted, or the text in it as bytes; None for the file that the
            environment's `EDGE_INFER_KEY_FILE` names. They are decrypted in memory.

    Raises:
        EncryptedError: The weights are encrypted, and the key is another or none.
        BundleError: The source is not a bundle or model, or its files are damaged.
        InputError: An argument is not one of its choices.
        BackendUnavailable: No engine can run it here, or not on that device.
        UnsupportedModel: The engine cannot load the model.
        ExecutionError: The self-test did not give the golden outputs.
        UnsupportedError: This is a page whose engine has not started; `load_async` starts it.

    >>> load("examples/digits/digits.onnx", backend="onnxruntime").inputs
    (TensorSpec('image', 'float32', ('batch', 1, 8, 8)),)
    """
    asked = LoadOptions(
        device, backend, variant, threads, latency_budget_ms, tune, strict, self_test, arrays, options, fallback, key
    )
    return load_with(source, asked)


def load_with(source: str | os.PathLike[str] | Bundle, asked: LoadOptions) -> Session:
    """Load a model as `load` does, whose options are one record."""
    asked = from_environment(asked)
    with _head_start(source, asked) or _Nothing():
        from edge_infer.runtime.loader import opened

        return host.at_once(opened(source, asked))


async def load_async(
    source: str | os.PathLike[str] | Bundle,
    *,
    device: str = "auto",
    backend: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    latency_budget_ms: float | None = None,
    tune: bool = False,
    strict: bool = False,
    self_test: bool = False,
    arrays: str = "auto",
    options: EngineOptions | None = None,
    fallback: str | None = None,
    key: KeySource = None,
) -> Session:
    """Load a model as `load` does, without blocking; in a page it starts the engine where nobody has yet."""
    asked = LoadOptions(
        device, backend, variant, threads, latency_budget_ms, tune, strict, self_test, arrays, options, fallback, key
    )
    if not host.in_browser():
        return await host.run_in_thread(lambda: load_with(source, asked))
    from edge_infer.runtime.loader import opened

    return await opened(source, from_environment(asked), may_wait=True)


class _Nothing:
    """A context of nothing: `contextlib.nullcontext` without its module."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _head_start(source: object, asked: LoadOptions) -> AbstractContextManager[None] | None:
    """Let the engine that will run a model begin to start, where it is plain which one that is."""
    if host.in_browser() or asked.backend not in (None, _FIRST) or asked.options is not None:
        return None
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = os.fspath(source)
    if not (os.path.isfile(path) and path.endswith((".onnx", ".ort"))) and not os.path.isdir(f"{path}/onnx"):
        return None
    from edge_infer.backends.registry import get_backend

    return get_backend(_FIRST).head_start(asked.device)
