"""The budget of a conversion: the largest loss, size and latency, and the least SQNR."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, listed
from edge_infer.parity.comparison import INTEGER_GOOD_SQNR_DB, INTEGER_MIN_SQNR_DB

if TYPE_CHECKING:
    from collections.abc import Collection


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}


class DeviceLatency(NamedTuple):
    """The longest time of one call on a device.

    Attributes:
        ms: Milliseconds.
        target: The target that it is asked of, or empty for all variants that were measured.
    """

    ms: float
    target: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits that a variant must keep.

    Attributes:
        max_loss: The largest relative drop of the metric against the source, 0.01 being 1 %; None for no limit.
        min_sqnr_db: The least signal to noise ratio of the outputs in dB, or None for the usual limits.
        max_size: The largest file in bytes, or None for no limit.
        metric: `accuracy`, `top5`, `map`, `map50`, `spearman`, `cosine`, `equal` or `module:function`; None for
            accuracy where the data name the right classes, map where they name objects, else cosine, or equal where no
            output is of floats.
        max_latency_ratio: The longest time of one call against the fp32 variant's, 0.8 being 20 % faster, or None.
        max_latency: The longest time of one call on a measured device, or None.
        max_ram: The most memory of a process on a measured device, in bytes, or None.
    """

    max_loss: float | None = None
    min_sqnr_db: float | None = None
    max_size: int | None = None
    metric: str | None = None
    max_latency_ratio: float | None = None
    max_latency: DeviceLatency | None = None
    max_ram: int | None = None

    def __post_init__(self) -> None:
        if self.max_loss is not None and not 0 <= self.max_loss < 1:
            raise InputError(
                f"Loss {self.max_loss} is not a share, expected 0 or more and less than 1",
                hint="write 0.01 or '1%' for 1 %",
                got=self.max_loss,
            )
        if self.max_latency_ratio is not None and not 0 < self.max_latency_ratio < float("inf"):
            raise InputError(
                f"Latency ratio {self.max_latency_ratio} cannot be reached, expected a number above 0",
                hint="--max-latency-ratio 1.0: no slower than fp32",
            )

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that there are, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "metric"}
        return {name: limit for name, limit in found.items() if limit is not None}

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return bool(self.limits)

    @property
    def decides(self) -> bool:
        """Whether the user has said what a variant's outputs must keep: a loss, or an SQNR."""
        return self.max_loss is not None or self.min_sqnr_db is not None

    @property
    def floor_db(self) -> float:
        """The least SQNR that the search accepts: `verify` fails below 20 dB, and warns below 30.

        Where the metric or the size has a limit of its own, 20 dB are enough.
        """
        if self.min_sqnr_db is not None:
            return self.min_sqnr_db
        return INTEGER_GOOD_SQNR_DB if self.max_loss is None and self.max_size is None else INTEGER_MIN_SQNR_DB

    def check(self, *, has_evaluation: bool, has_measured: bool = True) -> None:
        """Refuse a budget that cannot be measured.

        Raises:
            InputError: A loss, or a metric other than `cosine`, is asked for without data to measure it on; or a
                time or memory of a device without its measurements. Its fact `option` names what was asked for.
        """
        device = "--max-latency" if self.max_latency else "--max-ram" if self.max_ram else ""
        if device and not has_measured:
            raise InputError(
                f"{device} needs measurements of the device",
                hint="edge-infer bench model.bundle --host pi@address --json > pi.json, and --measured pi.json",
                option=device,
            )
        asked = "--max-loss" if self.max_loss is not None else "--metric" if self.metric not in (None, "cosine") else ""
        if asked and not has_evaluation:
            raise InputError(
                f"{asked} needs data to measure on",
                hint="--eval FILE.npz, with an array for each input and the right classes as `labels`",
                option=asked,
            )


def parse_share(text: str, what: str = "Loss") -> float:
    """Read `1%` or `0.01` as 0.01.

    Args:
        text: The share as it was written.
        what: What to call it in an error.

    Raises:
        InputError: It is neither, or not a share from 0 to less than 1: 1 means 100 %.

    >>> parse_share("2.5%")
    0.025
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if share == 1:
        kept = ", which any file keeps" if what == "Loss" else ""
        raise InputError(f"{what} {text!r} means 100 %{kept}", hint="write 1% or 0.01 for 1 %", got=text)
    if not 0 <= share < 1:
        raise InputError(
            f"{what} {text!r} is not a share, expected 0% or more and less than 100%", hint="write 1% or 0.01", got=text
        )
    return round(share, 12)


def parse_latency(text: str, targets: Collection[str]) -> DeviceLatency:
    """Read `30ms`, `pi=30ms` or `pi=0.03s`.

    Raises:
        InputError: It is not a time, or the target is unknown.

    >>> parse_latency("pi=30ms", ["pi"])
    DeviceLatency(ms=30.0, target='pi')
    """
    found = re.fullmatch(r"\s*(?:(\w+)=)?(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", text)
    if not found or not float(found[2]):
        raise InputError(f"Latency {text!r} is not known, expected a time in ms", hint="pi=30ms", got=text)
    target = found[1] or ""
    if target and target not in targets:
        raise InputError(f"Latency {text!r} is of no target; choose from {listed(list(targets))}", hint="pi=30ms")
    return DeviceLatency(float(found[2]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[found[3]], target)


def parse_size(text: str) -> int:
    """Read `5MB`, `900 kB` or `120000` as bytes; 1 MB is a million.

    Raises:
        InputError: It is not a size.

    >>> parse_size("1.5MB")
    1500000
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if not found or found[2].lower() not in _UNITS or not float(found[1]):
        raise InputError(f"Size {text!r} is not known, expected a number and B, kB, MB or GB", hint="5MB", got=text)
    return int(float(found[1]) * _UNITS[found[2].lower()])
