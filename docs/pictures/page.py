"""Photograph the studio as `make demo` serves it: its first page into `gallery.png`, the face detector into `page.png`.

python docs/pictures/page.py BUNDLE...
"""

from __future__ import annotations

import sys
from pathlib import Path

from edge_infer.bundle.bundle import Bundle
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium

HERE = Path(__file__).parent
#: What is waited for: the end of a race, or the median of answers.
_PATIENCE_MS = 180_000


def photograph(bundles: list[Path]) -> None:
    """Keep what a visitor sees: the race when it has ended, and a picture that was answered."""
    served = {Bundle.open(path).manifest.name: path for path in bundles}
    with ServerThread(create_app(served, find_web_root())) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(server.url)
        page.wait_for_selector(".won", timeout=_PATIENCE_MS)
        page.click("text=Race again")  # the server has packed the engines by now, as it does once
        page.wait_for_selector(".won", state="detached", timeout=_PATIENCE_MS)
        page.wait_for_selector(".won", timeout=_PATIENCE_MS)
        page.screenshot(path=HERE / "gallery.png")
        page.goto(f"{server.url}/#/models/faces")
        page.wait_for_selector(".bars .best", timeout=_PATIENCE_MS)
        page.wait_for_timeout(2500)  # the first answers
        page.screenshot(path=HERE / "page.png")


if __name__ == "__main__":
    photograph([Path(name) for name in sys.argv[1:]])
