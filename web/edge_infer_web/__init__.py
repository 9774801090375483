"""The browser half of edge-infer as files: JavaScript modules, the studio and the pinned engines."""

from __future__ import annotations

from pathlib import Path


def root() -> Path:
    """Return the folder with `src`, `studio`, `demo` and `vendor`: this package, or `web/` of an editable checkout."""
    package = Path(__file__).resolve().parent
    return package if (package / "src").is_dir() else package.parent
