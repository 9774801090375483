"""Bodies beyond plain JSON: binary tensors, raw octets, compression, and what is refused of them."""

from __future__ import annotations

import gzip
import json
import math
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError, InputError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.protocol import fast
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.requests import parse_request
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Answer, Client

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW = struct.pack("<3f", 1, 2.5, -3)
LIMIT = 100_000


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("wire")
    models = {
        "tiny": write_bundle(root / "tiny", bundle_files()),
        "text": write_bundle(root / "text", bundle_files("text", dtype=DType.STRING, shape=("n",))),
        "truth": write_bundle(root / "truth", bundle_files("truth", dtype=DType.BOOL, shape=("n",))),
    }
    with ServerThread(create_app(models, limits=Limits(max_body_bytes=LIMIT))) as server:
        yield Client(server.url)


def binary(
    send: Client, entry: dict[str, Any], tail: bytes, name: str = "tiny", more: dict[str, Any] | None = None
) -> Answer:
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", **entry}
    head = json.dumps({"inputs": [entry], **(more or {})}).encode()
    length = str(len(head))
    return send(f"/v2/models/{name}/infer", "POST", head + tail, inference_header_content_length=length)


def test_a_binary_tensor_comes_back_as_json_or_binary(send: Client) -> None:
    entry = {"parameters": {"binary_data_size": 12}}
    answer = binary(send, entry, ROW)
    assert answer.status == 200
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2.5, -3]
    assert answer.headers["content-type"] == "application/json"

    answer = binary(send, entry, ROW, more={"parameters": {"binary_data_output": True}})
    length = int(answer.headers["inference-header-content-length"])
    assert answer.headers["content-type"] == "application/octet-stream"
    assert json.loads(answer.body[:length])["outputs"][0]["parameters"] == {"binary_data_size": 12}
    assert answer.body[length:] == ROW


@pytest.mark.parametrize(
    ("entry", "tail", "message"),
    [
        ({"parameters": {"binary_data_size": 13}}, ROW, "13, 12 bytes are left"),
        ({"parameters": {"binary_data_size": 8}}, ROW[:8], "has 8 bytes, shape [1, 3] of FP32 takes 12"),
        ({"parameters": {"binary_data_size": 12}}, ROW + b"x", "1 bytes behind the last tensor"),
        ({"parameters": {"binary_data_size": -1}}, ROW, "expected a whole number"),
        ({"parameters": {"binary_data_size": 2**70}}, ROW, "bytes are left"),
        ({"parameters": {"binary_data_size": True}}, ROW, "expected a whole number"),
        ({"parameters": {"binary_data_size": "12"}}, ROW, "expected a whole number"),
        ({"parameters": {"binary_data_size": 12}, "data": [1, 2, 3]}, ROW, "both `data` and"),
        ({"data": [1, 2, 3]}, ROW, "12 bytes behind the last tensor"),
    ],
)
def test_lengths_that_lie(send: Client, entry: dict[str, Any], tail: bytes, message: str) -> None:
    answer = binary(send, entry, tail)
    assert answer.status == 400, answer.body
    document = json.loads(answer.body)
    assert message in document["error"]
    assert document["hint"]


def test_a_header_length_that_lies(send: Client) -> None:
    for length, status in (("99999", 400), ("5", 400), ("x", 400), ("9" * 50, 400), ("-1", 400)):
        answer = send("/v2/models/tiny/infer", "POST", b"{}" + ROW, inference_header_content_length=length)
        assert answer.status == status
    body = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]}
    )
    answer = send("/v2/models/tiny/infer", "POST", body.encode())
    assert (answer.status, "header `Inference-Header" in json.loads(answer.body)["error"]) == (400, True)


def test_texts_and_truth_values(send: Client) -> None:
    texts = struct.pack("<I", 2) + "ü".encode() + struct.pack("<I", 0)
    entry = {"shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(texts)}}
    answer = binary(send, entry, texts, "text", {"parameters": {"binary_data_output": True}})
    assert answer.body.endswith(texts)
    assert binary(send, {**entry, "shape": [3]}, texts, "text").status == 400
    broken = texts[:-1]
    entry["parameters"] = {"binary_data_size": len(broken)}
    assert binary(send, entry, broken, "text").status == 400
    entry = {"shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}}
    assert json.loads(binary(send, entry, b"\1\0", "truth").body)["outputs"][0]["data"] == [True, False]
    assert binary(send, entry, b"\1\2", "truth").status == 400


def test_raw_octets_in_and_out(send: Client) -> None:
    octets = "application/octet-stream"
    answer = send("/v2/models/tiny/infer", "POST", ROW * 2, content_type=octets)
    assert (answer.status, answer.body) == (200, ROW * 2)
    assert (answer.headers["tensor-shape"], answer.headers["tensor-datatype"]) == ("2,3", "FP32")
    answer = send("/v2/models/tiny/infer", "POST", ROW[:-1], content_type=octets)
    assert answer.status == 400
    assert "11 bytes" in json.loads(answer.body)["error"]
    answer = send("/v2/models/tiny/infer", "POST", ROW, inference_header_content_length="0")
    assert answer.body.endswith(ROW)
    assert json.loads(answer.body[: int(answer.headers["inference-header-content-length"])])["model_name"] == "tiny"


def deflate_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", deflate_raw),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("identity", bytes),
    ],
)
def test_compressed_bodies(send: Client, encoding: str, pack: Any) -> None:
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()
    packed = pack(body)
    answer = send("/v2/models/tiny/infer", "POST", packed, content_encoding=encoding)
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2, 3]
    if encoding != "identity":
        assert send("/v2/models/tiny/infer", "POST", packed[:-3], content_encoding=encoding).status == 400
        assert send("/v2/models/tiny/infer", "POST", b"nonsense", content_encoding=encoding).status == 400
        bomb = pack(b" " * (LIMIT + 1))
        assert len(bomb) < 1000
        assert send("/v2/models/tiny/infer", "POST", bomb, content_encoding=encoding).status == 413


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"x_priority": "256"}, "`X-Priority` is `256`, expected a whole number up to 255"),
        ({"x_priority": "high"}, "`X-Priority` is `high`"),
        ({"x_timeout_ms": "-5"}, "`X-Timeout-Ms` is `-5`"),
        ({"x_timeout_ms": "9" * 20}, "`X-Timeout-Ms`"),
    ],
)
def test_headers_that_are_no_numbers(send: Client, headers: dict[str, str], message: str) -> None:
    answer = send("/v2/models/tiny/infer", "POST", ROW, content_type="application/octet-stream", **headers)
    assert answer.status == 400
    assert message in json.loads(answer.body)["error"]


INPUTS = [TensorSpec("x", DType.FLOAT32, ("batch", 3)), TensorSpec("n", DType.INT8, ())]
OUTPUTS = [TensorSpec("y", DType.FLOAT32, ("batch", 3)), TensorSpec("z", DType.INT64, (1,))]
SCALARS = st.none() | st.booleans() | st.integers(-300, 300) | st.floats() | st.sampled_from(["NaN", "y", 1e39, 2**70])
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "binary_data_size": st.integers(-1, 14) | SCALARS,
        "binary_data": SCALARS,
        "binary_data_output": SCALARS,
        "priority": SCALARS,
        "timeout": SCALARS,
    },
)
ENTRIES = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "n"]), "shape": st.sampled_from([[1, 3], [], [0, 3], [2, 3], [-1, 3]])},
    optional={
        "datatype": st.sampled_from(["FP32", "INT8"]),
        "data": st.lists(SCALARS, max_size=6) | st.just([1, 2, 3]) | st.just([[1, 2, 3]]),
        "parameters": PARAMETERS,
    },
)
X = st.fixed_dictionaries(
    {"name": st.just("x"), "shape": st.just([1, 3]), "datatype": st.just("FP32")},
    optional={"data": st.lists(SCALARS, min_size=3, max_size=3), "parameters": PARAMETERS},
)
N = st.fixed_dictionaries(
    {"name": st.just("n"), "shape": st.just([]), "datatype": st.just("INT8"), "data": st.lists(SCALARS, max_size=2)},
)
DOCUMENTS = st.fixed_dictionaries(
    {"inputs": st.tuples(X, N).map(list) | st.lists(ENTRIES, max_size=3)},
    optional={
        "id": st.sampled_from(["a", "\ud800", 7]),
        "parameters": PARAMETERS,
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["y", "z"])}, optional={"parameters": PARAMETERS}),
            max_size=3,
        ),
    },
)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        asked = function(*arguments)
    except EdgeInferError as error:
        return error.message
    tensors = {name: value if isinstance(value, Tensor) else to_tensor(value) for name, value in asked.inputs.items()}
    return asked._replace(inputs={name: (t.dtype, t.shape, bytes(t.data())) for name, t in sorted(tensors.items())})


@settings(max_examples=400, deadline=None)
@given(DOCUMENTS, st.binary(max_size=14) | st.just(ROW), st.booleans())
def test_the_fast_parser_reads_the_same_language(document: Any, tail: bytes, has_tail: bool) -> None:
    """Whatever the fast parser accepts, the careful one accepts, with the same result."""
    head = json.dumps(document).encode()
    body, length = (head + tail, len(head)) if has_tail else (head, None)
    fast = outcome(Parser(INPUTS, OUTPUTS).parse, body, length)
    assert fast == outcome(parse_request, body, INPUTS, OUTPUTS, length)


FREE = [TensorSpec("x", DType.FLOAT32, ("batch", "width")), TensorSpec("n", DType.INT8, ())]
WRONG_OR_NOT: list[Any] = [None, True, False, -1, 0, 1, 12, 13, 255, 256, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70]
WRONG_OR_NOT += [1.0, 1e400, -0.0, "", "NaN", "a", [], {}, [1, 3], [3, 1], [1.0, 3], [0, 3], [0, 0], [0, 2**60]]
WRONG_OR_NOT += [[0, 2**62], [2**62, 0], [0, 2**64], [2**32, 2**32], [1, 2, 3], [-0.0, -0, 1e39], {"unknown": 1}]
PLACES: list[tuple[Any, ...]] = [
    *[(name,) for name in ("id", "inputs", "outputs", "parameters", "model_name", "unknown")],
    *[("parameters", name) for name in ("timeout", "priority", "binary_data_output", "sequence_id", "unknown")],
    *[("inputs", 0, name) for name in ("name", "shape", "datatype", "data", "parameters", "unknown")],
    *[("inputs", 0, "parameters", name) for name in ("binary_data_size", "shared_memory_region", "unknown")],
    *[("outputs", 0, name) for name in ("name", "parameters", "unknown")],
    *[("outputs", 0, "parameters", name) for name in ("binary_data", "classification", "unknown")],
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("prefers_binary", [False, True])
def test_both_parsers_agree_on_a_request_with_one_other_value(
    place: tuple[Any, ...], is_binary: bool, prefers_binary: bool
) -> None:
    for value in WRONG_OR_NOT:
        x = {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {}}
        x |= {"parameters": {"binary_data_size": 12}} if is_binary else {"data": [1, 2, 3]}
        document = {
            "inputs": [x, {"name": "n", "shape": [], "datatype": "INT8", "data": [7]}],
            "outputs": [{"name": "y", "parameters": {}}],
            "parameters": {"binary_data_output": True} if prefers_binary else {},
        }
        holder: Any = document
        for step in place[:-1]:
            holder = holder[step]
        holder[place[-1]] = value
        for tail in (ROW, b""):
            head = json.dumps(document).replace("Infinity", "1e400").encode()
            body, length = (head + tail, len(head)) if is_binary else (head, None)
            fast = outcome(Parser(FREE, OUTPUTS).parse, body, length)
            assert fast == outcome(parse_request, body, FREE, OUTPUTS, length), (value, tail)


@pytest.mark.parametrize("shape", [[0, 2**62], [2**62, 0], [0, 2**61], [0, 2**63 - 1]])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8, DType.STRING, DType.INT4])
@pytest.mark.parametrize("is_binary", [False, True])
def test_an_empty_tensor_of_dimensions_that_no_array_has_is_refused(
    shape: list[int], dtype: DType, is_binary: bool
) -> None:
    specs = [TensorSpec("x", dtype, ("batch", "width"))]
    entry: dict[str, Any] = {"name": "x", "shape": shape, "datatype": DATATYPES[dtype]}
    data: dict[str, Any] = {"parameters": {"binary_data_size": 0}} if is_binary else {"data": []}
    entry |= data
    body = json.dumps({"inputs": [entry]}).encode()
    for parse in (Parser(specs, OUTPUTS).parse, lambda *one: parse_request(one[0], specs, OUTPUTS, one[1])):
        with pytest.raises(InputError, match=r"Input `x` has shape .*, whose dimensions are too large together"):
            parse(body, len(body) if is_binary else None)


def test_a_large_tensor_is_parsed_off_the_event_loop_and_is_right(tmp_path: Any) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    values = numpy.random.default_rng(1).standard_normal((20_000, 3)).astype("float32")
    document = {"inputs": [{"name": "x", "shape": [20_000, 3], "datatype": "FP32", "data": values.ravel().tolist()}]}
    limits = Limits(batch=BatchLimits(max_rows=0))
    with ServerThread(create_app({"tiny": folder}, limits=limits)) as server:
        answer = Client(server.url)("/v2/models/tiny/infer", "POST", json.dumps(document).encode())
    assert json.loads(answer.body)["outputs"][0]["data"] == values.ravel().tolist()


NUMBERS = st.integers(-300, 300) | st.floats(allow_nan=False) | st.sampled_from([2**63, 2**64, 1e39, True, "NaN", []])
SPACES = {"none": {"separators": (",", ":")}, "some": {}, "many": {"indent": 3}}


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([DType.FLOAT32, DType.FLOAT64, DType.INT8, DType.UINT64, DType.BOOL]),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(-100, 100) | st.floats(-9, 9, width=16), min_size=64, max_size=64),
    st.none() | st.tuples(st.integers(0, 63), NUMBERS),
    st.sampled_from(["flat", "nested", "ragged", "long", "short"]),
    st.sampled_from(list(SPACES)),
    st.integers(4, 40),
)
def test_a_long_list_is_read_in_pieces_as_it_is_at_once(
    dtype: DType, shape: list[int], numbers: list[Any], other: Any, form: str, spaces: str, piece: int
) -> None:
    if dtype in (DType.INT8, DType.UINT64):
        numbers = [int(abs(number)) for number in numbers]
    if other is not None:
        numbers[other[0]] = other[1]
    count = math.prod(shape)
    data: list[Any] = numbers[: count + {"long": 1, "short": -1}.get(form, 0)]
    if form in ("nested", "ragged"):
        for dim in shape[:0:-1]:
            data = [data[i : i + dim] for i in range(0, len(data), dim)]
        if form == "ragged":
            data[-1] = [data[-1]]
    entry = {"name": "x", "shape": shape, "datatype": DATATYPES[dtype], "data": data}
    body = json.dumps({"inputs": [entry]}, **SPACES[spaces]).encode()  # type: ignore[arg-type]
    specs = [TensorSpec("x", dtype, tuple("abc"[: len(shape)]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "LARGE_BYTES", 4)
        patch.setattr(fast, "_PIECE", piece)
        found = outcome(Parser(specs, OUTPUTS).parse, body)
    assert found == outcome(parse_request, body, specs, OUTPUTS)


@pytest.mark.parametrize("shape", [[60_000], [1, 60_000], [200, 300]])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT64])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_long_list_takes_little_memory_and_not_the_careful_parser(
    shape: list[int], dtype: DType, is_nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "parse_request", None)
    values = numpy.arange(60_000, dtype=dtype) * 3
    data = (values.reshape(shape) if is_nested else values).tolist()
    entry = {"name": "x", "shape": shape, "datatype": DATATYPES[dtype], "data": data}
    body = json.dumps({"inputs": [entry]}).encode()
    parser = Parser([TensorSpec("x", dtype, tuple("ab"[: len(shape)]))], OUTPUTS)
    tracemalloc.start()
    try:
        asked = parser.parse(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert numpy.array_equal(asked.inputs["x"], values.reshape(shape))
    assert peak < 60_000 * 40  # of objects alone there would be more


def test_too_many_rows_are_refused_before_their_data_is_read() -> None:
    body = json.dumps({"inputs": [{"name": "x", "shape": [5, 3], "datatype": "FP32", "data": ["no number"]}]}).encode()
    with pytest.raises(InputError, match="has 5 rows, the server takes 4"):
        Parser([TensorSpec("x", DType.FLOAT32, ("batch", 3))], OUTPUTS, 4).parse(body)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_large_answer_is_compressed_for_who_reads_that(send: Client, encoding: str) -> None:
    row = {"name": "x", "shape": [4000, 3], "datatype": "FP32", "data": [0.5] * 12_000}
    body = json.dumps({"inputs": [row]}).encode()
    plain = send("/v2/models/tiny/infer", "POST", body)
    packed = send("/v2/models/tiny/infer", "POST", body, accept_encoding=f"br, {encoding}")
    assert "content-encoding" not in plain.headers
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == (encoding, "Accept-Encoding")
    assert len(packed.body) < len(plain.body) / 10
    unpacked = gzip.decompress(packed.body) if encoding == "gzip" else zstandard.decompress(packed.body)
    assert unpacked == plain.body
    assert "content-encoding" not in send("/v2/models/tiny/infer", "POST", body, accept_encoding="identity").headers


def test_what_does_not_shrink_or_is_small_is_sent_as_it_is(send: Client) -> None:
    noise = numpy.random.default_rng(7).bytes(24_000)
    answer = send(
        "/v2/models/tiny/infer", "POST", noise, content_type="application/octet-stream", accept_encoding="gzip"
    )
    assert answer.body == noise
    assert "content-encoding" not in answer.headers
    small = send("/v2/models/tiny/infer", "POST", ROW, content_type="application/octet-stream", accept_encoding="gzip")
    assert small.body == ROW
