"""Checks of a live server against five practices: batching, a free event loop, a lean hot path, timeouts, a known p99.

It is asked what it says of itself (configuration, statistics, metrics) and then tried with a bounded number of small
requests of zeros. Any server of the Open Inference Protocol v2 may be asked; what it does not say is reported so.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from edge_infer.errors import EdgeInferError, FetchError
from edge_infer.tools.doctor.findings import Finding
from edge_infer.tools.doctor.live_target import MAX_TRIAL_BYTES, TIMEOUT_S, Target, quantile, trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.tools.doctor.live_target import Reply, Trial

#: The most models that are tried, requests of a trial, seconds of one, and requests at once.
_MAX_MODELS = 3
_REQUESTS = 256
_SECONDS = 4.0
_AT_ONCE = 16
#: Stands for the status of a request that is not answered in time.
_LATE = -1
#: Health must answer within this while models run, or within three times its idle time.
_HEALTH_S = 0.025
#: What a request may add to the server's memory, and how many full collections a thousand requests may cause.
_BYTES_A_REQUEST = 4096
_COLLECTIONS_A_THOUSAND = 10
#: A p99 this many times the p50 is worth a look, where so many requests were counted.
_TAIL = 10
_ENOUGH = 200
_TOTALS = ("edge_infer_total_seconds_bucket", "request_predict_seconds_bucket", "nv_inference_request_summary_us")


def examine_server(url: str, key: str | None = None) -> list[Finding]:
    """Examine a live server; it takes some seconds a model and at most some hundred small requests.

    Args:
        url: The server's root, or the URL of one of its models.
        key: An API key; None for the environment's `EDGE_INFER_API_KEY`.

    Raises:
        InputError: The URL is none, or the key cannot be sent.
    """
    target = Target(url, key)
    try:
        server = target.ask("/v2")
    except FetchError as error:
        return [Finding("server.reachable", "problem", error.message, error.hint)]
    found = [_reached(target, server.status, server.document()), *_protection(target)]
    if server.status != 200:
        return found
    try:
        names = target.models()
        if not names:
            found.append(Finding("server.models", "warning", "No model is served", "edge-infer serve model.bundle"))
        reads_counts = target.may_read_counts()
        found += _drift(target) if reads_counts else []  # before requests of zeros are counted
        for name in names[:_MAX_MODELS]:
            found += _examine_model(target, name, reads_counts=reads_counts)
        if len(names) > _MAX_MODELS:
            rest = f"{len(names) - _MAX_MODELS} more models were not looked at"
            found.append(Finding("server.models", "note", rest, f"edge-infer doctor {target.url}/v2/models/NAME"))
        found += _size_limit(target)
        if not reads_counts:
            found.append(_counts_refused())
        elif any(finding.check.startswith("loop.") for finding in found):  # some model was tried
            found.append(_tail(target))
    except EdgeInferError as error:
        found.append(Finding("server.answers", "problem", error.message, error.hint or "see the server's log"))
    return found


def _reached(target: Target, status: int, document: dict[str, Any]) -> Finding:
    if status in (401, 403):
        return Finding("server.reachable", "problem", "The server wants an API key", "EDGE_INFER_API_KEY=...")
    if status != 200:
        return Finding("server.reachable", "problem", f"/v2 answers {status}", "is it a server of the v2 protocol?")
    ready = target.ask("/v2/health/ready").status
    what = f"{document.get('name', 'a v2 server')} {document.get('version', '')}".strip()
    if ready != 200:
        return Finding("server.reachable", "warning", f"{what} is not ready ({ready})", "wait, or see its log")
    return Finding("server.reachable", "ok", f"{what} is ready")


def _protection(target: Target) -> list[Finding]:
    if target.is_local:
        return []
    found = []
    if target.scheme == "http":
        found.append(Finding("server.tls", "warning", "Requests travel unencrypted", "serve --tls-cert --tls-key"))
    if Target(target.url, "").ask("/v2").status == 200:
        text = "Whoever reaches the server may use it"
        found.append(
            Finding("server.keys", "warning", text, "serve --config FILE with [tenants.NAME], or a gateway in front")
        )
    return found


def _examine_model(target: Target, name: str, *, reads_counts: bool = True) -> list[Finding]:
    base = f"/v2/models/{quote(name, safe='')}"
    metadata, config = target.ask(base), target.ask(f"{base}/config")
    if metadata.status != 200:
        what = metadata.document().get("error", metadata.status)
        return [Finding(f"model.{name}", "problem", f"Its metadata cannot be had: {what}", "see the server's log")]
    found = [_batching(name, config.document() if config.status == 200 else None)]
    request = trial(name, metadata.document())
    if request is None:
        what = f"It takes texts, or more than {MAX_TRIAL_BYTES >> 20} MiB; it was not tried with requests"
        return [*found, Finding(f"model.{name}", "note", what)]
    try:
        first = target.ask(request.path, request.body, request.headers)
        if first.status != 200:
            is_ready = target.ask(f"{base}/ready").status == 200
            return [*(found if is_ready else ()), _untried(name, first, is_ready=is_ready)]
        again = target.ask(request.path, request.body, request.headers)  # the first may have had more to do
    except FetchError as error:
        if not error.timed_out:
            raise
        what = f"It does not answer zeros within {TIMEOUT_S:.0f} s, so it was not tried"
        return [*found, Finding(f"model.{name}", "warning", what, "a smaller variant, or a faster device")]
    idle = _health(target, lambda: False, least=10)
    load = _load(target, request, base, _at_once(min(first.seconds, again.seconds)))
    found += [_gathered(name, load, reads_counts=reads_counts), _loop(name, idle, load)]
    if reads_counts:
        found.append(_hot_path(name, load))
    hurried = trial(name, metadata.document(), {"timeout": 1})
    if hurried is not None:
        found.append(_timeout(name, target.ask(hurried.path, hurried.body, hurried.headers).status))
    found.append(_degradation(name, config.document()))
    return found


def _untried(name: str, reply: Reply, *, is_ready: bool) -> Finding:
    told = reply.document()
    what = told.get("error", reply.status)
    if is_ready:
        return Finding(f"model.{name}", "note", f"It refuses zeros, so it was not tried: {what}"[:300])
    hint = str(told.get("hint") or "see the server's log")
    return Finding(f"model.{name}", "problem", f"It is not ready: {what}"[:300], hint)


def _batching(name: str, config: dict[str, Any] | None) -> Finding:
    check = f"batching.{name}"
    if config is None:
        return Finding(check, "note", "The server does not say how it batches (no /config)")
    size = config.get("max_batch_size")
    why = str(_at(config, "parameters", "batching", "string_value") or "")
    if "dynamic_batching" in config and isinstance(size, int) and size > 1:
        return Finding(check, "ok", f"Up to {size} requests run together")
    # A model that was measured to gain nothing is not a fault of its server.
    level = "note" if why else "warning"
    return Finding(check, level, f"Requests run one by one: {why or 'dynamic batching is off'}", _batching_hint(why))


def _at(document: Any, *keys: str) -> Any:
    """Look a value up in nested objects; None where there is none, or one of them is not an object."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _batching_hint(why: str) -> str:
    if not why:
        return "turn dynamic batching on: preferred_batch_size, max_queue_delay_microseconds"
    return "convert with a free batch dimension, where the model allows it" if "dimension" in why else ""


class _Load(NamedTuple):
    """The results of a trial: answers, refusals, late answers, health, rows and batches, memory and collections."""

    at_once: int
    answered: int
    refused: int
    late: int
    seconds: list[float]
    health: list[float]
    rows: int
    batches: int
    growth: float | None
    collections: float | None


def _at_once(seconds: float) -> int:
    """Choose how many requests are sent at once: run one by one, all are answered in half of the time there is."""
    return max(1, min(_AT_ONCE, int(TIMEOUT_S / 2 / seconds)))


def _load(target: Target, request: Trial, base: str, at_once: int = _AT_ONCE) -> _Load:
    """Send a bounded number of requests from several threads, and ask for health meanwhile."""
    seconds: list[float] = []
    statuses: list[int] = []

    def client(count: int, end: float) -> None:
        connection = target.connect()
        try:
            for _ in range(count):
                if perf_counter() > end:
                    return
                reply = target.ask(request.path, request.body, request.headers, connection=connection)
                statuses.append(reply.status)
                seconds.append(reply.seconds)
        except FetchError as error:
            statuses.append(_LATE if error.timed_out else 0)
        finally:
            connection.close()

    with ThreadPoolExecutor(at_once) as threads:
        soon = perf_counter() + _SECONDS / 2
        list(threads.map(lambda _: client(2, soon), range(at_once)))  # memory that is taken once is not a leak
        before, counted = target.metrics(), _counts(target, base)
        statuses.clear()
        seconds.clear()
        end = perf_counter() + _SECONDS
        clients = [threads.submit(client, _REQUESTS // at_once, end) for _ in range(at_once)]
        health = _health(target, lambda: not all(one.done() for one in clients))
        for one in clients:
            one.result()
    after, counts = target.metrics(), _counts(target, base)
    answered, late = statuses.count(200), statuses.count(_LATE)
    rows, batches = counts[0] - counted[0], counts[1] - counted[1]
    growth = _change(before, after, "process_resident_memory_bytes")
    collections = _change(before, after, "python_gc_collections_total", 'generation="2"')
    refused = len(statuses) - answered - late
    return _Load(at_once, answered, refused, late, seconds, health, rows, batches, growth, collections)


def _health(target: Target, goes_on: Callable[[], bool], least: int = 1) -> list[float]:
    """Return the seconds of health checks: some at least, then as long as something goes on."""
    connection = target.connect()
    times: list[float] = []
    try:
        while len(times) < least or (goes_on() and len(times) < 1000):
            times.append(target.ask("/v2/health/live", connection=connection).seconds)
    finally:
        connection.close()
    return times


def _counts(target: Target, base: str) -> tuple[int, int]:
    """Return the rows and the batches that the statistics extension has counted."""
    found = target.ask(f"{base}/stats").document().get("model_stats") or []
    try:
        return sum(int(one["inference_count"]) for one in found), sum(int(one["execution_count"]) for one in found)
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0, 0


def _change(before: dict[str, Any], after: dict[str, Any], name: str, label: str = "") -> float | None:
    def total(samples: dict[str, Any]) -> float | None:
        values = [value for labels, value in samples.get(name, []) if label in labels]
        return sum(values) if values else None

    first, last = total(before), total(after)
    return None if first is None or last is None else last - first


def _counts_refused() -> Finding:
    what = "The key may not read what the server counts: batches, memory and p99 were not looked at"
    return Finding("server.counts", "note", what, "ask with a key that may: `metrics = true` of a tenant")


def _gathered(name: str, load: _Load, *, reads_counts: bool = True) -> Finding:
    check = f"batching.{name}"
    mean = load.rows / load.batches if load.batches else 0.0
    asked = load.answered + load.refused + load.late
    rows = f", {mean:.1f} rows a batch" if load.batches else ""
    text = f"{load.answered} of {asked} requests answered{rows} at {load.at_once} at once"
    if reads_counts and not load.batches:
        text = f"{text}; the server counts no batches (no statistics extension)"
    if load.refused:
        return Finding(check, "warning", text, "raise --max-queue-size or --workers, or add a server")
    if load.late:
        text = f"{text}; {load.late} took more than {TIMEOUT_S:.0f} s"
        return Finding(check, "warning", text, "raise --workers, or add a server")
    return Finding(check, "ok" if mean > 1 else "note", text)


def _loop(name: str, idle: list[float], load: _Load) -> Finding:
    check = f"loop.{name}"
    before, under = median(idle), _typical_wait(load.health)
    text = f"Health answers in {under * 1000:.1f} ms while the model runs, {before * 1000:.1f} ms idle"
    if under > max(_HEALTH_S, 3 * before):
        return Finding(check, "warning", text, "run the model in a thread or process, not on the event loop")
    return Finding(check, "ok", text)


def _typical_wait(times: list[float]) -> float:
    """Return the wait at a moment chosen by chance: one that asks again at once meets the short waits too often."""
    return sum(value * value for value in times) / sum(times)


def _hot_path(name: str, load: _Load) -> Finding:
    check = f"memory.{name}"
    if load.growth is None or not load.answered:
        return Finding(check, "note", "The server does not tell its memory", "expose process_resident_memory_bytes")
    each = load.growth / load.answered
    text = f"{max(0.0, each):.0f} bytes more a request"
    if load.collections is not None:
        text += f", {load.collections:.0f} full collections in {load.answered} requests"
    collects = load.collections is not None and load.collections * 1000 > _COLLECTIONS_A_THOUSAND * load.answered
    if each > _BYTES_A_REQUEST or (collects and (load.collections or 0) > 2):
        return Finding(check, "warning", text, "reuse buffers on the hot path; freeze what is loaded (gc.freeze)")
    return Finding(check, "ok", text)


def _timeout(name: str, status: int) -> Finding:
    check = f"timeouts.{name}"
    if status == 504:
        return Finding(check, "ok", "A request that comes too late is answered with 504")
    if status == 200:
        return Finding(check, "warning", "`parameters.timeout` is ignored", "let clients set a deadline and keep it")
    return Finding(check, "note", f"A timeout of 1 microsecond is answered with {status}")


def _degradation(name: str, config: dict[str, Any]) -> Finding:
    check = f"overload.{name}"
    size = (
        _at(config, "dynamic_batching", "default_queue_policy", "max_queue_size")
        or _at(config, "queue_policy", "max_queue_size")
        or _at(config, "parameters", "max_queue_size", "string_value")
    )
    if size:
        return Finding(check, "ok", f"At most {size} requests wait; the rest are refused at once")
    return Finding(check, "warning", "No bound on how many requests wait is known", "set max_queue_size")


def _size_limit(target: Target) -> list[Finding]:
    """Announce a body of a terabyte and send none of it: a careful server refuses without waiting for it.

    Returns:
        Nothing where the server refuses for another reason, such as a model that it has not.
    """
    connection: HTTPConnection = target.connect()
    connection.timeout = 3.0
    try:
        names = target.models()
        model = quote(names[0], safe="") if names else "x"
        connection.putrequest("POST", f"{target.root}/v2/models/{model}/infer")
        connection.putheader("Content-Length", str(2**40))
        connection.putheader("Content-Type", "application/json")
        if target.key:
            connection.putheader("Authorization", f"Bearer {target.key}")
        connection.endheaders()
        status = connection.getresponse().status
    except (OSError, HTTPException):
        status = 0
    finally:
        connection.close()
    if status == 413:
        return [Finding("limits.body", "ok", "A body over the limit is refused before it is read")]
    if status >= 400:
        return []
    what = f"answered with {status}" if status else "waited for"
    text = f"A body of a terabyte is {what}, not refused"
    return [Finding("limits.body", "warning", text, "limit the size of bodies")]


def _drift(target: Target) -> list[Finding]:
    """Say what a server that counts its models' data has found."""
    samples = target.metrics()
    features = samples.get("edge_infer_drift_found", [])
    if not features:
        return []
    off = sorted({labels for labels, value in features if value})
    names = ", ".join(re.findall(r'feature="([^"]*)"', " ".join(off))[:6])
    if off:
        return [Finding("data.drift", "warning", f"The data have changed: {names}", "edge-infer monitor report")]
    return [Finding("data.drift", "ok", f"{len(features)} features look as they did, or are too few rows yet")]


def _tail(target: Target) -> Finding:
    samples = target.metrics()
    name = next((name for name in _TOTALS if name in samples), "")
    if not samples:
        return Finding(
            "p99.known", "warning", "There is no /metrics: nobody can watch the p99", "serve Prometheus metrics"
        )
    if not name.endswith("_bucket"):
        return Finding("p99.known", "warning", "/metrics has no histogram of request times", "count latency in buckets")
    buckets = samples[name]
    count = sum(value for labels, value in buckets if '"+Inf"' in labels)
    half, tail = quantile(buckets, 0.5), quantile(buckets, 0.99)
    text = f"p50 <= {half * 1000:g} ms, p99 <= {tail * 1000:g} ms of {count:.0f} requests"
    if count >= _ENOUGH and tail > _TAIL * half:
        return Finding("p99.known", "warning", text, "look at Server-Timing: queue or compute?")
    return Finding("p99.known", "ok", text)
