"""Files of counters, as `edge-infer predict --monitor` writes them: read with a bound, and added up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.monitor.counters import Counters

_MAX_BYTES = 16 * 2**20


def added(bundle: Bundle, files: Iterable[str]) -> Counters:
    """Return the counters of a bundle with the counts of files.

    Raises:
        UnsupportedError: The bundle has no reference.
        InputError: A file is missing, too large, damaged, or of another reference.
    """
    from edge_infer.monitor.counters import Counters, read_counters

    total = Counters.of(bundle)
    for file in files:
        path = Path(file)
        if not path.is_file():
            raise InputError(f"there is no file `{file}`", hint="edge-infer predict ... --monitor FILE writes one")
        with path.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise InputError(
                f"`{file}` has more than {_MAX_BYTES} bytes, expected counters of some kilobytes",
                hint="edge-infer predict ... --monitor FILE writes counters",
            )
        total.merge(read_counters(data, total.reference, f"`{file}`"))
    return total
