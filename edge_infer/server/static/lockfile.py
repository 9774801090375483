"""Write `/wheels/pyodide-lock.json`: Pyodide's lock file with the wheel of edge-infer in it.

The entry is written here and not by the package pyodide-lock, because that needs Python 3.12 and the server runs on
3.11, and because the wheel of an editable checkout changes with each edit, so that no build step can know its digest.
pyodide-lock 0.2.1 reads the result.
"""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError
from edge_infer.server.static.wheel import DISTRIBUTION, Wheel

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "pyodide-lock.json"


def lock_file(vendored: Path, wheel: Wheel) -> bytes:
    """Add the wheel to the lock file that lies beside Pyodide.

    Args:
        vendored: That file.
        wheel: Lies under `/wheels/`, as the lock file that is made does. It depends on nothing in Pyodide.

    Returns:
        The lock file; its paths are relative to `/wheels/`.

    Raises:
        BundleError: There is no such file, or it is not one.
    """
    try:
        lock = json.loads(vendored.read_bytes())
        packages: dict[str, dict[str, Any]] = lock["packages"]
        for entry in packages.values():
            entry["file_name"] = posixpath.normpath(f"../vendor/pyodide/{entry['file_name']}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(
            "The lock file of the page's Pyodide cannot be read", hint="pip install 'edge-infer[web]'"
        ) from error
    packages[DISTRIBUTION] = {
        "name": DISTRIBUTION,
        "version": wheel.name.split("-")[1],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": wheel.sha256,
        "package_type": "package",
        "imports": [DISTRIBUTION.replace("-", "_")],
        "depends": [],
        "unvendored_tests": False,
    }
    return (json.dumps(lock, indent=1) + "\n").encode()
