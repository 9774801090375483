"""`POST …/predict`: raw data to the server, the task's answer back."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.client import OCTETS, Answer, Client
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    after = [{"step": "post.pool"}]
    return {
        "colours": pipelines.colours(folder / "colours.bundle"),
        "words": pipelines.words(folder / "words.bundle", "feature-extraction", after),
        "loudness": pipelines.loudness(folder / "loudness.bundle"),
    }


@pytest.fixture(scope="module")
def server(bundles: dict[str, Path]) -> Iterator[ServerThread]:
    with ServerThread(create_app({**bundles, "digits": "examples/digits/digits.onnx"})) as running:
        yield running


def png(colour: tuple[int, int, int] = (250, 20, 10), size: tuple[int, int] = (30, 20)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def predict(server: ServerThread, name: str, body: Any, kind: str = JSON, query: str = "", **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = f"/v2/models/{name}/predict{query}"
    return Client(server.url)(path, "POST", data, content_type=kind, **headers)


def answered(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def refused(answer: Answer, status: int = 400) -> str:
    assert answer.status == status, answer.body
    document = json.loads(answer.body)
    error = document["error"]
    assert "(hint: " in error["message"] if isinstance(error, dict) else document["hint"]  # that of OpenAI, or ours
    text: str = error["message"] if isinstance(error, dict) else error
    return text


def test_a_form_with_a_file_in_it_is_refused_with_the_way_to_send_the_file(server: ServerThread) -> None:
    """What `curl -F file=@photo.png` sends."""
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="p.png"\r\n\r\n' + png() + b"\r\n--b--\r\n"

    answer = predict(server, "colours", body, "multipart/form-data; boundary=b")

    assert refused(answer, 415) == "The body is a form, expected the file itself"
    assert json.loads(answer.body)["hint"] == "curl --data-binary @FILE"


@pytest.mark.parametrize("kind", ["image/png", OCTETS, FORM])
def test_the_bytes_of_a_photo_are_answered_as_the_pipeline_does(
    server: ServerThread, bundles: dict[str, Path], kind: str
) -> None:
    with edge_infer.pipeline(bundles["colours"]) as classify:
        assert answered(predict(server, "colours", png(), kind)) == classify(png())
        assert answered(predict(server, "colours", png(), kind, "?top_k=1")) == classify(png(), top_k=1)


def test_json_carries_arguments_and_several_inputs(server: ServerThread) -> None:
    photo = base64.b64encode(png()).decode()
    one = answered(predict(server, "colours", {"inputs": photo, "parameters": {"top_k": 1}}))
    assert [found["label"] for found in one] == ["red"]
    data = f"data:image/png;base64,{base64.b64encode(png((0, 0, 250))).decode()}"
    both = answered(predict(server, "colours", {"inputs": [photo, data], "parameters": {"top_k": 1}}))
    assert [found[0]["label"] for found in both] == ["red", "blue"]


def test_texts_are_batched_and_come_back_in_order(server: ServerThread, bundles: dict[str, Path]) -> None:
    texts = ["good film", "a", "bad film a good paris london", "paris"]
    with edge_infer.pipeline(bundles["words"]) as embed:
        expected = [one.tolist() for one in embed(texts)]
    assert answered(predict(server, "words", {"inputs": texts})) == expected
    assert answered(predict(server, "words", b"good film", "text/plain")) == expected[0]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: answered(predict(server, "words", {"inputs": text})), texts * 4))
    assert found == expected * 4


def test_a_sound_is_streamed_through_a_model_with_state(server: ServerThread, bundles: dict[str, Path]) -> None:
    noise = np.random.default_rng(1).uniform(-0.9, 0.9, 16_000)
    sound = np.concatenate([np.zeros(16_000), noise, np.zeros(8_000)]).astype("float32")
    with edge_infer.pipeline(bundles["loudness"]) as find:
        expected = find(sound)
    asked = {"inputs": {"array": sound.tolist(), "sampling_rate": 16_000}, "parameters": {"threshold": 0.5}}
    assert answered(predict(server, "loudness", asked)) == expected
    assert len(expected) == 1


def test_files_of_the_server_cannot_be_asked_for(server: ServerThread, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    for name in (str(tmp_path / "a.png"), "http://127.0.0.1/a.png", "file:///etc/passwd", "/etc/passwd"):
        assert "base64" in refused(predict(server, "colours", {"inputs": name}))
        assert "base64" in refused(predict(server, "loudness", {"inputs": name}))


def test_what_does_not_fit_is_refused_with_the_reason(server: ServerThread) -> None:
    assert "empty" in refused(predict(server, "colours", b"", "image/png"))
    assert "cannot be read" in refused(predict(server, "colours", b"nonsense", "image/png"))
    assert "not JSON" in refused(predict(server, "colours", b"[", JSON))
    assert "no `inputs`" in refused(predict(server, "colours", {"input": 1}))
    assert "no argument `topk`" in refused(predict(server, "colours", png(), "image/png", "?topk=1"))
    assert '`top_k` is "x"' in refused(predict(server, "colours", png(), "image/png", "?top_k=x"))
    assert "not UTF-8" in refused(predict(server, "words", png(), "text/plain"))
    assert "is not a text" in refused(predict(server, "words", {"inputs": 7}))
    assert "more than 200000 characters" in refused(predict(server, "words", {"inputs": "a" * 200_001}))
    assert "expected 1 to 256" in refused(predict(server, "words", {"inputs": []}))
    assert "more than 25000000 pixels" in refused(predict(server, "colours", png(size=(5001, 5000)), "image/png"))
    assert "has no pipeline" in refused(predict(server, "digits", png(), "image/png"))
    assert "is not served" in refused(predict(server, "none", png(), "image/png"), 404)


def test_a_page_of_another_server_cannot_send_a_form(server: ServerThread) -> None:
    told = refused(predict(server, "colours", png(), FORM, origin="https://shop.example"), 415)
    assert "a page may not send" in told


def embed(server: ServerThread, body: Any) -> Answer:
    return Client(server.url)("/v1/embeddings", "POST", json.dumps(body).encode(), content_type=JSON)


def test_embeddings_have_openais_form(server: ServerThread, bundles: dict[str, Path]) -> None:
    with edge_infer.pipeline(bundles["words"]) as run:
        expected = [one.tolist() for one in run(["good film", "paris"])]
    found = answered(embed(server, {"model": "words", "input": ["good film", "paris"]}))
    assert [one["embedding"] for one in found["data"]] == expected
    assert [one["index"] for one in found["data"]] == [0, 1]
    assert found["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    unset = {"model": "words", "input": ["good film", "paris"], "encoding_format": None, "dimensions": None}
    assert answered(embed(server, unset)) == found
    (one,) = answered(embed(server, {"model": "words", "input": "paris", "encoding_format": "base64"}))["data"]
    assert np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() == expected[1]


def test_embeddings_that_cannot_be_are_refused(server: ServerThread) -> None:
    assert "no `model`" in refused(embed(server, {"input": "a"}))
    for tokens in ([1, 2], [[1, 2], [3]]):
        told = embed(server, {"model": "words", "input": tokens})
        assert "neither a text nor" in refused(told)
        assert "check_embedding_ctx_length=False" in refused(told)
        assert json.loads(told.body)["error"]["param"] == "input"
    assert "LangChain" not in refused(embed(server, {"model": "words", "input": {"a": 1}}))
    assert "not 1 to 256 texts" in refused(embed(server, {"model": "words", "input": []}))
    assert "`dimensions` cannot be chosen" in refused(embed(server, {"model": "words", "input": "a", "dimensions": 2}))
    assert "is not served" in refused(embed(server, {"model": "none", "input": "a"}), 404)
    assert "is for image-classification" in refused(embed(server, {"model": "colours", "input": "a"}))


def test_json_of_many_values_is_not_parsed(server: ServerThread) -> None:
    body = b'{"inputs": [' + b"[]," * 500_000 + b"[]]}"
    assert "more than 500000 values" in refused(predict(server, "words", body), 413)
