"""What every benchmark here prints: a table in Markdown, as `LOG.md` keeps it, or one JSON object."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_COLUMNS = ("name", "metric", "ours", "peer_name", "peer", "ratio", "target", "met", "spread")


def publish(
    rows: Sequence[Mapping[str, Any]],
    packages: Iterable[str],
    *,
    as_json: bool,
    versions: Mapping[str, str] | None = None,
    cpu: str | None = None,
    beside: Mapping[str, Any] | None = None,
) -> None:
    """Print the rows.

    Args:
        rows: Each has the keys of `_COLUMNS`; other keys stand behind them.
        packages: The packages whose versions belong to the figures.
        as_json: Whether to print one JSON object in place of the table.
        versions: Of programs that are not Python packages of this environment.
        cpu: What it ran on; the processor unless given.
        beside: Further members of the JSON object.
    """
    found = {name: version(name) for name in packages} | {"python": platform.python_version()} | dict(versions or {})
    cpu = cpu or cpu_name()
    if as_json:
        print(json.dumps({"versions": found, "cpu": cpu, "rows": list(rows), **dict(beside or {})}, indent=1))
        return
    more = dict.fromkeys(key for row in rows for key in row if key not in _COLUMNS)
    columns = [name for name in (*_COLUMNS, *more) if any(row.get(name) not in (None, "") for row in rows)]
    lines = [[_said(name, row.get(name)) for name in columns] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in lines)) for i, name in enumerate(columns)]
    print(f"{cpu}; {', '.join(f'{name} {number}' for name, number in found.items())}\n")
    for line in ([name.replace("_", " ") for name in columns], ["-" * width for width in widths], *lines):
        print(f"| {' | '.join(text.ljust(width) for text, width in zip(line, widths, strict=True))} |")


def cpu_name() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.is_file() else []
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def _said(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if name == "share":
        return f"{value:.2%}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"
    return str(value)
