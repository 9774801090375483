"""A pull by the page's client, run in Node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).parents[2] / "sync/newest.mjs"


def in_javascript(store: Path, **given: Any) -> dict[str, Any]:
    """Ask the page's client, in Node, for what a store offers: `version` and `floor`, or the error's `code`."""
    words = ["node", str(DRIVER), json.dumps({"store": str(store), "model": "linear", **given})]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
