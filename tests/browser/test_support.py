"""What `convert` says that the page's engine lacks is what it lacks."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from edge_infer_converters.support import PAGE_IR, PAGE_LACKS, PAGE_LACKS_TYPES, PAGE_OPSET
from tests.support import zoo

if TYPE_CHECKING:
    from tests.support.browser.pages import PagePython

_LOAD = """
import base64
import edge_infer.compat
edge_infer.compat.install()
import onnxruntime as ort

def said(model):
    try:
        ort.InferenceSession(base64.b64decode(model))
        return ""
    except Exception as error:
        return str(error)

[said(model) for model in models]
"""


def said_in_page(python: PagePython, models: list[bytes]) -> list[str]:
    answers: list[str] = python.run(_LOAD, models=[base64.b64encode(model).decode() for model in models])
    return answers


def identity(opset: int, ir: int) -> bytes:
    proto = onnx.load_from_string(zoo.identity())
    proto.opset_import[0].version, proto.ir_version = opset, ir
    return bytes(proto.SerializeToString())


def test_the_newest_operator_set_and_file_format_are_those_of_the_table(python: PagePython) -> None:
    said = said_in_page(
        python, [identity(PAGE_OPSET, PAGE_IR), identity(PAGE_OPSET + 1, 10), identity(20, PAGE_IR + 1)]
    )

    assert [bool(text) for text in said] == [False, True, True]


def test_contributed_operators_of_the_table_are_not_there(python: PagePython) -> None:
    models = []
    for domain, name in sorted(PAGE_LACKS):
        node = helper.make_node(name, ["x"], ["y"], domain=domain)
        graph = helper.make_graph([node], "g", [zoo.value("x", [1])], [zoo.value("y", [1])])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
        models.append(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())

    assert all("is not a registered function/op" in text for text in said_in_page(python, models))


def test_types_of_the_table_have_no_kernel_and_others_do(python: PagePython) -> None:
    def where(kind: int) -> bytes:
        values: list[Any] = [helper.make_tensor_value_info(name, kind, [1]) for name in ("x", "y")]
        node = helper.make_node("Where", ["c", "x", "x"], ["y"])
        flags = onnx.numpy_helper.from_array(np.array([True]), "c")
        graph = helper.make_graph([node], "g", values[:1], values[1:], [flags])
        return bytes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
        )

    assert set(PAGE_LACKS_TYPES) == {("", "Where")}
    kinds = [*PAGE_LACKS_TYPES["", "Where"], onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8]
    said = said_in_page(python, [where(kind) for kind in kinds])
    assert ["Could not find an implementation" in text for text in said] == [True, False, False]
