"""A device needs little memory, however large its model is; `benchmarks/sync.py` does the same with 2 GB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/sync_update.py"


@pytest.mark.long
def test_a_large_model_is_updated_in_less_than_100_mb() -> None:
    """Two files of 64 MB each; the interpreter, numpy and the signatures' library take most of what is used."""
    done = subprocess.run([sys.executable, str(SCRIPT), "128"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)

    assert found["moved"] < 0.4 * found["full"]
    assert found["memory_mb"] < 100
