"""Open a session of ONNX Runtime on the chosen device, or say why the device is not used.

ONNX Runtime falls back twice without raising: a provider that does not load is left out, and a session that fails is
made again on the CPU. Here neither happens: the provider's needs are checked first, the second fallback is off, and
what runs where is read from the session itself.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Placement
from edge_infer.backends.onnxruntime.entries import RECORD, session_entries
from edge_infer.backends.onnxruntime.errors import translated
from edge_infer.errors import BackendUnavailable, CudaUnavailable, InputError, UnsupportedModel, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def open_session(
    model: str | bytes, file: str | None, *, device: str, options: Mapping[str, str]
) -> tuple[Any, Placement]:
    """Open a session.

    Args:
        model: The model file or its bytes.
        file: What errors call it.
        device: `cpu`, `cuda` or `cuda:1`.
        options: The bundle's settings, and those of `OnnxRuntimeOptions.settings`; `strict` for a proof.

    Returns:
        The `onnxruntime.InferenceSession`, and where it runs.

    Raises:
        BackendUnavailable: The provider is not there, or, strictly, the CPU computes some of the nodes.
        InputError: The provider does not run on the device.
        ManifestError: A setting is not one that a bundle may set.
        UnsupportedModel: The model cannot be loaded.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise BackendUnavailable(
            f"onnxruntime cannot be imported: {error}", hint="pip install --force-reinstall onnxruntime"
        ) from error
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4  # fatal: what it says of an error comes with its exception
    settings.intra_op_num_threads = int(options.get("intra_op_threads", 0))
    for key, value in session_entries(options).items():
        settings.add_session_config_entry(key, value)
    kind, _, index = device.partition(":")
    provider = options.get("provider", kind)
    providers, wanted = _providers(onnxruntime, provider, kind, int(index or 0), options)
    if "arena" in options:
        from edge_infer.backends.onnxruntime import arena

        with translated(f"load `{file}`", UnsupportedModel):
            arena.share(onnxruntime, kind, int(index or 0), int(options["arena"]))
        settings.add_session_config_entry(arena.USE, "1")
    is_strict = wanted != _CPU and "strict" in options
    settings.add_session_config_entry(RECORD, "1")
    with contextlib.ExitStack() as stack:
        if wanted != _CPU:
            from edge_infer.backends.onnxruntime import placement

            if is_strict:
                from tempfile import TemporaryDirectory

                settings.enable_profiling = True
                settings.profile_file_prefix = stack.enter_context(TemporaryDirectory()) + os.sep
        with translated(f"load `{file}`", UnsupportedModel):
            session = onnxruntime.InferenceSession(
                model,
                sess_options=settings,
                providers=[*providers, _CPU],
                enable_fallback=0,
            )
        registered = tuple(session.get_providers())
        threads = session.get_session_options().intra_op_num_threads
        if wanted == _CPU:
            return session, Placement("cpu", threads, registered)
        refusal = CudaUnavailable if kind == "cuda" else BackendUnavailable
        if wanted not in registered:
            raise refusal(
                f"onnxruntime did not start its provider `{provider}` (it goes on with {', '.join(registered)})",
                hint="edge-infer doctor",
                fault="provider-refused",
            )
        nodes = placement.assigned_nodes(session)
        if is_strict:
            nodes = _proven(session, file)
    stray = placement.strays(nodes or [])
    if stray:
        said = f"{len(stray)} of {len(nodes or [])} nodes run on the CPU: {placement.named(stray)}"
        if is_strict:
            raise refusal(
                f"Not all of `{file}` runs on `{device}`: {said}",
                hint="leave `strict` out to run it like this, or export the model without these operators",
                fault="nodes-on-cpu",
                nodes=[node.name for node in stray],
            )
        fallbacks: tuple[str, ...] = (said,)
    else:
        fallbacks = ()
    counts = placement.counted(nodes or [])
    return session, Placement(kind, threads, registered, fallbacks, counts)


def _providers(
    onnxruntime: Any, provider: str, kind: str, index: int, options: Mapping[str, str]
) -> tuple[list[Any], str]:
    """Return the providers to register before the CPU's, and the name of the one that is to do the work."""
    if provider == "cpu":
        return [], _CPU
    from edge_infer.backends.onnxruntime.options import PROVIDERS

    wanted, device, package = PROVIDERS[provider]
    if device != kind:
        raise InputError(
            f"The provider `{provider}` runs on device `{device}`, `{kind}` was asked for", hint=f'device="{device}"'
        )
    own = {key.removeprefix("provider."): value for key, value in options.items() if key.startswith("provider.")}
    available = onnxruntime.get_available_providers()
    if kind == "cuda":
        from edge_infer.platform import cuda

        libraries = Path(onnxruntime.__file__).parent / "capi"
        if hasattr(onnxruntime, "preload_dlls") and cuda.why_not(libraries) is None:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what it misses; `check` says it better
                onnxruntime.preload_dlls()
        cuda.check(libraries, index, provider=provider)
        # TensorFloat-32 is ONNX Runtime's default; `OnnxRuntimeOptions(tf32=True)` asks for it.
        plain = {"device_id": str(index), "use_tf32": "0"}
        if provider == "cuda":
            return [(wanted, plain | own)], wanted
        # What TensorRT leaves to CUDA goes on the caller's stream too: else the caller would not wait for it.
        stream = {key: own[key] for key in ("has_user_compute_stream", "user_compute_stream") if key in own}
        return [(wanted, {"device_id": str(index)} | own), (_CUDA, plain | stream)], wanted
    if wanted not in available:
        raise BackendUnavailable(
            f"This onnxruntime has no provider `{provider}`, only {listed(available)}", hint=f"it comes with {package}"
        )
    return [(wanted, own)], wanted


def _proven(session: Any, file: str | None) -> list[Any]:
    """Run the model once on zeros and return the nodes that really ran, from the session's profile."""
    from edge_infer.backends.onnxruntime.placement import executed_nodes

    feeds = _zeros(session)
    try:
        with translated("run the model", UnsupportedModel):
            session.run(None, feeds)
    except UnsupportedModel as error:
        raise BackendUnavailable(
            f"What runs where in `{file}` could not be proven: {error.message}",
            hint="leave `strict` out",
            fault="proof-failed",
        ) from error
    return executed_nodes(Path(session.end_profiling()).read_bytes())


def _zeros(session: Any) -> dict[str, Any]:
    """Make an input of zeros for each input, free dimensions 1."""
    from edge_infer.backends.onnxruntime.values import ONNX_TYPE, spec_of, to_ort_value
    from edge_infer.tensors.arrays import to_numpy
    from edge_infer.tensors.dummy_inputs import dummy_inputs

    feeds = dummy_inputs([spec_of(node) for node in session.get_inputs()])
    return {name: to_ort_value(one) if one.dtype in ONNX_TYPE else to_numpy(one) for name, one in feeds.items()}
