"""Measure the ways to run a model on this machine, and keep the results for `load`.

Every variant that was made for this kind of place runs on every engine and device here, with one thread and with all
that may be used. The ways take turns, a block of calls each, round after round: a machine that grows slow (heat, other
work) slows them all. A way's figure is the median of its rounds. Nothing of this happens unless it is asked for.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.backends.registry import get_backend
from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.quality import measured_quality
from edge_infer.errors import EdgeInferError, InputError, UnsupportedModel
from edge_infer.parity.comparison import FP32_MIN_SQNR_DB, compare_outputs, worst_of
from edge_infer.parity.verdict import judge_variant
from edge_infer.platform import host
from edge_infer.runtime.measurements import Measurement, remember
from edge_infer.runtime.open_session import open_session
from edge_infer.runtime.options import LoadOptions
from edge_infer.runtime.selection import choices, worth_measuring
from edge_infer.tensors.arrays import has_numpy, present
from edge_infer.tensors.dummy_inputs import dummy_inputs

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from edge_infer.runtime.selection import Choice
    from edge_infer.runtime.session import Session

#: A block of calls lasts at least this long, far above the resolution of a page's clock (0.1 ms) and a timer's jitter.
_BLOCK_S = 0.005
_WARM_UP_CALLS = 3
_MIN_ROUNDS, _MAX_ROUNDS = 5, 51
#: Models that take more than this together, loaded, are measured one after another instead of side by side.
_MAX_LOADED_BYTES = 256 * 2**20
#: An engine takes about this many times a model's file.
_LOADED_FACTOR = 3


class Failed(NamedTuple):
    """A way to run the model that does not work here, and why."""

    variant: str
    backend: str
    device: str
    threads: int
    reason: str


class Tuning(NamedTuple):
    """The measurements of `tune`.

    Attributes:
        model: The bundle's name and the first digits of its revision.
        rows: One measurement for each way that works, the fastest first.
        failed: The ways that do not.
        best: The choice that `load` makes of these ways, by rule where all of them fail their golden examples.
        path: The file in which it is remembered; None in a page, or where it was not to be.
    """

    model: str
    rows: tuple[Measurement, ...]
    failed: tuple[Failed, ...]
    best: Choice
    path: Path | None


def tune(
    source: str | os.PathLike[str] | Bundle,
    *,
    device: str = "auto",
    backend: str | None = None,
    variant: str | None = None,
    threads: Sequence[int] | None = None,
    max_time_s: float = 10.0,
    save: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Measure engine x variant x threads on the bundle's golden examples, and remember it for `load`.

    Args:
        source: A bundle, or a bare model file, as `edge_infer.load` takes them; no model on a server.
        device: The only device to measure, or `auto` for all.
        backend: The only engine to measure, or None for all; `reference` only by its name.
        variant: The only variant to measure, or None for all that were made for this kind of place.
        threads: The numbers of threads to try; None for 1, 2, 4 ... up to what this process may use.
        max_time_s: About how long to measure, the loading not counted. At least 5 rounds are run.
        save: Whether to remember what was measured.
        progress: Told each way before it is loaded.

    Raises:
        InputError: An argument is not one of its choices; or no engine that is to be measured takes a number of
            threads, and `threads` names some.
        BundleError: The source is not a bundle or model.
        BackendUnavailable: No engine can run it here.
        UnsupportedModel: No way to run it works.

    >>> tuning = tune("examples/digits/digits.onnx", max_time_s=0.1, save=False)
    >>> tuning.best.variant.id, tuning.rows[0].ms > 0
    ('onnx/model', True)
    """
    if not max_time_s > 0:
        raise InputError(f"`max_time_s` is {max_time_s}, expected more than 0", got=max_time_s)
    if threads is not None and (not threads or min(threads) < 1):
        raise InputError(f"`threads` is {list(threads)}, expected numbers from 1", got=list(threads))
    bundle = source if isinstance(source, Bundle) else Bundle.open(source)
    asked = LoadOptions(device, backend, variant)
    ways = list(_ways(worth_measuring(bundle.manifest, asked), threads))
    quality = measured_quality(bundle)
    rule = next(choices(bundle.manifest, asked))
    rows: list[Measurement] = []
    failed: list[Failed] = []
    groups = _groups(bundle, ways)
    for group in groups:
        found, not_found = _measure(bundle, group, rule, max_time_s / len(groups), quality, progress)
        rows += found
        failed += not_found
    if not rows:
        reasons = [f"{one.variant} by {one.backend}: {one.reason}" for one in failed]
        raise UnsupportedModel(
            f"No way to run `{bundle.manifest.name}` works here: {'; '.join(reasons)}", hint="edge-infer backends"
        )
    rows.sort(key=lambda row: row.ms)
    best = next(choices(bundle.manifest, asked, rows))
    path = _kept(bundle, rows, failed) if save else None
    return Tuning(bundle.label, tuple(rows), tuple(failed), best, path)


def _kept(bundle: Bundle, rows: list[Measurement], failed: list[Failed]) -> Path | None:
    """Remember what was measured; where the folder cannot be written, as on a read-only device, warn."""
    try:
        ways = [(one.variant, one.backend, one.device.partition(":")[0], one.threads) for one in failed]
        return remember(bundle.manifest.name, bundle.revision, rows, ways)
    except OSError as error:
        from warnings import warn

        warn(
            f"What was measured cannot be remembered ({error}): the next load does not know it; "
            "EDGE_INFER_CACHE names another folder",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def _ways(found: Sequence[Choice], threads: Sequence[int] | None) -> Iterator[Choice]:
    """Give each choice with each number of threads that it can have.

    Raises:
        InputError: None of the engines takes a number of threads, and some were asked for.
    """
    if threads is not None and not any(get_backend(choice.backend).takes_threads for choice in found):
        raise InputError(
            f"Backend `{found[0].backend}` takes no number of threads", hint="leave `threads` out", got=list(threads)
        )
    usable = host.available_cpus()
    numbers = sorted({*threads}) if threads is not None else sorted({1, *_powers(usable), usable})
    for choice in found:
        is_fixed = "intra_op_threads" in choice.variant.options.get(choice.backend, {})
        if is_fixed or (threads is None and not get_backend(choice.backend).takes_threads):
            yield choice
        elif get_backend(choice.backend).takes_threads:
            for number in numbers if choice.device == "cpu" or threads is not None else [1]:
                yield choice._replace(threads=number)


def _powers(limit: int) -> list[int]:
    return [2**exponent for exponent in range(limit.bit_length()) if 2**exponent <= limit]


def _groups(bundle: Bundle, ways: list[Choice]) -> list[list[Choice]]:
    """Put the ways together that are measured side by side: all, or each alone where they take too much memory."""
    total = sum(bundle.manifest.files[way.variant.file].size for way in ways) * _LOADED_FACTOR
    return [ways] if total <= _MAX_LOADED_BYTES else [[way] for way in ways]


def _measure(
    bundle: Bundle,
    ways: Sequence[Choice],
    rule: Choice,
    max_time_s: float,
    quality: Mapping[str, float],
    progress: Callable[[str], None] | None,
) -> tuple[list[Measurement], list[Failed]]:
    """Measure ways side by side."""
    examples = bundle.examples()
    arrays = "numpy" if has_numpy() else "tensor"
    failed: list[Failed] = []
    started: list[tuple[Choice, Session, list[dict[str, Any]], float | None, str, int]] = []
    with ExitStack() as open_sessions:
        for way in ways:
            if progress is not None:
                progress(f"{way.variant.id} by {way.backend} on {way.device}, threads: {way.threads or 'its own'}")
            try:
                asked = LoadOptions(way.device, strict=True, arrays="tensor")
                session = open_sessions.enter_context(host.at_once(open_session(bundle, way, asked)))
                # Measured is what applications do: on numpy arrays, where there is numpy.
                feeds = [present(inputs, arrays) for inputs, _ in examples] or [dummy_inputs(session.inputs)]
                results = [session.run(inputs) for inputs in feeds]
                sqnr_db, verdict = None, "unknown"
                if examples:
                    outputs = compare_outputs([outputs for _, outputs in examples], results)
                    sqnr_db = worst_of(outputs.values()).sqnr_db
                    verdict = judge_variant(outputs, way.variant).word
                sqnr_db = quality.get(way.variant.id, sqnr_db)
                calls = _block_size(session, feeds)
            except EdgeInferError as error:
                failed.append(Failed(way.variant.id, way.backend, way.device, way.threads or 0, error.message))
            else:
                started.append((way, session, feeds, sqnr_db, verdict, calls))
        times = _rounds([(session, feeds, calls) for _, session, feeds, _, _, calls in started], max_time_s)
    base = _times_of(rule, [(way, verdict) for way, _, _, _, verdict, _ in started], times)
    rows = []
    for (way, _, _, sqnr_db, verdict, _), taken in zip(started, times, strict=True):
        ms, spread = median_and_spread(taken)
        rows.append(
            Measurement(
                way.variant.id,
                way.backend,
                get_backend(way.backend).version(),
                way.device.partition(":")[0],
                way.threads or 0,
                ms,
                spread,
                None if sqnr_db is None else round(min(sqnr_db, FP32_MIN_SQNR_DB), 2),
                verdict,
                None if base is None else 1.0 if taken is base else upper_ratio(taken, base),
            )
        )
    return rows, failed


def _block_size(session: Session, feeds: Sequence[Mapping[str, Any]]) -> int:
    """Warm a session up, and count the calls that fill a block."""
    taken = float("inf")
    for i in range(_WARM_UP_CALLS):
        start = perf_counter()
        session.run(feeds[i % len(feeds)])
        taken = min(taken, perf_counter() - start)
    return max(1, round(_BLOCK_S / max(taken, 1e-6)))


def _rounds(
    started: Sequence[tuple[Session, Sequence[Mapping[str, Any]], int]], max_time_s: float
) -> list[list[float]]:
    """Let the sessions take turns until the time is up; return the milliseconds of a call, by session and round."""
    times: list[list[float]] = [[] for _ in started]
    until = perf_counter() + max_time_s
    was_collecting = gc.isenabled()
    gc.disable()  # a collection would be charged to whoever runs when it falls
    try:
        for number in range(_MAX_ROUNDS):
            if number >= _MIN_ROUNDS and perf_counter() > until:
                break
            # Each round begins with another session, so that none always follows the same neighbour.
            for place in range(len(started)):
                which = (place + number) % len(started)
                session, feeds, calls = started[which]
                session.run(feeds[0])  # brings its weights back into the caches
                start = perf_counter()
                for i in range(calls):
                    session.run(feeds[i % len(feeds)])
                times[which].append((perf_counter() - start) * 1000 / calls)
    finally:
        if was_collecting:
            gc.enable()
    return times


def _times_of(rule: Choice, started: Sequence[tuple[Choice, str]], times: Sequence[list[float]]) -> list[float] | None:
    """Return the rounds of the way that the rules choose, on most threads; None where it is not here, or fails."""
    found: dict[int, list[float]] = {}
    for (way, verdict), taken in zip(started, times, strict=True):
        is_it = (way.variant.id, way.backend, way.device) == (rule.variant.id, rule.backend, rule.device)
        if is_it and verdict != "fail" and rule.threads in (None, way.threads):
            found[way.threads or 0] = taken
    return found[max(found)] if found else None


def upper_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the upper end of the interval that holds the median of paired ratios with at least 95 %.

    The interval is that of the order statistics (the sign test); with five rounds it is their whole range, 94 %.
    """
    ratios = sorted(one / other for one, other in zip(times, base, strict=True))
    count = len(ratios)
    place = max(0, int(count / 2 - 0.98 * count**0.5))
    return ratios[count - 1 - place]


def median_and_spread(times: Sequence[float]) -> tuple[float, float]:
    """Return the median of some times, and half the distance of their quartiles over it."""
    ordered = sorted(times)
    middle = _quantile(ordered, 0.5)
    return middle, (_quantile(ordered, 0.75) - _quantile(ordered, 0.25)) / 2 / middle if middle else 0.0


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, between two of them in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
