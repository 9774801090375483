"""How long the loops of tests are: short in `make test`, as long as they should be in `make soak`."""

from __future__ import annotations

import os


def rounds(short: int, long: int) -> int:
    """Return how often to do something."""
    return long if os.environ.get("EDGE_INFER_SOAK") else short
