"""LoadedModel: one version of a model that is in memory, measured, and takes requests."""

from __future__ import annotations

import logging
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from edge_infer.backends.onnxruntime.options import OnnxRuntimeOptions
from edge_infer.bundle.quality import measured_quality
from edge_infer.errors import BackendError, EdgeInferError, ExecutionError, InputError, OutOfMemory
from edge_infer.monitor.counters import Counters
from edge_infer.runtime.load import load
from edge_infer.server.execution.answer_size import AnswerSize
from edge_infer.server.execution.batch_probe import Probe, probe
from edge_infer.server.execution.run_batch import has_batch_axis
from edge_infer.server.execution.statistics import Statistics
from edge_infer.server.scheduling.batcher import BatchLimits, DynamicBatcher
from edge_infer.server.scheduling.shares import ANYONE
from edge_infer.server.scheduling.switch import ANY_VARIANT, VariantSwitch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.runtime.session import Session
    from edge_infer.server.scheduling.request import Batch, Request
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)

#: The fast variant must take at most this part of the good one's time to be worth it.
_WORTH = 0.9
#: The weight of the newest batch in the running mean of the time that one takes.
_SMOOTHING = 0.2


class Fast:
    """A second variant that takes over while requests pile up.

    Attributes:
        session: It, ready to run.
        variant: Its id.
        switch: Decides when.
    """

    def __init__(self, session: Session, variant: str, better_s: float = 0.0) -> None:
        """Make it.

        Args:
            session: As the attribute.
            variant: As the attribute.
            better_s: The seconds that one row takes on the better variant.
        """
        self.session = session
        self.variant = variant
        self.switch = VariantSwitch()
        self._better_s = {1: better_s}  # by the rows of a batch, up to the next power of two

    def better_took(self, rows: int, seconds: float) -> None:
        """Learn how long a batch takes on the better variant."""
        size = rows.bit_length()
        known = self._better_s.get(size, seconds)
        self._better_s[size] = known + _SMOOTHING * (seconds - known)

    def better_s(self, rows: int) -> float:
        """Estimate how long a batch takes on the better variant."""
        size = max(known for known in self._better_s if known <= max(1, rows.bit_length()))
        return self._better_s[size]


class Runner(Protocol):
    """Runs the requests of models; `Dispatcher` is the one.

    Attributes:
        workers: How many batches run at once.
    """

    workers: int

    def refusal(self, model: LoadedModel, priority: int = 0, tenant: Tenant = ANYONE) -> EdgeInferError | None:
        """Return the error for a request that would not be taken now; else None."""

    def is_crowded(self, model: LoadedModel, tenant: Tenant = ANYONE) -> bool:
        """Tell whether half of the queue is taken, so that a stream with requests under way should wait."""

    def retire(self, model: LoadedModel) -> None:
        """Let a model finish what it has, then close it."""

    def hold(self, model: LoadedModel) -> bool:
        """Keep a model open for a request, until `finished`; False where it is closed already."""

    def submit(self, model: LoadedModel, request: Request) -> None:
        """Add a request; it gets its answer on the event loop."""

    def drop(self, model: LoadedModel, request: Request) -> None:
        """Let a request that has its answer wait no more."""

    def outage(self, model: LoadedModel) -> EdgeInferError | None:
        """Return why a model runs nothing now; None where it does."""

    def finished(self, model: LoadedModel) -> None:
        """Take note that a request was answered."""


class LoadedModel:
    """A session with its queue.

    Attributes:
        name: The model's name in URLs.
        version: The version that its manifest names.
        pool: The pool of workers that runs it.
        dispatcher: Runs its requests.
        fast: The variant for when requests pile up; None where there is none.
        fast_reason: Why the one that was asked for is not used; empty where it is, or none was.
        has_rows: Whether the first dimension of its tensors is that of a batch, as far as is known.
        max_rows: The most rows of a request; 0 for any number, or where the first dimension may be something else.
        answer_size: Tells how large its answers are.
        in_flight: How many of its requests are read, wait or run.
        running: How many of its batches run, those that hang too, or are offered to a worker.
        is_retired: Whether another took its place; it closes when nothing is in flight any more.
        counters: What was counted of its data; None where nothing is.
        is_abandoned: Whether the server ended while one of its batches hung: nothing may close what still computes.
    """

    dispatcher: Runner

    def __init__(self, name: str, session: Session, measured: Probe, limits: BatchLimits) -> None:
        self.name = name
        self.session = session
        self.version = session.bundle.manifest.version
        self.pool = ""
        self.variant = session.report().variant
        self.fast: Fast | None = None
        self.fast_reason = ""
        self.inputs = session.inputs
        self.outputs = session.outputs
        self.probe = measured
        was_tried = limits.max_batch_size > 1
        self.has_rows = not measured.reason if was_tried else has_batch_axis(self.inputs, self.outputs)
        self.max_rows = limits.max_rows if self.has_rows else 0
        self.answer_size = AnswerSize(self.inputs, self.outputs, limits.max_answer_bytes)
        self.batcher = DynamicBatcher(limits)
        self.batcher.max_batch_size = measured.batch_size
        self.batcher.free_rows = measured.free_rows
        self.batcher.expect(measured.row_s)
        self.statistics = Statistics()
        self.in_flight = 0
        self.running = 0
        self.is_retired = False
        self.is_abandoned = False
        self.counters: Counters | None = None

    def choose(self, batch: Batch, waiting: float, now: float) -> tuple[Session, str]:
        """Return what runs a batch, and its variant where there are two.

        Args:
            batch: The batch, whose requests want the same quality. `auto` is the better variant unless requests pile
                up, or that variant would answer too late, as far as is known.
            waiting: How many batches wait behind it, for each worker.
            now: The time.
        """
        fast = self.fast
        if fast is None:
            return self.session, ""
        is_rush, quality = fast.switch.update(waiting, now), batch.requests[0].quality
        if quality == "auto":
            quality = "fast" if is_rush or now + fast.better_s(batch.rows) > batch.deadline else "best"
        return (fast.session, fast.variant) if quality == "fast" else (self.session, self.variant)

    @property
    def variant_in_use(self) -> str:
        """The id of the variant that the next batch runs on, as far as is known."""
        if self.fast is None:
            return self.variant
        switch = self.fast.switch
        # Where nothing is in flight no batch begins that would tell the switch how little waits.
        is_fast = switch.is_fast if self.in_flight else switch.update(0.0, perf_counter())
        return self.fast.variant if is_fast else self.variant

    def close(self) -> None:
        """Give back the memory."""
        if self.is_abandoned:
            return
        self.session.close()
        if self.fast is not None:
            self.fast.session.close()


def load_model(
    name: str,
    bundle: Bundle,
    device: str,
    limits: BatchLimits,
    *,
    variant: str = "",
    fast_variant: str = "",
    memory_limit_mb: int = 0,
) -> LoadedModel:
    """Load a model, prove it on its golden examples where it has some, and measure it. It takes seconds.

    Args:
        name: The model's name in URLs.
        bundle: Its files.
        device: What to run it on.
        limits: How its requests are batched.
        variant: The id of the variant that runs; empty to choose.
        fast_variant: The id of a second variant, for when requests pile up; `auto` for the best of those that are
            faster here, empty for none.
        memory_limit_mb: The most memory of the device that models with a bound take together; 0 for no bound.

    Raises:
        BundleError: The files are wrong.
        OutOfMemory: It does not fit into that.
        BackendError: No engine can run it here, or the golden examples do not come out.
    """
    _use_one_thread(bundle)
    options = _bounded(device, memory_limit_mb)
    try:
        has_examples = bundle.manifest.examples is not None
        session = load(
            bundle, device=device, variant=variant or None, arrays="numpy", self_test=has_examples, options=options
        )
        model = LoadedModel(name, session, _measured(name, session, limits), limits)
        if limits.counts_drift and bundle.manifest.monitor is not None:
            model.counters = Counters.of(bundle)
            session.observe(_Watch(name, model.counters))
    except OutOfMemory as error:
        if options is None:
            raise
        raise OutOfMemory(
            f"Model `{name}` does not fit into the {memory_limit_mb} MiB that models on `{device}` share: "
            f"{error.message}",
            hint="a larger `memory_limit_mb` of the pool, a smaller variant, or fewer models",
            **error.details,
        ) from error
    except InputError as error:  # the server's own settings or the bundle's examples: no client's fault
        raise BackendError(error.message, hint=error.hint, **error.details) from error
    for candidate in _candidates(model, bundle, fast_variant):
        try:
            _add_fast(model, bundle, device, limits, candidate, options)
        except EdgeInferError as error:
            model.fast_reason = error.message
        if model.fast is not None:
            model.fast_reason = ""
            if model.counters is not None and model.fast is not None:
                model.fast.session.observe(_Watch(name, model.counters))
            break
    return model


class _Watch:
    """Counts the runs of a model; a tensor that it cannot count fails no request, and is logged once."""

    def __init__(self, name: str, counters: Counters) -> None:
        self._name = name
        self._counters = counters
        self._is_told = False

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        try:
            self._counters.observe(inputs, outputs)
        except EdgeInferError as error:
            if not self._is_told:
                log.warning("The data of %s are not counted: %s", self._name, error.message)
                self._is_told = True


def _candidates(model: LoadedModel, bundle: Bundle, fast_variant: str) -> list[str]:
    """Return the variants that may be the fast one, in order: of `auto` all others, the nearest to the source first.

    So the first of them that is faster here has the best quality of those that are.
    """
    if fast_variant != ANY_VARIANT:
        return [fast_variant] if fast_variant else []
    measured = measured_quality(bundle)
    others = [variant.id for variant in bundle.manifest.variants if variant.id != model.variant]
    if not others:
        model.fast_reason = "the bundle has no other variant"
    return sorted(others, key=lambda name: -measured.get(name, -inf))


def _measured(name: str, session: Session, limits: BatchLimits) -> Probe:
    try:
        return probe(session, limits.max_batch_size)
    except EdgeInferError:
        session.close()
        raise
    except Exception as error:
        session.close()
        raise ExecutionError(
            f"Model `{name}` failed while it was measured: {error}", hint="edge-infer verify"
        ) from error


def _bounded(device: str, memory_limit_mb: int) -> OnnxRuntimeOptions | None:
    """Return the engine's settings by which all models on a device share one bounded arena."""
    if not memory_limit_mb:
        return None
    provider = device.partition(":")[0]
    return OnnxRuntimeOptions(provider=provider, shared_arena=True, memory_limit_mb=memory_limit_mb)


def _add_fast(
    model: LoadedModel,
    bundle: Bundle,
    device: str,
    limits: BatchLimits,
    variant: str,
    options: OnnxRuntimeOptions | None,
) -> None:
    """Load the fast variant, and use it if it gives the golden examples, has the same tensors and is faster here."""
    if variant == model.variant:
        model.fast_reason = "it is the variant that runs anyway; `--variant` says which does"
        return
    has_examples = bundle.manifest.examples is not None
    session = load(bundle, device=device, variant=variant, arrays="numpy", self_test=has_examples, options=options)
    measured = _measured(model.name, session, limits)
    size, fast_size = model.probe.batch_size, measured.batch_size
    if session.inputs != model.inputs or session.outputs != model.outputs:
        model.fast_reason = "its inputs or outputs are not the same"
    elif size != fast_size and (reason := measured.reason or model.probe.reason):
        model.fast_reason = f"one of the two cannot be batched: {reason}"
    elif measured.row_s > _WORTH * model.probe.row_s:
        model.fast_reason = f"it is not faster here: {measured.row_s * 1e3:.2f} ms by {model.probe.row_s * 1e3:.2f} ms"
    else:
        model.batcher.max_batch_size = min(size, fast_size)
        model.fast = Fast(session, variant, model.probe.row_s)
        return
    session.close()


def _use_one_thread(bundle: Bundle) -> None:
    """Let an operator use one thread: batches run side by side on the cores, and must not starve one another.

    Measured: digits at batch 32 takes 13.1 us a row with one thread, 31.9 us with ONNX Runtime's own two.
    """
    for variant in bundle.manifest.variants:
        variant.options.setdefault("onnxruntime", {}).setdefault("intra_op_threads", "1")
