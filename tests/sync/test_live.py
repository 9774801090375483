"""A live session swaps its weights between calls, and no call is lost; `watch` waits longer while it fails."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import ExecutionError, FetchError, InputError, NotReleasedError, SyncError, TrialError
from edge_infer.runtime.live import LiveSession
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.watch import MAX_BACKOFF, wait_s, watch
from tests.support.sync.publisher import SIZE, Publisher, take, weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.errors import EdgeInferError
    from edge_infer.sync.client import Pulled

ONES = {"x": np.ones((1, SIZE), np.float32)}


@pytest.fixture
def live(publisher: Publisher, tmp_path: Path) -> Iterator[LiveSession]:
    publisher.publish(1)
    take(publisher.folder, DeviceStore(tmp_path / "device"))
    with LiveSession(tmp_path / "device") as session:
        yield session


def expected(version: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    result: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = weights(version).sum(0, keepdims=True)
    return result


def test_an_update_changes_the_next_answer(publisher: Publisher, live: LiveSession) -> None:
    before = live.run(ONES)["y"]
    publisher.publish(9)

    assert live.update(f"{publisher.folder}/linear").changed

    after = asyncio.run(live.run_async(ONES))["y"]
    np.testing.assert_allclose(np.asarray(after), expected(9), atol=1e-4)
    assert not np.array_equal(np.asarray(before), np.asarray(after))
    assert live.revision == DeviceStore(live._device.folder).active().name


def test_no_call_is_lost_while_weights_are_swapped(publisher: Publisher, live: LiveSession) -> None:
    stop, failed, answers = threading.Event(), list[BaseException](), [0]

    def ask() -> None:
        while not stop.is_set():
            try:
                live.run(ONES)
                answers[0] += 1
            except BaseException as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for version in (2, 3, 4):
            publisher.publish(version)
            live.update(f"{publisher.folder}/linear")
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert failed == []
    assert answers[0] > 10


def test_weights_that_fail_their_trial_change_nothing(publisher: Publisher, live: LiveSession) -> None:
    revision = live.revision
    publisher.publish(2, wrong=True)

    with pytest.raises(TrialError):
        live.update(f"{publisher.folder}/linear")

    assert live.revision == revision
    np.testing.assert_allclose(np.asarray(live.run(ONES)["y"]), expected(1), atol=1e-4)


def test_it_follows_a_store_by_itself(publisher: Publisher, live: LiveSession) -> None:
    updated = threading.Event()
    live.follow(f"{publisher.folder}/linear", interval_s=0.02, on_update=lambda _pulled: updated.set())
    publisher.publish(2)

    assert updated.wait(30)
    with pytest.raises(InputError, match="already"):
        live.follow(f"{publisher.folder}/linear")


def test_a_closed_session_says_so(live: LiveSession) -> None:
    live.close()

    with pytest.raises(ExecutionError, match="closed"):
        live.run(ONES)


def test_watch_goes_on_after_a_failure() -> None:
    stop, errors, looks = threading.Event(), list["EdgeInferError"](), [0]

    def look() -> Pulled:
        looks[0] += 1
        if looks[0] == 2:
            raise OSError("No space left on device")
        if looks[0] == 3:
            raise MemoryError("none left")
        if looks[0] == 4:
            stop.set()
        raise FetchError("down")

    watch(look, interval_s=0.001, stop=stop, on_error=errors.append)

    assert [str(error) for error in errors] == ["down", "No space left on device", "MemoryError: none left", "down"]
    assert isinstance(errors[0], SyncError)


def test_watch_goes_on_where_being_told_fails(caplog: pytest.LogCaptureFixture) -> None:
    stop, looks = threading.Event(), [0]

    def look() -> Pulled:
        looks[0] += 1
        if looks[0] == 3:
            stop.set()
        raise NotReleasedError("not yet") if looks[0] == 2 else FetchError("down")

    def fail(_error: EdgeInferError) -> None:
        raise RuntimeError("the pager is broken")

    watch(look, interval_s=0.001, stop=stop, on_error=fail)

    assert looks == [3]
    assert [record.args for record in caplog.records] == [("down",), ("not yet",), ("down",)]


def test_waits_have_jitter_and_back_off_to_a_limit() -> None:
    assert (wait_s(60, 0, 0.0), wait_s(60, 0, 1.0)) == (30, 90)
    assert wait_s(60, 3, 0.5) == 60 * 8
    assert wait_s(60, 50, 0.5) == 60 * MAX_BACKOFF
