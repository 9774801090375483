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
        first = browser.new_page()  # the server packs the engines for it, as it does once
        first.goto(server.url)
        first.wait_for_selector(".won", timeout=_PATIENCE_MS)
        first.close()
        # A page has a browser context of its own, and so no cache: this one's visit is a first one, too.
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(server.url)
        page.wait_for_selector(".won", timeout=_PATIENCE_MS)
        page.screenshot(path=HERE / "gallery.png")
        page.close()
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(f"{server.url}/#/models/faces")
        page.wait_for_selector(".bars .best", timeout=_PATIENCE_MS)
        for _ in range(5):  # for a median
            page.click("button:text-is('astronaut')")
            page.wait_for_timeout(500)
        page.screenshot(path=HERE / "page.png")


if __name__ == "__main__":
    photograph([Path(name) for name in sys.argv[1:]])
