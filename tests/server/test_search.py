"""`/v2/indexes` and `/indexes/`: indexes are searched as `Index.search` does, and their files are sent."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion import search as endpoint
from edge_infer.server.scheduling.shares import Bounds, Tenant
from edge_infer.vectors.embedder import Embedder
from tests.support.server.client import Answer, Client, refusals
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


JSON = "application/json"
_AFTER = [{"step": "post.pool"}, {"step": "post.normalize"}]
TEXTS = ["good film", "bad film", "paris", "london london", "good london"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, an index by it, an index of vectors alone, and one by a model that nobody serves."""
    folder = tmp_path_factory.mktemp("search")
    pipelines.words(folder / "w.bundle", "feature-extraction", _AFTER)
    other = pipelines.words(folder / "other.bundle", "feature-extraction", _AFTER, width=8)
    for name, path in (("notes", folder / "w.bundle"), ("strange", other)):
        with Embedder(path, "good ") as embedder:
            size = embedder.query("film").size
            index = edge_infer.Index.create(folder / f"{name}.index", size, embedding=embedder.embedding())
            index.embedder = embedder
            index.add(texts=TEXTS, metadata=[{"n": n, "lang": "en"} for n in range(len(TEXTS))])
    plain = edge_infer.Index.create(folder / "plain.index", 3, words=False)
    plain.add(np.eye(3, dtype=np.float32))
    return folder


def app_of(folder: Path, **more: Any) -> Any:
    names = ("notes", "strange", "plain")
    return create_app({"w": folder / "w.bundle"}, indexes={one: folder / f"{one}.index" for one in names}, **more)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerThread]:
    with ServerThread(app_of(folder)) as running:
        yield running


def search(server: ServerThread, body: Any, name: str = "notes", kind: str = JSON, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client(server.url)(f"/v2/indexes/{name}/search", "POST", data, content_type=kind, **headers)


def hits(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["hits"]


@pytest.mark.parametrize(
    "more", [{}, {"k": 2}, {"mode": "words"}, {"mode": "hybrid", "k": 3}, {"where": {"n": {"<": 3}}, "full_scan": True}]
)
def test_a_text_is_answered_as_the_index_does(server: ServerThread, folder: Path, more: dict[str, Any]) -> None:
    index = edge_infer.Index.open(folder / "notes.index")
    wanted = [one._asdict() for one in index.search("london", **more)]
    assert wanted
    assert hits(search(server, {"query": "london", **more})) == wanted


def test_many_clients_get_each_its_own_answer(server: ServerThread, folder: Path) -> None:
    index = edge_infer.Index.open(folder / "notes.index")
    wanted = {text: index.search(text, 1)[0].id for text in TEXTS}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: hits(search(server, {"query": text, "k": 1})), TEXTS * 8))
    assert [one[0]["id"] for one in answers] == [wanted[text] for text in TEXTS * 8]


def test_a_vector_needs_no_model(server: ServerThread) -> None:
    found = hits(search(server, {"query": [0, 1, 0.5], "k": 2}, "plain"))
    assert [one["id"] for one in found] == [1, 2]
    assert found[0]["metadata"] == {} and found[0]["text"] is None
    assert hits(search(server, {"query": "london", "mode": "words", "k": 1}, "strange"))[0]["text"] == "london london"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"query": [1, 2]}, "vector 0 has 2 numbers, the index takes 4"),
        ({"query": [1] * 100_000}, "100000 numbers"),
        (b'{"query": [1, 2, 3, NaN]}', "not finite"),
        (b'{"query": [1, 2, 3, -Infinity]}', "not finite"),
        ({"query": [1, 2, 3, 1e39]}, "not finite"),
        (b'{"query": [1, 2, 3, 1' + b"0" * 400 + b"]}", "not finite"),
        (b'{"query": [1, 2, 3, 1' + b"0" * 5000 + b"]}", "not JSON"),
        ({"query": [0, 0, 0, 0]}, "no direction"),
        ({"query": [1, 2, 3, True]}, "neither a text nor a list of numbers"),
        ({"query": [[1, 2, 3, 4]]}, "neither a text nor a list of numbers"),
        (b'{"query": "\\ud800"}', "half a character"),
        (b'{"query": "a", "where": {"lang": "\\ud800"}, "mode": "magic"}', "`mode` is"),
        ({"query": None}, "neither a text nor a list of numbers"),
        ({"query": "a" * 20_001}, "characters"),
        ({"query": "a", "k": 10**9}, "`k` is 1000000000"),
        ({"query": "a", "k": 0}, "`k` is 0"),
        ({"query": "a", "k": 1.5}, "`k` is 1.5"),
        ({"query": "a", "k": True}, "`k` is True"),
        ({"query": "a", "mode": "magic"}, "`mode` is 'magic'"),
        ({"query": "a", "mode": ["words"]}, "`mode` is"),
        ({"query": [1, 2, 3, 4], "mode": "words"}, "no words to look for"),
        ({"query": "a", "where": {"colour": "red"}}, "no entry has `colour`"),
        ({"query": "a", "where": {"n": {"~": 3}}}, "compared by '~'"),
        ({"query": "a", "where": {"n": {"<": [3]}}}, "compared with"),
        ({"query": "a", "where": {"n": [[1]]}}, "compared with"),
        ({"query": "a", "where": [1]}, "not an object"),
        ({"query": "a", "full_scan": 1}, "neither true nor false"),
        ({"query": "a", "wher": {}}, "`wher` is not known"),
        ({"k": 3}, "no `query`"),
        ([1, 2], "no `query`"),
        (b"", "not JSON"),
        (b'{"query": ' + b"[" * 100_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
    ],
)
def test_a_hostile_body_is_refused_and_the_server_goes_on(server: ServerThread, body: Any, said: str) -> None:
    answer = search(server, body)
    document = json.loads(answer.body)
    assert answer.status == 400, document
    assert said in document["error"] and document["hint"]
    assert hits(search(server, {"query": [1, 2, 3, 4], "k": 1}))


def test_what_is_not_there_or_not_json_is_refused(server: ServerThread) -> None:
    before = refusals(server)
    missing = search(server, {"query": "a"}, "note")
    assert (missing.status, json.loads(missing.body)["hint"]) == (404, "did you mean `notes`?")
    assert refusals(server)["not_found"] == before.get("not_found", 0) + 1
    unserved = search(server, {"query": "a"}, "strange")
    assert unserved.status == 404 and "edge-infer serve other.bundle strange.index" in json.loads(unserved.body)["hint"]
    assert search(server, {"query": "a"}, "plain").status == 404
    assert search(server, {"query": "a", "mode": "words"}, "plain").status == 400
    assert search(server, {"query": "a"}, kind="text/plain").status == 415
    assert search(server, {"query": "a"}, kind="application/x-www-form-urlencoded", origin="http://a.b").status == 415
    assert search(server, b" " * (3 * 2**20)).status == 413
    assert Client(server.url)("/v2/indexes/notes/search").status == 405


def test_a_search_that_takes_too_long_is_answered_in_time(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, may_end = edge_infer.Index.find, Event()

    def slow(self: edge_infer.Index, *given: Any, **more: Any) -> Any:
        assert may_end.wait(60)
        return find(self, *given, **more)

    monkeypatch.setattr(edge_infer.Index, "find", slow)
    # The first two run when their time is over, the third still waits for room.
    for _ in range(3):
        late = search(server, {"query": [1, 2, 3, 4]}, X_Timeout_Ms="50")
        assert (late.status, json.loads(late.body)["code"]) == (504, "deadline_exceeded")
    may_end.set()
    assert search(server, {"query": [1, 2, 3, 4]}, X_Timeout_Ms="60000").status == 200


def test_a_search_is_refused_where_too_many_wait(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_WAITING", 0)
    full = search(server, {"query": [1, 2, 3, 4]})
    assert (full.status, json.loads(full.body)["code"], full.headers["retry-after"]) == (503, "queue_full", "1")


def test_an_answer_that_is_too_large_is_refused(folder: Path) -> None:
    limits = Limits()
    limits = limits._replace(batch=limits.batch._replace(max_answer_bytes=200))
    with ServerThread(app_of(folder, limits=limits)) as server:
        assert hits(search(server, {"query": [1, 0, 0], "k": 1}, "plain"))
        assert search(server, {"query": [1, 2, 3, 4], "k": 5}).status == 413


def test_keys_and_shares_of_tenants_count(folder: Path) -> None:
    tenants = {Tenant("shop", bounds=Bounds(max_requests_per_s=0.001)): [sha256(b"secret").digest()]}
    with ServerThread(app_of(folder, settings=Settings(tenants=tenants))) as server:
        assert search(server, {"query": [1, 0, 0]}, "plain").status == 401
        assert Client(server.url)("/v2/indexes").status == 401
        assert Client(server.url)("/indexes/plain/index.json").status == 401
        assert search(server, {"query": "london"}, x_api_key="secret").status == 200  # counted once, model or not
        over = search(server, {"query": [1, 0, 0]}, "plain", x_api_key="secret")
        assert (over.status, json.loads(over.body)["code"]) == (429, "over_share")


def test_indexes_are_listed_and_their_files_are_sent(server: ServerThread, folder: Path) -> None:
    ask = Client(server.url)
    listed = json.loads(ask("/v2/indexes").body)["indexes"]
    assert next((one["name"], one["url"], one["entries"]) for one in listed) == ("notes", "/indexes/notes", 5)
    assert str(folder) not in ask("/v2/indexes").body.decode()
    assert json.loads(ask("/v2/indexes/notes").body)["columns"] == ["lang", "n"]
    assert ask("/v2/indexes/no").status == 404
    for path in (
        "index.json",
        *(one.path for one in edge_infer.Index.open(folder / "notes.index").view.catalogue.files),
    ):
        answer = ask(f"/indexes/notes/{path}")
        assert answer.status == 200 and answer.body == (folder / "notes.index" / path).read_bytes()


@pytest.mark.parametrize(
    "path", [".lock", "../w.bundle/manifest.json", "..%2fw.bundle%2fmanifest.json", "segments/", "", "%2fetc%2fpasswd"]
)
def test_nothing_else_of_the_folder_is_sent(server: ServerThread, path: str) -> None:
    assert Client(server.url)(f"/indexes/notes/{path}").status == 404


def test_a_changed_index_is_seen_and_a_damaged_one_goes_on_as_it_was(tmp_path: Path) -> None:
    index = edge_infer.Index.create(tmp_path / "n.index", 2)
    index.add([[1, 0]])
    with ServerThread(create_app({}, indexes={"n": tmp_path / "n.index"})) as server:
        assert [one["id"] for one in hits(search(server, {"query": [0, 1]}, "n"))] == [0]
        index.add([[0, 1]])
        assert [one["id"] for one in hits(search(server, {"query": [0, 1]}, "n"))] == [1, 0]
        index.delete([1])
        index.compact()
        assert [one["id"] for one in hits(search(server, {"query": [0, 1]}, "n"))] == [0]
        segment = tmp_path / "n.index" / index.view.catalogue.files[0].path
        good = segment.read_bytes()
        segment.with_name("new").write_bytes(bytes(len(good)))
        segment.with_name("new").replace(segment)  # the old file stays mapped
        sent = Client(server.url)(f"/indexes/n/segments/{segment.name}")
        assert json.loads(sent.body)["code"] == "integrity_error"
        (tmp_path / "n.index/index.json").write_text("{")
        assert [one["id"] for one in hits(search(server, {"query": [0, 1]}, "n"))] == [0]


def test_searches_go_on_while_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = edge_infer.Index.create(tmp_path / "n.index", 2)
    index.add([[1, 0]])
    refresh, is_reading, may_end = edge_infer.Index.refresh, Event(), Event()

    def slow(self: edge_infer.Index) -> bool:
        is_reading.set()
        assert may_end.wait(60)
        return refresh(self)

    monkeypatch.setattr(edge_infer.Index, "refresh", slow)
    with ServerThread(create_app({}, indexes={"n": tmp_path / "n.index"})) as server, ThreadPoolExecutor(1) as pool:
        index.add([[0, 1]])
        first = pool.submit(search, server, {"query": [0, 1]}, "n")
        assert is_reading.wait(60)
        assert [one["id"] for one in hits(search(server, {"query": [0, 1]}, "n"))] == [0]
        may_end.set()
        assert [one["id"] for one in hits(first.result())] == [1, 0]


def test_the_command_takes_indexes_and_names_what_is_wrong(tmp_path: Path) -> None:
    gone = CliRunner().invoke(cli, ["serve", str(tmp_path / "no.index"), "--port", "0"])
    assert gone.exit_code == 1 and "There is no index at" in str(gone.exception)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        edge_infer.Index.create(tmp_path / folder / "n.index", 2)
    twice = CliRunner().invoke(cli, ["serve", str(tmp_path / "a/n.index"), str(tmp_path / "b/n.index")])
    assert twice.exit_code == 1 and "Two indexes are called `n`" in str(twice.exception)


def test_searches_are_counted(folder: Path) -> None:
    with ServerThread(create_app({}, indexes={"notes": folder / "notes.index"})) as server:
        assert search(server, {"query": "good film", "mode": "words"}).status == 200
        assert search(server, {"query": "good film", "mode": "none"}).status == 400
        said = Client(server.url)("/metrics").body.decode()
    assert 'edge_infer_search_seconds_count{index="notes"} 1.0' in said
    assert 'edge_infer_search_failures_total{code="input_error",index="notes"} 1.0' in said
    assert 'edge_infer_index_entries{index="notes"}' in said
