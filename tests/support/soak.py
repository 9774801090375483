"""How long the loops of tests are: short in `make test`, as long as they should be in `make soak`."""

from __future__ import annotations

import os


def is_on() -> bool:
    """Tell whether tests are to take all the time that they can use."""
    return bool(os.environ.get("EDGE_INFER_SOAK"))


def rounds(short: int, long: int) -> int:
    """Return how often to do something."""
    return long if is_on() else short
