"""`edge-infer doctor`: check this machine or a live server, and name the remedy of each fault."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_infer.cli import options, output

if TYPE_CHECKING:
    from edge_infer.tools.doctor.findings import Finding


@click.command()
@click.argument("url", required=False, metavar="[URL]")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Look at the system of a device whose disk is mounted there, by its files alone.",
)
@options.as_json
def doctor(url: str | None, root: Path | None, as_json: bool) -> None:
    """Look for what keeps models from running well here, or on the server at URL.

    Here: packages that overwrite each other or are of another processor, what the processor does with int8, threads
    against quota and affinity, heat and power, memory, disk, clock, engines, GPU, browser. A server is tried with a
    few hundred small requests; an API key is read from EDGE_INFER_API_KEY. Each finding says what to type; exits with 1
    on a problem.
    """
    if url is not None:
        if root is not None:
            raise click.UsageError("--root is about a disk, not about a server")
        from edge_infer.tools.doctor.live_server import examine_server

        findings = examine_server(url)
    else:
        findings = _examine(root)
    if as_json:
        output.data_json({"findings": [finding._asdict() for finding in findings]})
    else:
        _show(findings)
    counts = {level: sum(finding.level == level for finding in findings) for level in ("problem", "warning", "note")}
    found = ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count)
    output.talk(f"{len(findings)} check{'s' if len(findings) > 1 else ''}: {found or 'all is well'}")
    sys.exit(counts["problem"] > 0)


def _examine(root: Path | None) -> list[Finding]:
    from edge_infer.tools.doctor.machine import examine_machine

    if root is not None:
        return examine_machine(root.resolve())
    from edge_infer.tools.doctor.browser import examine_browser
    from edge_infer.tools.doctor.cuda import examine_cuda
    from edge_infer.tools.doctor.engines import examine_engines
    from edge_infer.tools.doctor.imports import examine_imports

    return [*examine_machine(), *examine_engines(), *examine_cuda(), *examine_imports(), *examine_browser()]


def _show(findings: list[Finding]) -> None:
    """Print one line for each finding, and under it what to type."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        output.data(f"{finding.level:<8}{finding.check:<{width}}  {finding.what}")
        if finding.hint:
            output.data(f"{'':<{8 + width}}  -> {finding.hint}")
