"""Check the browser that `verify` and `bench` start."""

from __future__ import annotations

from importlib.util import find_spec

from edge_infer.errors import BackendUnavailable
from edge_infer.tools.browser.chromium import find_chromium
from edge_infer.tools.doctor.findings import Finding

_PLAYWRIGHT = "pip install 'edge-infer[browser]'"


def examine_browser() -> list[Finding]:
    """Say whether a Chromium and what drives it are here; it is never a problem, most devices need none."""
    try:
        path = find_chromium()
    except BackendUnavailable as error:
        hint = f"{_PLAYWRIGHT} && sudo apt-get install chromium"
        return [Finding("browser.chromium", "note", f"{error.message}: `verify --backend ort-web` needs one", hint)]
    if find_spec("playwright") is None:
        text = f"`{path}` is here, Playwright, which drives it, is not"
        return [Finding("browser.playwright", "note", text, _PLAYWRIGHT)]
    return [Finding("browser.chromium", "ok", f"`{path}`, driven by Playwright")]
