"""Photograph the studio's page of the digits model, served from here, into `page.png`.

python docs/pictures/page.py BUNDLE
"""

from __future__ import annotations

import sys
from pathlib import Path

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium

PICTURE = Path(__file__).with_name("page.png")


def photograph(bundle: Path) -> None:
    """Draw a three on the page's pad and keep what the page shows."""
    with ServerThread(create_app({"digits": bundle}, find_web_root())) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1160, "height": 820})
        page.goto(server.url)
        page.wait_for_selector(".bars .best", timeout=120_000)
        page.click("button[aria-label='Draw a 3']")
        page.wait_for_timeout(2500)  # the three is drawn, and the page times some answers
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    photograph(Path(sys.argv[1]))
