"""`load(bundle, fallback=URL)`: here where it can be, on the server where it cannot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TYPE_CHECKING, Any

import numpy
import pytest

import edge_infer
from edge_infer.backends.base import Placement, Runnable
from edge_infer.backends.registry import get_backend
from edge_infer.backends.remote.fallback import FallbackModel
from edge_infer.backends.remote.http import RemoteModel
from edge_infer.errors import BundleError, ExecutionError, FetchError, InputError, OutOfMemory, UnsupportedModel
from edge_infer.runtime.measurements import Measurement, remember
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEEDS = {"x": numpy.array([[1, 2, 3]], "float32")}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose `neg` negates; the models here are the identity, so that one sees where an answer comes from."""
    root = tmp_path_factory.mktemp("fallback")
    models = {
        "neg": write_bundle(root / "neg", bundle_files("neg", onnx_model("Neg"))),
        "other": write_bundle(root / "other", bundle_files("other", shape=("batch", 3), dtype=DType.INT8)),
    }
    with ServerThread(create_app(models)) as server:
        yield f"{server.url}/v2/models"


def test_what_can_run_here_does_and_the_server_is_not_asked(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    with edge_infer.load(folder, fallback="http://127.0.0.1:1/v2/models/tiny") as session:
        assert session.run(FEEDS)["y"].tolist() == [[1, 2, 3]]
        assert (session.report().device, session.report().fallbacks) == ("cpu", ())
        with session.prepare({"x": (1, 3)}) as call:
            assert call(FEEDS)["y"].tolist() == [[1, 2, 3]]


def test_what_no_engine_can_load_runs_on_the_server_and_the_report_says_why(tmp_path: Path, url: str) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files("tiny", b"no model at all"))
    with pytest.raises(UnsupportedModel):
        edge_infer.load(folder)
    with edge_infer.load(folder, fallback=f"{url}/neg") as session:
        assert session.run(FEEDS)["y"].tolist() == [[-1, -2, -3]]
        report = session.report()
    assert (report.engine, report.device) == ("remote", "remote")
    assert any("onnxruntime on cpu" in reason for reason in report.fallbacks)


async def load_async(folder: Path, url: str) -> Any:
    session = await edge_infer.load_async(folder, fallback=url)
    return session.run(FEEDS)["y"].tolist()


def test_asynchronously_too(tmp_path: Path, url: str) -> None:
    import asyncio

    folder = write_bundle(tmp_path / "tiny", bundle_files("tiny", b"no model at all"))
    assert asyncio.run(load_async(folder, f"{url}/neg")) == [[-1, -2, -3]]


def test_a_fallback_that_is_no_model_on_a_server_is_refused_at_once(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    for wrong in ("http://127.0.0.1/models/tiny", "tiny.bundle", ""):
        with pytest.raises(InputError, match="`fallback`"):
            edge_infer.load(folder, fallback=wrong)


def test_a_server_that_is_not_there_either_is_the_error(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files("tiny", b"no model at all"))
    with pytest.raises(FetchError):
        edge_infer.load(folder, fallback="http://127.0.0.1:1/v2/models/tiny")


def test_the_budget_is_compared_with_the_figures_of_what_is_wished(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    bundle = edge_infer.Bundle.open(write_bundle(tmp_path / "tiny", bundle_files()))
    (variant,) = bundle.manifest.variants
    version = get_backend("onnxruntime").version()
    rows = [
        Measurement(variant.id, "onnxruntime", version, device, threads, ms, 0.0, 100.0, "ok")
        for device, threads, ms in (("cpu", 2, 3.0), ("cpu", 1, 10.0), ("cuda", 1, 1.0))
    ]
    remember(bundle.manifest.name, bundle.revision, rows)

    def device(threads: int | None, latency_budget_ms: float) -> str:
        wishes: dict[str, Any] = {"threads": threads, "latency_budget_ms": latency_budget_ms, "device": "cpu"}
        with edge_infer.load(bundle, fallback=f"{url}/neg", **wishes) as session:
            return session.report().device

    assert [device(1, 5), device(2, 5), device(None, 5)] == ["remote", "cpu", "cpu"]
    assert [device(2, 2), device(None, 2)] == ["remote", "remote"]


def test_what_is_as_fast_within_the_noise_but_over_the_budget_is_no_reason_to_leave(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ways within 5 % the better one is the best; where only the other keeps the budget, that is taken."""
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    bundle = edge_infer.Bundle.open(write_bundle(tmp_path / "tiny", bundle_files()))
    (variant,) = bundle.manifest.variants
    version = get_backend("onnxruntime").version()
    rows = [
        Measurement(variant.id, "onnxruntime", version, "cpu", threads, ms, 0.0, 100.0, "ok")
        for threads, ms in ((1, 5.1), (2, 4.9))
    ]
    remember(bundle.manifest.name, bundle.revision, rows)

    with edge_infer.load(bundle, fallback=f"{url}/neg", latency_budget_ms=5) as session:
        assert (session.report().device, session.report().threads) == ("cpu", 2)


class Local(Runnable):
    """A model here that fails or dawdles as it is told."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "float32", ("batch", 3)),)
    outputs: tuple[TensorSpec, ...] = (TensorSpec("y", "float32", ("batch", 3)),)
    placement = Placement("cpu", 1, ("Local",))
    is_thread_safe = True

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.work = 0

    def run(self, feeds: Any, *_more: Any) -> Any:
        if self.error is not None:
            raise self.error
        for _ in range(self.work):
            numpy.sort(numpy.arange(100_000)[::-1])
        return {"y": feeds["x"]}

    def bind(self, shapes: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "error", [OutOfMemory("Failed to allocate memory for requested buffer of size 4"), MemoryError()]
)
def test_a_call_for_which_memory_is_short_runs_on_the_server_and_the_next_one_here(url: str, error: Exception) -> None:
    local = Local()
    model = FallbackModel(local, f"{url}/neg", RemoteModel)
    local.error = error
    assert model.run(FEEDS, ["y"], {}, ())["y"].tolist() == [[-1, -2, -3]]
    local.error = None
    assert model.run(FEEDS, ["y"], {}, ())["y"].tolist() == [[1, 2, 3]]
    (note,) = model.placement.fallbacks
    assert note.startswith(f"1 calls at {url}/neg: too little memory here")
    assert model.placement.device == "cpu"
    model.close()


def test_threads_that_are_short_of_memory_at_once_share_one_connection() -> None:
    local, remote = Local(), Local()
    local.error = MemoryError()
    short = Barrier(4)
    connected: list[str] = []
    again = Event()

    def connect(url: str) -> Local:
        connected.append(url)
        if len(connected) > 1:
            again.set()
        again.wait(0.2)  # as long as a second connection may take to begin
        return remote

    model = FallbackModel(local, "http://server", connect)

    def call() -> Any:
        short.wait()
        return model.run(FEEDS, ["y"], {}, ())["y"].tolist()

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(call) for _ in range(4)]

    assert [answer.result() for answer in answers] == [[[1, 2, 3]]] * 4
    assert connected == ["http://server"]


def test_failures_that_differ_in_their_figures_are_counted_as_one_kind(url: str) -> None:
    local = Local()
    model = FallbackModel(local, f"{url}/neg", RemoteModel)
    for size in range(3):
        local.error = OutOfMemory(f"Failed to allocate memory for requested buffer of size {size}")
        model.run(FEEDS, ["y"], {}, ())
    local.error = MemoryError()
    model.run(FEEDS, ["y"], {}, ())

    assert [note.partition(" at ")[0] for note in model.placement.fallbacks] == ["3 calls", "1 calls"]
    assert "of size 0" in model.placement.fallbacks[0]
    model.close()


def test_another_failure_is_no_reason_to_ask_the_server(url: str) -> None:
    local = Local()
    local.error = ExecutionError("the operator /decoder/memory_proj/Gather is broken")
    model = FallbackModel(local, f"{url}/neg", RemoteModel)
    with pytest.raises(ExecutionError, match="broken"):
        model.run(FEEDS, ["y"], {}, ())


def test_a_server_with_another_model_is_refused(url: str) -> None:
    local = Local()
    local.error = MemoryError()
    with pytest.raises(BundleError, match="is another model"):
        FallbackModel(local, f"{url}/other", RemoteModel).run(FEEDS, ["y"], {}, ())


def test_after_slow_calls_in_a_row_the_server_takes_over(url: str) -> None:
    local = Local()
    local.work = 200  # half a second, a server's answer takes some ms
    model = FallbackModel(local, f"{url}/neg", RemoteModel, 1e-6)
    signs = [model.run(FEEDS, ["y"], {}, ())["y"][0, 0] for _ in range(10)]
    assert signs == [1] * 4 + [-1] * 6
    placement = model.placement
    assert (placement.device, placement.providers) == ("remote", (f"{url}/neg",))
    assert "more than 0.001 ms" in placement.fallbacks[0]


def test_calls_that_were_still_running_here_do_not_keep_the_others_from_going_over(url: str) -> None:
    model = FallbackModel(Local(), f"{url}/neg", RemoteModel, 1e-9)
    for _ in range(3):
        model._watch(1.0)
    model._watch(1.0)
    for _ in range(3):  # of calls that began before
        model._watch(1.0)

    assert model.run(FEEDS, ["y"], {}, ())["y"].tolist() == [[-1, -2, -3]]


def test_where_the_server_is_slower_still_calls_come_back_for_good(url: str) -> None:
    model = FallbackModel(Local(), f"{url}/neg", RemoteModel, 1e-9)
    signs = [model.run(FEEDS, ["y"], {}, ())["y"][0, 0] for _ in range(12)]
    assert signs[:4] == [1] * 4
    assert -1 in signs
    assert signs[-4:] == [1] * 4
    assert model.placement.device == "cpu"
    assert any("then here again: the server took" in note for note in model.placement.fallbacks)


def test_a_server_that_fails_is_left_alone_where_the_model_runs_here() -> None:
    model = FallbackModel(Local(), "http://127.0.0.1:1/v2/models/x", RemoteModel, 1e-9)
    assert {float(model.run(FEEDS, ["y"], {}, ())["y"][0, 0]) for _ in range(8)} == {1.0}
    assert any("the server failed" in note for note in model.placement.fallbacks)
