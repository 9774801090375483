"""What people say of answers: taken for answers that the server gave, kept within a quota, and used by `--eval`."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.cli.npz import write_npz
from edge_infer.errors import InputError, StoreError
from edge_infer.server.app import create_app
from edge_infer.server.feedback.export import as_arrays, feedback_of
from edge_infer.server.feedback.ids import LIFETIME_S, AnswerIds
from edge_infer.server.feedback.log import FeedbackLog, files_of, records_of
from edge_infer.server.http.in_thread import ServerThread
from tests.support import warm_command
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

X = [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]


class Client:
    """Asks a server of the models `neg` and `other` that takes feedback."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    def post(self, path: str, body: Any, kind: str = "application/json") -> tuple[int, dict[str, str], Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, dict(answer.headers), json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), json.loads(error.read())

    def ask(self, model: str = "neg") -> str:
        status, headers, _ = self.post(f"/v2/models/{model}/infer", {"inputs": X})
        assert status == 200
        return {name.lower(): value for name, value in headers.items()}["feedback-id"]

    def tell(self, document: Any, model: str = "neg", **options: Any) -> tuple[int, Any]:
        status, _, body = self.post(f"/v2/models/{model}/feedback", document, **options)
        return status, body

    def kept(self) -> list[dict[str, Any]]:
        return list(records_of(files_of(self.folder)))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("feedback")
    models = {name: write_bundle(root / name, bundle_files(name, onnx_model("Neg"))) for name in ("neg", "other")}
    with ServerThread(create_app(models, feedback=FeedbackLog(root / "kept"))) as server:
        yield Client(server.url, root / "kept")


def test_a_label_is_kept_with_the_id_of_its_answer_and_inputs_by_consent(client: Client) -> None:
    before = len(client.kept())
    first, second = client.ask(), client.ask()
    assert first != second
    assert client.tell({"id": first, "label": "cat"}) == (200, {"id": first, "kept": "label"})
    with_inputs = {"id": second, "label": [3], "consent": True, "inputs": X}
    assert client.tell(with_inputs) == (200, {"id": second, "kept": "inputs"})
    one, other = client.kept()[before:]
    assert (one["id"], one["label"], one["model"], "inputs" in one) == (first, "cat", "neg", False)
    assert np.frombuffer(base64.b64decode(other["inputs"]["x"]["data"]), "float32").tolist() == [1, 2, 3]
    assert client.folder.joinpath("secret").stat().st_mode & 0o777 == 0o600


def test_inputs_without_consent_are_refused_and_nothing_is_kept(client: Client) -> None:
    before = client.kept()
    for consent in ({}, {"consent": False}, {"consent": "true"}, {"consent": 1}):
        status, body = client.tell({"id": client.ask(), "label": 1, "inputs": X, **consent})
        assert (status, "consent" in body["error"]) == (400, True)
    assert client.kept() == before


def test_each_answer_takes_one_feedback(client: Client) -> None:
    name = client.ask()
    assert client.tell({"id": name, "label": 1})[0] == 200
    status, body = client.tell({"id": name, "label": 2})
    assert (status, "already" in body["error"]) == (400, True)


@pytest.mark.parametrize("what", ["made up", "flipped", "other model", "short", "number", "missing", "padded", "path"])
def test_an_id_that_the_server_did_not_give_is_refused(client: Client, what: str) -> None:
    good = client.ask()
    flipped = good[:-1] + ("A" if good[-1] != "A" else "B")
    ids: dict[str, Any] = {
        "made up": base64.urlsafe_b64encode(bytes(24)).decode(),
        "flipped": flipped,
        "other model": client.ask("other"),
        "short": good[:-1],
        "number": 7,
        "missing": None,
        "padded": good + "=",
        "path": "../" * 10 + "ab",
    }
    before = client.kept()
    status, body = client.tell({"id": ids[what], "label": 1})
    assert (status, body["code"]) == (400, "input_error")
    assert "Feedback-Id" in body["hint"]
    assert client.kept() == before
    assert client.tell({"id": good, "label": 1})[0] == 200, "the right one still counts"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"id": "ID"}',
        b'{"id": "ID", "label": null}',
        b'{"id": "ID", "label": NaN}',
        b'{"id": "ID", "label": 1e400}',
        b'{"id": "ID", "label": true}',
        b'{"id": "ID", "label": {}}',
        b'{"id": "ID", "label": ""}',
        b'{"id": "ID", "label": "\\ud800"}',
        b'{"id": "ID", "label": []}',
        b'{"id": "ID", "label": [[1]]}',
        b'{"id": "ID", "label": [1, "a"]}',
        b'{"id": "ID", "label": "' + b"a" * 1001 + b'"}',
        b'{"id": "ID", "label": 99999999999999999999999999}',
        b'{"id": "ID", "label": 1' + b"0" * 400 + b"}",
        b'{"id": "ID", "label": 1, "lable": 2}',
        b'{"id": "ID", "label": 1, "consent": true, "inputs": 3}',
        b'{"id": "ID", "label": 1, "consent": true, "inputs": []}',
        b'{"id": "ID", "label": 1, "consent": true, "inputs": [{"name": "x"}]}',
        b'{"id": "ID", "label": 1, "consent": true, "inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", '
        b'"data": [1, 2, 3, 4, 5, 6]}]}',
        b'{"id": "ID", "label": 1, "consent": true, "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", '
        b'"parameters": {"binary_data_size": 12}}]}',
    ],
)
def test_hostile_feedback_is_refused_with_the_next_step_and_nothing_is_kept(client: Client, body: bytes) -> None:
    before = client.kept()
    status, answer = client.tell(body.replace(b"ID", client.ask().encode()))
    assert status == 400, answer
    assert answer["hint"]
    assert client.kept() == before


def test_feedback_of_a_gigabyte_is_refused_before_it_is_read(client: Client) -> None:
    for size in (2**20 + 1, 2**30, 2**70):
        with closing(HTTPConnection(urlsplit(client.url).netloc, timeout=30)) as connection:
            connection.putrequest("POST", "/v2/models/neg/feedback")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
            assert connection.getresponse().status in (413, 400)


def test_the_version_that_answered_is_kept_whatever_is_served_by_then(tmp_path: Path) -> None:
    files = bundle_files("neg", onnx_model("Neg"))
    manifest = json.loads(files["manifest.json"]) | {"version": "2"}
    later = {**files, "manifest.json": json.dumps(manifest).encode()}
    one = write_bundle(tmp_path / "1", files)
    log = FeedbackLog(tmp_path / "kept")
    with ServerThread(create_app({"neg": one}, feedback=log)) as server:
        before = Client(server.url, log.folder).ask()
    both = [one, write_bundle(tmp_path / "2", later)]
    with ServerThread(create_app({"neg": both}, feedback=log)) as server:
        client = Client(server.url, log.folder)
        assert client.tell({"id": before, "label": 1, "consent": True, "inputs": X})[0] == 200
        assert client.tell({"id": client.ask(), "label": 2})[0] == 200
        status, body = client.tell({"id": client.ask(), "label": 3}, model="neg/versions/1")
        assert (status, "version 2" in body["error"]) == (400, True)
        before = client.ask()
    with ServerThread(create_app({"neg": one}, feedback=log)) as server:  # version 2 is gone
        assert Client(server.url, log.folder).tell({"id": before, "label": 4, "consent": True, "inputs": X})[0] == 200
    assert [(told["version"], told["label"]) for told in client.kept()] == [("1", 1), ("2", 2), ("2", 4)]


def test_other_types_and_models_are_refused(client: Client) -> None:
    name = client.ask()
    assert client.tell({"id": name, "label": 1}, kind="text/plain")[0] == 415
    assert client.tell({"id": name, "label": 1}, model="nobody")[0] in (400, 404)


def test_a_server_without_a_folder_gives_no_ids_and_takes_no_feedback(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "neg", bundle_files("neg", onnx_model("Neg")))
    with ServerThread(create_app({"neg": folder})) as server:
        client = Client(server.url, tmp_path)
        _, headers, _ = client.post("/v2/models/neg/infer", {"inputs": X})
        assert not [name for name in headers if name.lower() == "feedback-id"]
        assert client.tell({"id": "A" * 32, "label": 1})[0] == 404


# -- ids --


@given(st.binary(min_size=24, max_size=24))
def test_no_bytes_at_random_are_an_id(data: bytes) -> None:
    with pytest.raises(InputError):
        AnswerIds(b"secret").check(base64.urlsafe_b64encode(data).decode(), "m", "t", now_s=0)


def test_an_id_is_of_one_model_one_tenant_and_one_month() -> None:
    ids = AnswerIds(b"secret")
    name = ids.make("m", "7", "t", now_s=1000)
    assert ids.check(name, "m", "t", now_s=1000 + LIFETIME_S) == (name, "7")
    for model, tenant, now in (("n", "t", 1000), ("m", "u", 1000), ("m", "t", 1001 + LIFETIME_S), ("m", "t", 600)):
        with pytest.raises(InputError):
            ids.check(name, model, tenant, now_s=now)
    for changed in (name[:-1], name + "A", name + "AA", name + "=", name[:-1] + chr(ord(name[-1]) + 1)):
        with pytest.raises(InputError):
            ids.check(changed, "m", "t", now_s=1000)
    with pytest.raises(InputError):
        AnswerIds(b"another").check(name, "m", "t", now_s=1000)


# -- the files --


def record(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"{number:032}", "model": "m", "label": number, **more}


def test_files_rotate_and_the_quota_holds(tmp_path: Path) -> None:
    log = FeedbackLog(tmp_path / "kept", quota=2000, file_bytes=500)
    with pytest.raises(StoreError, match="2000 bytes") as caught:
        for number in range(100):
            log.add(record(number))
    assert "feedback export" in caught.value.hint
    files = files_of(tmp_path / "kept")
    assert len(files) >= 4
    assert all(path.stat().st_size <= 500 for path in files)
    assert sum(path.stat().st_size for path in files) <= 2000
    labels = [one["label"] for one in records_of(files)]
    assert labels == list(range(len(labels)))
    files[0].unlink()
    log.add(record(1000))
    assert files_of(tmp_path / "kept")[-1].name >= files[-1].name, "numbers are not used again"


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    FeedbackLog(tmp_path).add(record(1))
    path = files_of(tmp_path)[0]
    path.write_bytes(path.read_bytes() + b'{"id": "x", "la')
    log = FeedbackLog(tmp_path)
    log.add(record(2))
    assert [one["label"] for one in records_of(files_of(tmp_path))] == [1, 2]
    with pytest.raises(InputError, match="already"):
        FeedbackLog(tmp_path).add(record(2))
    assert FeedbackLog(tmp_path).secret == log.secret, "ids outlive the server"


def test_an_answer_takes_one_feedback_of_servers_that_share_a_folder_and_of_those_after_them(tmp_path: Path) -> None:
    one, other = FeedbackLog(tmp_path, file_bytes=200), FeedbackLog(tmp_path, file_bytes=200)
    for number in range(6):
        (one, other)[number % 2].add(record(number))
    assert len(files_of(tmp_path)) > 1
    for log in (one, other, FeedbackLog(tmp_path)):
        for number in range(6):
            with pytest.raises(InputError, match="already"):
                log.add(record(number))
    assert [told["label"] for told in records_of(files_of(tmp_path))] == list(range(6))


def test_servers_that_share_a_folder_share_its_quota(tmp_path: Path) -> None:
    logs = [FeedbackLog(tmp_path, quota=2000, file_bytes=500) for _ in range(4)]

    def fill(number: int) -> None:
        with pytest.raises(StoreError):
            for i in range(100):
                logs[number].add(record(100 * number + i))

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(4)))
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 2000
    assert len(list(records_of(files_of(tmp_path)))) >= 20


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FeedbackLog(tmp_path)
    log.add(record(1))
    monkeypatch.setattr("os.write", lambda _handle, _data: 3)
    with pytest.raises(StoreError, match="part"):
        log.add(record(2))
    monkeypatch.undo()
    log.add(record(2))
    assert [one["label"] for one in records_of(files_of(tmp_path))] == [1, 2]


# -- the export --


def test_an_export_is_what_eval_reads(client: Client, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(5, 3)).astype("float32")
    for number, row in enumerate(rows):
        inputs = [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": row.tolist()}]
        label = int(np.argmax(-row)) if number else "2"
        told = {"id": client.ask("other"), "label": label, "consent": True, "inputs": inputs}
        assert client.tell(told, "other")[0] == 200
    (tmp_path / "labels.json").write_text('["0", "1", "2"]')
    words = ["feedback", "export", str(client.folder), "--model", "other", "-o"]
    refused = warm_command.run([*words, "x.npz"], cwd=tmp_path)
    assert (refused.returncode, "--labels" in refused.stderr) == (1, True)
    done = warm_command.run([*words, "eval.npz", "--labels", "labels.json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "eval.npz").stat().st_mode & 0o777 == 0o600
    with np.load(tmp_path / "eval.npz") as found:
        assert np.array_equal(found["x"], rows)
        assert found["labels"].tolist() == [2, *np.argmax(-rows, 1).tolist()[1:]]
    (tmp_path / "model.onnx").write_bytes(onnx_model("Neg"))
    made = warm_command.run(
        ["convert", "model.onnx", "-o", "m.bundle", "--eval", "eval.npz", "--precision", "fp32"], cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    quality = json.loads((tmp_path / "m.bundle/quality.json").read_text())
    assert "eval" in json.dumps(quality)


def test_an_export_says_what_it_leaves_out(tmp_path: Path) -> None:
    log = FeedbackLog(tmp_path)
    one = {"x": {"datatype": "FP32", "shape": [1, 1], "data": base64.b64encode(bytes(4)).decode()}}
    two = {"x": {"datatype": "FP32", "shape": [1, 2], "data": base64.b64encode(bytes(8)).decode()}}
    for number, inputs in enumerate((one, one, two, None)):
        log.add(record(number, **({} if inputs is None else {"inputs": inputs})))
    arrays, left_out = as_arrays(feedback_of(tmp_path, "m"), None)
    assert (arrays["labels"].tolist(), arrays["x"].shape, left_out) == ([0, 1], (2, 1), 2)
    with pytest.raises(InputError, match="no feedback to the model `n`") as caught:
        feedback_of(tmp_path, "n")
    assert "m" in caught.value.hint


def test_an_export_keeps_inputs_of_any_name_but_that_of_the_labels(tmp_path: Path) -> None:
    def exported(name: str) -> Any:
        inputs = {name: {"datatype": "FP32", "shape": [1, 1], "data": base64.b64encode(bytes(4)).decode()}}
        arrays, _ = as_arrays([record(7, inputs=inputs)], None)
        return np.load(BytesIO(write_npz(arrays)))

    for name in ("file", "allow_pickle", "arr_0", "a/b"):
        with exported(name) as found:
            assert (found[name].tolist(), found["labels"].tolist()) == ([[0]], [7])
    with pytest.raises(InputError, match="an input `labels`") as caught:
        exported("labels")
    assert ".jsonl" in caught.value.hint
