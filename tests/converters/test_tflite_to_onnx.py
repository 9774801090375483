"""`convert model.tflite --format onnx`: each rule gives what LiteRT gives; what has none is refused by name."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import flatbuffers
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer import Bundle
from edge_infer.errors import EdgeInferError, UnsupportedOperator
from edge_infer.parity import comparison
from edge_infer_converters import convert
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.from_tflite import to_onnx
from tests.support.converters.engines import random_feeds, run_onnx, run_tflite
from tests.support.converters.tflite_cases import CASES, Case
from tests.support.converters.tflite_quantized import feeds_of, graph_of, image_net

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if i % 8 == 0 else [pytest.mark.long]) for i, name in enumerate(CASES)]
)
def test_a_rule_gives_what_litert_gives(name: str) -> None:
    case: Case = CASES[name]
    data = tflite.write(onnx.load_from_string(case.model())).data
    feeds = random_feeds(case.model())

    written = to_onnx(data, name)

    onnx.checker.check_model(written)
    wanted, got = run_tflite(data, feeds), run_onnx(written.SerializeToString(), feeds)
    assert wanted["y"].shape == got["y"].shape
    assert comparison.judge(comparison.compare([wanted], [got]), "fp32") == ("ok", "")


@pytest.mark.parametrize("word", ["fp16", "int8", "int8-dynamic", "int8x16"])
def test_weights_and_integers_stay_as_small_as_they_are(word: str) -> None:
    calls = feeds_of(image_net())
    data = graph_of(image_net()).write(word, calls).data

    written = to_onnx(data, "net").SerializeToString()

    got = [run_onnx(written, call, optimize=True) for call in calls]
    figures = comparison.compare([run_tflite(data, call) for call in calls], got)
    assert figures.sqnr_db >= (60 if word == "fp16" else 30)
    assert len(written) < 1.1 * len(data)


def test_an_image_is_transposed_once() -> None:
    written = to_onnx(graph_of(image_net()).write().data, "net")

    assert [node.op_type for node in written.graph.node].count("Transpose") <= 1


def test_one_file_becomes_a_bundle_of_both_formats(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(graph_of(image_net()).write("int8", feeds_of(image_net())).data)

    convert(tmp_path / "net.tflite", tmp_path / "net.bundle", format="both")

    variants = Bundle.open(tmp_path / "net.bundle").manifest.variants
    assert [variant.id for variant in variants] == ["onnx/int8", "tflite/int8"]
    for variant in variants:
        edge_infer.load(tmp_path / "net.bundle", variant=variant.id, self_test=True).close()


def test_a_page_gets_onnx_of_a_tflite_file(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(graph_of(image_net()).write().data)

    convert(tmp_path / "net.tflite", tmp_path / "net.bundle", target="web", precision="fp32")

    ids = [variant.id for variant in Bundle.open(tmp_path / "net.bundle").manifest.variants]
    assert ids[0] == "onnx/fp32"
    assert "tflite/fp32" not in ids


def with_custom_operators(data: bytes) -> bytes:
    """Make the operators of one kind in the middle, and those of another, ones that only their maker knows."""
    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data))
    for code in model.operatorCodes:
        if code.builtinCode in (schema.BuiltinOperator.MAX_POOL_2D, schema.BuiltinOperator.MEAN):
            code.customCode = b"Own" + str(code.builtinCode).encode()
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_all_operators_without_a_rule_are_named_at_once(tmp_path: Path) -> None:
    data = with_custom_operators(graph_of(image_net()).write().data)

    with pytest.raises(UnsupportedOperator, match=r"2 operators .*CUSTOM Own17.*CUSTOM Own40") as caught:
        to_onnx(data, "net.tflite")

    assert caught.value.hint.startswith("leave --format out")
    (tmp_path / "net.tflite").write_bytes(data)
    with pytest.raises(UnsupportedOperator, match="CUSTOM Own17"):
        convert(tmp_path / "net.tflite", tmp_path / "net.bundle", format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["net.tflite"]


WHOLE = graph_of(image_net()).write("int8", feeds_of(image_net(), 2)).data


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4), st.integers(0, len(WHOLE)))
def test_a_damaged_file_gives_a_model_or_an_error_of_ours(changes: list[tuple[int, int]], length: int) -> None:
    damaged = bytearray(WHOLE if changes else WHOLE[:length])
    for place, value in changes:
        damaged[-place % len(damaged)] = value
    with suppress(EdgeInferError):
        to_onnx(bytes(damaged), "net.tflite").SerializeToString()
