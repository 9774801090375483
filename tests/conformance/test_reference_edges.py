"""Edges of operators on the reference engine: nothing along an axis, what ONNX Runtime refuses, models made to fail."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import edge_infer
from edge_infer.backends.reference.operators.patterns import Pattern
from edge_infer.formats.onnx_model import read_model
from tests.support.conformance.node_values import difference

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel


def model_of(
    operator: str, inputs: list[Any], attributes: dict[str, Any], kind: int, opset: int = 17, outputs: int = 1
) -> bytes:
    node = helper.make_node(
        operator, [f"i{k}" for k in range(len(inputs))], [f"o{k}" for k in range(outputs)], **attributes
    )
    given = [
        helper.make_tensor_value_info(
            f"i{k}", helper.np_dtype_to_tensor_dtype(one.dtype), [f"d{k}_{axis}" for axis in range(one.ndim)]
        )
        for k, one in enumerate(inputs)
    ]
    made = [helper.make_tensor_value_info(f"o{k}", kind, None) for k in range(outputs)]
    graph = helper.make_graph([node], "graph", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def zeros(*shape: int) -> Any:
    return np.zeros(shape, "f4")


def whole(*values: int, dtype: str = "i8") -> Any:
    return np.array(values, dtype)


EDGES = [
    ("Pow", [whole(2, 3, 1, -1, dtype="i4"), whole(-1, -2, -3, -3, dtype="i4")], {}, 6, 17),
    ("GatherND", [zeros(0, 3, 4), np.zeros((0, 2, 1), "i8")], {"batch_dims": 1}, 1, 17),
    ("CumSum", [zeros(0, 4), np.array(0)], {"exclusive": 1}, 1, 17),
    ("ReduceLogSumExp", [zeros(2, 0, 3)], {"axes": [1]}, 1, 17),
    ("ReduceMean", [np.zeros((0, 3), "i4")], {"axes": [0]}, 6, 17),
    *((name, [zeros(2, 0)], {}, 1, opset) for name in ("Softmax", "LogSoftmax", "Hardmax") for opset in (11, 17)),
    *((name, [zeros(0, 3)], {}, 1, 11) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    *(
        (
            "GridSample",
            [np.arange(20, dtype="f4").reshape(1, 1, 4, 5), np.linspace(-2.5, 2.5, 60, dtype="f4").reshape(1, 6, 5, 2)],
            {"mode": "bicubic", "padding_mode": "border", "align_corners": corners},
            1,
            16,
        )
        for corners in (0, 1)
    ),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes", "kind", "opset"), EDGES)
def test_an_edge_gives_what_onnx_runtime_gives(
    operator: str, inputs: list[Any], attributes: dict[str, Any], kind: int, opset: int, write_model: WriteModel
) -> None:
    path = write_model(model_of(operator, inputs, attributes, kind, opset))
    feeds = {f"i{k}": one for k, one in enumerate(inputs)}

    with (
        edge_infer.load(path, backend="reference") as own,
        edge_infer.load(path, backend="onnxruntime") as other,
    ):
        assert difference(own.run(feeds)["o0"], other.run(feeds)["o0"], 1e-5, 1e-5) == ""


def test_the_mean_of_nothing_is_no_number_and_warns_of_nothing(
    write_model: WriteModel, recwarn: pytest.WarningsRecorder
) -> None:
    with edge_infer.load(
        write_model(model_of("ReduceMean", [zeros(0, 2)], {"axes": [0]}, 1)), backend="reference"
    ) as session:
        assert np.isnan(session.run({"i0": zeros(0, 2)})["o0"]).all()
    assert not recwarn.list


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "text", "attributes"),
    [
        ("Conv", [zeros(1, 1, 4, 4), zeros(1, 1, 2, 2)], 1, "do not fit 3 groups", {"group": 3}),
        ("ConvTranspose", [zeros(1, 1, 4, 4), zeros(1, 1, 2, 2)], 1, "do not fit -1 groups", {"group": -1}),
        ("Conv", [zeros(1, 1, 4, 4), zeros(1, 1, 2, 2)], 1, r"strides \[-1, 1\]", {"strides": [-1, 1]}),
        ("MaxPool", [zeros(1, 1, 4, 4)], 1, r"a window of \[0, 0\]", {"kernel_shape": [0, 0]}),
        ("Split", [zeros(7, 2), whole(2, 3)], 2, r"parts of \[2, 3\], expected 7 elements", {}),
        ("Split", [zeros(7, 2)], 3, "7 elements in 3 equal parts", {}),
        ("Tile", [zeros(2, 3), whole(2)], 1, "1 repeats, expected one for each of 2 axes", {}),
        ("TopK", [zeros(5), whole(-1)], 1, "k is -1, expected 0 to 5", {}),
        ("Pad", [zeros(3, 2), whole(0, 0, -5, 0)], 1, "cut off more than the 3 elements", {}),
        ("Relu", [zeros(2)], 2, "it gives 1 outputs, and `o1` is one more", {}),
        ("Constant", [], 1, "it has no value", {}),
    ],
)
def test_what_would_give_wrong_numbers_is_refused(
    operator: str, inputs: list[Any], outputs: int, text: str, attributes: dict[str, Any], write_model: WriteModel
) -> None:
    path = write_model(model_of(operator, inputs, attributes, 1, outputs=outputs))

    with (
        edge_infer.load(path, backend="reference") as session,
        pytest.raises(edge_infer.ExecutionError, match=f"{operator} node.*{text}"),
    ):
        session.run({f"i{k}": one for k, one in enumerate(inputs)})


def test_a_loop_of_no_steps_gives_nothing_of_the_type_that_its_body_states(write_model: WriteModel) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["goes"]), helper.make_node("Relu", ["x"], ["row"])],
        "body",
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, [])],
        [value("goes", TensorProto.BOOL, []), value("row", TensorProto.DOUBLE, [2])],
    )
    nodes = [
        helper.make_node("Constant", [], ["n"], value_int=0),
        helper.make_node("Loop", ["n", ""], ["y"], body=body),
    ]
    graph = helper.make_graph(
        nodes, "graph", [value("x", TensorProto.DOUBLE, [2])], [value("y", TensorProto.DOUBLE, ["n", 2])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    with edge_infer.load(write_model(model.SerializeToString()), backend="reference") as session:
        found = session.run({"x": np.ones(2)})["y"]

    assert (found.dtype, found.shape) == (np.dtype("float64"), (0, 2))


def test_a_constant_of_a_function_is_held_once(write_model: WriteModel) -> None:
    """A file of 200 kB may call a function a hundred thousand times."""
    import tracemalloc

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    constant = helper.make_tensor("c", TensorProto.FLOAT, [50_000], [0.5] * 50_000)
    inner = [helper.make_node("Constant", [], ["c"], value=constant), helper.make_node("Identity", ["a"], ["b"])]
    many = [helper.make_node("Inner", ["a"], [f"b{i}" if i else "b"], domain="own") for i in range(300)]
    functions = [
        helper.make_function("own", "Inner", ["a"], ["b"], inner, opsets),
        helper.make_function("own", "Outer", ["a"], ["b"], many, opsets),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Outer", ["x"], ["y"], domain="own")],
        "graph",
        [value("x", TensorProto.FLOAT, [2])],
        [value("y", TensorProto.FLOAT, [2])],
    )
    path = write_model(
        helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9).SerializeToString()
    )

    tracemalloc.start()
    try:
        with edge_infer.load(path, backend="reference"):
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_numbers_that_are_cut_are_no_model() -> None:
    tensor = b"\x22\x03\x00\x00\x80"  # the floats of a tensor: three bytes of them
    graph = b"\x2a" + bytes([len(tensor)]) + tensor

    with pytest.raises(ValueError, match="3 bytes of numbers of 4"):
        read_model(b"\x3a" + bytes([len(graph)]) + graph)


def test_an_element_type_that_is_not_known_is_named(write_model: WriteModel) -> None:
    content = model_of("Relu", [zeros(2)], {}, 99)

    with pytest.raises(edge_infer.UnsupportedModel, match="the element type 99 is not known"):
        edge_infer.load(write_model(content), backend="reference")


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_a_linear_classifier_of_one_row_gives_two_scores_as_onnxruntime_does(
    transform: str, write_model: WriteModel
) -> None:
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        classlabels_ints=[5, 7],
        coefficients=[0.3, 0.1],
        intercepts=[0.05],
        post_transform=transform,
    )
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 2]),
        ],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    path = write_model(helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString())
    x = np.array([[1, 2], [-0.5, 0.3], [-3, -1]], "f4")

    ours, theirs = (
        edge_infer.load(path, backend=name, arrays="numpy").run({"x": x}) for name in ("reference", "onnxruntime")
    )

    np.testing.assert_array_equal(ours["label"], theirs["label"])
    np.testing.assert_allclose(ours["scores"], theirs["scores"], atol=1e-6)


PATTERNS = [
    (r"www\.[\w.-]+\.\bcom\b", "www.google.com", True),
    (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", "account@gmail.com", True),
    (r"(\d{1,3}\.){3}\d{1,3}", "10.2.33.4", True),
    (r"(?i)(?:ab)+[]c]?", "ABab]", True),
    (r"(?P<name>a|b)\.x*?", "a.xxy", False),
    (r"(ab|cd)*", "abcdab" * 100, True),
    (r"(a+)+b", "a" * 400, False),
    (r"(a|a)*b", "a" * 400, False),
    (r"(a?){40}a{40}", "a" * 40, True),
    (r"a*a*a*a*b", "a" * 500, False),
    (r"a{1001}", "a", "one repetition before this"),
    (r"(((a{50}){50}){50}){50}", "a", "less than 10000 states"),
    (r"(a*)\1", "aa", "expected the syntax of RE2"),
    (r"(?=a)a", "a", "expected the syntax of RE2"),
    (r"(", "a", "is no pattern"),
    ("(" * 5000, "a", "fewer groups"),
    (r"a**", "a", "one repetition before this"),
    (r"{2}a", "aa", "something before a repetition"),
    (r"[b-a]", "a", "the first character of a range before its last"),
    (r"\pL", "a", r"no `\\p`"),
    (r"\w", "\u00e9", False),
    (r"\d+", "\uff11", False),
    ("(?i)\u00e9", "\u00c9", True),
    (r"(?i)\w", "\u00e9", False),
    (r"[[:alpha:]]+[[:^digit:]\x41]", "abc.", True),
    (r"a{,3}", "a{,3}", True),
    (r"a$\n", "a\n", False),
    (r"(?m)a$\n^b(?-m)", "a\nb", True),
]


@pytest.mark.parametrize(("pattern", "text", "wanted"), PATTERNS)
def test_a_pattern_takes_a_bounded_time(pattern: str, text: str, wanted: object, write_model: WriteModel) -> None:
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [1])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with edge_infer.load(write_model(model.SerializeToString()), backend="reference") as session:
        given = {"x": np.array([text], object)}
        if isinstance(wanted, bool):
            assert session.run(given)["y"].tolist() == [wanted]
        else:
            with pytest.raises(edge_infer.ExecutionError, match=str(wanted)):
                session.run(given)


def _pattern(random: Random, depth: int) -> str:
    """Return a pattern that RE2 and Python's `re` read in the same way."""
    parts = []
    for _ in range(random.randrange(1, 4)):
        one = random.choice((*"aab.", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"[\Wa]", r"[^\W]", r"\n", "\u00e9"))
        if depth and random.random() < 0.4:
            one = f"({_pattern(random, depth - 1)}|{_pattern(random, depth - 1)})"
        parts.append(random.choice(("^", r"\b", r"\Z", "", "", "")).replace(r"\Z", "$" if depth else ""))
        parts.append(one + random.choice(("", "", "*", "+", "?", "*?", "{2}", "{1,2}", "{0,1}", "{2,}")))
    return "".join(parts)


def test_random_patterns_match_what_python_matches() -> None:
    random, matched = Random(26), 0
    for _ in range(300):
        pattern = _pattern(random, 2)
        ours, theirs = Pattern(pattern), re.compile(pattern.replace("$", r"\Z"), re.ASCII)
        for _ in range(12):
            text = "".join(random.choice("aabbc. \n\u00e9") for _ in range(random.randrange(7)))
            wanted = theirs.fullmatch(text) is not None
            assert ours.matches(text) == wanted, (pattern, text)
            matched += wanted
    assert matched > 300
