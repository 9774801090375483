"""Measurements of a model on this machine, kept between runs for the next `load`.

One small JSON file for each model lies in `measured/` of the cache folder, named by the model and its revision. What
is said there counts only on the processor that it was measured on; everything else in the file is checked too, because
it may be of another version or damaged. In a page there is no such folder: there it lasts as long as the page.
"""

from __future__ import annotations

import os

from edge_infer.platform import host
from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

FORMAT = 1
#: A larger file is not ours: a row takes some 200 bytes, a bundle has tens of them.
_MAX_BYTES = 2**20
_IN_PAGE: dict[str, tuple[Measurement, ...]] = {}


class Measurement(Record):
    """The speed and the quality of one way of running a model on this machine.

    Attributes:
        variant: The variant's id.
        backend: The engine's name.
        version: The engine's version.
        device: Where it ran: `cpu`, `cuda`, `wasm` or `webgpu`.
        threads: The threads of one operator that were asked for; 0 where the engine takes no number.
        ms: The median time of one call, in milliseconds.
        spread: Half the distance of the quartiles over the median, of the rounds.
        sqnr_db: How near the outputs are to the source, in dB, at most 100; None where nothing tells.
        verdict: Of the golden examples: `ok`, `warn`, `fail`, or `unknown` where there are none.
        vs_rule: The time over that of the way that the rules choose, at the upper end of the interval that holds the
            median of the rounds' ratios with 95 %: below 1 it is faster for sure. 1 of that way itself; None where the
            two were not measured side by side.
    """

    variant: str
    backend: str
    version: str
    device: str
    threads: int
    ms: float
    spread: float
    sqnr_db: float | None
    verdict: str
    vs_rule: float | None = None


def remembered(name: str, revision: str) -> tuple[Measurement, ...]:
    """Return the measurements of a model on this machine; none where there are none, or where they do not apply.

    A damaged file is ignored with a warning; it is replaced when the model is measured again.

    Args:
        name: The model's name.
        revision: The bundle's revision.
    """
    if host.in_browser():
        return _IN_PAGE.get(_stem(name, revision), ())
    path = _path_of(name, revision)
    try:
        return _read(path, revision)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        from warnings import warn

        warn(f"Ignoring `{path}`, which is damaged ({error}): measure again", RuntimeWarning, stacklevel=8)
        return ()


def remember(
    name: str, revision: str, rows: Sequence[Measurement], failed: Sequence[tuple[str, str, str, int]] = ()
) -> Path | None:
    """Keep new measurements beside those of other ways; return the file, or None in a page.

    Args:
        name: The model's name.
        revision: The bundle's revision.
        rows: What was measured; figures of the same ways, or of another version of the same engine, go.
        failed: The ways that do not work, each as variant, backend, device and threads: their figures go too.

    Raises:
        OSError: The file cannot be written; what was there before is still there.
    """
    if host.in_browser():
        stem = _stem(name, revision)
        _IN_PAGE[stem] = _merged(_IN_PAGE.get(stem, ()), rows, failed)
        return None
    import json

    from edge_infer.platform.atomic_write import write_file

    path = file_of(name, revision)
    try:
        before = _read(str(path), revision)
    except (ValueError, KeyError, TypeError, RecursionError):
        before = ()  # it is damaged
    kept = [row._asdict() for row in _merged(before, rows, failed)]
    document = {"format": FORMAT, "revision": revision, "machine": machine(), "rows": kept}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(document, indent=1) + "\n").encode())
    return path


def may_be_remembered(name: str) -> bool:
    """Tell whether a model of this name was measured: a bare file, whose revision takes time to hash."""
    if host.in_browser():
        return bool(_IN_PAGE)
    try:
        return any(file.startswith(f"{name}-") for file in os.listdir(_folder()))
    except OSError:
        return False


def file_of(name: str, revision: str) -> Path:
    """Return where the measurements of a model lie."""
    from pathlib import Path

    return Path(_path_of(name, revision))


def _merged(
    before: Sequence[Measurement], rows: Sequence[Measurement], failed: Sequence[tuple[str, str, str, int]]
) -> tuple[Measurement, ...]:
    """Return new measurements, and the earlier ones that still apply."""
    tried = {_way(row) for row in rows}.union(failed)
    versions = {row.backend: row.version for row in rows}
    others = [row for row in before if _way(row) not in tried and row.version == versions.get(row.backend, row.version)]
    return (*rows, *others)


def _way(row: Measurement) -> tuple[str, str, str, int]:
    return row.variant, row.backend, row.device, row.threads


def _folder() -> str:
    return os.path.join(host.cache_path(), "measured")


def _path_of(name: str, revision: str) -> str:
    return os.path.join(_folder(), f"{_stem(name, revision)}.json")


def machine() -> dict[str, Any]:
    """Describe what a measurement depends on besides the engine: the processor, and how much of it may be used."""
    from edge_infer.platform.cpu import read_processor, usable_cpus

    processor = read_processor()
    return {"processor": processor.model, "features": list(processor.features), "cpus": usable_cpus()}


def _stem(name: str, revision: str) -> str:
    return f"{name}-{revision[:16]}"


def _read(path: str, revision: str) -> tuple[Measurement, ...]:
    """Return what a file holds that counts here.

    Raises:
        ValueError, KeyError, TypeError or RecursionError: It is damaged.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError:
        return ()
    import json  # not before there is something to parse: this is on the way of every `load`

    document = json.loads(data[:_MAX_BYTES]) if len(data) <= _MAX_BYTES else {}
    if document["format"] != FORMAT or document["revision"] != revision:
        return ()
    rows = tuple(_parse(row) for row in document["rows"])
    return rows if document["machine"] == machine() else ()


def _parse(row: Any) -> Measurement:
    """Check one row of a file.

    Raises:
        ValueError: A field is missing, unknown or of another kind.
    """
    texts = ("variant", "backend", "version", "device", "verdict")
    if isinstance(row, dict):
        row = {"vs_rule": None, **row}  # earlier files do not say it
    if not isinstance(row, dict) or set(row) != set(Measurement._fields):
        raise ValueError("a row has other fields than expected")
    optional = [row[name] for name in ("sqnr_db", "vs_rule") if row[name] is not None]
    numbers = [row["ms"], row["spread"], row["threads"], *optional]
    if not all(isinstance(row[field], str) for field in texts):
        raise ValueError("a row has a name that is not a text")
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
        raise ValueError("a row has a figure that is not a number")
    if not (row["ms"] > 0 and row["spread"] >= 0 and isinstance(row["threads"], int) and 0 <= row["threads"] <= 4096):
        raise ValueError("a row has a figure out of range")
    return Measurement(**row)
