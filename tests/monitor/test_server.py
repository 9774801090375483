"""The server counts what its models are given, where it is asked to, and says so in its metrics."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from edge_infer.monitor.decision import decide
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.metrics import prometheus
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.tasks.pipeline import pipeline
from edge_infer.tools.doctor.live_server import examine_server
from edge_infer.tools.tables.referencing import add_reference
from tests.support.tasks import tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("counts", [True, False])
def test_metrics_have_the_counts(tmp_path: Path, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = tables.risk(tmp_path / "risk.bundle"), tmp_path / "rows.jsonl"
    columns = tables.rows(400)
    rows.write_text("".join(json.dumps({n: columns[n][i] for n in columns}) + "\n" for i in range(400)), "utf-8")
    with pipeline(folder) as run:
        add_reference(run, folder, rows)
    data = np.random.default_rng(0).normal(size=(30, 3)).astype("f4")
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [30, 3], "data": data.reshape(-1).tolist()}]}
    limits = Limits(batch=BatchLimits(counts_drift=counts))
    judged: list[str] = []

    def noted(found: Any) -> Any:
        judged.append(threading.current_thread().name)
        return decide(found)

    monkeypatch.setattr(prometheus, "decide", noted)

    with ServerThread(create_app({"risk": folder}, limits=limits)) as server:
        for _ in range(20):
            request = Request(f"{server.url}/v2/models/risk/infer", json.dumps(body).encode())
            urlopen(request).read()
        text = urlopen(f"{server.url}/metrics").read().decode()
        urlopen(f"{server.url}/metrics").read()
        assert len(judged) == counts, "once for rows that stay the same"
        findings = {one.check: one for one in examine_server(server.url)}

    assert "edge-infer server" not in judged, "not in the event loop"
    lines = [line for line in text.splitlines() if line.startswith("edge_infer_drift")]
    assert bool(lines) is counts
    assert ("data.drift" in findings) is counts
    if counts:
        assert findings["data.drift"].level == "warning"
        assert "age" in findings["data.drift"].what
        assert any(line.startswith("edge_infer_drift_rows_total") and line.endswith(" 600.0") for line in lines)
        assert any('edge_infer_drift_found{feature="age"' in line and line.endswith(" 1.0") for line in lines)
