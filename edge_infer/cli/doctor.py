"""`edge-infer doctor`: what is wrong here, and what to type."""

from __future__ import annotations

import sys

import click

from edge_infer.cli import options, output
from edge_infer.doctor.cuda import examine_cuda
from edge_infer.doctor.engines import examine_engines


@click.command()
@click.argument("url", required=False, metavar="[URL]")
@options.as_json
def doctor(url: str | None, as_json: bool) -> None:
    """Look for what keeps models from running well here, or on the server at URL.

    Each finding says what to type; exits with 1 on a problem. A server is tried with some hundred small requests; an
    API key is read from EDGE_INFER_API_KEY.
    """
    if url is None:
        findings = [*examine_engines(), *examine_cuda()]
    else:
        from edge_infer.doctor.live_server import examine_server

        findings = examine_server(url)
    if as_json:
        output.data_json({"findings": [finding._asdict() for finding in findings]})
    else:
        output.table(["check", "state", "found", "what to type"], [tuple(finding) for finding in findings])
    sys.exit(any(finding.level == "problem" for finding in findings))
