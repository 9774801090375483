"""The table that tree and linear models are fitted to."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(0)


X = RNG.normal(0, 1, (120, 5)).astype(np.float32)


CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
