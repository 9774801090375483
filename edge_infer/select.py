"""Choose the variant and the engine: a rule table over device, format, precision and what is available here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer import platform
from edge_infer.errors import BackendUnavailable, InputError, UnsupportedModel, did_you_mean, listed
from edge_infer.registry import backend_names, get_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.backends.base import Availability
    from edge_infer.manifest import Manifest, Variant

DEVICES = ("auto", "cpu", "cuda", "wasm", "webgpu")

# Which precision to take first. On CPUs and in pages int8 is the smallest and rarely slower; GPUs compute in float16.
# An empty precision is a bare model file's, which has one variant only.
_PRECISIONS = {
    "cpu": ("int8", "mixed", "fp32", "fp16", "int4", ""),
    "wasm": ("int8", "mixed", "fp32", "fp16", "int4", ""),
    "cuda": ("fp16", "fp32", "mixed", "int8", "int4", ""),
    "webgpu": ("fp16", "fp32", "mixed", "int8", "int4", ""),
}
# What a variant must be made for to be taken unasked on a device.
_TARGETS = {"cpu": ("any", "pi"), "wasm": ("any", "web"), "cuda": ("any", "cuda"), "webgpu": ("any", "web")}
# Engines that are right but slow: taken when they are asked for, never by themselves.
_ONLY_WHEN_ASKED = ("reference",)


class Choice(NamedTuple):
    """One way to run a bundle: which variant, by which backend, on which device."""

    variant: Variant
    backend: str
    device: str


def choices(
    manifest: Manifest, *, device: str = "auto", backend: str | None = None, variant: str | None = None
) -> Iterator[Choice]:
    """Give the ways to run a bundle here, the preferred first; an engine is asked when its turn comes.

    Args:
        manifest: What the bundle holds.
        device: `auto`, or one of `DEVICES`, `cuda` also as `cuda:1`.
        backend: The only engine to consider, or None for all.
        variant: The id of the only variant to consider, or None for all.

    Yields:
        At least one choice.

    Raises:
        InputError: The device or backend is not known.
        ManifestError: There is no such variant.
        BackendUnavailable: No engine here can run it; the message says why of each.
        UnsupportedModel: The wanted backend reads none of the bundle's formats.
    """
    kind, colon, index = device.partition(":")
    if colon and (kind != "cuda" or not index.isdecimal()):
        raise InputError(
            f"Device `{device}` is not known: only `cuda` takes a number, as in `cuda:1`", allowed=list(DEVICES)
        )
    if kind not in DEVICES:
        raise InputError(
            f"Device `{device}` is not known; choose from {listed(list(DEVICES))}",
            hint=did_you_mean(kind, list(DEVICES)),
            allowed=list(DEVICES),
        )
    if kind == "cpu" and platform.in_browser():
        kind = device = "wasm"  # the page's only way to its processor
    variants = [manifest.variant(variant)] if variant is not None else list(manifest.variants)

    is_found = False
    reasons: dict[str, Availability] = {}
    for name in [backend] if backend is not None else backend_names():
        if backend is None and name in _ONLY_WHEN_ASKED:
            continue
        engine = get_backend(name)
        readable = [candidate for candidate in variants if candidate.format in engine.formats]
        if not readable:
            continue
        state = reasons[name] = engine.availability()
        if state.ready and kind in ("auto", *state.devices):
            for place in state.devices if device == "auto" else (device,):
                for candidate in _ordered(readable, place, variant is not None):
                    is_found = True
                    yield Choice(candidate, name, place)
    if not is_found:
        raise _no_choice(manifest, device, backend, variants, reasons)


def _ordered(variants: list[Variant], device: str, is_asked_for: bool) -> list[Variant]:
    kind = device.partition(":")[0]
    order, targets = _PRECISIONS[kind], _TARGETS[kind]
    fitting = [one for one in variants if is_asked_for or any(target in targets for target in one.targets)]
    return sorted(fitting or variants, key=lambda one: order.index(one.precision))


def _no_choice(
    manifest: Manifest, device: str, backend: str | None, variants: list[Variant], reasons: dict[str, Availability]
) -> BackendUnavailable | UnsupportedModel:
    formats = sorted({variant.format for variant in variants})
    if not reasons:
        who = f"Backend `{backend}`" if backend is not None else "No backend"
        verb = "reads none of" if backend is not None else "reads"
        return UnsupportedModel(
            f"{who} {verb} {listed(formats)}, the formats of `{manifest.name}`",
            hint="edge-infer backends" if backend is None else "leave `backend` out, or choose another",
            formats=formats,
        )
    said = [
        f"{name}: {state.reason or 'runs on ' + ', '.join(state.devices) + ' only'}" for name, state in reasons.items()
    ]
    hints = [state.hint for state in reasons.values() if state.hint]
    return BackendUnavailable(
        f"No engine can run `{manifest.name}` on device `{device}` here ({'; '.join(said)})",
        hint=hints[0] if hints else "edge-infer backends",
        reasons=said,
    )
