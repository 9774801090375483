"""`edge-infer backends`: list the engines, their devices, and the packages to install for the missing ones."""

from __future__ import annotations

from typing import Any

import click

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.cli import options, output


@click.command()
@options.as_json
def backends(as_json: bool) -> None:
    """List the engines: which work here, on which devices, and what to type for those that do not."""
    rows: list[dict[str, Any]] = []
    for name in backend_names():
        backend = get_backend(name)
        state = backend.availability()
        rows.append(
            {
                "backend": name,
                "ready": state.ready,
                "version": backend.version(),
                "formats": list(backend.formats),
                "devices": list(state.devices),
                "reason": state.reason,
                "hint": state.hint,
            }
        )
    if as_json:
        output.data_json({"backends": rows})
        return
    output.table(
        ["backend", "ready", "version", "formats", "devices", "why not"],
        [
            (
                row["backend"],
                "yes" if row["ready"] else "no",
                row["version"] or "-",
                ", ".join(row["formats"]),
                ", ".join(row["devices"]) or "-",
                f"{row['reason']}: {row['hint']}" if row["hint"] else row["reason"],
            )
            for row in rows
        ],
    )
