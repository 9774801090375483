"""`edge-infer doctor`: what is wrong here, and what to type."""

from __future__ import annotations

import sys

import click

from edge_infer.cli import options, output
from edge_infer.doctor.cuda import examine_cuda
from edge_infer.doctor.engines import examine_engines


@click.command()
@options.as_json
def doctor(as_json: bool) -> None:
    """Look for what keeps models from running well here.

    Each finding says what to type; exits with 1 on a problem.
    """
    findings = [*examine_engines(), *examine_cuda()]
    if as_json:
        output.data_json({"findings": [finding._asdict() for finding in findings]})
    else:
        output.table(["check", "state", "found", "what to type"], [tuple(finding) for finding in findings])
    sys.exit(any(finding.level == "problem" for finding in findings))
