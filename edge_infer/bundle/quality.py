"""Reader of `quality.json`: the measured quality of each variant, outside the manifest's revision."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError

if TYPE_CHECKING:
    from edge_infer.bundle.bundle import Bundle

NAME = "quality.json"
_MAX_BYTES = 2**20


def measured_quality(bundle: Bundle) -> dict[str, float]:
    """Return how near each variant was to its source when it was converted, in dB, by its id.

    The note is outside the bundle's revision: where it is missing, of other weights or damaged, nothing is known.
    """
    try:
        document = json.loads(bundle.read_note(NAME, _MAX_BYTES))
        if document["revision"] != bundle.revision:
            return {}
        said = {name: entry["sqnr_db"] for name, entry in document["variants"].items()}
    except (EdgeInferError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    # Null stands for infinity there: equal to the last bit.
    found = {name: inf if value is None else value for name, value in said.items()}
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}
