"""A batch that fails: the requests that cause it get the error, the others their answers, the log what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pytest

from edge_infer.errors import ExecutionError
from edge_infer.server.app import create_app
from edge_infer.server.execution import job
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.execution.run_batch import LARGE_PART_BYTES, run_batch
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.request import Batch
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import ask, row
from tests.support.server.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.runtime.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with ServedModel("tiny", write_bundle(tmp_path / "tiny", bundle_files())).loaded().session as made:
        yield made


def refuse(session: Session, monkeypatch: pytest.MonkeyPatch, bad: set[float], error: Exception) -> None:
    """Let an engine fail where a row begins with one of these values."""
    real = type(session).run

    def fussy(self: Any, inputs: Any, outputs: Any = None, **options: Any) -> Any:
        if bad & set(inputs["x"][:, 0].tolist()):
            raise error
        return real(self, inputs, outputs, **options)

    monkeypatch.setattr(type(session), "run", fussy)


def batch(*values: float) -> Batch:
    requests = [Waiting() for _ in values]
    for request, value in zip(requests, values, strict=True):
        request.inputs = {"x": numpy.full((1, 3), value, "float32")}
    return Batch(requests, len(values), 0.0)


@pytest.mark.parametrize("is_large", [True, False])
def test_a_large_part_of_a_batch_keeps_nothing_of_the_others(session: Session, is_large: bool) -> None:
    requests = [Waiting() for _ in range(2)]
    rows = LARGE_PART_BYTES // 12 + 1 if is_large else 1
    for request in requests:
        request.inputs, request.rows = {"x": numpy.full((rows, 3), 1.0, "float32")}, rows
    results = run_batch(session, Batch(requests, 2 * rows, 0.0))
    for result in results:
        assert isinstance(result, dict)
        assert result["y"].shape == (rows, 3)
        assert result["y"].flags.owndata is is_large


def test_an_unknown_failure_is_that_of_the_requests_that_cause_it_and_logged_once(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(session, monkeypatch, {13.0, 14.0}, RuntimeError("a secret of the engine"))
    good, bad, too = run_batch(session, batch(1, 13, 14))
    assert isinstance(good, dict)
    assert good["y"].tolist() == [[1, 1, 1]]
    for result in (bad, too):
        assert isinstance(result, ExecutionError)
        assert "RuntimeError" in result.message
        assert "secret" not in result.message
    assert caplog.text.count("RuntimeError: a secret of the engine") == 1
    assert caplog.text.count("Traceback") == 1
    assert "tiny" in caplog.records[0].getMessage()


def test_an_unknown_failure_of_one_request_is_logged(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(session, monkeypatch, {13.0}, RuntimeError("a secret of the engine"))
    (bad,) = run_batch(session, batch(13))
    assert isinstance(bad, ExecutionError)
    assert caplog.text.count("RuntimeError: a secret of the engine") == 1


def test_a_failure_that_has_a_name_is_not_logged_as_unknown(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(session, monkeypatch, {13.0}, ExecutionError("thirteen"))
    results = run_batch(session, batch(1, 13))
    assert [type(result) for result in results] == [dict, ExecutionError]
    assert not caplog.records


def test_what_breaks_the_worker_itself_is_an_answer_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_session: Any, _batch: Any) -> Any:
        raise SystemExit("out of the engine")

    with ServerThread(create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})) as server:
        with monkeypatch.context() as patch:
            patch.setattr(job, "run_batch", broken)
            assert ask(server).status == 500
        assert "SystemExit: out of the engine" in caplog.text
        assert ask(server).body == row(1.0)
