"""Tell how fast each variant is against float: by a file of measurements from the device, else by the cost model."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError
from edge_infer_converters.measure.cost_model import cost_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.variant import Variant

#: Models of more bytes are not estimated: their shapes take as much memory again.
_MAX_MODEL_BYTES = 512_000_000
_MAX_FILE_BYTES = 2**20
#: From which ratio a variant counts as slower than float: measured ones are surer than estimates.
_SLOW, _SLOW_ESTIMATE = 1.1, 1.5
#: What tells the speed where no file does.
COST_MODEL = "cost model"
#: The cost model's units that a slower variant must lose: smaller nets have nothing to lose.
_MIN_LOST = 2e6


class Speed(NamedTuple):
    """The time of one call against the float parent's.

    Attributes:
        parent: The parent's id.
        ratio: The time over the parent's; below 1 is faster.
        is_slow: Whether it is clearly slower, by a time that matters.
        origin: `cost model`, or what measured it.
    """

    parent: str
    ratio: float
    is_slow: bool
    origin: str

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x of {self.parent} ({self.origin})"

    def to_json(self) -> dict[str, Any]:
        """Describe this as `quality.json` does."""
        return {**self._asdict(), "ratio": round(self.ratio, 4)}


class DeviceTimes(NamedTuple):
    """A file of measurements that `edge-infer tune --json` wrote on a device, or `bench --host --json` of it.

    Attributes:
        name: The file's name.
        digest: Its sha256.
        rows: Its measurements: `variant`, `backend`, `device`, `ms` and `spread` of each, and `rss_bytes` by `bench`.
    """

    name: str
    digest: str
    rows: tuple[Mapping[str, Any], ...]

    def ms(self, variant: str) -> float | None:
        """Return the time of the fastest way to run a variant, or None where it was not measured."""
        return min((float(row["ms"]) for row in self.rows if row["variant"] == variant), default=None)

    def ram(self, variant: str) -> int | None:
        """Return the memory of the smallest process that runs a variant, or None where it was not measured."""
        found = [row.get("rss_bytes") for row in self.rows if row["variant"] == variant]
        return min((one for one in found if isinstance(one, int)), default=None)

    def speed(self, variant: str, parent: str) -> Speed | None:
        """Compare the fastest rows of two variants on one engine and device; None where there is none of either."""
        for backend, device in dict.fromkeys((row["backend"], row["device"]) for row in self.rows):
            here = [row for row in self.rows if (row["backend"], row["device"]) == (backend, device)]
            ours, base = (
                min((row for row in here if row["variant"] == id_), key=lambda row: row["ms"], default=None)
                for id_ in (variant, parent)
            )
            if ours is not None and base is not None:
                low, high = ours["ms"] * (1 - ours["spread"]), base["ms"] * (1 + base["spread"])
                is_slow = low > _SLOW * high
                return Speed(parent, ours["ms"] / base["ms"], is_slow, f"{backend} on {device}, {self.name}")
        return None


def read_device_times(path: str | os.PathLike[str]) -> DeviceTimes:
    """Read what `edge-infer tune BUNDLE --json` or `edge-infer bench BUNDLE --json` printed.

    Raises:
        InputError: It cannot be read, or is not such a file.
    """
    place = Path(path)
    hint = (
        "edge-infer tune model.bundle --json > measured.json, on the device, or bench --host; of a bundle of --keep-all"
    )
    try:
        if place.stat().st_size > _MAX_FILE_BYTES:
            raise InputError(
                f"`{place.name}` has more than {_MAX_FILE_BYTES} bytes, expected a list of times", hint=hint
            )
        data = place.read_bytes()
        rows = [{**row, "ms": row["p50_ms"]} if "p50_ms" in row else row for row in json.loads(data)["rows"]]
        if not rows or not all(_is_row(row) for row in rows):
            raise ValueError("its rows are not measurements")
    except OSError as error:
        raise InputError(f"`{place}` cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"`{place.name}` is not what `edge-infer tune --json` prints", hint=hint) from error
    return DeviceTimes(place.name, sha256(data).hexdigest(), tuple(rows))


def speeds(
    folder: Path, variants: Sequence[Variant], shapes: Mapping[str, Sequence[int]], times: DeviceTimes | None
) -> dict[str, Speed]:
    """Compare the variants of a bundle with the fp32 variant of the same format.

    Args:
        folder: The bundle's folder.
        variants: Its variants.
        shapes: The shapes of the inputs of a call.
        times: Measurements of the device; a variant that they lack is estimated.

    Returns:
        By id, what is known. Half precision is not for CPUs, and is not estimated.
    """
    found: dict[str, Speed] = {}
    for parent in [variant for variant in variants if variant.precision == "fp32"]:
        base: float | None = None
        for one in variants:
            if one.format != parent.format or one.id == parent.id:
                continue
            measured = times.speed(one.id, parent.id) if times is not None else None
            if measured is not None:
                found[one.id] = measured
            elif one.precision != "fp16":
                base = base or _cost(folder, parent, shapes)
                cost = _cost(folder, one, shapes) if base else None
                if base and cost:
                    found[one.id] = estimated(parent.id, base, cost)
    return found


def estimated(parent: str, base: float, cost: float) -> Speed:
    """Return the ratio of two costs of the cost model."""
    return Speed(parent, cost / base, cost > _SLOW_ESTIMATE * base and cost - base > _MIN_LOST, COST_MODEL)


def _cost(folder: Path, variant: Variant, shapes: Mapping[str, Sequence[int]]) -> float | None:
    path = folder / variant.file
    return None if path.stat().st_size > _MAX_MODEL_BYTES else cost_of(path.read_bytes(), variant.format, shapes)


def _is_row(row: Any) -> bool:
    return (
        all(isinstance(row[name], str) for name in ("variant", "backend", "device"))
        and all(isinstance(row[name], (int, float)) and not isinstance(row[name], bool) for name in ("ms", "spread"))
        and 0 < row["ms"] < 1e9
        and 0 <= row["spread"] < 1e9
    )
