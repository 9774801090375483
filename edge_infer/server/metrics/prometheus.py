"""`/metrics`: the counts of all models in the text format of Prometheus."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from edge_infer.monitor.decision import Verdict, decide
from edge_infer.server.execution.text_model import TextModel
from edge_infer.server.metrics.triton_names import triton_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from edge_infer.monitor.counters import Counters
    from edge_infer.server.execution.indexes import ServedIndex, ServedIndexes
    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.statistics import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ["model", "version", "pool"]
_CACHE = {
    "cache_hits": "Requests answered from the cache",
    "cache_misses": "Requests that the cache could not answer",
    "coalesced": "Requests answered by an identical one in flight",
}
_TIMINGS = {
    "queue": "Waiting until a worker was free",
    "batch_wait": "Waiting for others to join the batch",
    "compute": "Running the batch",
    "serialization": "Writing the answer",
    "total": "From the request's headers to its answer",
}


class Metrics:
    """Collects the counts when they are asked for; counting itself costs requests almost nothing.

    Args:
        engine: The models.
        triton_names: Whether to add the names that dashboards made for Triton read.
        refusals: Counts by code of the requests that no model's statistics have.
        held: Tells how many bytes of bodies and answers are in memory.
        indexes: The indexes that are searched.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        triton_names: bool = False,
        refusals: Mapping[str, int] | None = None,
        held: Callable[[], int] = int,
        indexes: ServedIndexes | None = None,
    ) -> None:
        self._engine = engine
        self._held = held
        self._indexes = indexes
        self._refusals: Mapping[str, int] = {} if refusals is None else refusals
        self._triton_names = triton_names
        #: By counters how many rows they had before it was decided about them, and what was found.
        self._verdicts: WeakKeyDictionary[Counters, tuple[int, Verdict]] = WeakKeyDictionary()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # memory, CPU seconds, open files; nothing where there is no /proc
        GCCollector(registry=self._registry)

    async def judge(self) -> None:
        """Decide, off the event loop, which features have drifted, where rows were counted since the last time."""
        for model in self._engine.active():
            counters: Counters | None = getattr(model, "counters", None)
            if counters is None:
                continue
            rows = counters.rows  # more may be counted meanwhile
            known = self._verdicts.get(counters)
            if known is None or known[0] != rows:
                self._verdicts[counters] = (rows, await asyncio.to_thread(decide, counters))

    def text(self) -> bytes:
        """Write all metrics; what has drifted is what `judge` found last."""
        text = generate_latest(self._registry)
        return text + triton_text(self._engine.active()) if self._triton_names else text

    def collect(self) -> Iterator[Metric]:
        """Give every metric; `prometheus_client` calls it."""
        models = self._engine.active()
        yield _counter("edge_infer_requests", "Requests answered", models, lambda model: model.statistics.requests)
        yield _by_code("edge_infer_failures", "Requests that failed", models, "failures")
        yield _by_code("edge_infer_rejections", "Requests that were not taken", models, "rejections")
        refused = CounterMetricFamily("edge_infer_refusals", "Requests that no model was given", labels=["code"])
        for code, count in self._refusals.items():
            refused.add_metric([code], count)
        yield refused
        for name, text in _CACHE.items():
            yield _counter(f"edge_infer_{name}", text, models, attrgetter(f"statistics.{name}"))
        for name, text in _TIMINGS.items():
            yield _histogram(f"edge_infer_{name}_seconds", text, models, name)
        yield _histogram("edge_infer_batch_rows", "Rows of a batch", models, "batch_rows")
        fill = GaugeMetricFamily("edge_infer_batch_fill", "Mean rows of a batch by its limit, 0 to 1", labels=_LABELS)
        depth = GaugeMetricFamily("edge_infer_queue_depth", "Requests that wait", labels=_LABELS)
        flight = GaugeMetricFamily("edge_infer_in_flight", "Requests that are read, wait or run", labels=_LABELS)
        limit = GaugeMetricFamily("edge_infer_max_batch_rows", "The most rows of a batch", labels=_LABELS)
        for model in models:
            rows, labels = model.statistics.batch_rows, _labels(model)
            mean = rows.sum / rows.count if rows.count else 0.0
            fill.add_metric(labels, min(1.0, mean / model.batcher.max_batch_size))
            depth.add_metric(labels, len(model.batcher))
            flight.add_metric(labels, model.in_flight)
            limit.add_metric(labels, model.batcher.max_batch_size)
        yield from (fill, depth, flight, limit)
        tenants = CounterMetricFamily("edge_infer_tenant_requests", "Requests answered", labels=[*_LABELS, "tenant"])
        for model in models:
            for tenant, count in model.statistics.tenants.items():
                tenants.add_metric([*_labels(model), tenant], count)
        yield tenants
        yield from _variants(models)
        yield from _drift(models, self._verdicts)
        yield from _texts([model for model in models if isinstance(model, TextModel)])
        workers = GaugeMetricFamily("edge_infer_workers", "Batches that may run at once", labels=["pool"])
        busy = GaugeMetricFamily("edge_infer_workers_busy", "Batches that run", labels=["pool"])
        for name, dispatcher in self._engine.dispatchers.items():
            workers.add_metric([name], dispatcher.workers)
            busy.add_metric([name], dispatcher.scheduler.running)
        yield from (workers, busy)
        if self._indexes is not None and self._indexes.names():
            yield from _searches(self._indexes.all())
        held = GaugeMetricFamily("edge_infer_held_bytes", "Bytes of bodies and of answers that are not taken yet")
        held.add_metric([], self._held())
        yield held


def _searches(indexes: list[ServedIndex]) -> Iterator[Metric]:
    """Give how long the searches of each index took, how many failed, and how many entries it has."""
    seconds = HistogramMetricFamily(
        "edge_infer_search_seconds", "From a search's headers to its answer", labels=["index"]
    )
    failures = CounterMetricFamily("edge_infer_search_failures", "Searches that failed", labels=["index", "code"])
    entries = GaugeMetricFamily("edge_infer_index_entries", "Entries of an index", labels=["index"])
    for one in indexes:
        seconds.add_metric([one.name], *_buckets(one.seconds))
        entries.add_metric([one.name], one.entries)
        for code, count in one.failures.items():
            failures.add_metric([one.name, code], count)
    yield from (seconds, failures, entries)


def _variants(models: list[LoadedModel]) -> Iterator[Metric]:
    """Give which variant runs, where a model has several."""
    batches = CounterMetricFamily("edge_infer_variant_batches", "Batches by variant", labels=[*_LABELS, "variant"])
    in_use = GaugeMetricFamily("edge_infer_variant_in_use", "1 for the variant in use", labels=[*_LABELS, "variant"])
    switches = CounterMetricFamily("edge_infer_variant_switches", "Changes of the variant in use", labels=_LABELS)
    for model in models:
        if model.fast is None:
            continue
        switches.add_metric(_labels(model), model.fast.switch.switches)
        for variant in (model.variant, model.fast.variant):
            in_use.add_metric([*_labels(model), variant], int(variant == model.variant_in_use))
            batches.add_metric([*_labels(model), variant], model.statistics.variants.get(variant, 0))
    yield from (batches, in_use, switches)


def _drift(models: list[LoadedModel], verdicts: Mapping[Counters, tuple[int, Verdict]]) -> Iterator[Metric]:
    """Give what was counted of the models' data, where `--drift` asks for it: the bins, and what they say."""
    if all(getattr(model, "counters", None) is None for model in models):
        return
    rows = CounterMetricFamily("edge_infer_drift_rows", "Rows whose data were counted", labels=_LABELS)
    bins = CounterMetricFamily(
        "edge_infer_drift_bins", "Rows in each bin of a feature", labels=[*_LABELS, "feature", "bin"]
    )
    found = GaugeMetricFamily("edge_infer_drift_found", "1 where a feature has drifted", labels=[*_LABELS, "feature"])
    effect = GaugeMetricFamily("edge_infer_drift_effect", "How much it has", labels=[*_LABELS, "feature"])
    for model in models:
        counters: Counters | None = getattr(model, "counters", None)
        if counters is None:  # a model of texts has none
            continue
        labels = _labels(model)
        rows.add_metric(labels, counters.rows)
        for name, counts in counters.counts.items():
            for i, count in enumerate(counts):
                bins.add_metric([*labels, name, str(i)], count)
        _, verdict = verdicts.get(counters, (0, None))
        for one in verdict.findings if verdict is not None else ():
            found.add_metric([*labels, one.feature], int(one.drifted or one.missing_drifted))
            effect.add_metric([*labels, one.feature], one.effect)
    yield from (rows, bins, found, effect)


def _texts(models: list[TextModel]) -> Iterator[Metric]:
    """Give the tokens and the slots of models that generate text."""
    counters = {
        "generated_tokens": ("Tokens of answers", "tokens"),
        "prompt_tokens": ("Tokens of prompts whose answers began", "prompt_tokens"),
        "cached_prompt_tokens": ("Those of them that were not computed again", "cached_tokens"),
    }
    for name, (text, attribute) in counters.items():
        yield _counter(f"edge_infer_{name}", text, models, attrgetter(f"runner.statistics.{attribute}"))
    now = perf_counter()
    gauges: dict[str, tuple[str, Callable[[TextModel], float]]] = {
        "generated_tokens_per_second": (
            "Tokens of answers a second, over the last ten",
            lambda model: model.runner.statistics.tokens_per_s(now),
        ),
        "slots": ("Answers that may advance at once", lambda model: model.runner.workers),
        "slots_busy": ("Answers that advance", lambda model: len(model.runner.running)),
    }
    for name, (text, value) in gauges.items():
        gauge = GaugeMetricFamily(f"edge_infer_{name}", text, labels=_LABELS)
        for model in models:
            gauge.add_metric(_labels(model), value(model))
        yield gauge
    times = {"first_token": "From a request to its first token", "token": "From one token of an answer to its next"}
    for name, text in times.items():
        yield _histogram(f"edge_infer_{name}_seconds", text, models, name, "runner.statistics")


def _labels(model: LoadedModel) -> list[str]:
    return [model.name, model.version, model.pool]


def _counter(name: str, text: str, models: Sequence[LoadedModel], value: Callable[[LoadedModel], float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=_LABELS)
    for model in models:
        family.add_metric(_labels(model), value(model))
    return family


def _by_code(name: str, text: str, models: list[LoadedModel], attribute: str) -> Metric:
    family = CounterMetricFamily(name, text, labels=[*_LABELS, "code"])
    for model in models:
        counts: dict[str, int] = getattr(model.statistics, attribute)
        for code, count in counts.items():
            family.add_metric([*_labels(model), code], count)
    return family


def _histogram(name: str, text: str, models: Sequence[LoadedModel], attribute: str, of: str = "statistics") -> Metric:
    family = HistogramMetricFamily(name, text, labels=_LABELS)
    for model in models:
        family.add_metric(_labels(model), *_buckets(getattr(attrgetter(of)(model), attribute)))
    return family


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return the counts up to each bound, and the sum."""
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets, histogram.sum
