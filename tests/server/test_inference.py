from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

import edge_infer
from edge_infer import errors
from edge_infer.server.app import Limits, create_app
from edge_infer.server.errors import STATUSES, UnsupportedMediaType, status_of
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.protocol.requests import describe
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import Client

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.runtime.session import Session
    from edge_infer.server.execution.loaded_model import LoadedModel


def tensor(data: Any, shape: list[int], datatype: str = "FP32", name: str = "x") -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def infer(get: Client, document: Any, name: str = "tiny") -> tuple[int, dict[str, Any]]:
    answer = get(f"/v2/models/{name}/infer", "POST", json.dumps(document).encode(), content_type="application/json")
    return answer.status, json.loads(answer.body)


def test_the_server_says_that_it_lives(get: Client) -> None:
    assert get("/health").body == b"OK"
    assert json.loads(get("/v2/health/live").body) == {"live": True}
    assert json.loads(get("/v2/health/ready").body) == {"ready": True}
    assert json.loads(get("/v2").body)["name"] == "edge-infer"
    assert get("/health").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", ["tiny", "packed", "bare%20model"])
def test_a_model_describes_itself(get: Client, name: str) -> None:
    document = json.loads(get(f"/v2/models/{name}").body)
    assert document["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert document["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    assert json.loads(get(f"/v2/models/{name}/ready").body)["ready"] is True
    version = document["versions"][0]
    assert get(f"/v2/models/{name}/versions/{version}").status == 200
    assert get(f"/v2/models/{name}/versions/9").status == 404
    assert get("/v2/models/none/ready").status == 404


@pytest.mark.parametrize("name", ["tiny", "packed", "bare%20model"])
def test_inference_flat_and_nested(get: Client, name: str) -> None:
    for data in ([1, 2.5, 3, 4, 5, 6], [[1, 2.5, 3], [4, 5, 6]]):
        status, document = infer(get, {"id": "seven", "inputs": [tensor(data, [2, 3])]}, name)
        assert status == 200
        assert document["id"] == "seven"
        (output,) = document["outputs"]
        assert output == {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [1, 2.5, 3, 4, 5, 6]}


def test_an_answer_names_its_model_and_has_only_the_outputs_asked_for(get: Client) -> None:
    document = {"inputs": [tensor([1, 2, 3], [1, 3])], "outputs": [{"name": "y", "parameters": {"binary_data": False}}]}
    status, answer = infer(get, document)
    assert status == 200
    assert (answer["model_name"], answer["model_version"]) == ("tiny", "1")
    assert "id" not in answer
    assert [output["name"] for output in answer["outputs"]] == ["y"]
    assert get("/v2/models/tiny/versions/1/infer", "POST", json.dumps(document).encode()).status == 200


def test_an_empty_batch(get: Client) -> None:
    status, document = infer(get, {"inputs": [tensor([], [0, 3])]})
    assert (status, document["outputs"][0]["shape"], document["outputs"][0]["data"]) == (200, [0, 3], [])


def test_what_json_cannot_write_is_spelt(get: Client) -> None:
    status, document = infer(get, {"inputs": [tensor(["NaN", "Infinity", "-Infinity"], [1, 3])]})
    assert status == 200
    assert document["outputs"][0]["data"] == ["NaN", "Infinity", "-Infinity"]
    assert isnan(float(document["outputs"][0]["data"][0]))


VALUES: dict[DType, list[Any]] = {
    DType.FLOAT32: [0.5, -1.25],
    DType.FLOAT64: [0.1, 1e300],
    DType.FLOAT16: [0.5, -2.0],
    DType.INT8: [-128, 127],
    DType.UINT8: [0, 255],
    DType.INT16: [-32768, 32767],
    DType.UINT16: [0, 65535],
    DType.INT32: [-(2**31), 2**31 - 1],
    DType.UINT32: [0, 2**32 - 1],
    DType.INT64: [-(2**63), 2**63 - 1],
    DType.UINT64: [0, 2**64 - 1],
    DType.BOOL: [True, False],
    DType.STRING: ["", "grüße"],
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("typed")
    models = {
        str(dtype): write_bundle(root / dtype, bundle_files(str(dtype), dtype=dtype, shape=("n",))) for dtype in VALUES
    }
    with ServerThread(create_app(models)) as server:
        yield Client(server.url)


@pytest.mark.parametrize("dtype", list(VALUES))
def test_every_datatype_travels_unchanged(typed: Client, dtype: DType) -> None:
    values = VALUES[dtype]
    status, document = infer(typed, {"inputs": [tensor(values, [2], DATATYPES[dtype])]}, str(dtype))
    assert (status, document.get("error")) == (200, None)
    assert document["outputs"][0]["data"] == values
    assert document["outputs"][0]["datatype"] == DATATYPES[dtype]


@pytest.mark.parametrize("dtype", list(VALUES))
def test_a_value_beyond_its_datatype_is_refused(typed: Client, dtype: DType) -> None:
    strange: list[Any] = [None, {}, 10**400, [1]]
    for value in strange:
        status, document = infer(typed, {"inputs": [tensor([value], [1], DATATYPES[dtype])]}, str(dtype))
        assert status == 400
        assert "`x`" in document["error"]
        assert document["hint"]


def test_half_a_surrogate_pair_is_no_text(typed: Client) -> None:
    status, document = infer(typed, {"id": "\ud800", "inputs": [tensor(["\udc00"], [1], "BYTES")]}, "string")
    assert status == 400
    assert "surrogate" in document["error"]
    status, document = infer(typed, {"id": "\ud800", "inputs": [tensor(["\U0001f600"], [1], "BYTES")]}, "string")
    assert (status, document["id"], document["outputs"][0]["data"]) == (200, "?", ["\U0001f600"])


def test_scalars(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "scalar", bundle_files(shape=()))
    with ServerThread(create_app({"scalar": folder})) as server:
        status, document = infer(Client(server.url), {"inputs": [tensor([2.5], [])]}, "scalar")
    assert (status, document["outputs"][0]["shape"], document["outputs"][0]["data"]) == (200, [], [2.5])


def test_every_dtype_has_a_name_in_the_protocol() -> None:
    assert set(DATATYPES) == set(DType)
    spec = TensorSpec("x", DType.BFLOAT16, ("batch", 4))
    assert describe([spec]) == [{"name": "x", "datatype": "BF16", "shape": [-1, 4]}]


def test_many_clients_at_once_get_their_own_answers(get: Client) -> None:
    def ask(i: int) -> bool:
        status, document = infer(get, {"id": str(i), "inputs": [tensor([i, i + 1, i + 2], [1, 3])]})
        return status == 200 and document["id"] == str(i) and document["outputs"][0]["data"] == [i, i + 1, i + 2]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(64)))


def test_a_model_that_loads_slowly_holds_up_nobody(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop answers while a model is being loaded."""
    release, running = Event(), Event()
    load = ServedModel.loaded

    def slow(self: ServedModel, *place: Any) -> LoadedModel:
        running.set()
        assert release.wait(60)
        return load(self, *place)

    monkeypatch.setattr(ServedModel, "loaded", slow)
    with ServerThread(create_app(models)) as server, ThreadPoolExecutor(8) as threads:
        get = Client(server.url)
        waiting = [threads.submit(infer, get, {"inputs": [tensor([1, 2, 3], [1, 3])]}) for _ in range(8)]
        assert running.wait(60)
        assert get("/health").status == 200
        assert get("/models/tiny/onnx/model.onnx").status == 200
        release.set()
        assert [future.result()[0] for future in waiting] == [200] * 8


def test_a_model_is_loaded_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def counted(*arguments: Any, **options: Any) -> Session:
        loads.append(1)
        return edge_infer.load(*arguments, **options)

    monkeypatch.setattr("edge_infer.server.execution.loaded_model.load", counted)
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}
    with ServerThread(create_app(models)) as server, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(Client(server.url), "/v2/models/tiny/ready") for _ in range(8)]
        assert [future.result().status for future in asked] == [200] * 8
    assert len(loads) == 1


# -- errors --


def test_each_error_has_the_status_of_the_table() -> None:
    expected = {
        errors.InputError: 400,
        errors.ModelNotFound: 404,
        errors.PayloadTooLarge: 413,
        UnsupportedMediaType: 415,
        errors.ExecutionError: 500,
        errors.QueueFull: 503,
        errors.DeadlineExceeded: 504,
        errors.BackendUnavailable: 503,
        errors.IntegrityError: 500,
        errors.FetchError: 502,
    }
    assert {kind: status_of(kind("it failed")) for kind in expected} == expected
    assert all(issubclass(kind, errors.EdgeInferError) for kind in STATUSES)


def test_a_model_that_no_engine_loads_is_a_fault_of_the_server(tmp_path: Path) -> None:
    models = {"broken": write_bundle(tmp_path / "broken", bundle_files(model=b"not a model"))}
    with ServerThread(create_app(models)) as server:
        get = Client(server.url)
        status, document = infer(get, {"inputs": [tensor([1, 2, 3], [1, 3])]}, "broken")
        assert get("/v2/models/broken/ready").status == status == 500
        assert get("/v2/models/broken").status == 200
    assert document["code"] == "unsupported_model"
    assert set(document) == {"error", "code", "hint", "details"}
    assert "Traceback" not in json.dumps(document)


def test_what_nobody_expected_is_an_answer_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: ServedModel, *_: str) -> LoadedModel:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(ServedModel, "loaded", broken)
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}
    with TestClient(create_app(models)) as client:
        response = client.get("/v2/models/tiny/ready")
    assert response.status_code == 500
    assert response.json()["code"] == "internal_error"
    assert "secret detail" not in response.text
    assert response.headers["cross-origin-opener-policy"] == "same-origin"


def test_a_queue_that_is_full_says_when_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: ServedModel, *_: str) -> LoadedModel:
        raise errors.QueueFull("64 requests wait", hint="send fewer")

    monkeypatch.setattr(ServedModel, "loaded", full)
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}
    with TestClient(create_app(models)) as client:
        response = client.get("/v2/models/tiny/ready")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


def test_a_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A declared length is enough; without one, reading stops at the limit."""
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=Limits(max_body_bytes=1000))
    received = 0

    async def post(headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            nonlocal received
            received += 1
            return {"type": "http.request", "body": b" " * 400, "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v2/models/tiny/infer",
            "raw_path": b"/v2/models/tiny/infer",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), *headers],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "asgi": {"version": "3.0"},
        }
        await app(scope, receive, send)
        assert sent[0]["status"] == 413
        document: dict[str, Any] = json.loads(sent[1]["body"])
        return document

    assert asyncio.run(post([(b"content-length", b"1001")]))["details"] == {"expected": 1000, "got": 1001}
    assert received == 0
    assert asyncio.run(post([]))["code"] == "payload_too_large"
    assert received == 3


def test_a_model_other_than_identity_really_runs(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "neg", bundle_files("neg", onnx_model("Neg")))
    with TestClient(create_app({"neg": folder})) as client:
        response = client.post("/v2/models/neg/infer", json={"inputs": [tensor([1, 2, 3], [1, 3])]})
    assert response.json()["outputs"][0]["data"] == [-1, -2, -3]
