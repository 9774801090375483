"""Models in C compute what LiteRT or TFLite Micro computes: on this machine, and on an emulated Cortex-M4."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import ConversionError, InputError
from edge_infer_converters.compilation import compile_to_c
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.writers.compiled.calls import Value
from edge_infer_converters.writers.microcontroller import memory, project
from edge_infer_converters.writers.microcontroller.names import KEYWORDS, prefix_of
from edge_infer_converters.writers.microcontroller.text import number as c_number
from edge_infer_converters.written_files import LIST
from tests.support import real_models
from tests.support.microcontroller import networks
from tests.support.microcontroller.folders import ARM, SANITIZED, STRICT, make, written
from tests.support.zoo import model as onnx_model

if TYPE_CHECKING:
    from pathlib import Path


ZOO = real_models.folder()
WAYS = ("size", "speed")


@pytest.mark.parametrize(("rounding", "way"), [("reference", "size"), ("litert", "speed")])
def test_a_network_in_c_gives_the_bytes_of_litert(tmp_path: Path, rounding: str, way: str) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    content = networks.residual()
    made, checked = compile_to_c(content, "residual.tflite", "net", rounding, way)
    folder = written(tmp_path, made)

    assert "net: 2 of 2 goldens as they should be" in make(
        folder, "test", flags=SANITIZED if way == "speed" else STRICT
    )
    make(folder, "net", flags=STRICT)
    assert checked.startswith("equal to LiteRT")
    resolver = OpResolverType.AUTO if rounding == "litert" else OpResolverType.BUILTIN_REF
    engine: Any = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    engine.allocate_tensors()
    for seed in range(3):
        image = np.random.default_rng(seed).integers(-128, 128, (1, 11, 9, 3)).astype(np.int8)
        np.save(tmp_path / "in.npy", image)
        with (tmp_path / "in.npy").open("rb") as source, (tmp_path / "out.npy").open("wb") as target:
            subprocess.run([folder / "net"], stdin=source, stdout=target, check=True)
        engine.set_tensor(engine.get_input_details()[0]["index"], image)
        engine.invoke()
        want = engine.get_tensor(engine.get_output_details()[0]["index"])
        assert np.array_equal(np.load(tmp_path / "out.npy"), want)


def test_the_test_in_c_fails_where_a_byte_differs(tmp_path: Path) -> None:
    made, _ = compile_to_c(networks.residual(), "residual.tflite", "net")
    folder = written(tmp_path, made)
    text = (folder / "test_main.c").read_text()
    head, _, tail = text.partition("outputs_0[2][5] = {\n  {\n  ")
    first, _, rest = tail.partition(",")
    (folder / "test_main.c").write_text(f"{head}outputs_0[2][5] = {{\n  {{\n  {int(first) ^ 1},{rest}")

    done = subprocess.run(["make", "-s", "-C", str(folder), "test"], capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert "golden 0 differs" in done.stdout


def test_the_program_for_files_says_what_is_wrong_with_them(tmp_path: Path) -> None:
    folder = written(tmp_path, compile_to_c(networks.residual(), "residual.tflite", "net").folder)
    make(folder, "net", flags="-std=c99")
    whole = np.zeros((1, 11, 9, 3), np.int8)
    np.save(tmp_path / "whole.npy", whole)
    np.save(tmp_path / "floats.npy", whole.astype(np.float32))
    np.save(tmp_path / "turned.npy", np.asfortranarray(whole.repeat(2, 0)))
    valid = (tmp_path / "whole.npy").read_bytes()
    cases = {
        b"": "expected a .npy file",
        b"PK\x03\x04" + bytes(20): "expected a .npy file",
        valid[:60]: "the .npy header",
        valid[:-1]: "fewer elements",
        valid + b"x": "more follows",
        (tmp_path / "floats.npy").read_bytes(): "expected an array of '|i1'",
        (tmp_path / "turned.npy").read_bytes(): "C order",
    }
    for data, said in cases.items():
        done = subprocess.run([folder / "net"], input=data, capture_output=True, timeout=20)
        assert done.returncode == 1
        assert said in done.stderr.decode()


def test_the_command_prints_what_a_board_needs_before_it_writes(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(networks.residual())
    command = [str(tmp_path / "net.tflite"), "-o", str(tmp_path / "out"), "--to", "c"]

    plain = CliRunner().invoke(compile_, [*command, "--timeline", str(tmp_path / "arena.svg")])
    found = json.loads(CliRunner().invoke(compile_, [*command, "--optimize", "speed", "--json"]).stdout)

    assert "RAM " in plain.output
    assert "Flash about" in plain.output
    assert (tmp_path / "arena.svg").read_text().startswith("<svg")
    assert sorted([*found["files"], LIST]) == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert f"#define NET_ARENA_BYTES {found['arena_bytes']}" in (tmp_path / "out/net.h").read_text()
    assert found["multiply_accumulates"] == sum(layer["multiply_accumulates"] for layer in found["layers"]) > 0


def test_an_arena_over_the_limit_names_the_layer_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(networks.residual())
    out = tmp_path / "out"

    done = CliRunner().invoke(
        compile_, [str(tmp_path / "net.tflite"), "-o", str(out), "--to", "c", "--arena-max", "1kB"]
    )

    assert isinstance(done.exception, ConversionError)
    assert "expected at most 1000; operator" in done.exception.message
    assert "--arena-max" in done.exception.hint
    assert not out.exists()


def test_what_cannot_be_c_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(networks.residual())
    cases = {
        ("--to", "c", "--prefix", "while"): InputError,
        ("--to", "c", "--prefix", "1st"): InputError,
        ("--to", "page", "--prefix", "net"): InputError,
        ("--to", "wasm", "--optimize", "fast"): SystemExit,
        ("--to", "c", "--arena-max", "much"): SystemExit,
        ("--to", "c", "--arena-max", "0"): SystemExit,
    }
    for options, expected in cases.items():
        done = CliRunner().invoke(compile_, [str(tmp_path / "net.tflite"), "-o", str(tmp_path / "out"), *options])
        assert isinstance(done.exception, expected), options
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").write_text("mine")
    done = CliRunner().invoke(compile_, [str(tmp_path / "net.tflite"), "-o", str(tmp_path / "out"), "--to", "c"])
    assert isinstance(done.exception, InputError)
    assert done.exception.hint == f"-o {tmp_path}/out_compiled"
    assert (tmp_path / "out").read_text() == "mine"


@settings(max_examples=30, deadline=None, derandomize=True)
@given(name=st.text(max_size=60))
def test_any_file_name_gives_a_name_in_c(name: str) -> None:
    found = prefix_of(name, None)

    assert prefix_of("any", found) == found
    assert found.isidentifier()
    assert found.isascii()
    assert found not in KEYWORDS


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), depthwise=st.booleans())
def test_no_output_overwrites_what_is_still_read(data: st.DataObject, depthwise: bool) -> None:
    draw = data.draw
    given_channels = draw(st.integers(1, 4))
    sizes: dict[str, int] = {"batch": draw(st.integers(1, 2)), "input_channels": given_channels}
    sizes["output_channels"] = given_channels if depthwise else draw(st.integers(1, 6))
    for side, pad in (("height", "pad_top"), ("width", "pad_left")):
        kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        sizes |= {f"kernel_{side}": kernel, f"stride_{side}": stride, pad: draw(st.integers(0, kernel - 1))}
        sizes[f"input_{side}"] = draw(st.integers(kernel, 6))
        sizes[f"output_{side}"] = (sizes[f"input_{side}"] + sizes[pad] - kernel) // stride + 1
    kernel_name = "depthwise_int8" if depthwise else "convolution_int8"
    below = memory.distance(kernel_name, sizes, 1, in_columns=False)

    image = sizes["batch"] * sizes["input_height"] * sizes["input_width"] * given_channels
    places = sizes["batch"] * sizes["output_height"] * sizes["output_width"]
    cells = [*range(-below, 0), *range(max(image, places * sizes["output_channels"]) + below)]
    held = dict.fromkeys(cells, -1) | {i: i for i in range(image)}  # the input starts at 0, the output below it
    written_to = -below
    for place in range(places):
        for channel in range(sizes["output_channels"]):
            for cell in _window(sizes, place, channel if depthwise else None):
                assert held[cell] == cell
            held[written_to] = -1
            written_to += 1


def _window(sizes: dict[str, int], place: int, channel: int | None) -> list[int]:
    """Return the elements of the input that a place of the output sees."""
    height, width, channels = (sizes[f"input_{name}"] for name in ("height", "width", "channels"))
    rest, ox = divmod(place, sizes["output_width"])
    batch, oy = divmod(rest, sizes["output_height"])
    top, left = oy * sizes["stride_height"] - sizes["pad_top"], ox * sizes["stride_width"] - sizes["pad_left"]
    return [
        ((batch * height + y) * width + x) * channels + c
        for y in range(max(top, 0), min(top + sizes["kernel_height"], height))
        for x in range(max(left, 0), min(left + sizes["kernel_width"], width))
        for c in (range(channels) if channel is None else [channel])
    ]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=12),
    distances=st.lists(st.integers(0, 200), max_size=4),
)
def test_values_of_one_time_lie_apart(sizes: list[tuple[int, int, int]], distances: list[int]) -> None:
    values = [Value(str(i), size, None, first, first + length) for i, (size, first, length) in enumerate(sizes)]
    pairs = zip(values, values[1:], distances, strict=False)
    over = [memory.Over(a, b, below) for a, b, below in pairs]

    plan = memory.place(values, over, 4)

    allowed = {(one.output.name, one.given.name): one.distance for one in over}
    for i, a in enumerate(values):
        for b in values[i + 1 :]:
            start, other = plan.places[id(a)], plan.places[id(b)]
            if a.last < b.first or b.last < a.first or start + a.nbytes <= other or other + b.nbytes <= start:
                continue
            assert start + allowed.get((a.name, b.name), 2**30) <= other
    assert plan.nbytes == max(plan.places[id(one)] + one.nbytes for one in values)


def test_floats_and_variables_in_c(tmp_path: Path) -> None:
    from onnx import helper

    from edge_infer_converters.writers import tflite
    from tests.support import zoo

    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"]),
    ]
    filters = {"w": rng.normal(size=(5, 2, 3, 3)).astype(np.float32)}
    import onnx

    proto = onnx_model(nodes, [zoo.value("x", [1, 2, 6, 7])], [zoo.value("y", [1, 5])], filters)
    content = tflite.write(onnx.shape_inference.infer_shapes(onnx.load_from_string(proto))).data
    folder = written(tmp_path, compile_to_c(content, "floats", "floats").folder)

    assert "2 of 2 goldens" in make(folder, "test", flags=STRICT)
    assert "<math.h>" in (folder / "floats.c").read_text()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of scikit-learn, of few steps and of what it will drop
@pytest.mark.parametrize("name", ["forest", "boosting", "logistic", "machine", "means", "network"])
def test_a_model_over_tables_in_c(name: str, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    import onnx
    from sklearn import cluster, datasets, ensemble, linear_model, neural_network, svm

    from edge_infer_converters.sources import sklearn

    rows, labels = datasets.load_iris(return_X_y=True)
    estimators: dict[str, Any] = {
        "forest": ensemble.RandomForestClassifier(10, random_state=0),
        "boosting": ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
        "logistic": linear_model.LogisticRegression(max_iter=1000),
        "machine": svm.SVC(probability=True, random_state=0),
        "means": cluster.KMeans(3, n_init=2, random_state=0),
        "network": neural_network.MLPClassifier((8,), max_iter=60, random_state=0),
    }
    sklearn.export(estimators[name].fit(rows.astype(np.float32), labels), tmp_path / "model.onnx", "the estimator")

    made, checked = compile_to_c(onnx.load(tmp_path / "model.onnx"), name, "table")

    assert checked.startswith("equal to onnxruntime")
    assert "2 of 2 goldens" in make(written(tmp_path / "c", made), "test")
    if ARM:
        assert "2 of 2 goldens" in make(tmp_path / "c", "qemu")


NEAR = [
    ([1e20, -2e20], [1e20, -2e20], True),
    ([1e20, -2e20], [1.01e20, -2e20], False),  # their squares are no floats
    ([3e38], [-3e38], False),
    ([1e-30, 2e-30], [1e-30, 2.1e-30], False),  # nor are these
    ([1.0, 1000.0], [1.0, 1000.0001], True),
    ([0.0, 0.0], [0.0, 0.0], True),
    ([0.0], [1e-20], False),
    ([float("inf"), 1.0], [float("inf"), 1.0], True),
    ([float("inf"), 1.0], [3e38, 1.0], False),
    ([1.0], [float("inf")], False),
    ([float("nan"), 1.0], [float("nan"), 1.0], True),
    ([1.0], [float("nan")], False),
]


def test_the_test_in_c_compares_floats_of_any_size(tmp_path: Path) -> None:
    lines = ["#include <math.h>", "#include <stdio.h>", project.template("is_near.c"), "int main(void) {"]
    for i, sides in enumerate(NEAR):
        for name, values in zip(("want", "got"), sides[:2], strict=True):
            numbers = ", ".join(c_number(np.float32(value)) for value in values)
            lines.append(f"  const float {name}_{i}[] = {{{numbers}}};")
    lines += [f'  printf("%d", is_near(want_{i}, got_{i}, {len(one[0])}));' for i, one in enumerate(NEAR)]
    (tmp_path / "near.c").write_text("\n".join([*lines, "  return 0;", "}", ""]))

    subprocess.run(["gcc", *SANITIZED.split(), "-o", "near", "near.c", "-lm"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "near"], capture_output=True, text=True, check=True)

    assert done.stdout == "".join(str(int(is_near)) for _, _, is_near in NEAR)
