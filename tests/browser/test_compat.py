"""`import onnxruntime` in the page, side by side with the native package."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edge_infer.compat
from edge_infer.formats.onnx import external_locations, read_metadata
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.browser.pages import PagePython

_SETUP = """
import base64, warnings
from pathlib import Path
import edge_infer.compat
edge_infer.compat.install()
import onnxruntime as ort
from edge_infer import Tensor
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
model = base64.b64decode(model_text)
Path("model.onnx").write_bytes(model)
def said(work):
    try:
        return repr(work())
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


def run(python: PagePython, model: bytes, code: str, **names: Any) -> Any:
    return python.run(_SETUP + code.strip(), model_text=base64.b64encode(model).decode(), **names)


def described_model() -> bytes:
    """A model with all the metadata that there is, a symbolic and a nameless dimension."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "graph of things",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None, 3])],
        doc_string="about the graph",
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="me", doc_string="about it")
    model.domain, model.model_version = "org.example", 7
    helper.set_model_props(model, {"labels": "a,b", "empty": ""})
    data: bytes = model.SerializeToString()
    return data


def test_an_unmodified_script_runs(python: PagePython) -> None:
    found = run(
        python,
        zoo.mlp(),
        """
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
options.intra_op_num_threads = 1
session = ort.InferenceSession("model.onnx", sess_options=options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
(logits,) = session.run([session.get_outputs()[0].name], {name: [[0.5] * 64]})
[session.get_providers(), ort.get_device(), ort.__version__, logits.tolist()]
""",
    )
    native = onnxruntime.InferenceSession(zoo.mlp()).run(None, {"x": np.full((1, 64), 0.5, "float32")})[0]

    assert found[:3] == [["CPUExecutionProvider"], "CPU", "1.30.0"]
    assert found[3][0] == pytest.approx(native[0].tolist(), abs=1e-5)


def test_inputs_and_metadata_are_those_of_the_native_package(python: PagePython) -> None:
    model = described_model()
    found = run(
        python,
        model,
        """
session = ort.InferenceSession(model)
args = [[one.name, one.type, one.shape] for one in (*session.get_inputs(), *session.get_outputs())]
[args, session.get_modelmeta()._asdict()]
""",
    )
    native = onnxruntime.InferenceSession(model)
    args = [[one.name, one.type, one.shape] for one in (*native.get_inputs(), *native.get_outputs())]
    meta = native.get_modelmeta()

    assert found[0] == args
    assert found[1] == {name: getattr(meta, name) for name in found[1]}


_ATTEMPTS = {
    "missing": "None, {}",
    "unknown": 'None, {"x": x, "z": x}',
    "dtype": 'None, {"x": wide}',
    "rank": 'None, {"x": flat}',
    "dims": 'None, {"x": narrow}',
    "output": '["nope"], {"x": x}',
}


@pytest.mark.parametrize("attempt", _ATTEMPTS)
def test_wrong_inputs_raise_what_they_raise_natively(python: PagePython, attempt: str) -> None:
    arguments = _ATTEMPTS[attempt]
    found = run(
        python,
        zoo.mlp(),
        """
x, wide = Tensor(bytes(256), "float32", (1, 64)), Tensor(bytes(512), "float64", (1, 64))
flat, narrow = Tensor(bytes(256), "float32", (64,)), Tensor(bytes(252), "float32", (1, 63))
session = ort.InferenceSession(model)
said(lambda: session.run(ARGUMENTS))
""".replace("ARGUMENTS", arguments),
    )
    session = onnxruntime.InferenceSession(zoo.mlp())
    arrays = {"x": np.zeros((1, 64), "f"), "wide": np.zeros((1, 64)), "flat": np.zeros(64, "f")}
    with pytest.raises(Exception) as caught:
        eval(f"session.run({arguments})", {"session": session, "narrow": np.zeros((1, 63), "f"), **arrays})

    assert found == [type(caught.value).__name__, str(caught.value)]


@pytest.mark.parametrize(
    ("source", "model"),
    [("model", b"bad"), ("model", b""), ("'no.onnx'", b""), ("3", b""), ("model", zoo.unknown_operator())],
    ids=["text", "empty", "missing", "number", "operator"],
)
def test_a_bad_model_raises_what_it_raises_natively(python: PagePython, source: str, model: bytes) -> None:
    found = run(python, model, f"said(lambda: ort.InferenceSession({source}))")
    with pytest.raises(Exception) as caught:
        onnxruntime.InferenceSession(eval(source, {"model": model}))

    assert found[0] == type(caught.value).__name__
    assert found[1][:40] == str(caught.value)[:40]


def test_a_binding_keeps_tensors_in_the_engine(python: PagePython) -> None:
    found = run(
        python,
        zoo.identity("float32", ("n", 3)),
        """
session = ort.InferenceSession(model)
x = ort.OrtValue.ortvalue_from_numpy(Tensor.from_list([[1.0, 2.0, 3.0]], "float32"))
y = ort.OrtValue.ortvalue_from_shape_and_type([1, 3], "float32")
binding = session.io_binding()
binding.bind_ortvalue_input("x", x)
binding.bind_ortvalue_output("y", y)
session.run_with_iobinding(binding)
first = y.numpy().tolist()
x.update_inplace(Tensor.from_list([[4.0, 5.0, 6.0]], "float32"))
session.run_with_iobinding(binding)
other = session.io_binding()
other.bind_cpu_input("x", Tensor.from_list([[7.0, 8.0, 9.0]], "float32"))
other.bind_output("y")
session.run_with_iobinding(other)
facts = [x.data_type(), x.element_type(), x.shape(), x.device_name(), x.tensor_size_in_bytes()]
kept = session.run_with_ort_values(None, {"x": y})[0]
again = session.run(None, {"x": kept})[0].tolist()
unknown = said(lambda: binding.bind_output("z"))
[first, y.numpy().tolist(), other.copy_outputs_to_cpu()[0].tolist(), again, facts, unknown]
""",
    )

    facts = ["tensor(float)", 1, [1, 3], "cpu", 12]
    unknown = ["RuntimeError", "Failed to find NodeArg with name: z in the def list"]
    assert found == [[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]], [[4, 5, 6]], facts, unknown]


def test_dimensions_and_settings_reach_the_engine(python: PagePython) -> None:
    found = run(
        python,
        zoo.identity("float32", ("n", 3)),
        """
options = ort.SessionOptions()
options.add_free_dimension_override_by_name("n", 4)
options.add_session_config_entry("session.x64quantprecision", "1")
options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
options.enable_mem_pattern = False
shape = ort.InferenceSession(model, options).get_inputs()[0].shape
entries = [options.get_session_config_entry("session.x64quantprecision")]
entries += said(lambda: options.get_session_config_entry("a"))
[shape, *entries]
""",
    )

    assert found == [[4, 3], "1", "RuntimeError", "SessionOptions does not have configuration with key: a"]


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        ("setattr(ort.SessionOptions(), 'enable_profiling', True)", "file system"),
        ("setattr(ort.RunOptions(), 'terminate', True)", "blocks its thread"),
        ("ort.SessionOptions().register_custom_ops_library('a.so')", "no native libraries"),
        ("ort.OrtValue.ortvalue_from_numpy(x, 'cuda', 0)", "only `cpu`"),
        ("ort.OrtValue.ortvalue_from_numpy(x).data_ptr()", "memory of its own"),
        ("session.run_async(None, {}, print, None)", "only thread"),
        ("session.io_binding().bind_input('x', 'cpu', 0, 'float32', [1, 3], 0)", "memory of its own"),
        ("ort.SparseTensor()", "sparse"),
        ("ort.InferenceSession(model, disabled_optimizers=['a'])", "no such call"),
    ],
)
def test_what_cannot_work_says_why(python: PagePython, attempt: str, reason: str) -> None:
    found = run(
        python,
        zoo.identity("float32", ("n", 3)),
        f"""
x = Tensor(bytes(12), "float32", (1, 3))
session = ort.InferenceSession(model)
said(lambda: {attempt})
""",
    )

    assert found[0] == "NotImplementedError"
    assert reason in found[1]


def test_a_sequence_output_is_refused_by_name(python: PagePython) -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x"], ["many"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    found = run(python, model.SerializeToString(), "said(lambda: ort.InferenceSession(model))")

    assert found[0] == "NotImplementedError"
    assert "`many` is a sequence" in found[1]


def test_other_providers_and_threads_are_warned_about(python: PagePython) -> None:
    found = run(
        python,
        zoo.identity(),
        """
options = ort.SessionOptions()
options.intra_op_num_threads = 3
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    session = ort.InferenceSession(model, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
[[str(one.message)[:60] for one in heard], session.get_providers()]
""",
    )

    assert found[0][0].startswith("Specified provider 'CUDAExecutionProvider' is not")
    assert found[0][1].startswith("intra_op_num_threads is 3, and the page's engine")
    assert found[1] == ["CPUExecutionProvider"]


def test_weights_in_a_file_beside_the_model_are_found(python: PagePython, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.arange(4096, dtype="float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    external = base64.b64encode((tmp_path / "m.data").read_bytes()).decode()

    found = run(
        python,
        (tmp_path / "m.onnx").read_bytes(),
        """
missing = said(lambda: ort.InferenceSession("model.onnx"))[0]
data = base64.b64decode(external)
options = ort.SessionOptions()
options.add_external_initializers_from_files_in_memory(["m.data"], [data], [len(data)])
in_memory = ort.InferenceSession(model, options).run(None, {"x": [1.0] * 4096})[0]
Path("m.data").write_bytes(data)
beside = ort.InferenceSession("model.onnx").run(None, {"x": [1.0] * 4096})[0]
Path("m.data").unlink()
[missing, in_memory.tolist()[::1000], beside.tolist()[::1000]]
""",
        external=external,
    )

    assert found == ["Fail", [1, 1001, 2001, 3001, 4001], [1, 1001, 2001, 3001, 4001]]


def test_outside_a_page_nothing_is_put_in_place() -> None:
    assert edge_infer.compat.install() == []
    assert onnxruntime.InferenceSession.__module__.startswith("onnxruntime")


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x3a\x7f", b"\x0b", b"\x3a\x02\x2a\x7f"])
def test_what_is_no_model_has_no_metadata(data: bytes) -> None:
    """An endless number, a length over the end, an unknown kind of field, and a graph that is cut."""
    with pytest.raises(ValueError, match="not a protobuf message"):
        list(external_locations(data))
    with pytest.raises(ValueError, match="not a protobuf message"):
        read_metadata(data)


def test_metadata_is_read_natively_too() -> None:
    model = described_model()
    native = onnxruntime.InferenceSession(model).get_modelmeta()

    found = read_metadata(model)

    assert found._asdict() == {name: getattr(native, name) for name in found._fields}
    assert external_locations(model) == []
