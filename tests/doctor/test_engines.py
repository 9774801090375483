"""The engines' part of `edge-infer doctor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from edge_infer.backends.base import Availability
from edge_infer.cli import cli
from edge_infer.tools.doctor import engines

if TYPE_CHECKING:
    import pytest


def test_working_engines_are_named_with_their_devices() -> None:
    findings = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)["findings"]

    found = {finding["check"]: finding for finding in findings}
    assert found["engine.onnxruntime"]["level"] == "ok"
    assert "cpu" in found["engine.onnxruntime"]["what"]
    assert found["engine.ort-web"]["level"] == "note"


def test_no_engine_at_all_is_a_problem_with_the_thing_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        def availability(self) -> Availability:
            return Availability(False, reason="not installed", hint="pip install it")

    monkeypatch.setattr(engines, "get_backend", lambda _: Absent())

    done = CliRunner().invoke(cli, ["doctor", "--json"])

    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "engine"]
    assert done.exit_code == 1
    assert (found["level"], found["hint"]) == ("problem", "pip install 'edge-infer[onnxruntime]'")
