"""A chain is served like one model: raw data in, its answer out, one queue, swapped as one revision."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tasks.answers import as_json
from tests.support.chains import made
from tests.support.server.client import Client
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server.client import Answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("chains")
    made.build(place, made.things(place))
    made.build(place, made.grouped(place))
    return place


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerThread]:
    models = {name: folder / f"chain-{name}.bundle" for name in ("things", "grouped")}
    with ServerThread(create_app({**models, "groups": folder / "groups.bundle"})) as running:
        yield running


def png(colour: tuple[int, int, int] = (250, 20, 10)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (30, 20), colour).save(file, "PNG")
    return file.getvalue()


def predict(server: ServerThread, name: str, body: Any, kind: str = "application/json") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client(server.url)(f"/v2/models/{name}/predict", "POST", data, content_type=kind)


def answered(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def test_a_photo_is_answered_as_in_python(server: ServerThread, folder: Path) -> None:
    with edge_infer.Chain.open(folder / "chain-things.bundle") as chain:
        expected = as_json(chain(png()))
    assert answered(predict(server, "things", png(), "image/png")) == expected
    photo = base64.b64encode(png()).decode()
    assert answered(predict(server, "things", {"inputs": photo})) == expected
    assert answered(predict(server, "things", {"inputs": [{"image": photo}, photo]})) == [expected, expected]


def test_texts_are_answered_and_times_are_told(server: ServerThread, folder: Path) -> None:
    with edge_infer.Chain.open(folder / "chain-grouped.bundle") as chain:
        expected = [as_json(one) for one in chain(made.TEXTS)]
    asked = {"inputs": made.TEXTS, "parameters": {"timings": True}}
    found = answered(predict(server, "grouped", asked))
    assert found["answer"] == expected
    assert [one["name"] for one in found["timings"]] == ["vector", "group"]
    assert answered(predict(server, "grouped", made.TEXTS[0].encode(), "text/plain")) == expected[0]


def test_the_images_of_a_request_have_a_bound_together(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_infer.server.ingestion.chains._MAX_PIXELS", 2 * 30 * 20)
    photo = base64.b64encode(png()).decode()
    answered(predict(server, "things", {"inputs": [photo, photo]}))
    refused = predict(server, "things", {"inputs": [photo, photo, photo]})
    assert refused.status == 413
    assert b"pixels" in refused.body


def test_files_of_the_server_cannot_be_asked_for(server: ServerThread, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    for name in (str(tmp_path / "a.png"), "http://127.0.0.1/a.png", "/etc/passwd"):
        answer = predict(server, "things", {"inputs": name})
        assert answer.status == 400
        assert b"base64" in answer.body


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("things", {"inputs": {"picture": "a"}}, "base64"),
        ("things", b"nonsense", "step `things`: the image cannot be read"),
        ("things", {"inputs": ""}, "cannot be read"),
        ("grouped", {"inputs": 3}, "`text` is int, expected a text"),
        ("grouped", {"inputs": []}, "expected 1 to 256"),
        ("grouped", {"inputs": "a", "parameters": {"top_k": 1}}, "takes no argument `top_k`"),
        ("grouped", {"inputs": "a", "parameters": []}, "`parameters` is not an object"),
        ("grouped", {"inputs": "a", "parameters": {"timings": "yes"}}, "`timings` is 'yes', expected true or false"),
        ("grouped", b"", "The body is empty"),
        ("grouped", b"\xff", "not UTF-8"),
    ],
)
def test_what_does_not_fit_is_refused(server: ServerThread, name: str, body: Any, said: str) -> None:
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    answer = predict(server, name, body, kind)
    assert answer.status == 400, answer.body
    assert said in json.loads(answer.body)["error"]


def test_a_chain_takes_no_tensors(server: ServerThread) -> None:
    asked = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    answer = Client(server.url)("/v2/models/things/infer", "POST", json.dumps(asked).encode())
    assert answer.status == 400


def test_a_chain_is_described(server: ServerThread) -> None:
    client = Client(server.url)
    assert answered(client("/v2/models/things"))["platform"] == "edge-infer_chain"
    assert answered(client("/v2/models/things/config"))["backend"] == "chain"
    assert answered(client("/v2/models/things/stats"))["model_stats"][0]["name"] == "things"
    assert client("/models/things/steps/things/manifest.json").status == 200
    assert "things" in str(client("/metrics").body)


def test_a_new_revision_is_taken_whole(tmp_path: Path) -> None:
    description = made.grouped(tmp_path)
    bundle = made.build(tmp_path, description)
    with ServerThread(create_app({"grouped": bundle})) as server:
        first = answered(predict(server, "grouped", {"inputs": "good film"}))
        made.build(tmp_path, {**description, "version": "2", "outputs": {"group": "group.label"}}, force=True)
        wait_until(lambda: answered(predict(server, "grouped", {"inputs": "good film"})) == {"group": first})


def test_a_chain_whose_answers_changed_is_not_taken(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    path = bundle / "manifest.json"
    document = json.loads(path.read_text())
    document["chain"]["outputs"] = "group.scores"
    path.write_text(json.dumps(document))
    with ServerThread(create_app({"grouped": bundle})) as server:
        answer = predict(server, "grouped", {"inputs": "good film"})
        assert answer.status == 500
        assert b"does not give the answers of its bundle" in answer.body


def test_a_step_runs_on_a_server(server: ServerThread, tmp_path: Path, folder: Path) -> None:
    """K-means of the chain is at the server; the answers are those of the chain that has all of it here."""
    description = made.grouped(tmp_path)
    description["steps"][1]["server"] = f"{server.url}/v2/models/groups"
    before = answered(Client(server.url)("/v2/models/groups/stats"))["model_stats"][0]["inference_count"]
    with (
        edge_infer.Chain.open(made.build(tmp_path, description)) as there,
        edge_infer.Chain.open(folder / "chain-grouped.bundle") as here,
    ):
        assert [int(one.tolist()) for one in there(made.TEXTS)] == [int(one.tolist()) for one in here(made.TEXTS)]
    after = answered(Client(server.url)("/v2/models/groups/stats"))["model_stats"][0]["inference_count"]
    assert after > before


def test_a_server_with_another_model_is_refused(server: ServerThread, tmp_path: Path) -> None:
    description = made.things(tmp_path)
    description["steps"][3]["server"] = f"{server.url}/v2/models/groups"
    with pytest.raises(edge_infer.ManifestError, match="step `whole`: the model at"):
        made.build(tmp_path, description)


def test_pixels_of_many_pictures_are_refused(server: ServerThread) -> None:
    photo = base64.b64encode(png()).decode()
    assert predict(server, "things", {"inputs": [photo] * 257}).status == 413
