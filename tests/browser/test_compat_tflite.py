"""`from tflite_runtime.interpreter import Interpreter` in the page, side by side with the native package."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

from edge_infer_converters.writers.tflite import write
from tests.support import stateful_tflite, zoo

if TYPE_CHECKING:
    from tests.support.browser.pages import PagePython

_SETUP = """
import base64
from array import array
from pathlib import Path
import edge_infer.compat
edge_infer.compat.install()
await edge_infer.compat.start("litert")
from tflite_runtime.interpreter import Interpreter, OpResolverType, load_delegate
from edge_infer import Tensor
model = base64.b64decode(model_text)
Path("model.tflite").write_bytes(model)
def said(work):
    try:
        return repr(work())
    except Exception as error:
        return [type(error).__name__, str(error)]
def floats(rows, shape):
    return memoryview(array("f", [value for row in rows for value in row])).cast("B").cast("f", shape)
"""


def tflite(model: bytes) -> bytes:
    return write(onnx.load_from_string(model), "test").data


def run(python: PagePython, model: bytes, code: str, **names: Any) -> Any:
    return python.run(_SETUP + code.strip(), model_text=base64.b64encode(model).decode(), **names)


def said(work: Any) -> Any:
    try:
        return repr(work())
    except Exception as error:
        return [type(error).__name__, str(error)]


def test_the_script_of_every_tutorial_gives_the_native_numbers(python: PagePython) -> None:
    model = tflite(zoo.mlp())
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    native = Interpreter(model_content=model, num_threads=1)
    native.allocate_tensors()
    native.set_tensor(native.get_input_details()[0]["index"], values)
    native.invoke()
    expected = native.get_tensor(native.get_output_details()[0]["index"])

    found = run(
        python,
        model,
        """
interpreter = Interpreter(model_path="model.tflite")
interpreter.allocate_tensors()
given, wanted = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
before = interpreter.get_tensor(wanted["index"]).shape
interpreter.set_tensor(given["index"], floats(values, (1, 64)))
interpreter.invoke()
result = interpreter.get_tensor(wanted["index"]).tolist()
fed = interpreter.get_tensor(given["index"]).tolist()
[list(before), result, fed == values, given["name"], list(given["shape"]), str(given["dtype"])]
""",
        values=values.tolist(),
    )

    assert tuple(found[0]) == expected.shape
    assert found[1][0] == pytest.approx(expected[0].tolist(), abs=1e-5)
    assert found[2:] == [True, "x", [1, 64], "float32"]


def test_an_input_is_resized_and_the_outputs_follow(python: PagePython) -> None:
    model = tflite(zoo.mlp())
    values = np.arange(192, dtype=np.float32).reshape(3, 64) / 100
    native = Interpreter(model_content=model, num_threads=1)
    expected = native.get_signature_runner()(x=values)["logits"]

    found = run(
        python,
        model,
        """
interpreter = Interpreter(model_content=model)
interpreter.resize_tensor_input(0, [3, 64])
interpreter.allocate_tensors()
shapes = [list(interpreter.get_input_details()[0]["shape"]), list(interpreter.get_output_details()[0]["shape"])]
interpreter.set_tensor(0, floats(values, (3, 64)))
interpreter.invoke()
by_index = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist()
runner = Interpreter(model_content=model).get_signature_runner("serving_default")
by_name = runner(x=floats(values, (3, 64)))["logits"].tolist()
one = runner(x=floats(values[:1], (1, 64)))["logits"].tolist()
[shapes, by_index, by_name == by_index, one[0], list(runner.get_input_details()), list(runner.get_output_details())]
""",
        values=values.tolist(),
    )

    assert found[0] == [[3, 64], [3, 10]]
    assert np.array(found[1]) == pytest.approx(expected, abs=1e-4)
    assert found[2] is True
    assert found[3] == pytest.approx(expected[0].tolist(), abs=1e-4)
    assert found[4:] == [["x"], ["logits"]]


# Each line is run in the page and natively, and must give the same error, by name and text.
_MISTAKES = [
    "interpreter.set_tensor(0, floats([[0.0] * 64], (1, 64)))",
    "interpreter.invoke()",
    "interpreter.get_tensor(0)",
    "interpreter.allocate_tensors()",
    "interpreter.set_tensor(0, bytes_of((1, 64)))",
    "interpreter.set_tensor(0, floats([[0.0] * 128], (2, 64)))",
    "interpreter.set_tensor(0, floats([[0.0] * 64], (64,)))",
    "interpreter.set_tensor(999, floats([[0.0] * 64], (1, 64)))",
    "interpreter.get_tensor(999)",
    'interpreter.get_signature_runner("nope")',
    "interpreter.get_signature_list()",
    "interpreter.get_signature_runner()(wrong=floats([[0.0] * 64], (1, 64)))",
    "interpreter.get_signature_runner()()",
    "Interpreter()",
    "Interpreter(model_content=b'no model')",
]


def test_mistakes_are_told_as_natively(python: PagePython) -> None:
    model = tflite(zoo.mlp())
    names: dict[str, Any] = {
        "interpreter": Interpreter(model_content=model, num_threads=1),
        "Interpreter": Interpreter,
        "floats": lambda rows, shape: np.array(rows, np.float32).reshape(shape),
        "bytes_of": lambda shape: np.zeros(shape, np.uint8),
    }
    natively = [said(lambda line=line: eval(line, names)) for line in _MISTAKES]

    in_page = run(
        python,
        model,
        """
interpreter = Interpreter(model_content=model)
def bytes_of(shape):
    return memoryview(bytes(shape[0] * shape[1])).cast("B", shape)
[said(lambda: eval(line, globals())) for line in lines]
""",
        lines=_MISTAKES,
    )

    # The native number of tensors counts those that XNNPACK added.
    count = re.compile(r"max tensor index \d+")
    assert [count.sub("", str(one)) for one in in_page] == [count.sub("", str(one)) for one in natively]


def test_resource_variables_stay_from_one_invoke_to_the_next(python: PagePython) -> None:
    code = """
interpreter = Interpreter(model_content=model)
interpreter.allocate_tensors()
found = []
for value in (1.0, 2.0, 3.0):
    interpreter.set_tensor(0, floats([[value]], [1]))
    interpreter.invoke()
    found.append(float(interpreter.get_tensor(3)[0]))
    interpreter.reset_all_variables()
found
"""
    model = stateful_tflite.in_resource()
    native = Interpreter(model_content=model)
    native.allocate_tensors()
    expected = []
    for value in (1, 2, 3):
        native.set_tensor(0, np.full(1, value, np.float32))
        native.invoke()
        expected.append(float(native.get_tensor(3)[0]))
        native.reset_all_variables()

    assert run(python, model, code.strip()) == expected == [11, 13, 16]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("load_delegate('libedgetpu.so.1')", "loads no native libraries"),
        ("Interpreter(model_content=model, experimental_preserve_all_tensors=True)", "XNNPACK"),
        ("Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)", "XNNPACK"),
        ("interpreter.tensor(0)", "memory of its own"),
        ("interpreter.get_tensor(1)", "inputs and outputs"),
        ("interpreter.resize_tensor_input(0, [1, 65])", "fixes it to 64"),
    ],
)
def test_what_cannot_work_names_the_reason(python: PagePython, line: str, reason: str) -> None:
    found = run(python, tflite(zoo.mlp()), f"interpreter = Interpreter(model_content=model)\nsaid(lambda: {line})")

    assert found[0] == "NotImplementedError"
    assert reason in found[1]


def test_both_packages_are_there_and_a_second_call_places_nothing(python: PagePython) -> None:
    found = run(
        python,
        tflite(zoo.mlp()),
        """
import ai_edge_litert.interpreter
import tflite_runtime.interpreter as old
[ai_edge_litert.interpreter.Interpreter is old.Interpreter, edge_infer.compat.install()]
""",
    )

    assert found == [True, []]
