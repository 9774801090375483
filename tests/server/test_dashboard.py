"""The dashboard: what it asks for, and that its parts are there; tests/browser looks at the page itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

from edge_infer.server.app import create_app
from edge_infer.server.config import parse_settings
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask
from tests.support.server.operators import digest


def test_counts_are_of_the_models_that_are_loaded(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny})) as server:
        send = Client(server.url)
        assert json.loads(send("/dashboard/state.json").body)["models"] == []
        assert [ask(server).status for _ in range(3)] == [200] * 3
        assert ask(server, x_timeout_ms="abc").status == 400
        state = json.loads(send("/dashboard/state.json").body)
    (model,) = state["models"]
    assert (model["name"], model["version"], model["pool"]) == ("tiny", "1", "default")
    assert (model["requests"], model["rejections"], model["in_flight"], model["queue"]) == (3, 0, 0, 0)
    assert sum(model["total"]) == 3
    assert len(model["total"]) == len(model["bounds"]) + 1
    assert model["variant"] == "onnx/fp32"
    assert state["pools"]["default"]["workers"] >= 1
    assert state["resident_bytes"] >= 0


def test_the_page_needs_no_key_and_its_counts_do(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    settings = parse_settings({"tenants": {"shop": {"keys": [digest("k")], "metrics": True}}})
    with ServerThread(create_app({"tiny": tiny}, settings=settings)) as server:
        send = Client(server.url)
        page = send("/dashboard")
        assert page.headers["content-type"].startswith("text/html")
        for name in ("dashboard.js", "theme.js", "chart.js", "look.css", "dashboard.css"):
            assert send(f"/dashboard/{name}").status == 200
        assert send("/dashboard/state.json").status == 401
        assert send("/dashboard/state.json", x_api_key="k").status == 200
        assert send("/dashboard/__init__.py", x_api_key="k").status == 404


def test_dashboard_and_fleet_have_the_colours_of_the_studio() -> None:
    root = Path(__file__).parents[2]
    colours = re.compile(r"--(\w+): (light-dark\([^)]*\))")
    look = dict(colours.findall((root / "edge_infer/server/static/dashboard/look.css").read_text()))
    studio = dict(colours.findall((root / "web/studio/studio.css").read_text()))
    names = {"soft": "sunk", "card": "raise", "text": "ink", "quiet": "ink3", "good": "ok", "second": "warn"}

    assert look == {name: studio[names.get(name, name)] for name in look}
