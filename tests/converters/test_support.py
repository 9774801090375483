"""Operators that something lacks are named all at once, before any work."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.errors import UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.sources import onnx as source
from edge_infer_converters.support import native_lacks, page_lacks
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def with_domains(nodes: list[onnx.NodeProto], *domains: str) -> bytes:
    graph = helper.make_graph(nodes, "zoo", [zoo.value("x", [1])], [zoo.value("y", [1])])
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def three_unknown() -> bytes:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="example.org"),
        helper.make_node("Frobnicate", ["a"], ["b"], name="second", domain="example.org"),
        helper.make_node("Frobnicate", ["b"], ["c"], name="third", domain="example.org"),
        helper.make_node("Frobnicate", ["c"], ["d"], name="fourth", domain="example.org"),
        helper.make_node("Twist", ["d"], ["e"], name="twist", domain="com.example"),
        helper.make_node("Relu", ["e"], ["f"], name="fine"),
        helper.make_node("Swizzle", ["f"], ["y"], name="swizzle"),
    ]
    return with_domains(nodes, "example.org", "com.example")


def pool_and_determinant() -> bytes:
    """Two operators that TFLite has no rule for, and that ONNX Runtime runs."""
    nodes = [
        helper.make_node("LpPool", ["x"], ["s"], name="pool", kernel_shape=[1, 1]),
        helper.make_node("Det", ["s"], ["y"], name="determinant"),
    ]
    return zoo.model(nodes, [zoo.value("x", [1, 1, 4, 4])], [zoo.value("y", [1, 1])])


def test_all_operators_that_the_engine_lacks_are_named_at_once(write_model: WriteModel) -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        source.load(write_model(three_unknown()))

    assert caught.value.operators == ["example.org.Frobnicate", "com.example.Twist", "Swizzle"]
    assert caught.value.nodes["example.org.Frobnicate"] == ["first", "second", "third", "fourth"]
    assert (
        "`example.org.Frobnicate` (4 nodes: `first`, `second`, `third` …; not in onnxruntime)" in caught.value.message
    )
    assert "\n" not in caught.value.message


def test_an_operator_inside_a_branch_is_found() -> None:
    inner = helper.make_graph(
        [helper.make_node("Swizzle", ["x"], ["z"], name="deep")], "then", [], [zoo.value("z", [1])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    data = zoo.model([node], [zoo.value("x", [1]), zoo.value("c", [], "bool")], [zoo.value("y", [1])])

    (lack,) = native_lacks(onnx.load_from_string(data))

    assert (lack.operator, lack.nodes) == ("Swizzle", ("deep", "deep"))


@pytest.mark.parametrize(
    ("operator", "domain", "opset", "advice"),
    [
        ("Gelu", "", 17, "it is newer than operator set 17: export with 20 or a newer one"),
        ("Adam", "ai.onnx.preview.training", 17, "export the model for inference"),
        ("Frobnicate", "example.org", 17, "write it with ONNX's own operators"),
    ],
)
def test_the_advice_fits_the_operator(operator: str, domain: str, opset: int, advice: str) -> None:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "zoo", [zoo.value("x", [1])], [zoo.value("y", [1])])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]

    (lack,) = native_lacks(helper.make_model(graph, opset_imports=opsets))

    assert lack.advice.startswith(advice)


def test_what_the_engine_runs_is_not_named(write_model: WriteModel) -> None:
    """Operators with kernels, those that ONNX defines by others, and functions of the model itself."""
    body = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="mine"),
        helper.make_node("HardSwish", ["t"], ["h"]),
        helper.make_node("Gelu", ["h"], ["y"], domain="com.microsoft"),
    ]
    proto = onnx.load_from_string(with_domains(nodes, "mine", "com.microsoft"))
    proto.functions.append(body)

    assert native_lacks(proto) == []
    assert source.load(write_model(proto.SerializeToString())).outputs[0].name == "y"


def test_a_format_that_lacks_operators_is_left_out_before_any_work(write_model: WriteModel, tmp_path: Path) -> None:
    from tests.support.converters.reporter import Told

    told = Told()

    result = convert(write_model(pool_and_determinant()), tmp_path / "m.bundle", reporter=told)

    assert list(result.not_made) == [
        *("tflite/fp32", "tflite/fp16", "tflite/int8", "compiled/fp32", "compiled/int8", "onnx/fp16", "onnx/int8")
    ]
    assert told.steps[1].split()[:2] == ["Pipeline", "none"]
    rows = [line.split() for line in (told.steps[0], *told.steps[2:])]
    assert rows[1] == ["OPERATOR", "NODES", "FIRST", "NOT", "IN", "WHAT", "TO", "DO"]
    assert [row[:4] for row in rows[2:4]] == [
        ["Det", "1", "determinant", "tflite"],
        ["LpPool", "1", "pool", "tflite"],
    ]
    assert told.steps[5].startswith("Converted")


@pytest.mark.parametrize("options", [{"format": "tflite"}, {"target": "pi", "format": "tflite"}])
def test_a_target_that_would_get_nothing_is_an_error_before_any_work(
    write_model: WriteModel, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedOperator, match="2 operators are not supported") as caught:
        convert(write_model(pool_and_determinant()), tmp_path / "m.bundle", **options)

    assert caught.value.operators == ["Det", "LpPool"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_the_page_lacks_what_was_measured(write_model: WriteModel, tmp_path: Path) -> None:
    node = helper.make_node("Where", ["c", "x", "x"], ["y"], name="choose")
    flags = {"c": np.array([True])}
    lacking = zoo.model([node], [zoo.value("x", [1], "int8")], [zoo.value("y", [1], "int8")], flags)
    fine = zoo.model([node], [zoo.value("x", [1])], [zoo.value("y", [1])], flags)

    assert page_lacks(onnx.load_from_string(fine)) == []
    with pytest.raises(UnsupportedOperator, match="not supported for `web`: `Where of int8`"):
        convert(write_model(lacking), tmp_path / "m.bundle", target="web")


def test_the_command_prints_the_table(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(three_unknown())
    command = [sys.executable, "-m", "edge_infer", "convert", "model.onnx", "-o", "m.bundle"]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.split()[0] for line in lines[:4]] == [
        "OPERATOR",
        "example.org.Frobnicate",
        "com.example.Twist",
        "Swizzle",
    ]
    assert lines[4].startswith("error: 3 operators are not supported")
