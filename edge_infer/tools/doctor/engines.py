"""Check the availability of each engine."""

from __future__ import annotations

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.tools.doctor.findings import Finding


def examine_engines() -> list[Finding]:
    """Say of each engine whether it works here; it is a problem only where none does.

    >>> {finding.check.partition(".")[0] for finding in examine_engines()}
    {'engine'}
    """
    states = {name: get_backend(name).availability() for name in backend_names()}
    found = [
        Finding(f"engine.{name}", "ok", f"runs on {', '.join(state.devices)}")
        if state.ready
        else Finding(f"engine.{name}", "note", state.reason, state.hint)
        for name, state in states.items()
    ]
    if not any(state.ready for state in states.values()):
        found.append(Finding("engine", "problem", "No engine works here", "pip install 'edge-infer[onnxruntime]'"))
    return found
