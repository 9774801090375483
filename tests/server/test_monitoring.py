"""The dashboard and the alerts in the guide: they are valid, fire when they should, and name what the server has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

MONITORING = Path(__file__).parents[2] / "docs" / "guide" / "monitoring"
METRIC = re.compile(r"\b(?:edge_infer|process)_[a-z_]+")


def expressions(value: Any) -> Iterator[str]:
    """All texts of a dashboard that Prometheus is asked."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "definition") and isinstance(inner, str):
                yield inner
            yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all series, and of those that come with the first failure or refusal."""
    tiny = write_bundle(tmp_path_factory.mktemp("monitoring") / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny})) as server:
        assert ask(server).status == 200
        assert Client(server.url)("/v2/models/tiny/infer", "POST", b"{}").status == 400
        text = Client(server.url)("/metrics").body.decode()
    series = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    counters = re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE)
    return series | set(counters)


def test_every_metric_of_the_alerts_is_exported(exported: set[str]) -> None:
    text = (MONITORING / "alerts.yml").read_text()
    named = set(METRIC.findall(text))
    assert len(named) >= 8
    assert named <= exported | {"edge_infer_queue_seconds", "edge_infer_compute_seconds"}  # histograms, in words


def test_every_metric_of_the_dashboard_is_exported(exported: set[str]) -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    named = {name for text in expressions(dashboard) for name in METRIC.findall(text)}
    assert len(named) >= 15
    assert named <= exported
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 8


def test_the_targets_are_the_same_in_rules_dashboard_and_guide() -> None:
    rules = (MONITORING / "alerts.yml").read_text()
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    lines = {panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"] for panel in panels}
    for title, alert, target in (
        ("Median latency", "> 0.05", 0.05),
        ("99th percentile of latency", "> 0.2", 0.2),
        ("Batch fill", "< 0.6", 0.6),
        ("Queue", "> 100", 100),
        ("Workers that are busy", "< 0.7", 0.7),
    ):
        assert lines[title] == target
        assert alert in rules
    guide = MONITORING.with_suffix(".md").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) == 5
    assert all(f"`{name}`" in guide for name in alerts)


@pytest.mark.parametrize("command", [("check", "alerts.yml"), ("test", "alerts_test.yml")])
def test_promtool_accepts_the_rules(command: tuple[str, str]) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is not there; hint: tests/setup.sh"
    what, file = command
    done = subprocess.run(
        [promtool, what, "rules", file], cwd=MONITORING, check=False, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr
