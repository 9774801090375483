"""The dispatcher: offers that are withdrawn, threads that hang."""

from __future__ import annotations

import asyncio
import json
import traceback
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from edge_infer.errors import DeadlineExceeded, DeviceLost, InputError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution import dispatcher as dispatcher_module
from edge_infer.server.execution import job
from edge_infer.server.execution.dispatcher import Dispatcher
from edge_infer.server.execution.loaded_model import Fast
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.execution.run_batch import run_batch
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling import request as request_module
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.server.scheduling.request import HIGHEST_PRIORITY, Answer, Request
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask, row
from tests.support.server.gate import Gate, workers_alive
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.loaded_model import LoadedModel


def loaded(folder: Path, name: str, max_batch_size: int = 1) -> LoadedModel:
    limits = BatchLimits(max_batch_size)
    model = ServedModel(name, write_bundle(folder / name, bundle_files(name)), "cpu", limits).loaded()
    model.batcher.max_batch_size = max_batch_size  # whatever was measured
    return model


class Asked(Request):
    """A request that is in flight until its answer or its time-out."""

    def __init__(self, dispatcher: Dispatcher, model: LoadedModel, priority: int = 0, key: str | None = None) -> None:
        self.result: asyncio.Future[Answer | EdgeInferError] = asyncio.get_running_loop().create_future()
        super().__init__(
            {"x": numpy.ones((1, 3), "float32")},
            None,
            key=key,
            arrived=perf_counter(),
            finish=self._finish,
            priority=priority,
            is_gone=self.result.done,
        )
        self._dispatcher, self._model = dispatcher, model
        assert dispatcher.hold(model)
        dispatcher.submit(model, self)

    def _finish(self, result: Answer | EdgeInferError) -> None:
        if not self.result.done():
            self.result.set_result(result)
            self._dispatcher.finished(self._model)


async def until(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_retired_model_whose_offered_requests_timed_out_is_closed(tmp_path: Path, gate: Gate) -> None:
    async def scenario() -> None:
        dispatcher = Dispatcher(1, spare=1)
        busy, retired = loaded(tmp_path, "busy"), loaded(tmp_path, "retired")
        for model in (busy, retired):
            dispatcher.add(model)
        running = Asked(dispatcher, busy)
        await until(lambda: len(gate.sizes) == 1)
        offered = Asked(dispatcher, retired)
        await until(lambda: retired.running)
        dispatcher.retire(retired)
        offered.answer(DeadlineExceeded("it timed out"))
        assert "on closed" not in repr(retired.session)
        urgent = Asked(dispatcher, busy, HIGHEST_PRIORITY)  # it takes the offer back
        await until(lambda: len(gate.sizes) == 2)
        gate.open.set()
        for request in (running, urgent):
            assert isinstance(await request.result, Answer)
        await until(lambda: "on closed" in repr(retired.session))
        dispatcher.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_was_said_of_a_lost_device_keeps_no_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        dispatcher, model = Dispatcher(1), loaded(tmp_path, "tiny")
        dispatcher.add(model)
        dispatcher.lost = DeviceLost("CUDA failure 719", device=1)
        request = Request({}, None, arrived=0.0, finish=lambda _: None)
        for _ in range(3):
            with pytest.raises(DeviceLost, match="719") as caught:
                dispatcher.submit(model, request)
            assert len(traceback.extract_tb(caught.value.__traceback__)) == 2
        assert dispatcher.lost.__traceback__ is None
        assert dispatcher.lost.device == 1
        dispatcher.close()

    asyncio.run(scenario())


def test_a_device_that_is_lost_is_noticed_whichever_request_met_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "run_batch", lambda *_: [InputError("its own fault"), DeviceLost("gone")])

    async def scenario() -> None:
        dispatcher, model = Dispatcher(1), loaded(tmp_path, "tiny", 2)
        dispatcher.add(model)
        requests = [Asked(dispatcher, model, key="same") for _ in range(2)]
        assert [type(await request.result) for request in requests] == [InputError, DeviceLost]
        assert dispatcher.lost is not None
        dispatcher.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_request_that_does_not_take_its_answer_keeps_no_other_from_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    async def scenario() -> None:
        dispatcher, model = Dispatcher(1, hang_s=0.1), loaded(tmp_path, "tiny", 2)
        dispatcher.add(model)
        for _ in range(2):  # once the batch is answered, once it is given up
            bad, good = (Asked(dispatcher, model, key="same") for _ in range(2))
            bad.finish = fail
            await good.result
            dispatcher.finished(model)  # for the bad one
            monkeypatch.setattr(job, "run_batch", lambda *_: back.wait(60))
        assert isinstance(good.result.result(), DeadlineExceeded)
        back.set()
        await until(lambda: not model.running)
        assert model.in_flight == 0
        dispatcher.close()

    back = Event()
    monkeypatch.setattr(dispatcher_module.log, "error", fail)
    monkeypatch.setattr(request_module.log, "exception", fail)
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_variant_of_what_is_offered_is_chosen_by_what_waits_behind_it(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: dict[int, float] = {}
    monkeypatch.setattr(job.Job, "choose", lambda one, waiting, _: chosen.update({id(one.batch.requests[0]): waiting}))

    async def scenario() -> None:
        dispatcher = Dispatcher(2)
        one, two = loaded(tmp_path, "one"), loaded(tmp_path, "two")
        for model in (one, two):
            model.fast = Fast(model.session, "fast")
            dispatcher.add(model)
        running = [Asked(dispatcher, one), Asked(dispatcher, one)]
        await until(lambda: len(gate.sizes) == 2)
        ones = [Asked(dispatcher, one) for _ in range(3)]
        twos = [Asked(dispatcher, two)]
        await until(lambda: two.running)
        assert [chosen.get(id(request)) for request in (*ones, *twos)] == [1.0, None, None, 0.0]
        gate.open.set()
        for request in (*running, *ones, *twos):
            await request.result
        dispatcher.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_of_two_offers_of_a_model_the_older_has_the_newer_behind_it(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: dict[int, float] = {}
    monkeypatch.setattr(job.Job, "choose", lambda one, waiting, _: chosen.update({id(one.batch.requests[0]): waiting}))

    async def scenario() -> None:
        dispatcher, model = Dispatcher(2), loaded(tmp_path, "one")
        model.fast = Fast(model.session, "fast")
        dispatcher.add(model)
        running = [Asked(dispatcher, model), Asked(dispatcher, model)]
        await until(lambda: len(gate.sizes) == 2)
        waiting = [Asked(dispatcher, model) for _ in range(5)]
        await until(lambda: model.running == 4)
        assert [chosen.get(id(request)) for request in waiting] == [2.0, 1.5, None, None, None]
        gate.open.set()
        for request in (*running, *waiting):
            await request.result
        dispatcher.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.long
def test_a_model_that_always_hangs_takes_a_bounded_number_of_threads_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = Event()

    def hang(session: Any, batch: Any) -> Any:
        if session.bundle.manifest.name == "tiny":
            assert back.wait(60)
        return run_batch(session, batch)

    monkeypatch.setattr(job, "run_batch", hang)
    models = {name: write_bundle(tmp_path / name, bundle_files(name)) for name in ("tiny", "other")}
    batch = BatchLimits(max_batch_size=1, max_wait_ms=1e6)
    with ServerThread(create_app(models, limits=Limits(1, batch, hang_s=1.0))) as server:
        with ThreadPoolExecutor(40) as threads:
            statuses = [answer.status for answer in threads.map(lambda _: ask(server), range(40))]
        assert set(statuses) == {503, 504}
        assert 8 <= statuses.count(504) <= 11
        refused = ask(server)
        assert (refused.status, json.loads(refused.body)["code"]) == (503, "model_hangs")
        assert ask(server, 2.0, "other").body == row(2.0)
        ready = {name: Client(server.url)(f"/v2/models/{name}/ready").status for name in models}
        assert ready == {"tiny": 503, "other": 200}
        most = workers_alive()
        assert {ask(server).status for _ in range(5)} == {503}
        assert workers_alive() == most
        back.set()
        wait_until(lambda: ask(server).status == 200)
