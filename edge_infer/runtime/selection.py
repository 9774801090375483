"""Choose the variant and the engine by measurement, else by a rule table of device, format and precision.

The rules: first the variants whose precision the device's engines compute in, by the engine's rank, then by the order
of `_PRECISIONS`; last those in float16 on processors, which engines there widen to float32 around each operator. Where
the model was measured on this machine, the fastest way that keeps its quality comes before all rules.
"""

from __future__ import annotations

from edge_infer.backends.registry import backend_names, get_backend, may_read
from edge_infer.errors import BackendUnavailable, InputError, UnsupportedError, did_you_mean, listed
from edge_infer.platform import host
from edge_infer.platform.records import Record
from edge_infer.runtime.options import DEFAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edge_infer.backends.base import Availability
    from edge_infer.bundle.manifest import Manifest
    from edge_infer.bundle.variant import Variant
    from edge_infer.runtime.measurements import Measurement
    from edge_infer.runtime.options import LoadOptions

DEVICES = ("auto", "cpu", "cuda", "wasm", "webgpu")

# Which precision to take first. On CPUs and in pages int8 is the smallest and rarely slower; GPUs compute in float16.
# An empty precision is a bare model file's, which has one variant only.
_PRECISIONS = {
    "cpu": ("int8", "mixed", "fp32", "fp16", "int4", ""),
    "wasm": ("int8", "mixed", "fp32", "fp16", "int4", ""),
    "cuda": ("fp16", "fp32", "mixed", "int8", "int4", ""),
    "webgpu": ("fp16", "fp32", "mixed", "int8", "int4", ""),
}
# Precisions that a kind of device does not compute in: its engines convert at each operator, which costs time.
_EMULATED = {"cpu": ("fp16",), "wasm": ("fp16",), "cuda": (), "webgpu": ()}
# What a variant must be made for to be taken unasked on a device.
_TARGETS = {"cpu": ("any", "pi"), "wasm": ("any", "web"), "cuda": ("any", "cuda"), "webgpu": ("any", "web")}
# A device that `auto` does not take: a page downloads a second engine for it, and its calls may have to be awaited.
_NOT_BY_ITSELF = ("webgpu",)
# Two medians that are nearer than this are the same: then quality and fewer threads decide.
_SAME_SPEED = 1.05


class Choice(Record):
    """One way to run a bundle: which variant, by which backend, on which device.

    Attributes:
        variant: The variant.
        backend: The engine's name.
        device: Where it runs, `cuda` also as `cuda:1`.
        threads: The threads that one operator may use; None where the engine or this package decides.
        why: What decided: `asked for`, or `rule`, `measured`, `budget` or `last` with the reason.
        ms: The time of a call in milliseconds, where that was measured and decided.
        has_failed: Whether its golden examples failed when it was measured here.
    """

    variant: Variant
    backend: str
    device: str
    threads: int | None = None
    why: str = ""
    ms: float | None = None
    has_failed: bool = False

    def is_way_of(self, other: Choice) -> bool:
        """Tell whether another choice is the same variant, engine and device."""
        return (self.variant, self.backend, self.device) == (other.variant, other.backend, other.device)


def choices(
    manifest: Manifest, asked: LoadOptions = DEFAULTS, measured: Sequence[Measurement] = ()
) -> Iterator[Choice]:
    """Give the ways to run a bundle here, the preferred first; an engine is asked when its turn comes.

    Those whose golden examples failed when they were measured here come last.

    Args:
        manifest: What the bundle holds.
        asked: The options of `load`: device, backend, variant and threads narrow the choice; within the latency budget
            the best quality comes first.
        measured: The measurements of this model on this machine: the fastest that keeps its quality comes first.

    Yields:
        At least one choice.

    Raises:
        InputError: The device, the backend or the variant is not known.
        BackendUnavailable: No engine here can run it, or the wanted one reads none of its
            formats; the message says why.
    """
    if manifest.chain is not None:
        raise UnsupportedError(f"`{manifest.name}` is a chain of several models", hint="edge_infer.Chain.open(...)")
    device, backend, variant = check_device(asked.device), asked.backend, asked.variant
    budget_ms = asked.latency_budget_ms
    kind = device.partition(":")[0]
    variants = [manifest.variant(variant)] if variant is not None else list(manifest.variants)
    first = best_measured(manifest, asked, measured) if measured else None
    if first is not None:
        if budget_ms is not None and first.ms is not None and first.ms > budget_ms:
            from warnings import warn

            warn(
                f"No way to run this model here takes at most {budget_ms:g} ms: "
                f"`{first.variant.id}` by {first.backend} is the fastest with {first.ms:.3g} ms",
                RuntimeWarning,
                stacklevel=7,
            )
        yield first

    is_found = first is not None
    reasons: dict[str, Availability] = {}
    later: list[Choice] = []
    wrong: list[Choice] = []
    formats = {candidate.format for candidate in variants}
    for name in [backend] if backend is not None else backend_names():
        if not may_read(name, formats):
            continue
        engine = get_backend(name)
        if backend is None and engine.is_reference:
            continue
        readable = [candidate for candidate in variants if candidate.format in engine.formats]
        if not readable:
            continue
        state = reasons[name] = engine.availability()
        # A page's engine goes on with wasm where the browser lacks the GPU, and its placement says why.
        spare = engine.page_devices if host.in_browser() else ()
        if state.ready and kind in ("auto", *state.devices, *spare):
            for place in _by_itself(state) if device == "auto" else (device,):
                for candidate in _ordered(readable, place, variant is not None):
                    choice = Choice(candidate, name, place, asked.threads, _why(candidate, place, variant, readable))
                    if first is not None and choice.is_way_of(first):
                        continue
                    is_found = True
                    if _has_failed(choice, measured):
                        wrong.append(choice._replace(why="last: its golden examples fail here", has_failed=True))
                    elif not _is_for(candidate, place) or candidate.precision in _EMULATED[place.partition(":")[0]]:
                        later.append(choice)
                    else:
                        yield choice
    yield from later
    yield from wrong
    if not is_found:
        raise _no_choice(manifest, device, backend, variants, reasons)


def _has_failed(choice: Choice, measured: Sequence[Measurement]) -> bool:
    """Tell whether a way was measured here, with this version of its engine, and failed its golden examples."""
    way = (choice.variant.id, choice.backend, choice.device.partition(":")[0])
    verdicts = [row for row in measured if (row.variant, row.backend, row.device) == way and row.verdict == "fail"]
    return bool(verdicts) and get_backend(choice.backend).version() in {row.version for row in verdicts}


def _by_itself(state: Availability) -> tuple[str, ...]:
    """Return the devices of an engine that `auto` takes."""
    return tuple(device for device in state.devices if device not in _NOT_BY_ITSELF) or state.devices


def check_device(device: str) -> str:
    """Return the device that a word means here; in a page the processor is `wasm`.

    Raises:
        InputError: It is not one of `DEVICES`.
    """
    kind, colon, index = device.partition(":")
    if colon and (kind != "cuda" or not index.isdecimal()):
        raise InputError(
            f"Device `{device}` is not known: only `cuda` takes a number, as in `cuda:1`", allowed=list(DEVICES)
        )
    if kind not in DEVICES:
        raise InputError(
            f"Device `{device}` is not known; choose from {listed(list(DEVICES))}",
            hint=_device_meant(kind),
            allowed=list(DEVICES),
        )
    return "wasm" if kind == "cpu" and host.in_browser() else device


def _device_meant(kind: str) -> str:
    """Return what to write for a device that is not known: a GPU is `cuda` natively and `webgpu` in a page."""
    if kind.lower() in ("gpu", "nvidia"):
        return "write webgpu" if host.in_browser() else "write cuda; in a page webgpu"
    return did_you_mean(kind, list(DEVICES)) or "edge-infer backends"


def worth_measuring(manifest: Manifest, asked: LoadOptions) -> list[Choice]:
    """Return every way to run a bundle here that a measurement may prefer, without thread counts.

    Raises:
        The errors of `choices`.
    """
    wanted, backend, variant = check_device(asked.device), asked.backend, asked.variant
    kind = wanted.partition(":")[0]
    found = []
    for name in [backend] if backend is not None else backend_names():
        engine = get_backend(name)
        variants = [one for one in manifest.variants if variant in (None, one.id) and one.format in engine.formats]
        if not variants or (backend is None and engine.is_reference):
            continue
        state = engine.availability()
        if not state.ready:
            continue
        places = state.devices if kind == "auto" else (wanted,) if kind in state.devices else ()
        found += [
            Choice(one, name, place) for place in places for one in _ordered(variants, place, variant is not None)
        ]
    if not found:
        next(choices(manifest, asked))  # raises, and says why
    return found


def best_measured(manifest: Manifest, asked: LoadOptions, measured: Sequence[Measurement]) -> Choice | None:
    """Choose by measurement among the ways that fit the options; None where nothing does.

    The arguments are those of `choices`.
    """
    device, backend, variant = check_device(asked.device), asked.backend, asked.variant
    threads, latency_budget_ms = asked.threads, asked.latency_budget_ms
    kind = device.partition(":")[0]
    known = {one.id: one for one in manifest.variants if variant in (None, one.id)}
    fitting = [
        row
        for row in measured
        if row.variant in known
        and kind in ("auto", row.device)
        and backend in (None, row.backend)
        and threads in (None, row.threads)
        and (not row.threads or threads or "intra_op_threads" not in known[row.variant].options.get(row.backend, {}))
        and row.verdict != "fail"
    ]
    engines = [get_backend(name) for name in {row.backend for row in fitting} & {*backend_names()}]
    versions = {one.name: one.version() for one in engines if backend is not None or not one.is_reference}
    fitting = [row for row in fitting if row.version == versions.get(row.backend)]
    # A GPU may be gone; an engine that has a version has the processor.
    others = {row.backend for row in fitting if row.device not in ("cpu", "wasm")}
    devices = {name: get_backend(name).availability().devices for name in others}
    fitting = [row for row in fitting if row.device in devices.get(row.backend, (row.device,))]
    fitting = [row for row in fitting if row.verdict != "warn"] or fitting
    if not fitting:
        return None
    within = [row for row in fitting if latency_budget_ms is not None and row.ms <= latency_budget_ms]
    if within:
        best = max(_quality(row) for row in within)
        row = _fastest([row for row in within if _quality(row) == best])
        why = f"budget: the best quality of {len(within)} ways within {latency_budget_ms:g} ms: {row.ms:.3g} ms"
    else:
        sure = [row for row in fitting if row.vs_rule is None or row.vs_rule <= 1]
        row = _fastest(sure or fitting)
        why = f"measured: the fastest of {len(fitting)} ways that keep the quality: {row.ms:.3g} ms"
        if row.vs_rule == 1 and min(one.ms for one in fitting) < row.ms:
            why = f"measured: too noisy to tell a faster way from the rule's choice: {row.ms:.3g} ms"
        if latency_budget_ms is not None:
            why = f"budget: nothing within {latency_budget_ms:g} ms, the fastest takes {row.ms:.3g} ms"
    if variant is not None:
        why = f"asked for; {why}"
    place = device if kind == row.device else row.device
    return Choice(known[row.variant], row.backend, place, row.threads or None, why, row.ms)


def exact_engine(model_format: str) -> str:
    """Return the engine that computes a format's integer models exactly; empty where there is none."""
    engines = (get_backend(name) for name in backend_names())
    return next((one.name for one in engines if one.is_exact and model_format in one.formats), "")


def by_rule(variants: Sequence[Variant], device: str) -> tuple[Variant, str]:
    """Return which of some variants is taken unasked and unmeasured on a device, and why.

    Args:
        variants: Those that one engine reads, at least one.
        device: `cpu`, `cuda`, `wasm` or `webgpu`.
    """
    ordered = _ordered(list(variants), device, is_asked_for=False)
    best = next((one for one in ordered if one.precision not in _EMULATED[device]), ordered[0])
    return best, _why(best, device, None, variants)


def _fastest(rows: Sequence[Measurement]) -> Measurement:
    """Return the fastest row; among those as fast, the best quality, then the fewest threads."""
    limit = min(row.ms for row in rows) * _SAME_SPEED
    return min((row for row in rows if row.ms <= limit), key=lambda row: (-_quality(row), row.threads, row.ms))


def _quality(row: Measurement) -> float:
    return -1.0 if row.sqnr_db is None else row.sqnr_db


def _why(candidate: Variant, place: str, asked: str | None, readable: Sequence[Variant]) -> str:
    if asked is not None:
        return "asked for"
    if len(readable) == 1:
        return "rule: the only variant that this engine reads"
    return f"rule: {candidate.precision} stands {_rank(candidate, place)} on {place.partition(':')[0]}"


def _rank(candidate: Variant, place: str) -> str:
    order = _PRECISIONS[place.partition(":")[0]]
    return ("first", "second", "third")[index] if (index := order.index(candidate.precision)) < 3 else "last"


def _ordered(variants: list[Variant], device: str, is_asked_for: bool) -> list[Variant]:
    order = _PRECISIONS[device.partition(":")[0]]
    fitting = [one for one in variants if is_asked_for or _is_for(one, device)]
    return sorted(fitting or variants, key=lambda one: order.index(one.precision))


def _is_for(variant: Variant, device: str) -> bool:
    """Tell whether a variant was made for a device, or for all."""
    targets = _TARGETS[device.partition(":")[0]]
    return any(target in targets for target in variant.targets)


def _no_choice(
    manifest: Manifest, device: str, backend: str | None, variants: list[Variant], reasons: dict[str, Availability]
) -> BackendUnavailable:
    formats = sorted({variant.format for variant in variants})
    if formats == ["decoder"]:
        return BackendUnavailable(
            f"`{manifest.name}` generates text: its variants are decoders, which no session runs",
            hint=f"edge_infer.generate(...) in place of edge_infer.load(...); edge-infer chat {manifest.name}.bundle",
            formats=formats,
        )
    kind = device.partition(":")[0]
    for engine in map(get_backend, reasons):
        if (fault := engine.why_not(kind)) is not None:
            return fault
    if kind in ("cpu", "cuda") and backend is None:  # nothing that runs in a page has these
        reasons = {name: state for name, state in reasons.items() if not get_backend(name).page_devices} or reasons
    if not reasons:
        who = f"Backend `{backend}`" if backend is not None else "No backend"
        verb = "reads none of" if backend is not None else "reads"
        return BackendUnavailable(
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
