"""The formats of tables by the endings of their files, and what reads them here."""

from __future__ import annotations

from pathlib import Path

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.platform.installed import origin_of

#: By ending, the format.
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


def format_of(path: str | Path) -> str:
    """Return a file's format.

    Raises:
        InputError: Its ending is not that of a table.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise InputError(
            f"`{path}` is not a table: its name ends with none of {', '.join(FORMATS)}", hint="-o answers.parquet"
        )
    return FORMATS[ending]


def library() -> str:
    """Return what reads and writes columns here: `pyarrow`, `polars`, or `` for Python alone."""
    return next((name for name in ("pyarrow", "polars") if origin_of(name) is not None), "")


def check_library(path: str | Path) -> str:
    """Return the library for a file.

    Raises:
        InputError: The file is not a table.
        UnsupportedError: Its format needs one, and none is installed.
    """
    found = library()
    if not found and format_of(path) in ("parquet", "arrow"):
        raise UnsupportedError(
            f"`{path}` is read by pyarrow or polars, and neither is installed", hint="pip install pyarrow"
        )
    return found
