"""Counters of features: whole numbers that add up over threads, devices and days, and hold no row of the data."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.monitor.features import columns_of
from edge_infer.monitor.reference import reference_of
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.monitor.decision import Verdict
    from edge_infer.monitor.reference import Feature, Reference

VERSION = 1
#: Behind the bins of a feature of numbers: the missing, those below the reference's lowest and above its highest.
EXTRA = 3


class Counters:
    """What was counted of a model's inputs and outputs.

    Args:
        reference: What it is compared with.

    Attributes:
        reference: The same.
        rows: How many rows were counted.
        counts: By feature the counts: of numbers 20 bins, the missing, those below and those above the reference's
            range; of categories each of them, others, and the missing.

    Counters may be shared by threads.

    >>> counters = Counters.of(bundle)  # doctest: +SKIP
    >>> session.observe(counters.observe)  # doctest: +SKIP
    """

    def __init__(self, reference: Reference) -> None:
        from _thread import allocate_lock

        self.reference = reference
        self.rows = 0
        self.counts = {one.name: [0] * _length(one) for one in reference.features}
        self._lock = allocate_lock()

    @classmethod
    def of(cls, bundle: Bundle) -> Counters:
        """Return empty counters for a bundle.

        Raises:
            UnsupportedError: The bundle has no reference.
            BundleError: It is damaged.
        """
        return cls(reference_of(bundle))

    def observe(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Count the rows of one run of the model; `Session.observe` calls it.

        Raises:
            InputError: A tensor has another shape than the reference's data.
        """
        rows, found = 0, []
        for feature, values in zip(self.reference.features, columns_of(self.reference, inputs, outputs), strict=True):
            rows = max(rows, len(values))
            found.append(_counted(feature, values))
        with self._lock:
            self.rows += rows
            for feature, counts in zip(self.reference.features, found, strict=True):
                self._add(feature.name, counts)

    def merge(self, other: Counters) -> None:
        """Add what others counted; the order does not matter.

        Raises:
            InputError: They were made for another reference.
        """
        if other.reference.digest != self.reference.digest:
            raise InputError(
                "the counters are of another reference: their bins differ",
                hint="count again with this bundle, or name the bundle that they were counted with",
            )
        with self._lock:
            self.rows += other.rows
            for name, counts in other.counts.items():
                self._add(name, counts)

    def verdict(self) -> Verdict:
        """Say whether the counts differ from the reference by more than chance; see `edge_infer.monitor.decision`."""
        from edge_infer.monitor.decision import decide

        return decide(self)

    def clear(self) -> None:
        """Begin again at zero."""
        with self._lock:
            self.rows = 0
            self.counts = {name: [0] * len(counts) for name, counts in self.counts.items()}

    def to_json(self) -> dict[str, Any]:
        """Describe these counters as a file of counters does."""
        with self._lock:
            counts = {name: list(one) for name, one in self.counts.items()}
            return {"version": VERSION, "reference": self.reference.digest, "rows": self.rows, "counts": counts}

    def _add(self, name: str, counts: list[int]) -> None:
        mine = self.counts[name]
        for i, count in enumerate(counts):
            mine[i] += count


def read_counters(data: bytes | str, reference: Reference, where: str = "the counters") -> Counters:
    """Read a file of counters.

    Args:
        data: The JSON.
        reference: The reference of the bundle that they were counted with.
        where: The file, for errors.

    Raises:
        InputError: It is not a file of counters, or of another reference.
    """
    try:
        document = json.loads(data)
        found = Counters(reference)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}, expected {VERSION}")
        if document["reference"] != reference.digest:
            raise InputError(
                f"{where} are of another reference: their bins differ",
                hint="name the bundle that they were counted with",
                expected=reference.digest,
                got=document["reference"],
            )
        if set(document["counts"]) != set(found.counts):
            raise ValueError("its features are others")
        found.rows = _count(document["rows"])
        for name, counts in document["counts"].items():
            if not isinstance(counts, list) or len(counts) != len(found.counts[name]):
                raise ValueError(f"{name!r} has another number of counts")
            found.counts[name] = [_count(one) for one in counts]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{where} cannot be read: {type(error).__name__}: {error}", hint="edge-infer predict --monitor FILE"
        ) from error
    return found


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _length(feature: Feature) -> int:
    return len(feature.counts) + (1 if feature.values else EXTRA)


def _counted(feature: Feature, values: Any) -> list[int]:
    if has_numpy() and len(values):
        return _by_numpy(feature, values)
    counts = [0] * _length(feature)
    if feature.values:
        places = {value: i for i, value in enumerate(feature.values)}
        for value in values:
            counts[-1 if value != value else places.get(value, len(feature.values))] += 1
        return counts
    for value in values:
        if value != value:
            counts[-3] += 1
            continue
        counts[bisect_right(feature.edges, value)] += 1
        counts[-2] += value < feature.low
        counts[-1] += value > feature.high
    return counts


def _by_numpy(feature: Feature, values: Any) -> list[int]:
    import numpy as np

    numbers = np.asarray(values, "f8")
    good = numbers[~np.isnan(numbers)]
    missing = len(numbers) - len(good)
    if feature.values:
        known = np.array(feature.values)
        order = np.argsort(known)
        near = order[np.minimum(np.searchsorted(known[order], good), len(known) - 1)]
        places = np.where(known[near] == good, near, len(known))
        return [*np.bincount(places, minlength=len(known) + 1).tolist(), missing]
    bins = np.bincount(np.searchsorted(np.array(feature.edges), good, side="right"), minlength=len(feature.counts))
    below, above = int((good < feature.low).sum()), int((good > feature.high).sum())
    return [*bins.tolist(), missing, below, above]
