"""Variants that switch, canaries, pools, routes and tenants on a running server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import edge_infer
from edge_infer.backends.base import Availability
from edge_infer.backends.onnxruntime.backend import OnnxRuntimeBackend
from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.errors import BackendError, DeviceLost, EdgeInferError, InputError, Unauthorized
from edge_infer.formats.safetensors import FRAME, write_examples
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings, parse_settings, read_settings
from edge_infer.server.execution import job, loaded_model, repository
from edge_infer.server.execution.batch_probe import Probe, probe
from edge_infer.server.execution.canary import Canary
from edge_infer.server.execution.lifecycle import Engine
from edge_infer.server.execution.loaded_model import load_model
from edge_infer.server.execution.repository import ModelRepository
from edge_infer.server.execution.routing import Pool, Route, RoutingTable
from edge_infer.server.execution.run_batch import run_batch
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion.api_keys import ApiKeys
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.server.scheduling.shares import Tenant
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import Client, ask, row
from tests.support.server.gate import Gate, wait_until_queued
from tests.support.server.operators import digest, two_versions
from tests.support.server.streams import stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.runtime.session import Session

OCTETS = "application/octet-stream"


# -- variants --


def slow_model(times: int = 400) -> bytes:
    """Another function of the same tensors: so many times `abs(log(1 + exp(x)))`."""
    from onnx import TensorProto, helper

    nodes, name = [], "x"
    for i in range(times):
        nodes.append(helper.make_node("Softplus", [name], [f"s{i}"]))
        nodes.append(helper.make_node("Abs", [f"s{i}"], [f"a{i}"]))
        name = f"a{i}"
    nodes.append(helper.make_node("Identity", [name], ["y"]))
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", 3]) for end in ("x", "y")]
    model = helper.make_model(
        helper.make_graph(nodes, "slow", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 10
    data: bytes = model.SerializeToString()
    return data


def two_variants(folder: Path, slow: bytes, fast: bytes, *golden: Any) -> Path:
    files = {"onnx/model.onnx": slow, "onnx/model_int8.onnx": fast}
    if golden:
        files["examples/golden.safetensors"] = write_examples(list(golden))
    manifest = Manifest(
        "two",
        "1",
        [TensorSpec("x", "float32", ("batch", 3))],
        [TensorSpec("y", "float32", ("batch", 3))],
        [
            Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx"),
            Variant("onnx/int8", "onnx", "int8", "onnx/model_int8.onnx"),
        ],
        [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()],
        examples="examples/golden.safetensors" if golden else None,
    )
    return write_bundle(folder, {"manifest.json": manifest.to_bytes(), **files})


@pytest.fixture
def row_ms(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How many milliseconds a row of each variant is said to take: what a busy machine measures decides nothing."""
    stated: dict[str, float] = {}

    def probed(session: Session, max_batch_size: int) -> Probe:
        return probe(session, max_batch_size)._replace(row_s=stated[session.report().variant] / 1000)

    monkeypatch.setattr(loaded_model, "probe", probed)
    return stated


def test_the_fast_variant_runs_while_requests_pile_up_and_says_so(
    tmp_path: Path, gate: Gate, row_ms: dict[str, float]
) -> None:
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.runtime.selection import choices

    alike = Bundle.open(two_variants(tmp_path / "alike", onnx_model(), onnx_model()))
    first = next(choices(alike.manifest)).variant.id
    other = "onnx/fp32" if first == "onnx/int8" else "onnx/int8"
    row_ms.update({first: 2.0, other: 1.0})
    slow, fast = slow_model(), onnx_model()
    models = (slow, fast) if first == "onnx/fp32" else (fast, slow)
    folder = two_variants(tmp_path / "two", *models)
    limits = Limits(workers=1, batch=BatchLimits(max_batch_size=1, max_wait_ms=1e6))
    app = create_app({"two": folder}, limits=limits, settings=Settings(fast_variants={"*": other}))
    with ServerThread(app) as server, ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(ask, server, 1.0, "two")]
        assert gate.entered.wait(60)
        pair = app.engine.active()[0].fast
        assert pair is not None
        pair.switch._calm_s = 60.0  # instead of two seconds: the last request comes before
        waiting += [threads.submit(ask, server, 1.0, "two") for _ in range(5)]
        wait_until_queued(server, 5)
        gate.open.set()
        answers = [future.result() for future in waiting]
        document = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
        last = Client(server.url)("/v2/models/two/infer", "POST", json.dumps(document).encode())
        metrics = Client(server.url)("/metrics").body.decode()
        config = json.loads(Client(server.url)("/v2/models/two/config").body)
        pair.switch._calm_s = 0.0  # the load is over, and nobody asks any more
        wait_until(lambda: not app.engine.active()[0].in_flight)
        later = Client(server.url)("/metrics").body.decode()
    variants = [answer.headers["model-variant"] for answer in answers]
    assert variants[0] == first
    assert variants.count(other) == 5
    assert {answer.body == row(1.0) for answer in answers if answer.headers["model-variant"] == other} == {True}
    assert json.loads(last.body)["parameters"] == {"variant": other}
    labels = 'model="two",pool="default"'
    assert f'edge_infer_variant_in_use{{{labels},variant="{first}",version="1"}} 1.0' in later
    assert f'edge_infer_variant_in_use{{{labels},variant="{other}",version="1"}} 1.0' in metrics
    assert f'edge_infer_variant_switches_total{{{labels},version="1"}} 1.0' in metrics
    assert config["parameters"]["fast_variant"]["string_value"] == other


def test_the_variant_that_runs_can_be_chosen(tmp_path: Path, row_ms: dict[str, float]) -> None:
    """The other one, which would run unasked, is then the fast one."""
    row_ms.update({"onnx/fp32": 2.0, "onnx/int8": 1.0})
    folder = two_variants(tmp_path / "two", onnx_model(), onnx_model())
    settings = parse_settings({"models": {"two": {"variant": "onnx/fp32", "fast_variant": "onnx/int8"}}})
    for chosen in (settings, settings._replace(variants={"*": "onnx/fp32"})):
        with ServerThread(create_app({"two": folder}, settings=chosen)) as server:
            config = json.loads(Client(server.url)("/v2/models/two/config").body)["parameters"]
            assert ask(server, 1.0, "two").headers["model-variant"] == "onnx/fp32"
        assert (config["variant"]["string_value"], config["fast_variant"]["string_value"]) == ("onnx/fp32", "onnx/int8")


def test_a_fast_variant_that_is_not_faster_is_not_used_and_the_reason_is_told(
    tmp_path: Path, row_ms: dict[str, float]
) -> None:
    folder = two_variants(tmp_path / "two", onnx_model(), onnx_model())
    for fast in ("onnx/fp32", "onnx/int8"):
        row_ms.update({"onnx/fp32": 1.0, "onnx/int8": 1.0, fast: 0.95})
        app = create_app({"two": folder}, settings=Settings(fast_variants={"two": fast}))
        with ServerThread(app) as server:
            config = json.loads(Client(server.url)("/v2/models/two/config").body)
            answer = ask(server, 1.0, "two")
        reason = config["parameters"]["fast_variant"]["string_value"]
        assert reason != fast
        assert reason
        assert "model-variant" not in answer.headers


def test_a_variant_of_which_larger_batches_do_not_pay_may_have_a_fast_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be batched: on a busy machine a batch of two may have taken too long."""
    probes = {"onnx/fp32": Probe(1, 0.02, ""), "onnx/int8": Probe(64, 0.001, "")}
    monkeypatch.setattr(loaded_model, "probe", lambda session, _: probes[session.report().variant])
    bundle = Bundle.open(two_variants(tmp_path / "two", onnx_model(), onnx_model()))
    limits = BatchLimits(max_batch_size=64)
    model = load_model("two", bundle, "cpu", limits, variant="onnx/fp32", fast_variant="onnx/int8")
    assert model.fast is not None
    assert model.batcher.max_batch_size == 1
    model.close()
    probes["onnx/fp32"] = Probe(1, 0.02, "a row's answer depends on the other rows of its batch")
    model = load_model("two", bundle, "cpu", limits, variant="onnx/fp32", fast_variant="onnx/int8")
    assert model.fast_reason.endswith("cannot be batched: a row's answer depends on the other rows of its batch")
    model.close()


def test_a_fast_variant_that_does_not_give_the_golden_examples_is_not_used(tmp_path: Path) -> None:
    golden = Tensor.from_list([[1.0, 2.0, 3.0]], "float32")
    folder = two_variants(tmp_path / "two", onnx_model("Neg"), onnx_model(), ({"x": golden}, {"y": golden}))
    with ServerThread(create_app({"two": folder}, settings=Settings(fast_variants={"*": "onnx/fp32"}))) as server:
        config = json.loads(Client(server.url)("/v2/models/two/config").body)
        assert ask(server, 1.0, "two").body == row(1.0)
    assert config["parameters"]["variant"]["string_value"] == "onnx/int8"
    assert config["parameters"]["fast_variant"]["string_value"].startswith("Self-test failed")


def test_a_request_says_which_variant_it_wants(tmp_path: Path) -> None:
    folder = two_variants(tmp_path / "two", slow_model(200), onnx_model())
    settings = parse_settings({"models": {"two": {"variant": "onnx/fp32", "fast_variant": "onnx/int8"}}})
    with ServerThread(create_app({"two": folder}, settings=settings)) as server:
        send = Client(server.url)
        by_header = [
            ask(server, 1.0, "two", x_quality=quality).headers["model-variant"] for quality in ("best", "fast", "auto")
        ]
        by_body = [infer_two(server, {"quality": quality}) for quality in ("best", "fast", "auto", "")]
        wrong = ask(server, 1.0, "two", x_quality="good")
        values: list[object] = ["good", 1, []]
        also_wrong = [infer_two(server, {"quality": value}) for value in values]
        one = write_bundle(tmp_path / "tiny", bundle_files())
        assert send("/health").status == 200
    with ServerThread(create_app({"tiny": one})) as server:
        assert "model-variant" not in ask(server, x_quality="fast").headers  # there is one variant only
    assert by_header == ["onnx/fp32", "onnx/int8", "onnx/fp32"]
    assert [found["parameters"]["variant"] for found in by_body] == ["onnx/fp32", "onnx/int8", "onnx/fp32", "onnx/fp32"]
    assert (wrong.status, json.loads(wrong.body)["hint"]) == (400, "X-Quality: best")
    assert {found["code"] for found in also_wrong} == {"input_error"}
    assert '`parameters.quality` is "good"' in also_wrong[0]["error"]


def infer_two(server: ServerThread, parameters: dict[str, Any]) -> Any:
    document = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    body = json.dumps(document | {"parameters": parameters}).encode()
    return json.loads(Client(server.url)("/v2/models/two/infer", "POST", body).body)


def test_auto_takes_the_fast_variant_where_the_better_one_would_be_late(tmp_path: Path) -> None:
    folder = two_variants(tmp_path / "two", slow_model(200), onnx_model())
    settings = parse_settings({"models": {"two": {"variant": "onnx/fp32", "fast_variant": "onnx/int8"}}})
    app = create_app({"two": folder}, settings=settings)
    with ServerThread(app) as server:
        assert ask(server, 1.0, "two", x_timeout_ms="20000").headers["model-variant"] == "onnx/fp32"
        pair = app.engine.active()[0].fast
        assert pair is not None
        for _ in range(50):
            pair.better_took(1, 60.0)  # it has become slow
        found = [
            ask(server, 1.0, "two", x_timeout_ms=ms, x_quality=quality).headers["model-variant"]
            for ms, quality in (("20000", "auto"), ("200000", "auto"), ("20000", "best"))
        ]
    assert found == ["onnx/int8", "onnx/fp32", "onnx/fp32"]


def test_requests_of_different_quality_run_in_different_batches(tmp_path: Path, gate: Gate) -> None:
    folder = two_variants(tmp_path / "two", slow_model(200), onnx_model())
    settings = parse_settings({"models": {"two": {"variant": "onnx/fp32", "fast_variant": "onnx/int8"}}})
    limits = Limits(workers=1, batch=BatchLimits(max_wait_ms=1e6))
    app = create_app({"two": folder}, limits=limits, settings=settings)
    with ServerThread(app) as server, ThreadPoolExecutor(8) as threads:
        first = threads.submit(ask, server, 1.0, "two")
        assert gate.entered.wait(60)
        kinds = ["best", "fast"] * 3
        waiting = [threads.submit(ask, server, 1.0, "two", x_quality=quality) for quality in kinds]
        wait_until_queued(server, 6)
        gate.open.set()
        variants = [future.result().headers["model-variant"] for future in waiting]
        assert first.result().status == 200
    assert variants == ["onnx/fp32", "onnx/int8"] * 3


def test_the_fast_variant_can_be_chosen_by_quality_and_time(tmp_path: Path) -> None:
    files = {
        "onnx/model.onnx": slow_model(200),
        "onnx/model_fp16.onnx": slow_model(2),
        "onnx/model_int8.onnx": onnx_model(),
        "onnx/model_int4.onnx": slow_model(400),
    }
    kinds = [("fp32", ""), ("fp16", "_fp16"), ("int8", "_int8"), ("int4", "_int4")]
    manifest = Manifest(
        "two",
        "1",
        [TensorSpec("x", "float32", ("batch", 3))],
        [TensorSpec("y", "float32", ("batch", 3))],
        [Variant(f"onnx/{kind}", "onnx", kind, f"onnx/model{end}.onnx") for kind, end in kinds],
        [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()],
    )
    folder = write_bundle(tmp_path / "two", {"manifest.json": manifest.to_bytes(), **files})
    measured = {"onnx/int4": 60.0, "onnx/fp16": 50.0, "onnx/int8": 30.0}
    note = {
        "revision": Bundle.open(folder).revision,
        "variants": {name: {"sqnr_db": db} for name, db in measured.items()},
    }
    (folder / "quality.json").write_text(json.dumps(note))
    settings = parse_settings({"models": {"two": {"variant": "onnx/fp32", "fast_variant": "auto"}}})
    one = write_bundle(tmp_path / "tiny", bundle_files())
    places = {"two": folder, "tiny": one}
    with ServerThread(create_app(places, settings=settings._replace(fast_variants={"*": "auto"}))) as server:
        config = json.loads(Client(server.url)("/v2/models/two/config").body)["parameters"]
        alone = json.loads(Client(server.url)("/v2/models/tiny/config").body)["parameters"]
    # int4 is nearer to the source and slower here, int8 is faster still and further off.
    assert config["fast_variant"]["string_value"] == "onnx/fp16"
    assert alone["fast_variant"]["string_value"] == "the bundle has no other variant"


# -- canaries --


def test_a_canary_takes_its_part_and_pinned_versions_are_left_alone(tmp_path: Path) -> None:
    app = create_app({"tiny": two_versions(tmp_path)})
    with ServerThread(app) as server:
        send = Client(server.url)
        place = "/v2/repository/models/tiny/canary"
        assert ask(server).body == row(-1.0)  # the highest version
        assert send(place, "POST", b'{"version": "2", "percent": 25}').status == 200
        bodies = [ask(server).body for _ in range(40)]
        assert bodies.count(row(-1.0)) == 10
        assert bodies.count(row(1.0)) == 30
        pinned = send("/v2/models/tiny/versions/2/infer", "POST", row(1.0), content_type=OCTETS)
        assert pinned.body == row(-1.0)
        assert send(place, "POST", b'{"version": "9", "percent": 25}').status == 404
        assert send(place, "POST", b'{"version": "2", "percent": 101}').status == 400
        for body, message in (
            (b'{"version": 2}', "`body.version` is not a text"),
            (b'{"version": "2"}', "`body.percent` is not a number from 0 to 100"),
            (b'{"versions": "2", "part": 10}', "`versions` is not known in body; choose from `version`, `percent`"),
        ):
            refused = send(place, "POST", body)
            assert refused.status == 400
            assert json.loads(refused.body)["error"] == message
            assert json.loads(refused.body)["hint"].startswith('{"version": "2", "percent": 10}')
        assert send("/v2/repository/models/none/canary", "POST", b"{}").status == 404
        for path, versions in (("", {"1", "2"}), ("/tiny", {"1", "2"}), ("/tiny/versions/1", {"1"})):
            counts = json.loads(send(f"/v2/models{path}/stats").body)["model_stats"]
            assert {one["version"] for one in counts} == versions, path
        assert send("/v2/models/none/stats").status == 404
        assert send(place, "POST", b"").status == 200
        assert {ask(server).body for _ in range(8)} == {row(-1.0)}


def test_a_canary_that_cannot_be_loaded_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = two_versions(tmp_path)
    app = create_app({"tiny": [first, second]}, settings=Settings(canaries={"tiny": Canary("2", 50)}))
    (second / "onnx/model.onnx").write_bytes(b"no model")
    with ServerThread(app) as server:
        assert {(answer.status, answer.body) for answer in (ask(server) for _ in range(10))} == {(200, row(1.0))}
        assert caplog.text.count("is being tried and cannot be had") == 1
        assert Client(server.url)("/v2/repository/models/tiny/unload", "POST", b"").status == 200
        assert {ask(server).status for _ in range(10)} == {404}
        assert caplog.text.count("is being tried and cannot be had") == 2


# -- pools --


def test_a_route_chooses_the_pool_by_model_version_and_tenant(tmp_path: Path) -> None:
    table = RoutingTable(
        {"gold": Pool(1), "old": Pool(2)}, [Route("old", "tiny", "1"), Route("gold", tenant="shop"), Route("gold", "x")]
    )
    assert table.pool_of("tiny", "1", "shop") == "old"
    assert table.pool_of("tiny", None, "shop") == "gold"
    assert table.pool_of("tiny", None, "") == "default"
    assert table.pool_of("x", "7", "") == "gold"
    with pytest.raises(InputError, match="names the pool `gone`"):
        RoutingTable({}, [Route("gone")])


def test_a_pool_that_is_flooded_does_not_hold_up_another(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    table = RoutingTable({"gold": Pool(1)}, [Route("gold", tenant="shop")])
    settings = Settings(table, tenants={Tenant("shop", sees_metrics=True): [hashlib.sha256(b"k").digest()]})
    settings = settings._replace(tenants={**settings.tenants, Tenant("other"): [hashlib.sha256(b"o").digest()]})
    limits = Limits(workers=1, batch=BatchLimits(max_wait_ms=1e6))
    with ServerThread(create_app({"tiny": tiny}, limits=limits, settings=settings)) as server:
        with ThreadPoolExecutor(4) as threads:
            held = threads.submit(ask, server, 1.0, x_api_key="o")
            assert gate.entered.wait(60)
            gate.entered.clear()
            other = threads.submit(ask, server, 2.0, x_api_key="k")
            assert gate.entered.wait(60)  # it runs beside the one that is held
            gate.open.set()
            assert (held.result().status, other.result().status) == (200, 200)
        metrics = Client(server.url)("/metrics", x_api_key="k").body.decode()
    assert 'edge_infer_tenant_requests_total{model="tiny",pool="gold",tenant="shop",version="1"} 1.0' in metrics
    for pool in ("gold", "default"):
        assert f'edge_infer_requests_total{{model="tiny",pool="{pool}",version="1"}} 1.0' in metrics


def test_a_lost_device_stops_its_pool_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    table = RoutingTable({"gpu": Pool(1, "cpu")}, [Route("gpu", tenant="shop")])
    tenants = {Tenant(name): [hashlib.sha256(name[:1].encode()).digest()] for name in ("shop", "other")}
    runs = []

    def lose(session: Any, batch: Any) -> Any:
        runs.append(batch)
        if batch.requests[0].tenant.name == "shop":
            return [DeviceLost("CUDA failure 719: unspecified launch failure")] * len(batch.requests)
        return run_batch(session, batch)

    monkeypatch.setattr(job, "run_batch", lose)
    limits = Limits(workers=1, batch=BatchLimits(max_wait_ms=1e6))
    with ServerThread(create_app({"tiny": tiny}, limits=limits, settings=Settings(table, tenants=tenants))) as server:
        before = Client(server.url)("/readyz")
        first, second = ask(server, 1.0, x_api_key="s"), ask(server, 2.0, x_api_key="s")
        beside = ask(server, 3.0, x_api_key="o")
        after = Client(server.url)("/readyz")

    assert (before.status, first.status, second.status, beside.status) == (200, 503, 503, 200)
    assert json.loads(second.body)["code"] == "device_lost"
    assert len(runs) == 2  # the second request was refused without being run
    assert after.status == 503
    assert json.loads(after.body) == {"ready": False, "lost": {"gpu": "CUDA failure 719: unspecified launch failure"}}


def test_a_load_that_failed_is_not_tried_by_every_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []

    def counted(name: str, bundle: Any, *arguments: Any, **options: Any) -> Any:
        loads.append(bundle.manifest.version)
        if bundle.manifest.version == "2":
            raise BackendError("its golden examples do not come out")
        return load_model(name, bundle, *arguments, **options)

    monkeypatch.setattr(repository, "load_model", counted)
    paths = two_versions(tmp_path)
    with ServerThread(create_app({"tiny": paths}, settings=Settings(canaries={"tiny": Canary("2", 50)}))) as server:
        send = Client(server.url)
        assert {ask(server).body for _ in range(20)} == {row(1.0)}
        assert loads.count("2") == 1
        assert send("/v2/models/tiny/versions/2/ready").status == 500
        assert loads.count("2") == 1
        (paths[1] / "new").write_bytes((paths[1] / "manifest.json").read_bytes())
        (paths[1] / "new").replace(paths[1] / "manifest.json")
        assert send("/v2/models/tiny/versions/2/ready").status == 500
        assert loads.count("2") == 2


def test_who_asks_about_a_model_takes_no_turn_of_the_canary(tmp_path: Path) -> None:
    app = create_app({"tiny": two_versions(tmp_path)}, settings=Settings(canaries={"tiny": Canary("2", 50)}))
    with ServerThread(app) as server:
        bodies = []
        for _ in range(4):
            bodies.append(ask(server).body)
            config = json.loads(Client(server.url)("/v2/models/tiny/config").body)
            assert config["version_policy"] == {"specific": {"versions": ["1"]}}
            assert [one["format"] for one in config["input"]] == ["FORMAT_NONE"]
            assert not any("format" in one for one in config["output"])
    assert bodies == [row(1.0), row(-1.0)] * 2


# -- tenants --


def test_without_a_key_only_health_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    settings = parse_settings({"tenants": {"shop": {"keys": [digest("s3cret"), digest("new")]}}})
    with caplog.at_level(0), ServerThread(create_app({"tiny": tiny}, settings=settings)) as server:
        send = Client(server.url)
        for path in ("/health", "/livez", "/readyz", "/v2/health/live"):
            assert send(path).status == 200
        for path in ("/v2", "/models/", "/models/tiny/onnx/model.onnx", "/docs", "/v2/models/tiny", "/"):
            refused = send(path)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer"), path
            assert send(path, authorization="Bearer s3cret").status in (200, 404), path
        assert ask(server).status == 401
        assert ask(server, authorization="Bearer wrong").status == 401
        assert ask(server, authorization="Basic s3cret").status == 401
        assert ask(server, authorization="bearer s3cret").body == row(1.0)
        assert ask(server, x_api_key="new").body == row(1.0)
        from websockets.exceptions import InvalidStatus

        with pytest.raises(InvalidStatus):
            stream(server.url)
        with stream(server.url, additional_headers={"X-Api-Key": "new"}):
            pass
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("names", [("X-Api-Key", "Authorization"), ("Authorization", "X-Api-Key")])
def test_a_key_of_its_own_header_counts_beside_another_authorization(names: tuple[str, str]) -> None:
    keys = ApiKeys({Tenant("shop"): [hashlib.sha256(b"k").digest()]})
    values = {"X-Api-Key": b"k", "Authorization": b"Bearer of a proxy"}
    assert keys.tenant_of([(name.lower().encode(), values[name]) for name in names]).name == "shop"


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny"], ids=["direct", "application"])
@pytest.mark.parametrize("name", ["X-Api-Key", "Authorization"])
def test_two_keys_are_refused_whichever_is_right(tmp_path: Path, name: str, path: str) -> None:
    """A proxy in front may have checked the other one."""
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    settings = parse_settings({"tenants": {"shop": {"keys": [digest("s")]}}})
    prefix = "Bearer " if name == "Authorization" else ""
    method = "POST" if path.endswith("infer") else "GET"
    with ServerThread(create_app({"tiny": tiny}, settings=settings)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        for keys in (("s", "other"), ("other", "s"), ("s", "s")):
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                lines = "".join(f"{name}: {prefix}{key}\r\n" for key in keys)
                head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}Content-Length: 0\r\n\r\n"
                connection.sendall(head.encode())
                assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_only_a_tenant_that_is_admin_changes_what_all_share(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    tenants = {"shop": {"keys": [digest("s")]}, "ops": {"keys": [digest("o")], "admin": True}}
    with ServerThread(create_app({"tiny": tiny}, settings=parse_settings({"tenants": tenants}))) as server:
        send = Client(server.url)
        for what in ("unload", "load", "canary"):
            refused = send(f"/v2/repository/models/tiny/{what}", "POST", b"", x_api_key="s")
            assert (refused.status, json.loads(refused.body)["code"]) == (403, "not_admin"), what
        assert ask(server, x_api_key="s").status == 200
        assert send("/v2/repository/models/tiny/unload", "POST", b"", x_api_key="o").status == 200
        assert ask(server, x_api_key="s").status == 404


def test_the_counts_of_all_tenants_are_for_who_may_see_them(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    tenants = {
        "shop": {"keys": [digest("s")]},
        "ops": {"keys": [digest("o")], "admin": True},
        "prometheus": {"keys": [digest("p")], "metrics": True},
    }
    with ServerThread(create_app({"tiny": tiny}, settings=parse_settings({"tenants": tenants}))) as server:
        send = Client(server.url)
        assert ask(server, x_api_key="s").status == 200
        for path in ("/metrics", "/dashboard/state.json", "/v2/models/stats", "/v2/models/tiny/stats"):
            statuses = [send(path, x_api_key=key).status for key in ("s", "o", "p")]
            assert statuses == [403, 200, 200], path
            assert send(path).status == 401, path
            assert send(f"{path}%0A", x_api_key="s").status == 404, path
        for path in ("//metrics", "/./metrics", "/%2Fmetrics", "/v2%2Fmodels/stats", "/v2/models/tiny%2Fstats"):
            assert send(path, x_api_key="s").status in (403, 404), path
        assert b'tenant="shop"' in send("/metrics", x_api_key="p").body
        assert send("/v2/repository/models/tiny/unload", "POST", b"", x_api_key="p").status == 403


def test_who_may_see_the_counts_is_asked_by_what_gives_them(tmp_path: Path) -> None:
    """However a path is written that leads there: this server's path ends in a slash, which takes another away."""
    tenants = {"shop": {"keys": [digest("s")]}, "prometheus": {"keys": [digest("p")], "metrics": True}}
    app = create_app(
        {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, settings=parse_settings({"tenants": tenants})
    )
    with TestClient(app, root_path="/ml/") as client:
        for path in ("/metrics", "/dashboard/state.json", "/v2/models/stats", "/v2/models/tiny/stats"):
            statuses = [client.get(f"/ml/{path}", headers={"X-Api-Key": key}).status_code for key in ("s", "p", "")]
            assert statuses == [403, 200, 401], path
    app.engine.close()


@pytest.mark.parametrize("is_mounted", [True, False])
def test_under_a_path_the_same_is_open_and_closed(tmp_path: Path, is_mounted: bool) -> None:
    """Mounted in another application, or told of a path by its server, as `uvicorn --root-path` does."""
    tenants = {"shop": {"keys": [digest("s")]}, "prometheus": {"keys": [digest("p")], "metrics": True}}
    app = create_app(
        {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, settings=parse_settings({"tenants": tenants})
    )
    outer = Starlette(routes=[Mount("/ml", app)]) if is_mounted else app
    with TestClient(outer, root_path="" if is_mounted else "/ml") as client:
        for path in ("/metrics", "/dashboard/state.json", "/v2/models/stats", "/v2/models/tiny/stats"):
            statuses = [client.get(f"/ml{path}", headers={"X-Api-Key": key}).status_code for key in ("s", "p", "")]
            assert statuses == [403, 200, 401], path
        assert client.get("/ml/livez").status_code == 200
        document = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
        document["parameters"] = {"steps": 2}  # type: ignore[assignment]
        for what in ("infer", "infer_stream"):
            assert client.post(f"/ml/v2/models/tiny/{what}", json=document, headers={"X-Api-Key": "s"}).is_success, what
        with client.websocket_connect("/ml/v2/models/tiny/stream", headers={"X-Api-Key": "s"}) as opened:
            opened.send_bytes(FRAME.pack(7, 0, 12) + row(1.0))
            assert opened.receive_bytes() == FRAME.pack(7, 0, 12) + row(1.0)
    app.engine.close()


@pytest.mark.parametrize("is_mounted", [True, False])
def test_under_a_path_what_is_named_is_there(tmp_path: Path, web_root: Path, is_mounted: bool) -> None:
    """Every address that the server writes into a page or an answer leads to what it says."""
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, web_root)
    outer = Starlette(routes=[Mount("/ml", app)]) if is_mounted else app
    with TestClient(outer, root_path="" if is_mounted else "/ml") as client:
        (model,) = client.get("/ml/models/").json()["models"]
        assert model["url"] == client.get("/ml/models/tiny/").json()["url"] == "/ml/models/tiny"
        (wheel,) = client.get("/ml/simple/edge-infer/").json()["files"]
        assert client.get(wheel["url"]).headers["content-type"] == "application/zip"
        assert f"curl {client.base_url}/ml/v2/models/tiny/infer " in client.get("/ml/docs").text
        (place,) = client.get("/ml/openapi.json").json()["servers"]
        assert client.get(f"{place['url']}/v2").json()["name"] == "edge-infer"
        for path in ("/ml/", "/ml/studio/", "/ml/studio/index.html", "/ml/demo/index.html", "/ml/dashboard"):
            page = client.get(path)
            base = re.search(r'<base href="(.*?)">', page.text)
            folder = urljoin(path, base[1] if base else "")
            for link in re.findall(r'(?:href|src)="((?!data:)[^"]+\.\w+)"', page.text):
                assert client.get(urljoin(folder, link)).status_code == 200, (path, link)
            assert "stylesheet" in page.text
    app.engine.close()


def test_a_session_sends_the_key_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    settings = parse_settings({"tenants": {"shop": {"keys": [digest("k")]}}})
    with ServerThread(create_app({"tiny": tiny}, settings=settings)) as server:
        for scheme in ("http", "ws"):
            url = f"{server.url}/v2/models/tiny".replace("http", scheme, 1)
            monkeypatch.delenv("EDGE_INFER_API_KEY", raising=False)
            with pytest.raises(EdgeInferError):
                edge_infer.load(url)
            monkeypatch.setenv("EDGE_INFER_API_KEY", "k")
            with edge_infer.load(url) as session:
                assert session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[1, 2, 3]]


def test_a_bundle_is_loaded_with_the_key_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    settings = parse_settings({"tenants": {"shop": {"keys": [digest("k")]}}})
    with ServerThread(create_app({"tiny": tiny}, settings=settings)) as server:
        url = f"{server.url}/models/tiny"
        monkeypatch.delenv("EDGE_INFER_API_KEY", raising=False)
        for source in (url, f"{url}/onnx/model.onnx", f"{server.url}/v2/models/tiny"):
            with pytest.raises(Unauthorized, match="has no API key") as caught:
                edge_infer.load(source)
            assert caught.value.hint == "EDGE_INFER_API_KEY=KEY"
        monkeypatch.setenv("EDGE_INFER_API_KEY", "wrong")
        with pytest.raises(Unauthorized, match="is not known") as caught:
            edge_infer.load(url)
        assert caught.value.hint == "ask the server's operator for one"
        monkeypatch.setenv("EDGE_INFER_API_KEY", "k")
        for source in (url, f"{url}/onnx/model.onnx"):
            with edge_infer.load(source) as session:
                assert session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[1, 2, 3]]
        assert asyncio.run(Bundle.open_async(url)).read("onnx/model.onnx")


def test_a_flood_of_one_tenant_leaves_another_its_share(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    settings = parse_settings(
        {"tenants": {"big": {"keys": [digest("b")], "metrics": True}, "small": {"keys": [digest("s")]}}}
    )
    limits = Limits(workers=1, batch=BatchLimits(max_batch_size=1, max_queue_size=4, max_wait_ms=1e6))
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits, settings=settings)) as server,
        ThreadPoolExecutor(12) as threads,
    ):
        flood = [threads.submit(ask, server, 1.0, x_api_key="b")]
        assert gate.entered.wait(60)
        for i in range(4):
            flood.append(threads.submit(ask, server, 1.0, x_api_key="b"))
            wait_until_queued(server, i + 1, x_api_key="b")
        small = threads.submit(ask, server, 2.0, x_api_key="s")  # the queue is full: the newest of the flood gives way
        wait_until(lambda: any(future.done() for future in flood))
        over = ask(server, 1.0, x_api_key="b")
        assert (over.status, over.headers["retry-after"]) == (429, "1")
        assert json.loads(over.body)["code"] == "over_share"
        gate.open.set()
        assert small.result().status == 200
        assert sorted(future.result().status for future in flood) == [200, 200, 200, 200, 429]


# -- the file --


def test_a_file_says_it_all(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(
        f"""
        [pools.gold]
        workers = 2
        device = "cpu"

        [[routes]]
        pool = "gold"
        tenant = "shop"

        [models.digits]
        variant = "onnx/fp32"
        fast_variant = "onnx/int8"
        canary = {{ version = "2", percent = 12.5 }}

        [tenants.shop]
        keys = ["{digest("k")}"]
        weight = 3
        """
    )
    found = read_settings(path)
    assert found.table.pools["gold"] == Pool(2, "cpu")
    assert found.table.pool_of("digits", None, "shop") == "gold"
    assert found.variants == {"digits": "onnx/fp32"}
    assert found.fast_variants == {"digits": "onnx/int8"}
    assert (found.canaries["digits"].version, found.canaries["digits"].percent) == ("2", 12.5)
    assert list(found.tenants) == [Tenant("shop", 3.0)]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"models": {"tony": {"fast_variant": "onnx/int8"}}}, "`models.tony` is of a model that is not served"),
        (
            {"models": {"tiny": {"fast_variant": "onnx/int9"}}},
            "`models.tiny.fast_variant` is `onnx/int9`; there is `onnx/fp32`",
        ),
        ({"models": {"tiny": {"variant": "onnx/int9"}}}, "`models.tiny.variant` is `onnx/int9`; there is `onnx/fp32`"),
        ({"models": {"tony": {"canary": {"version": "2", "percent": 1}}}}, "`models.tony` is of a model"),
        ({"routes": [{"pool": "default", "model": "tony"}]}, r"`routes\[0\].model` is of a model"),
        ({"routes": [{"pool": "default", "tenant": "shop"}]}, r"`routes\[0\].tenant` is `shop`"),
    ],
)
def test_names_that_nothing_has_are_refused_at_the_start(tmp_path: Path, document: Any, message: str) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with pytest.raises(InputError, match=message) as caught:
        create_app({"tiny": tiny}, settings=parse_settings(document))
    assert any(word in caught.value.hint for word in ("tiny", "[tenants.shop]", "onnx/int9"))


def test_versions_that_no_bundle_has_are_refused_at_the_start(tmp_path: Path) -> None:
    tiny = two_versions(tmp_path)
    for document, message in (
        ({"models": {"tiny": {"canary": {"version": "3", "percent": 1}}}}, "`models.tiny.canary.version` is `3`"),
        ({"routes": [{"pool": "default", "model": "tiny", "version": "9"}]}, r"`routes\[0\].version` is `9`"),
        ({"routes": [{"pool": "default", "version": "9"}]}, r"`routes\[0\].version` is `9`; there is `1`, `2`"),
    ):
        with pytest.raises(InputError, match=message):
            create_app({"tiny": tiny}, settings=parse_settings(document))
    known = parse_settings(
        {
            "models": {"tiny": {"canary": {"version": "2", "percent": 1}}},
            "routes": [{"pool": "default", "version": "1"}, {"pool": "default", "model": "tiny", "version": "2"}],
        }
    )
    create_app({"tiny": tiny}, settings=known)
    (tiny[1] / "manifest.json").unlink()
    create_app({"tiny": tiny}, settings=known)  # nobody knows


@pytest.mark.parametrize(
    ("device", "hint"),
    [
        ("tpu", "did you mean `cpu`?"),
        ("wasm", "leave it out"),
        ("webgpu", ""),
        ("cudda", "did you mean `cuda`?"),
        ("cpu:1", ""),
    ],
)
def test_a_device_that_no_server_has_is_refused_at_the_start(device: str, hint: str) -> None:
    with pytest.raises(
        InputError, match=f"`--device` is `{device}`; a server runs models on `auto`, `cpu`, "
    ) as caught:
        create_app({}, device=device)
    assert caught.value.hint.startswith(hint)
    with pytest.raises(InputError, match=f"`pools.gold.device` is `{device}`"):
        parse_settings({"pools": {"gold": {"device": device}}})
    for known in ("auto", "cpu", "cuda", "cuda:1"):
        parse_settings({"pools": {"gold": {"device": known}}})


def test_settings_that_the_model_does_not_take_are_no_fault_of_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InputError("Device `cuda:7` is not there", hint="--device cuda")

    monkeypatch.setattr(loaded_model, "load", refuse)
    with ServerThread(create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})) as server:
        answer = ask(server)
    assert (answer.status, json.loads(answer.body)["code"]) == (500, "backend_error")
    assert json.loads(answer.body)["error"] == "Device `cuda:7` is not there"


def test_a_fast_variant_for_all_that_no_model_has_is_refused(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    broken = tmp_path / "broken"
    broken.mkdir()
    with pytest.raises(InputError, match="`--fast-variant` is `onnx/int8`"):
        create_app({"tiny": tiny, "broken": broken}, settings=Settings(fast_variants={"*": "onnx/int8"}))
    create_app({"tiny": tiny, "broken": broken}, settings=Settings(fast_variants={"*": "onnx/fp32"}))
    create_app({"broken": broken}, settings=Settings(fast_variants={"*": "onnx/int8"}))  # nobody knows


def test_a_variant_for_all_that_one_model_lacks_is_refused(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    two = two_variants(tmp_path / "two", onnx_model(), onnx_model())
    create_app({"tiny": tiny, "two": two}, settings=Settings(fast_variants={"*": "onnx/int8"}))
    with pytest.raises(InputError, match="`--variant` is `onnx/int8`; there is `onnx/fp32`"):
        create_app({"tiny": tiny, "two": two}, settings=Settings(variants={"*": "onnx/int8"}))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"pool": {}}, "`pool` is not known in the file"),
        ({"pools": 3}, "`pools` is not a table"),
        ({"pools": {"a": {"workers": -1}}}, "`pools.a.workers` is not a number from 0 to 64"),
        ({"pools": {"a": {"workers": True}}}, "`pools.a.workers`"),
        ({"routes": {}}, "`routes` is not a list"),
        ({"routes": [{"model": "x"}]}, r"`routes\[0\].pool` is not a text"),
        ({"routes": [{"pool": "x"}]}, "names the pool `x`"),
        ({"models": {"m": {"canary": {"version": "2", "percent": 101}}}}, "`models.m.canary.percent`"),
        ({"models": {"m": {"canary": {"version": 2, "percent": 1}}}}, "`models.m.canary.version` is not a text"),
        ({"models": {"m": {"fast": "x"}}}, "`fast` is not known in models.m"),
        ({"tenants": {"t": {}}}, "`tenants.t.keys` is not a list"),
        ({"tenants": {"t": {"keys": []}}}, "`tenants.t.keys` is not a list"),
        ({"tenants": {"t": {"keys": ["hunter2"]}}}, "an entry that is not a digest"),
        ({"tenants": {"t": {"keys": [digest("a"), digest("a")]}}}, "a key twice"),
        ({"tenants": {"t": {"keys": [digest("a")]}, "u": {"keys": [digest("a")]}}}, "one of another tenant"),
        ({"tenants": {"t": {"keys": [digest("a")], "weight": 0}}}, "weight` is 0"),
        ({"tenants": {"t": {"keys": [digest("a")], "admin": 1}}}, "`tenants.t.admin` is neither true nor false"),
        ({"tenants": {"": {"keys": [digest("a")]}}}, "an empty name"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_settings(document)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_none_is_one_clear_error(tmp_path: Path) -> None:
    for name, content in (("no.toml", None), ("binary.toml", b"\xff\xfe"), ("bad.toml", b"[x")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            read_settings(tmp_path / name)


@pytest.mark.parametrize(
    ("device", "devices", "workers", "spare"),
    [
        *(("auto", ("cuda", "cpu"), 2, 0), ("auto", ("cpu",), 4, 1), ("cpu", ("cuda", "cpu"), 4, 1)),
        *(("cuda", ("cpu",), 2, 0), ("cuda:1", ("cuda", "cpu"), 2, 0)),
    ],
)
def test_a_pool_whose_models_run_on_a_gpu_runs_two_batches_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, devices: tuple[str, ...], workers: int, spare: int
) -> None:
    monkeypatch.setattr(OnnxRuntimeBackend, "availability", lambda _: Availability(True, devices))
    engine = Engine(ModelRepository({"tiny": two_versions(tmp_path)}, device), 4)
    dispatcher = engine.dispatchers["default"]
    assert (dispatcher.workers, dispatcher.scheduler._spare) == (workers, spare)
    engine.close()


async def _choices(engine: Engine) -> list[str]:
    return [(await engine.get("tiny")).version for _ in range(4)]


def test_the_highest_version_is_chosen_anew_after_a_load(tmp_path: Path) -> None:
    import asyncio

    engine = Engine(ModelRepository({"tiny": two_versions(tmp_path)}), 1)
    assert asyncio.run(_choices(engine)) == ["2"] * 4
    engine.close()
