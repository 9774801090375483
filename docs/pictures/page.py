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
    """Keep what the page shows first: it draws a three and answers."""
    with ServerThread(create_app({"digits": bundle}, find_web_root())) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 940})
        page.goto(server.url)
        page.wait_for_selector(".bars .best", timeout=120_000)
        page.wait_for_timeout(2500)  # the page draws a three by itself, and times some answers
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    photograph(Path(sys.argv[1]))
