"""Much JSON is parsed in another process: the same requests and errors, and no body holds up the server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from contextlib import contextmanager
from threading import Barrier
from typing import TYPE_CHECKING, Any, cast

import numpy
import pytest

from edge_infer.errors import EdgeInferError, PayloadTooLarge
from edge_infer.server.app import Limits, create_app
from edge_infer.server.errors import InternalError
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion.parsers import Parsers
from edge_infer.server.protocol import fast
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.parsing_process import ParsingProcess
from edge_infer.server.protocol.steps import parse_plan
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client
from tests.support.server.streams import answer, framed, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.server.execution.loaded_model import LoadedModel

INFER = "/v2/models/tiny/infer"
EVENTS = "/v2/models/tiny/infer_stream"
SPECS = [TensorSpec("x", DType.FLOAT32, ("batch", 3))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("large") / "tiny", bundle_files())


@pytest.fixture(scope="module")
def process() -> Iterator[ParsingProcess]:
    made = ParsingProcess()
    yield made
    made.close()


@contextmanager
def parsers_of_model(specs: list[TensorSpec]) -> Iterator[tuple[Parsers, LoadedModel]]:
    """Parsers, and what they know of a model."""

    class Model:
        inputs, outputs, max_rows = specs, specs, 0

    parsers = Parsers()
    try:
        yield parsers, cast("LoadedModel", Model())
    finally:
        parsers.close()


def entry(dtype: DType, shape: list[int], data: Any, **more: Any) -> dict[str, Any]:
    return {"name": "x", "shape": shape, "datatype": DATATYPES[dtype], "data": data, **more}


def large(rows: int = 10_000) -> dict[str, Any]:
    return entry(DType.FLOAT32, [rows, 3], [0.5] * rows * 3)


def told(parse: Any, *arguments: Any) -> Any:
    """What comes of a parser, in a form that can be compared."""
    try:
        found = parse(*arguments)
    except EdgeInferError as error:
        return error.to_json()
    tensors = {
        name: (
            type(value).__name__,
            str(value.dtype),
            tuple(value.shape),
            value.reshape(-1).tolist() if isinstance(value, Tensor) else value.tobytes(),
        )
        for name, value in found.inputs.items()
    }
    return found._replace(inputs=tensors)


CASES: dict[str, tuple[DType, dict[str, Any]]] = {
    "floats": (DType.FLOAT32, {"inputs": [entry(DType.FLOAT32, [2, 2], [1, 2.5, "NaN", "-Infinity"])]}),
    "halves": (DType.FLOAT16, {"inputs": [entry(DType.FLOAT16, [2], [1, 0.1])]}),
    "bfloat16": (DType.BFLOAT16, {"inputs": [entry(DType.BFLOAT16, [2], [1, 0.1])]}),
    "integers": (DType.INT64, {"inputs": [entry(DType.INT64, [2, 1], [[2**62], [-1]])], "id": "a"}),
    "4 bits": (DType.INT4, {"inputs": [entry(DType.INT4, [3], [-8, 7, 1])]}),
    "truths": (DType.BOOL, {"inputs": [entry(DType.BOOL, [2], [True, False])]}),
    "texts": (DType.STRING, {"inputs": [entry(DType.STRING, [3], ["a,b", "", "ä\n"])]}),
    "none": (DType.FLOAT32, {"inputs": [entry(DType.FLOAT32, [0, 3], [])]}),
    "binary out": (
        DType.FLOAT32,
        {
            "inputs": [entry(DType.FLOAT32, [1], [1])],
            "parameters": {"binary_data_output": True, "priority": 3, "timeout": 5},
        },
    ),
    "another name": (DType.FLOAT32, {"inputs": [{**entry(DType.FLOAT32, [1], [1]), "name": "y"}]}),
    "another dtype": (DType.FLOAT32, {"inputs": [entry(DType.INT8, [1], [1])]}),
    "too few": (DType.FLOAT32, {"inputs": [entry(DType.FLOAT32, [2], [1])]}),
    "shared memory": (
        DType.FLOAT32,
        {"inputs": [entry(DType.FLOAT32, [1], [1], parameters={"shared_memory_region": "a"})]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_process_reads_what_the_parser_reads(process: ParsingProcess, case: str) -> None:
    dtype, document = CASES[case]
    rank = len(document["inputs"][0]["shape"])
    specs = [TensorSpec("x", dtype, tuple("abc"[:rank]))]
    body = json.dumps(document).encode()
    assert told(process.infer, body, specs, specs, 0, None) == told(Parser(specs, specs).parse, body)


def test_bytes_behind_the_json_and_the_bound_of_rows_go_along(process: ParsingProcess) -> None:
    head = json.dumps({"inputs": [{**entry(DType.FLOAT32, [2, 3], None), "parameters": {"binary_data_size": 24}}]})
    head = head.replace('"data": null, ', "")
    body = head.encode() + numpy.arange(6, dtype="float32").tobytes()
    for most in (0, 1):
        expected = told(Parser(SPECS, SPECS, most).parse, body, len(head))
        assert told(process.infer, body, SPECS, SPECS, most, len(head)) == expected


def test_the_process_reads_steps(process: ParsingProcess) -> None:
    specs = [TensorSpec("x", DType.FLOAT32, (1, 3))]
    body = json.dumps({"inputs": [entry(DType.FLOAT32, [2, 1, 3], [0] * 6)], "parameters": {"sequence": "x"}}).encode()
    mine, expected = process.steps(body, specs, specs, 0), parse_plan(body, specs, specs)
    assert told(lambda: mine.request) == told(lambda: expected.request)
    assert mine[1:] == expected[1:]
    assert told(process.steps, b"{", specs, specs, 0) == told(parse_plan, b"{", specs, specs)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of parsing processes."""
    found: list[str] = []
    for name in ("infer", "steps"):
        original = getattr(ParsingProcess, name)

        def noted(*arguments: Any, _name: str = name, _original: Any = original) -> Any:
            found.append(_name)
            return _original(*arguments)

        monkeypatch.setattr(ParsingProcess, name, noted)
    return found


def test_all_ways_give_much_json_to_a_process(tiny: Path, used: list[str]) -> None:
    body = json.dumps({"inputs": [large()], "parameters": {"steps": 1}}).encode()
    with ServerThread(create_app({"tiny": tiny})) as server:
        send = Client(server.url)
        assert send(INFER, "POST", json.dumps({"inputs": [large()]}).encode()).status == 200
        assert send(EVENTS, "POST", body).status == 200
        with stream(server.url) as connection:
            connection.send(framed(1, {"inputs": [large()]}))
            assert len(answer(connection.recv())[1]["outputs"][0]["data"]) == 30_000
        assert send(INFER, "POST", json.dumps({"inputs": [large(2)]}).encode()).status == 200
    assert used == ["infer", "steps", "infer"]


@pytest.mark.parametrize("item", [b"[]", b"{}", b'{"a":1}', b'"ab"', b"1.5", b"[[[]]]"])
def test_a_bomb_is_never_read_in_the_server(tiny: Path, monkeypatch: pytest.MonkeyPatch, item: bytes) -> None:
    monkeypatch.setattr(fast, "parse_request", None)  # in this process
    bomb = b'{"inputs": [' + item + (b"," + item) * (2**22 // (len(item) + 1)) + b"]}"
    with ServerThread(create_app({"tiny": tiny})) as server:
        send = Client(server.url)
        for body, headers in ((bomb, {}), (gzip.compress(bomb), {"content_encoding": "gzip"})):
            refused = send(INFER, "POST", body, content_type="application/json", **headers)
            assert refused.status in (400, 413)
            assert json.loads(refused.body)["hint"]


def test_more_values_than_fit_are_refused_and_plain_numbers_are_not(process: ParsingProcess) -> None:
    count = fast.MAX_CAREFUL_VALUES + 3
    body = b'{"inputs": [{"name": "x", "shape": [%d], "datatype": "%b", "data": [1%b]}]}'
    for kind in (b"FP32", b"INT8"):
        text = body % (count, kind, b",1" * (count - 1))
        specs = [TensorSpec("x", DType.FLOAT32, ("a",))]
        if kind == b"FP32":
            assert process.infer(text, specs, specs, 0, None).inputs["x"].sum() == count
        else:
            with pytest.raises(PayloadTooLarge, match="not plain lists of numbers") as caught:
                process.infer(text, specs, specs, 0, None)
            assert "datatypes" in caught.value.hint


def test_json_has_a_limit_of_its_own_on_all_ways(tiny: Path) -> None:
    limits = Limits(max_json_bytes=50_000)
    body = json.dumps({"inputs": [large()], "parameters": {"steps": 1}}).encode()
    with ServerThread(create_app({"tiny": tiny}, limits=limits)) as server:
        send = Client(server.url)
        refused = [
            send(INFER, "POST", body),
            send(EVENTS, "POST", body),
            send(INFER, "POST", gzip.compress(body), content_encoding="gzip"),
            send(INFER, "POST", body + bytes(12), inference_header_content_length=str(len(body))),
        ]
        assert [one.status for one in refused] == [413] * 4
        assert "--max-json-mb" in json.loads(refused[3].body)["hint"]
        with stream(server.url) as connection:
            connection.send(framed(1, {"inputs": [large()]}))
            error = answer(connection.recv())[1]
            assert (error["status"], error["code"]) == (413, "payload_too_large")
        rows = numpy.zeros((10_000, 3), "float32").tobytes()
        assert send(INFER, "POST", rows, content_type="application/octet-stream").body == rows


def test_a_process_that_dies_costs_one_request() -> None:
    body = json.dumps({"inputs": [entry(DType.FLOAT32, [1, 3], [1, 2, 3])]}).encode()

    async def parse() -> list[int]:
        with parsers_of_model(SPECS) as (parsers, model):
            await parsers.parse_large(model, body, None)
            (process,) = parsers._idle
            process._process.kill()
            with pytest.raises(InternalError, match="ended"):
                await parsers.parse_large(model, body, None)
            return [len((await parsers.parse_large(model, body, None)).inputs), len(parsers._idle)]

    assert asyncio.run(parse()) == [1, 1]


def test_a_process_that_cannot_be_started_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    async def parse() -> None:
        with parsers_of_model(SPECS) as (parsers, model):
            await parsers.parse_large(model, b"{}", None)

    with pytest.raises(InternalError, match="cannot be started") as caught:
        asyncio.run(parse())
    assert "binary" in caught.value.hint


def test_few_bodies_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    together = Barrier(2)

    def parse(_process: ParsingProcess, body: bytes, *_: Any) -> int:
        running.append(body[0])
        together.wait(30)
        most = len(running)
        together.wait(30)
        running.remove(body[0])
        return most

    monkeypatch.setattr(ParsingProcess, "infer", parse)

    async def parse_all() -> list[Any]:
        with parsers_of_model(SPECS) as (parsers, model):
            return list(await asyncio.gather(*(parsers.parse_large(model, bytes([i]), None) for i in range(6))))

    assert asyncio.run(parse_all()) == [2] * 6


def test_the_process_ends_with_the_server_and_with_who_no_longer_waits(tiny: Path) -> None:
    numbers: list[int] = []
    started = ParsingProcess.__init__

    def noted(process: ParsingProcess) -> None:
        started(process)
        numbers.append(process._process.pid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParsingProcess, "__init__", noted)
        with ServerThread(create_app({"tiny": tiny})) as server:
            Client(server.url)(INFER, "POST", json.dumps({"inputs": [large()]}).encode())

        async def leave() -> None:
            """Leave before the process has started, and in the middle of its work."""
            with parsers_of_model(SPECS) as (parsers, model):
                body = json.dumps({"inputs": [large(100_000)]}).encode()
                for wait_s in (0.0, 0.05):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await parsers.parse_large(model, body, None)

        asyncio.run(leave())
    assert numbers
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
