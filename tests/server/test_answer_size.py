"""What an answer may have: bytes of tensors, before the model runs where its shapes tell, and bytes of JSON."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from onnx import TensorProto, helper

from edge_infer.errors import PayloadTooLarge
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution.answer_size import AnswerSize
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.response.writing import flat, octets, write_answer
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import OCTETS, Client, row
from tests.support.server.streams import answer, framed, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server.gate import Gate

INFER = "/v2/models/tiny/infer"


def spec(name: str, *shape: Any, dtype: DType = DType.FLOAT32) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


@pytest.mark.parametrize(
    ("outputs", "wanted", "expected", "is_known"),
    [
        ([spec("y", "n", 10)], None, 5 * 10 * 4, True),
        ([spec("y", "n", 10), spec("z", "n", 2, dtype=DType.INT64)], None, 5 * (40 + 16), True),
        ([spec("y", "n", 10), spec("z", "n", 2, dtype=DType.INT64)], ["z"], 5 * 16, True),
        ([spec("y", "n", "m", 3)], None, 5 * 7 * 12, True),
        ([spec("y", 4)], None, 16, True),
        ([spec("y")], None, 4, True),
        ([spec("y", "n", "n", dtype=DType.INT4)], None, 12, True),
        ([spec("y", "n", "k")], None, 0, False),
        ([spec("y", "n", "k"), spec("z", 2)], None, 8, False),
        ([spec("y", "n", dtype=DType.STRING)], None, 0, False),
    ],
)
def test_sizes_are_told_by_shapes(
    outputs: list[TensorSpec], wanted: list[str] | None, expected: int, is_known: bool
) -> None:
    size = AnswerSize([spec("a", "n", 3), spec("b", "n", "m")], outputs, 0)
    inputs = {"a": numpy.zeros((5, 3)), "b": numpy.zeros((5, 7))}
    assert (size.before(inputs, wanted), size.is_known) == (expected, is_known)


def test_too_much_is_refused_before_and_after() -> None:
    size = AnswerSize([spec("a", "n")], [spec("y", "n", 10)], 80)
    assert size.before({"a": numpy.zeros(2)}, None) == 80
    with pytest.raises(PayloadTooLarge, match="has 120 bytes, the server gives 80"):
        size.before({"a": numpy.zeros(3)}, None)
    size = AnswerSize([spec("a", "n")], [spec("y", "k")], 80)
    assert size.after({"y": numpy.zeros(20, "float32")}) == 80
    with pytest.raises(PayloadTooLarge, match="--max-answer-mb"):
        size.after({"y": numpy.zeros(21, "float32")})


@pytest.fixture(scope="module", params=[True, False], ids=["known", "unknown"])
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answer has a thousand times the bytes of its input, and says so or not."""
    shape: list[Any] = ["batch", 3000] if request.param else ["batch", "k"]
    nodes = [helper.make_node("Tile", ["x", "repeats"], ["y"])]
    repeats = helper.make_tensor("repeats", TensorProto.INT64, [2], [1, 1000])
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [repeats],
    )
    path = tmp_path_factory.mktemp("wide") / "wide.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def server(wide: Path) -> Iterator[ServerThread]:
    limits = Limits(batch=BatchLimits(max_answer_bytes=100_000))
    with ServerThread(create_app({"tiny": wide}, limits=limits)) as running:
        yield running


def test_an_answer_that_is_too_large_is_refused_on_all_ways(server: ServerThread) -> None:
    send = Client(server.url)
    entry = {"name": "x", "shape": [9, 3], "datatype": "FP32", "data": [0] * 27}
    assert len(send(INFER, "POST", row(1.0, 8), content_type=OCTETS).body) == 96_000
    for path in (INFER, INFER + "?a=b"):
        refused = send(path, "POST", row(1.0, 9), content_type=OCTETS)
        document = json.loads(refused.body)
        assert (refused.status, document["details"]["got"]) == (413, 108_000)
        assert "--max-answer-mb" in document["hint"]
    with stream(server.url) as connection:
        connection.send(framed(1, {"inputs": [entry]}))
        assert answer(connection.recv())[1]["code"] == "payload_too_large"
    body = json.dumps({"inputs": [entry], "parameters": {"steps": 1}}).encode()
    assert b"payload_too_large" in send("/v2/models/tiny/infer_stream", "POST", body).body
    assert send(INFER, "POST", row(1.0, 1), content_type=OCTETS).status == 200


def test_another_server_gets_bytes_of_a_large_answer(tmp_path: Path) -> None:
    """The application on an ASGI server that is not ours."""
    app = create_app(
        {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=Limits(batch=BatchLimits(max_rows=0))
    )
    body, sent = row(1.0, 100_000), list[Any]()
    headers = [(b"host", b"x"), (b"content-type", OCTETS.encode()), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": INFER, "raw_path": INFER.encode(), "query_string": b""}
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return left.pop() if left else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        async with app.lifespan():
            await app({**scope, "headers": headers, "client": None, "server": None, "scheme": "http"}, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 200
    assert isinstance(sent[1]["body"], bytes)
    assert sent[1]["body"] == body


def test_its_json_is_bounded_too(server: ServerThread) -> None:
    data = [0.123456789] * 24
    entry = {"name": "x", "shape": [8, 3], "datatype": "FP32", "data": data}
    refused = Client(server.url)(INFER, "POST", json.dumps({"inputs": [entry]}).encode())
    assert refused.status == 413
    assert "binary_data_output" in json.loads(refused.body)["hint"]


def test_answers_count_from_the_queue_on_until_they_are_sent(tmp_path: Path, gate: Gate) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    memory = app.direct.context.memory
    with ServerThread(app) as server, stream(server.url) as connection:
        Client(server.url)("/v2/models/tiny/ready")
        connection.send(raw(1, 2.0))
        assert gate.entered.wait(60)
        assert memory.taken == 24  # what came, and what will be sent
        gate.open.set()
        assert answer(connection.recv()) == (1, None, row(2.0))
        wait_until(lambda: not memory.taken)


def test_the_bytes_of_a_large_array_are_not_copied_unless_they_are_a_part_of_a_larger_one() -> None:
    whole = numpy.arange(300_000, dtype="float32").reshape(100, 3000)
    for value, is_shared in ((whole, True), (whole[1:], False), (whole.T, False), (whole.T.copy(), True)):
        data = octets(value)
        assert bytes(data) == value.tobytes()
        assert len(data) == value.nbytes
        assert (isinstance(data, memoryview) and numpy.shares_memory(data, value)) is is_shared


@pytest.mark.parametrize(
    "value",
    [
        numpy.arange(20_000, dtype="float32") / 7,
        numpy.array([numpy.nan, numpy.inf, 1.0] * 5000, "float32"),
        numpy.arange(30_000).reshape(10, 3000),
        numpy.arange(20_000, dtype="float32").reshape(2, 10_000)[:, ::2],
        numpy.array(["a,b", "]"] * 5000, object),
        Tensor(["a", "ä"] * 5000, DType.STRING, (10_000,)),
        Tensor(bytes(40_000), DType.BFLOAT16, (20_000,)),
    ],
    ids=["floats", "not finite", "integers", "strided", "texts", "tensor of texts", "bfloat16"],
)
def test_long_lists_are_written_in_pieces_as_in_one(value: Any) -> None:
    class Request:
        id, outputs, binary = None, ["y"], frozenset[str]()

    dtype = (
        value.dtype if isinstance(value, Tensor) else DType.STRING if value.dtype == object else DType(str(value.dtype))
    )
    (body,), _ = write_answer("m", "1", Request(), {"y": value}, [TensorSpec("y", dtype, ("a",))])  # type: ignore[arg-type]
    assert json.loads(bytes(body))["outputs"][0]["data"] == json.loads(json.dumps(flat(value)))
