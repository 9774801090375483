"""`--triton-metric-names`, by docs/user_guide/metrics.md of triton-inference-server/server."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from edge_infer.server.app import create_app
from edge_infer.server.config import Settings
from edge_infer.server.execution.routing import Pool, Route, RoutingTable
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.shares import Tenant
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.server.app import Application

COUNTERS = [
    *("nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count", "nv_inference_exec_count"),
    *("nv_inference_request_duration_us", "nv_inference_queue_duration_us"),
    *(f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output")),
]


def two_pools(models: dict[str, Path]) -> Application:
    tenants = {Tenant(one, is_admin=True): [hashlib.sha256(one.encode()).digest()] for one in ("shop", "other")}
    settings = Settings(RoutingTable({"gold": Pool(1)}, [Route("gold", tenant="shop")]), tenants=tenants)
    return create_app(models, triton_metric_names=True, settings=settings)


def test_the_names_are_those_of_triton(tmp_path: Path) -> None:
    with ServerThread(
        create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, triton_metric_names=True)
    ) as server:
        assert ask(server).status == 200
        lines = Client(server.url)("/metrics").body.decode().splitlines()
    for counter in COUNTERS:
        assert f"# TYPE {counter} counter" in lines
        assert f"# TYPE {counter}_total counter" not in lines
    assert 'nv_inference_request_success{model="tiny",version="1"} 1' in lines
    assert 'nv_inference_request_failure{model="tiny",reason="BACKEND",version="1"} 0' in lines
    assert "# TYPE nv_inference_pending_request_count gauge" in lines
    assert 'nv_inference_pending_request_count{model="tiny",version="1"} 0' in lines


def test_a_version_that_two_pools_run_is_one_series_and_any_name_can_be_read(tmp_path: Path) -> None:
    name = 'a "name" \\ with\nall'
    app = two_pools({name: write_bundle(tmp_path / "tiny", bundle_files())})
    with ServerThread(app) as server:
        for key in ("shop", "other"):
            assert ask(server, 1.0, quote(name), x_api_key=key).status == 200
        first, second = (model.statistics for model in app.engine.active())
        first.failed("queue_full", 0.0)
        second.rejected("queue_full")
        second.failed("execution_error", 0.0)
        second.failed("input_error", 0.0)
        text = Client(server.url)("/metrics", x_api_key="shop").body.decode()
    families = [one for one in text_string_to_metric_families(text) if one.name.startswith("nv_inference")]
    samples = [sample for family in families for sample in family.samples]
    found = {(one.name.removesuffix("_total"), one.labels.get("reason")): one.value for one in samples}
    assert len(found) == len(samples)
    assert {(one.labels["model"], one.labels["version"]) for one in samples} == {(name, "1")}
    assert found["nv_inference_request_success", None] == found["nv_inference_count", None] == 2
    assert found["nv_inference_compute_infer_duration_us", None] > 0
    reasons = {reason: value for (one, reason), value in found.items() if one == "nv_inference_request_failure"}
    assert reasons == {"REJECTED": 2, "CANCELED": 0, "BACKEND": 1, "OTHER": 1}
