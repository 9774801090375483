"""Compiled models compute what LiteRT computes: natively, and in WebAssembly by the module that pages load."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import ConversionError, InputError, UnsupportedModel, UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.compilation import compile_file
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.measure import compiled_check
from edge_infer_converters.report.compiled import section
from edge_infer_converters.report.timeline import draw
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import arena, writer
from edge_infer_converters.writers.compiled.calls import Value
from edge_infer_converters.writers.tflite import flatbuffer, reading
from edge_infer_converters.writers.tflite.graph import Graph, Quantization, Tensor
from edge_infer_converters.written_files import LIST
from tests.support import real_models, stateful_tflite
from tests.support.converters import small_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NETS: dict[str, Callable[[], bytes]] = {
    "mobilenet_v2": small_models.mobilenet_v2,
    "resnet": small_models.resnet,
    "ds_cnn": small_models.ds_cnn,
}
ZOO = real_models.folder()
#: The real models that compile; the others are refused with what no kernel computes.
COMPILED = (
    *("ad01_f32", "ad01_int8", "blazeface", "blazeface_int8", "coral_lstm", "kws_int8", "micro_speech"),
    *(
        "ad_quant",
        "keyword_scrambled",
        "kws_f32",
        "mbv1_025_128_u8",
        "mbv2_embed",
        "micro_speech_lstm",
        "microflow_sine",
        "movie_review",
        "mww_alexa_v1",
        "person_detect",
        "planestrike",
    ),
    *("regex_searcher", "resnet8_f32", "resnet8_int8", "split_concat", "str_ww", "tflm_dtln", "tflm_lstm"),
    *("tflm_lstm_int8", "vad_nonstream", "vad_stream", "vww_f32", "vww_int8"),
)

#: The roundings that LiteRT has.
LITERT = ("litert", "reference")


@pytest.fixture(scope="module", params=[*NETS])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a float and an int8 TFLite variant."""
    folder = tmp_path_factory.mktemp("nets")
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(NETS[request.param]())).SerializeToString()
    (folder / "model.onnx").write_bytes(model)
    calls = small_models.calls_of(model, 4)
    (name,) = calls[0]
    np.save(folder / "data.npy", np.concatenate([call[name] for call in calls]))
    target = folder / "out.bundle"
    options: dict[str, Any] = {"precision": ("fp32", "int8"), "format": "tflite", "keep_all": True}
    convert(folder / "model.onnx", target, calibration=folder / "data.npy", **options)
    return target


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("rounding", LITERT)
def test_a_network_computes_what_litert_does(bundle: Path, precision: str, rounding: str) -> None:
    content = (bundle / ("tflite/model.tflite" if precision == "fp32" else "tflite/model_int8.tflite")).read_bytes()

    compiled = writer.write(reading.read(content, "net").graph, rounding)

    assert compiled_check.check(compiled, content) == "equal to LiteRT on 4 random inputs"


def test_the_page_module_gives_the_same_bits_as_the_native_kernels(bundle: Path, tmp_path: Path) -> None:
    for precision in ("", "_int8"):
        content = (bundle / f"tflite/model{precision}.tflite").read_bytes()
        compiled = writer.write(reading.read(content, "net").graph)
        (tensor,) = compiled.program.inputs
        values = np.random.default_rng(3).integers(-100, 100, tensor.shape).astype(tensor.dtype)
        if tensor.dtype == "float32":
            values /= 64  # exact, and the sums of the page and of this CPU, which may fuse them, are compared loosely

        results = in_node(compiled.wasm, {tensor.name: values.reshape(-1).tolist()}, tensor.dtype, tmp_path)

        for name, want in compiled_check.run(compiled, {tensor.name: values}).items():
            got = np.array(results[name], np.float64)
            tolerance = 1e-5 * float(np.abs(want).max()) if want.dtype == np.float32 else 0.0
            assert np.abs(got - want.reshape(-1)).max() <= tolerance, name


def test_floats_are_quantized_and_back_as_litert_does(tmp_path: Path) -> None:
    graph = connected(np.full((2, 3), 7, np.int8))
    compiled = writer.write(graph)
    given = [0.24, -0.26, 0.75]  # by the scale of 0.5: 0.48, -0.52 and 1.5, whose half goes to the even 2

    results = in_node(compiled.wasm, {"x": given}, "Array", tmp_path)

    integers = compiled_check.run(compiled, {"x": np.array([[0, -1, 2]], np.int8) + np.int8(3)})["y"]
    assert results["y"] == pytest.approx(((integers.astype(np.float32) + 5) * 0.25).reshape(-1).tolist())


@pytest.mark.parametrize("for_size", [True, False])
def test_the_file_imports_nothing_and_exports_what_runs(tmp_path: Path, for_size: bool) -> None:
    compiled = writer.write(connected(np.ones((4, 3), np.int8)), for_size=for_size)
    (tmp_path / "model.wasm").write_bytes(compiled.wasm)
    script = (
        "const m = new WebAssembly.Module(require('fs').readFileSync('model.wasm'));"
        "console.log(JSON.stringify([WebAssembly.Module.imports(m), WebAssembly.Module.exports(m).map((e) => e.name)]))"
    )

    done = subprocess.run(["node", "-e", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [[], ["memory", "run", *([] if for_size else ["table"])]]
    assert len(compiled.wasm) < (5_500 if for_size else 8_000)


def test_the_same_model_gives_the_same_bytes() -> None:
    weights = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)

    assert writer.write(connected(weights)).wasm == writer.write(connected(weights)).wasm


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), rounding=st.sampled_from(LITERT), depthwise=st.booleans())
def test_any_int8_convolution_is_equal_bit_for_bit(data: st.DataObject, rounding: str, depthwise: bool) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kernel = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    stride, dilation = data.draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2)]))
    padding = data.draw(st.sampled_from([0, 1]))
    spans = [(size - 1) * dilation + 1 for size in kernel]
    height, width = (data.draw(st.integers(span, span + 7)) for span in spans)
    channels = data.draw(st.integers(1, 19))
    outputs = channels if depthwise else data.draw(st.integers(1, 19))
    sizes = [
        (size + stride - 1) // stride if padding == 0 else (size - span + stride) // stride
        for size, span in zip((height, width), spans, strict=True)
    ]
    shape = (1, *kernel, channels) if depthwise else (outputs, *kernel, channels)
    scales = rng.uniform(1e-3, 0.5, outputs).astype(np.float32)
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    zero, target = data.draw(st.tuples(st.integers(-128, 127), st.integers(-128, 127)))
    x = quantized("x", (1, height, width, channels), 0.03, zero)
    y = quantized("y", (1, *sizes, outputs), data.draw(st.sampled_from([0.01, 0.3, 20.0])), target)
    w = Tensor("w", shape, shape, np.dtype(np.int8), weights, Quantization(scales, 0, 3 if depthwise else 0))
    bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
    b = Tensor("b", (outputs,), (outputs,), np.dtype(np.int32), bias, Quantization(scales * np.float32(0.03)))
    options: Any = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
    options.padding, options.strideH, options.strideW = padding, stride, stride
    options.dilationHFactor = options.dilationWFactor = dilation
    options.fusedActivationFunction = data.draw(st.sampled_from([0, 1, 3]))
    if depthwise:
        options.depthMultiplier = 1
    graph = Graph([x], [y])
    graph.add("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, w, b], [y], options, 3)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    code=st.sampled_from(["ADD", "SUB", "MUL"]),
    scales=st.tuples(*[st.sampled_from([0.008, 0.03, 0.5, 1.7])] * 3),
    zeros=st.tuples(*[st.integers(-128, 127)] * 3),
    shapes=st.sampled_from([((1, 5, 3), (1, 5, 3)), ((2, 5, 3), (1, 1, 3)), ((1, 4, 1), (1, 1, 7)), ((1, 9), (1, 1))]),
    activation=st.sampled_from([0, 1, 3]),
    rounding=st.sampled_from(LITERT),
)
def test_int8_sums_and_products_are_equal_bit_for_bit(
    code: str, scales: Any, zeros: Any, shapes: Any, activation: int, rounding: str
) -> None:
    first, second = (quantized(name, *of) for name, *of in zip("ab", shapes, scales, zeros, strict=False))
    y = quantized("y", tuple(np.broadcast_shapes(*shapes)), scales[2], zeros[2])
    options: Any = {"ADD": schema.AddOptionsT, "SUB": schema.SubOptionsT, "MUL": schema.MulOptionsT}[code]()
    options.fusedActivationFunction = activation
    graph = Graph([first, second], [y])
    graph.add(code, [first, second], [y], options, 2)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), rounding=st.sampled_from(LITERT), per_channel=st.booleans())
def test_any_int8_layer_is_equal_bit_for_bit(data: st.DataObject, rounding: str, per_channel: bool) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    outputs, inputs, rows = (data.draw(st.integers(1, most)) for most in (33, 40, 6))
    scales = rng.uniform(1e-3, 0.05, outputs if per_channel else 1).astype(np.float32)
    weights = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
    x = quantized("x", (rows, inputs), 0.04, data.draw(st.integers(-128, 127)))
    y = quantized("y", (rows, outputs), data.draw(st.sampled_from([0.02, 0.3])), data.draw(st.integers(-128, 127)))
    w = Tensor("w", weights.shape, weights.shape, weights.dtype, weights, Quantization(scales))
    graph = Graph([x], [y])
    graph.add("FULLY_CONNECTED", [x, w], [y], schema.FullyConnectedOptionsT(), 5)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    code=st.sampled_from(["RELU", "RELU6", "LOGISTIC", "TANH", "QUANTIZE", "SOFTMAX"]),
    scales=st.tuples(st.sampled_from([0.02, 0.05, 0.11]), st.sampled_from([0.03, 0.047, 0.2])),
    zeros=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    rounding=st.sampled_from(LITERT),
)
def test_int8_functions_are_equal_bit_for_bit(
    code: str, scales: tuple[float, float], zeros: tuple[int, int], rounding: str
) -> None:
    fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0), "SOFTMAX": (1 / 256, -128)}  # TFLite wants these
    x = quantized("x", (1, 300), scales[0], zeros[0])
    y = quantized("y", (1, 300), *fixed.get(code, (scales[1], zeros[1])))
    options: Any = schema.SoftmaxOptionsT() if code == "SOFTMAX" else None
    if options is not None:
        options.beta = 1.0
    graph = Graph([x], [y])
    graph.add(code, [x], [y], options, 2)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(-1, 20), st.integers(0, 8)), min_size=1, max_size=30))
def test_values_that_live_at_one_time_do_not_overlap(lives: list[tuple[int, int, int]]) -> None:
    values = [Value("v", size, None, first, first + length) for size, first, length in lives]

    plan = arena.place(values, 16)

    for i, one in enumerate(values):
        start = plan.places[id(one)]
        assert start % 16 == 0
        assert start + one.nbytes <= plan.nbytes
        for other in values[:i]:
            place = plan.places[id(other)]
            if one.first <= other.last and other.first <= one.last:
                assert start + one.nbytes <= place or place + other.nbytes <= start


def test_variables_stay_from_run_to_run_as_litert_keeps_them() -> None:
    content = stateful_tflite.in_resource()

    compiled, checked = compile_file(content, "sum")

    assert checked == "equal to LiteRT on 24 steps of a stream"
    image = compiled_check.Image(compiled)
    assert [float(image.run({"x": np.full(1, value, np.float32)})["y"][0]) for value in (1, 2, 2)] == [11, 13, 15]


def test_first_values_that_are_computed_are_refused() -> None:
    content = stateful_tflite.in_resource(is_computed=True)

    with pytest.raises(UnsupportedModel, match="first values of variables are computed by NEG"):
        compile_file(content, "sum")


def test_all_that_is_missing_is_said_at_once() -> None:
    x, y = plain("x", (1, 4)), plain("y", (1, 4))
    between = [plain(name, (1, 4)) for name in "ab"]
    graph = Graph([x], [y])
    graph.add("SIN", [x], [between[0]])
    graph.add("COS", [between[0]], [between[1]])
    graph.add("EXP", [between[1]], [y])

    with pytest.raises(UnsupportedOperator, match="`SIN`, `COS`") as caught:
        writer.write(graph)
    assert "EXP" not in caught.value.message


def test_a_free_size_and_a_type_without_kernels_are_refused() -> None:
    free = Tensor("x", (1, 4), (-1, -1), np.dtype(np.float32))
    with pytest.raises(UnsupportedModel, match="fixed sizes"):
        writer.write(Graph([free], [free]))
    wide = Tensor("x", (1, 4), (1, 4), np.dtype(np.float16))
    with pytest.raises(UnsupportedModel, match="float16"):
        writer.write(Graph([wide], [wide]))


def test_a_limit_on_the_memory_names_the_operator_in_the_way() -> None:
    graph = connected(np.ones((40, 3), np.int8))
    needed = writer.write(graph).arena_bytes

    assert writer.write(graph, arena_max=needed).arena_bytes == needed
    with pytest.raises(ConversionError, match="operator 0, FULLY_CONNECTED") as caught:
        writer.write(graph, arena_max=needed - 1)
    assert f"--arena-max {needed}" in caught.value.hint
    assert "alone needs" in caught.value.message


def test_the_command_writes_a_page_and_says_what_it_made(bundle: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(compile_, [str(bundle), "-o", str(tmp_path / "site"), "--to", "page", "--json"])

    assert done.exit_code == 0, done.output
    written = {path.name: path.stat().st_size for path in (tmp_path / "site").iterdir() if path.name != LIST}
    document = json.loads(done.stdout)
    assert document["files"] == written
    assert {*written} == {"model.wasm", "model.js", "model.d.ts"}
    assert document["checked"] == "equal to LiteRT on 4 random inputs"
    assert document["multiply_accumulates"] == sum(one["multiply_accumulates"] for one in document["layers"]) > 0


def test_the_command_writes_the_smaller_file_or_says_that_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "whole.tflite").write_bytes(flatbuffer.write(connected(np.ones((4, 3), np.int8)), "one"))
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn()))
    (tmp_path / "float.tflite").write_bytes(tflite.write(model).data)
    sizes, said = {}, {}
    for name in ("whole", "float"):
        for way in ("size", "speed"):
            words = [str(tmp_path / f"{name}.tflite"), "-o", str(tmp_path / name / way), "--optimize", way]
            done = CliRunner().invoke(compile_, words)
            assert done.exit_code == 0, done.output
            sizes[name, way] = (tmp_path / name / way / "model.wasm").stat().st_size
            said[name, way] = "--optimize makes no difference here" in done.stderr

    assert 2_500 < sizes["whole", "speed"] - sizes["whole", "size"] < 3_000
    assert sizes["float", "speed"] == sizes["float", "size"]
    assert said == {pair: pair[0] == "float" for pair in said}


def test_long_names_are_cut_in_reports_and_messages(tmp_path: Path) -> None:
    name = "block/" * 60
    graph = connected(np.ones((40, 3), np.int8))
    for tensor in (*graph.inputs, *graph.outputs):
        tensor.name = f"{tensor.name}/{name}"
    compiled = writer.write(graph)

    (row,) = re.findall(r"<td title=.*?</td>", "".join(section(compiled, name)))
    assert row.count("block/") == 60 + 6
    drawn = [
        one.text or "" for one in ElementTree.fromstring(draw(compiled, name)).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert max(map(len, drawn)) < 115, "letters of the drawing's width"
    with pytest.raises(ConversionError) as caught:
        writer.write(graph, arena_max=8)
    assert len(caught.value.message) + len(caught.value.hint) < 400


def test_the_command_refuses_and_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    (tmp_path / "x.onnx").write_bytes(b"")
    for words, message in (
        ([str(tmp_path / "missing.tflite")], "There is no file"),
        ([str(tmp_path / "missing.onnx")], "There is no file or bundle"),
        ([str(tmp_path / "x.onnx"), "--variant", "onnx/int8"], "without variants"),
        ([str(bundle), "--variant", "tflite/int4"], "has no variant `tflite/int4`; choose from"),
    ):
        done = CliRunner().invoke(compile_, [*words, "-o", str(target)])
        assert isinstance(done.exception, InputError)
        assert message in str(done.exception)
    assert not target.exists()


def test_an_onnx_file_is_compiled_by_way_of_tflite(tmp_path: Path) -> None:
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn())), tmp_path / "net.onnx")

    done = CliRunner().invoke(compile_, [str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out")])

    assert done.exit_code == 0, done.output
    assert "equal to LiteRT on 4 random inputs" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model.wasm", LIST}
    refused = CliRunner().invoke(
        compile_, [str(tmp_path / "net.onnx"), "-o", str(tmp_path / "x"), "--variant", "tflite/int8"]
    )
    assert isinstance(refused.exception, InputError)


def test_sizes_that_contradict_each_other_are_refused() -> None:
    graph = connected(np.ones((4, 3), np.int8))
    weights = graph.operators[0].inputs[1]
    assert weights is not None
    weights.data = np.ones((9, 3), np.int8)

    with pytest.raises(UnsupportedOperator, match="its sizes contradict each other"):
        writer.write(graph)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_damaged_files_are_compiled_or_refused_and_crash_nothing(bundle: Path, tmp_path: Path) -> None:
    """In a process of its own, as a kernel that leaves its memory would end it."""
    script = tmp_path / "damage.py"
    script.write_text(
        "import sys, random\n"
        "from pathlib import Path\n"
        "from edge_infer.errors import EdgeInferError\n"
        "from edge_infer_converters.measure import compiled_check\n"
        "from edge_infer_converters.writers.compiled import writer\n"
        "from edge_infer_converters.writers.tflite import reading\n"
        "import numpy as np\n"
        "whole, random_ = Path(sys.argv[1]).read_bytes(), random.Random(7)\n"
        "ends = {'compiled': 0, 'refused': 0}\n"
        "for _ in range(150):\n"
        "    content = bytearray(whole)\n"
        "    for _ in range(random_.randint(1, 12)):\n"
        "        first = random_.choice([0, max(len(content) - 12000, 0)])\n"
        "        place = random_.randrange(first, len(content))\n"
        "        content[place] = random_.choice([0, 1, 2, 3, 127, 128, 255, content[place] ^ 1])\n"
        "    try:\n"
        "        compiled = writer.write(reading.read(bytes(content), 'damaged').graph)\n"
        "        feeds = {one.name: np.zeros(one.shape, one.dtype) for one in compiled.program.inputs}\n"
        "        compiled_check.run(compiled, feeds)\n"
        "        ends['compiled'] += 1\n"
        "    except EdgeInferError:\n"
        "        ends['refused'] += 1\n"
        "print(ends['compiled'], ends['refused'])\n"
    )
    for name in ("model.tflite", "model_int8.tflite"):
        words = [sys.executable, str(script), str(bundle / "tflite" / name)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        compiled, refused = map(int, done.stdout.split())
        assert compiled > 5
        assert refused > 5


@pytest.mark.long
@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
def test_real_models_compile_or_say_why_not() -> None:
    assert ZOO is not None
    found = []
    for path in sorted(ZOO.glob("*.tflite")):
        content = path.read_bytes()
        try:
            for rounding in LITERT:
                assert "equal" in compile_file(content, path.name, rounding).checked, path.name
        except (UnsupportedModel, UnsupportedOperator, ConversionError) as error:
            assert error.hint, path.name
            continue
        found.append(path.stem)
    assert found == sorted(COMPILED)


@pytest.mark.long
@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
def test_a_real_onnx_model_compiles(tmp_path: Path) -> None:
    assert ZOO is not None
    words = [str(ZOO / "silero_openvino16k.onnx"), "-o", str(tmp_path)]

    done = CliRunner().invoke(compile_, words)

    assert "equal to LiteRT" in done.stderr, done.output


def quantized(name: str, shape: tuple[int, ...], scale: float, zero: int) -> Tensor:
    return Tensor(name, shape, shape, np.dtype(np.int8), None, Quantization(np.array([scale], np.float32), zero))


def plain(name: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, shape, shape, np.dtype(np.float32))


def connected(weights: np.ndarray) -> Graph:
    """A fully connected layer of int8 from `x` to `y`."""
    outputs, inputs = weights.shape
    x, y = quantized("x", (1, inputs), 0.5, 3), quantized("y", (1, outputs), 0.25, -5)
    w = Tensor("w", weights.shape, weights.shape, weights.dtype, weights, Quantization(np.array([0.01], np.float32)))
    graph = Graph([x], [y])
    graph.add("FULLY_CONNECTED", [x, w], [y], schema.FullyConnectedOptionsT(), 4)
    return graph


def in_node(wasm: bytes, inputs: dict[str, list[float]], kind: str, folder: Path) -> dict[str, list[float]]:
    """Run a model by the page's module in Node; integers stay integers unless the inputs are plain arrays."""
    from edge_infer_converters.writers.compiled import page_files

    (folder / "model.mjs").write_bytes(page_files()["model.js"])
    (folder / "model.wasm").write_bytes(wasm)
    types = {"float32": "Float32Array", "int8": "Int8Array", "Array": "Array"}
    script = f"""
        import {{ load }} from "./model.mjs";
        import {{ readFileSync }} from "node:fs";
        const model = await load(readFileSync("model.wasm"));
        const given = Object.entries({json.dumps(inputs)}).map(([name, values]) => [name, {types[kind]}.from(values)]);
        const found = model.run(Object.fromEntries(given), {{ quantized: {json.dumps(kind != "Array")} }});
        console.log(JSON.stringify(Object.fromEntries(Object.entries(found).map(([name, one]) => [name, [...one]]))));
    """
    (folder / "run.mjs").write_text(script)
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, list[float]] = json.loads(done.stdout)
    return results


def test_the_memory_is_drawn_call_by_call(tmp_path: Path) -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(NETS["ds_cnn"]()))
    content = tflite.write(model).data
    (tmp_path / "net<1>.tflite").write_bytes(content)

    done = CliRunner().invoke(
        compile_,
        [
            *(str(tmp_path / "net<1>.tflite"), "-o", str(tmp_path), "--timeline", str(tmp_path / "arena.svg")),
            *("--report", str(tmp_path / "report.html"), "--json"),
        ],
    )

    assert done.exit_code == 0, done.output
    picture = ElementTree.parse(tmp_path / "arena.svg")
    spans = [one for one in picture.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") == "span"]
    compiled = writer.write(reading.read(content, "net").graph)
    assert len(spans) == len(compiled.spans)
    assert max(one.offset + one.nbytes for one in compiled.spans) == compiled.arena_bytes
    assert "net&lt;1&gt;" in (tmp_path / "arena.svg").read_text()
    page = (tmp_path / "report.html").read_text()
    assert b64encode((tmp_path / "arena.svg").read_bytes()).decode() in page
    assert page.count(f"<td>{compiled.layers[0].kernel}</td>") >= 1
    assert f"{compiled.multiply_accumulates:,} multiplications a run" in page
    assert "<1>" not in page
