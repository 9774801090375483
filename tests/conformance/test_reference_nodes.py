"""Every node test of ONNX on the reference engine, those of types that numpy and edge-infer's tensors lack too."""

from __future__ import annotations

import contextlib
import os
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import edge_infer
from edge_infer.backends.reference.elements import SMALL, decode, encode
from edge_infer.backends.reference.evaluator import Context, Program
from edge_infer.backends.reference.operators.elementwise import error_function
from edge_infer.formats.onnx_model import read_model
from tests.support import zoo
from tests.support.conformance import node_cases
from tests.support.conformance.node_values import difference

if TYPE_CHECKING:
    from tests.support.conformance.node_cases import NodeCase
    from tests.support.model_files import WriteModel

EXCUSED = {
    name: group["reason"]
    for group in tomllib.loads(Path(__file__).with_name("excused_reference_nodes.toml").read_text("utf-8"))["excuse"]
    for name in group["cases"]
}


#: Where `make pi` has written the tests that are numbers all through.
WRITTEN = Path("/tree/node_cases.npz") if "PI_MACHINE" in os.environ else None


def result(case: NodeCase) -> str:
    model = read_model(case.model)
    program = Program.of_graph(model.graph, model.opsets, Context(model, ""))
    feeds = dict.fromkeys(program.inputs) | dict(zip(program.inputs, case.inputs, strict=False))
    try:
        with np.errstate(all="ignore"):
            found = program.run(feeds, program.outputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    compared = [difference(one, wanted, case.rtol, case.atol) for one, wanted in zip(found, case.outputs, strict=True)]
    return next(filter(None, compared), "")


def test_every_node_test_passes_or_is_excused_by_name() -> None:
    has_pillow = find_spec("PIL") is not None  # not on the emulated Pis
    cases = node_cases.read(WRITTEN) if WRITTEN else node_cases.collect()
    results = {case.name: result(case) for case in cases if has_pillow or "image_decoder" not in case.name}

    assert len(results) > 1700
    assert WRITTEN or EXCUSED.keys() <= results.keys()
    failed = {name: text for name, text in results.items() if text}
    assert {name: text for name, text in failed.items() if name not in EXCUSED} == {}
    # Drawn numbers may happen to be those of the test; the rest of what is excused has to fail.
    passed = {name for name in EXCUSED.keys() & results.keys() if name not in failed}
    assert {name for name in passed if "random" not in EXCUSED[name]} == set()
    assert len(failed) <= 0.02 * len(results)


@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: SMALL[kind].name)
def test_each_small_type_keeps_each_of_its_numbers(kind: int) -> None:
    small = SMALL[kind]
    bits = np.arange(1 << small.bits).astype("u2" if small.bits > 8 else "u1")
    numbers = decode(bits.view([(small.name, bits.dtype)]))

    again = decode(encode(numbers, small, saturate=False))

    np.testing.assert_array_equal(again, numbers)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_bfloat16_is_the_nearest_with_ties_to_even(values: list[float]) -> None:
    import ml_dtypes

    array = np.array(values, np.float32)

    ours = decode(encode(array, SMALL[16]))

    np.testing.assert_array_equal(ours, array.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize(("dtype", "most"), [("float32", 6e-8), ("float64", 4e-16)])
def test_the_error_function_is_near_the_true_one(dtype: str, most: float) -> None:
    import math

    x = np.linspace(-6, 6, 20_001).astype(dtype)

    true = np.array([math.erf(one) for one in x.tolist()])

    assert np.abs(error_function(x) - true).max() <= most


def saved(*nodes: Any, **how: Any) -> bytes:
    content: bytes = model_of(*nodes, **how).SerializeToString()
    return content


def model_of(*nodes: Any, opset: int = 21, functions: Any = (), domain: str = "") -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes), "graph", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def test_numpy_alone_is_enough(write_model: WriteModel) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['onnx'] = sys.modules['ml_dtypes'] = sys.modules['onnxruntime'] = None\n"
        "import edge_infer, numpy\n"
        "session = edge_infer.load(sys.argv[1], backend='reference')\n"
        "spec = session.inputs[0]\n"
        "shape = [1 if isinstance(size, str) else size for size in spec.shape]\n"
        "print(session.run({spec.name: numpy.zeros(shape, 'float32')})[session.outputs[0].name].shape)\n"
    )
    model = write_model(zoo.mlp())
    done = subprocess.run([sys.executable, "-c", code, str(model)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("(1, 10)\n", 0), done.stderr


def test_a_function_of_the_model_is_run_with_its_attributes(write_model: WriteModel) -> None:
    scaled = helper.make_node("Constant", [], ["by"])
    scaled.attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT)
    )
    function = helper.make_function(
        "own", "Scale", ["a"], ["b"], [scaled, helper.make_node("Mul", ["a", "by"], ["b"])],
        [helper.make_opsetid("", 21)], ["factor"],
    )  # fmt: skip
    path = write_model(saved(helper.make_node("Scale", ["x"], ["y"], domain="own", factor=3.0), functions=[function]))

    with edge_infer.load(path, backend="reference") as session:
        assert session.run({"x": np.array([1, 2], "f4")})["y"].tolist() == [3, 6]


def test_functions_that_call_themselves_are_refused(write_model: WriteModel) -> None:
    both = [helper.make_node("Same", ["a"], ["c"], domain="own"), helper.make_node("Same", ["c"], ["b"], domain="own")]
    function = helper.make_function("own", "Same", ["a"], ["b"], both, [helper.make_opsetid("own", 1)])
    path = write_model(saved(helper.make_node("Same", ["x"], ["y"], domain="own"), functions=[function]))

    with pytest.raises(edge_infer.UnsupportedModel, match="32 functions call one another"):
        edge_infer.load(path, backend="reference")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (helper.make_node("Nothing", ["x"], ["y"], domain="own"), "has no operator own.Nothing"),
        (helper.make_node("Relu", ["z"], ["y"]), "nothing makes `z`"),
        (
            helper.make_node("Constant", [], ["y"], value=onnx.TensorProto(name="c", data_type=1, dims=[5])),
            "0 elements",
        ),
    ],
)
def test_a_model_that_cannot_run_is_refused_when_it_is_loaded(node: Any, text: str, write_model: WriteModel) -> None:
    with pytest.raises(edge_infer.UnsupportedModel, match=text):
        edge_infer.load(write_model(saved(node)), backend="reference")


def test_a_failure_names_the_node(write_model: WriteModel) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="pick")
    places = helper.make_node("Constant", [], ["i"], value_ints=[0, 7])

    with (
        edge_infer.load(write_model(saved(places, node)), backend="reference") as session,
        pytest.raises(edge_infer.ExecutionError, match="Gather node `pick`: IndexError: index 7 is outside 2 elements"),
    ):
        session.run({"x": np.zeros(2, "f4")})


def test_weights_in_a_file_beside_the_model_are_read_and_no_others(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.array([1, 2], "f4"), "w")
    model = model_of(helper.make_node("Add", ["x", "w"], ["y"]))
    model.graph.initializer.append(weights)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)

    with edge_infer.load(path, backend="reference") as session:
        assert session.run({"x": np.zeros(2, "f4")})["y"].tolist() == [1, 2]
    read = onnx.load(path, load_external_data=False)
    read.graph.initializer[0].external_data[0].value = "../weights.bin"
    path.write_bytes(read.SerializeToString())
    with pytest.raises(edge_infer.EdgeInferError):
        edge_infer.load(path, backend="reference")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(model_of(helper.make_node("Relu", ["x"], ["y"])).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(ValueError):
        read_model(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
