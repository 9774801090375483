"""A row of the table of `serve.py`."""

from __future__ import annotations

from typing import Any


def row(
    name: str,
    metric: str,
    mine: float,
    peer_name: str,
    other: float,
    target: str = "",
    met: bool | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Make a row; without a target nothing is met or missed."""
    return {
        "name": name,
        "metric": metric,
        "ours": round(mine, 4),
        "peer_name": peer_name,
        "peer": round(other, 4),
        "ratio": round(mine / other, 3) if other else None,
        "target": target,
        "met": met,
        **more,
    }
