"""The forms of the page `/docs`: what a bundle says stands in them as text, and a wrong one has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.bundle.bundle import Bundle
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.task_forms import forms
from tests.support.server.client import Client
from tests.support.tasks.tables import risk

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = {"step": "tabular.columns", "names": ["a"], "types": ["string"]}


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        {"x": 5},
        {"x": [5]},
        {"x": [{"step": ["tabular.columns"]}]},
        {"x": [{**_COLUMNS, "names": 5}, {"step": "tabular.tensor"}]},
        {"x": [_COLUMNS, {"step": "tabular.categories", "values": [["u"]]}, {"step": "tabular.tensor"}]},
        {"x": [_COLUMNS, {"step": "tabular.categories", "values": {"a": 5}}, {"step": "tabular.tensor"}]},
    ],
)
def test_a_bundle_with_a_wrong_pipeline_has_no_form_and_the_page_stays(tmp_path: Path, inputs: Any) -> None:
    bundle = risk(tmp_path / "wrong")
    place = bundle / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["pipeline"]["inputs"] = inputs
    place.write_text(json.dumps(manifest))

    with ServerThread(create_app({"wrong": bundle, "right": risk(tmp_path / "right")})) as server:
        answer = Client(server.url)("/docs")

    assert answer.status == 200
    assert answer.body.decode().count("<form") == 1


def test_names_in_a_form_are_text(tmp_path: Path) -> None:
    name = 'a"><script>alert(1)</script>'
    steps: list[dict[str, Any]] = [
        {**_COLUMNS, "names": [name]},
        {"step": "tabular.categories", "values": {name: ["</textarea><script>"]}},
        {"step": "tabular.tensor"},
    ]
    found = risk(tmp_path / "risk", steps)

    page = forms([(name, Bundle.open(found).manifest)])

    assert page.count("<script") == 1  # the page's own
    assert "</textarea><script>" not in page
