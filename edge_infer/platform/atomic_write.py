"""Write a file atomically: a temporary file beside the target, fsync, rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all.

    Args:
        path: Its path.
        data: Its bytes.
        mode: Who may read and write it.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
