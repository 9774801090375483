"""Compiled models that are not what they should be: refused before a kernel runs, or run inside their memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer.backends.compiled import ProgramModel
from edge_infer.errors import UnsupportedModel
from edge_infer.formats import wasm
from edge_infer.formats.program import SECTION, Program, ProgramTensor, read_compiled
from edge_infer.kernels.declarations import ABI, KERNELS
from edge_infer.kernels.library import wasm_bytes
from edge_infer.tensors.tensor import Tensor as EdgeTensor
from edge_infer_converters.writers.compiled.linker import link
from tests.support.kernels.compiled_models import COMPILED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer_converters.writers.compiled.writer import Compiled


CONTENT = COMPILED.wasm
CONVOLUTION = [kernel for kernel, _ in COMPILED.program.calls].index("convolution_float")


def _number(value: int) -> bytes:
    found = bytearray()
    while True:
        value, byte = value >> 7, value & 127
        found.append(byte | (128 if value else 0))
        if not value:
            return bytes(found)


def with_document(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Change the program and write the module again."""
    found = bytearray(wasm.MAGIC)
    for kind, section in wasm.sections(CONTENT):
        written = section
        if kind == wasm.CUSTOM:
            title, place = wasm.name(section)
            document = json.loads(section[place:])
            change(document)
            written = section[:place] + json.dumps(document).encode()
            assert title == SECTION
        found += bytes([kind]) + _number(len(written)) + written
    return bytes(found)


def with_row(call: int, changes: dict[int, int], source: Compiled = COMPILED) -> bytes:
    """Change words of a call's arguments."""
    constants = bytearray(source.constants)
    place = source.program.calls[call][1]
    for word, value in changes.items():
        struct.pack_into("<i", constants, place + 4 * word, value)
    return link(wasm_bytes(), source.program, bytes(constants))


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(document: Any) -> None:
        for key in keys:
            document = document[key]
        document[last] = value

    return change


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "a later version": _set("version", 2),
    "another abi": _set("abi", 99),
    "no calls": lambda document: document.pop("calls"),
    "calls of a number": _set("calls", 3),
    "an unknown kernel": _set("calls", 0, ["system", 0]),
    "a kernel that is a list": _set("calls", 0, [["fill"], 0]),
    "a call without a place": _set("calls", 0, ["fill"]),
    "a place that is a text": _set("calls", 0, 1, "0"),
    "a place behind the constants": _set("calls", 0, 1, COMPILED.program.constant_bytes - 4),
    "a place before the image": _set("calls", 0, 1, -16),
    "a place between words": lambda document: _set("calls", 0, 1, document["calls"][0][1] + 1)(document),
    "an image of 2^31": _set("image_bytes", 2**31),
    "an image smaller than its constants": _set("image_bytes", 16),
    "an image of a fraction": _set("image_bytes", 1e5),
    "fewer constants": _set("constant_bytes", 16),
    "a base of another module": _set("base", 0),
    "a base that is true": _set("base", True),
    "an input in the constants": _set("inputs", 0, "offset", 0),
    "an input outside of the image": _set("inputs", 0, "offset", COMPILED.program.image_bytes),
    "an input between elements": lambda document: _set("inputs", 0, "offset", document["inputs"][0]["offset"] + 1)(
        document
    ),
    "an output of 2^62 elements": _set("outputs", 0, "shape", [2**31, 2**31]),
    "a negative size": _set("outputs", 0, "shape", [-1]),
    "a size that is true": _set("outputs", 0, "shape", [True]),
    "a shape of 100 dimensions": _set("outputs", 0, "shape", [1] * 100),
    "an unknown dtype": _set("outputs", 0, "dtype", "object"),
    "an output of texts": _set("outputs", 0, "dtype", "string"),
    "an output without a name": _set("outputs", 0, "name", None),
    "two outputs of one name": lambda document: document["outputs"].append(document["outputs"][0]),
    "a scale of infinity": _set("inputs", 0, "scale", float("inf")),
    "a zero point of a fraction": _set("inputs", 0, "zero", 0.5),
    "a rounding of a list": _set("rounding", []),
    "a row that is a text": _set("row", "yes"),
    "a row of two samples": lambda document: [_set("row", True)(document), _set("outputs", 0, "shape", [2])(document)],
    "operators that are a number": _set("operators", 3),
    "an operator too few": lambda document: document["operators"].pop(),
    "an operator of a fraction": _set("operators", 0, 0.5),
    "an operator before the first": _set("operators", 0, -2),
    "a state that is a number": _set("state", 3),
    "a state of two numbers": _set("state", [[0, 4]]),
    "a state in the constants": _set("state", [[0, 4, -1]]),
    "a state outside of the image": _set("state", [[COMPILED.program.image_bytes - 4, 8, -1]]),
    "a state of a negative size": _set("state", [[COMPILED.program.constant_bytes, -4, -1]]),
    "a first value outside of the constants": _set(
        "state", [[COMPILED.program.constant_bytes, 8, COMPILED.program.constant_bytes - 4]]
    ),
    "a state of fractions": _set("state", [[COMPILED.program.constant_bytes + 0.5, 4, -1]]),
    "a state in a program of rows": lambda document: [
        _set("state", [[COMPILED.program.constant_bytes, 4, -1]])(document),
        _set("row", True)(document),
    ],
}


@pytest.mark.parametrize("fault", [*WRONG])
def test_a_wrong_program_is_refused(fault: str, tmp_path: Path) -> None:
    file = tmp_path / "model.wasm"
    file.write_bytes(with_document(WRONG[fault]))

    with pytest.raises(UnsupportedModel, match="is not a compiled model that can run here") as refused:
        edge_infer.load(file)

    assert "edge-infer compile" in refused.value.hint


def test_a_wrong_call_is_refused() -> None:
    declared = KERNELS["convolution_float"]
    output = declared.tensors.index("output")
    count = len(declared.tensors)
    for changes in ({0: -1}, {0: 2**31 - 1}, {output: 0}, {output: -5}, {count: -1}, {count + 1: 2**30}):
        with pytest.raises(UnsupportedModel, match=r"outside|size|image|between"):
            read_compiled(with_row(CONVOLUTION, changes))


#: A window of 3 by 3 over an image of 4 by 4 with 8 channels, and where its tensors lie.
_WINDOW = {
    **dict.fromkeys(("input_height", "input_width", "output_height", "output_width"), 4),
    **dict.fromkeys(("input_channels", "output_channels"), 8),
    **dict.fromkeys(("batch", "stride_height", "stride_width", "dilation_height", "dilation_width"), 1),
    **dict.fromkeys(("kernel_height", "kernel_width"), 3),
    **dict.fromkeys(("pad_top", "pad_left"), 1),
}
_PLACES = {"input": 1024, "weights": 2048, "bias": 4096, "multipliers": 4224, "output": 4352, "scratch": 5120}
_SOFTMAX = {"rows": 2, "columns": 8, "output_bytes": 1}


_SVDF = {"batch": 1, "inputs": 4, "filters": 8, "rank": 2, "memory": 3, "state_bytes": 1}
_TREES = {"rows": 2, "columns": 4, "targets": 3, "node_count": 5, "vote_count": 6, "trees": 2}


def one_call(kernel: str, integers: dict[str, int], places: dict[str, int]) -> bytes:
    """A module of one call; what is not said is 0."""
    declared = KERNELS[kernel]
    words = [places.get(name, 2048) for name in declared.tensors] + [
        integers.get(name, 0) for name in declared.integers
    ]
    row = struct.pack(f"<{len(words)}i{len(declared.floats)}f", *words, *(1.0 for _ in declared.floats))
    constants = row.ljust(512, b"\0")
    tensor = ProgramTensor("x", "int8", (16,), 1024)
    program = Program("litert", 16384, len(constants), (tensor,), (tensor._replace(name="y"),), ((kernel, 0),), abi=ABI)
    return link(wasm_bytes(), program, constants)


@pytest.mark.parametrize(
    ("kernel", "integers", "places"),
    [
        ("depthwise_int8", _WINDOW, _PLACES),
        ("convolution_int8", _WINDOW, _PLACES | {"weights": 8192}),
        ("average_pool_int8", _WINDOW, _PLACES),
        ("softmax_int8", _SOFTMAX, {"output": 2048}),
        ("softmax_int8", _SOFTMAX, {"output": 2064}),
        ("softmax_int8", _SOFTMAX | {"rows": 0}, {}),
        ("softmax_int8_fixed", _SOFTMAX | {"output_bytes": 2}, {"output": 4096}),
        ("convolution_hybrid", _WINDOW, _PLACES | {"weights": 8192, "output": 12288, "parameters": 14336}),
        ("quantize_rows", {"rows": 2, "columns": 8, "output_bytes": 1}, {"output": 4096, "parameters": 5120}),
        ("requantize", {"count": 8, "input_bytes": 2, "output_bytes": 4}, {"output": 4096}),
        ("svdf_int8", _SVDF, {"output": 4096, "state": 5120}),
        # Nodes of zeros lead nowhere, and the next one is the last.
        ("trees", _TREES, {"nodes": 1024, "roots": 1024, "output": 4096, "scratch": 5120}),
        ("arg_max", {"rows": 2, "columns": 8}, {"output": 4096}),
        ("normalize_rows", {"rows": 2, "columns": 8, "kind": 2}, {"output": 4096}),
        ("distances", {"rows": 2, "columns": 4, "count": 3}, {"output": 4096}),
        ("pair_votes", {"rows": 1, "classes": 3, "has_probabilities": 1}, {"output": 4096, "scratch": 5120}),
    ],
)
def test_a_right_call_runs(kernel: str, integers: dict[str, int], places: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "model.wasm").write_bytes(one_call(kernel, integers, {"table": 12288} | places))

    with edge_infer.load(tmp_path / "model.wasm") as session:
        assert session.run({"x": np.zeros(16, np.int8)})["y"].shape == (16,)


@pytest.mark.parametrize(
    ("kernel", "integers", "places", "reason"),
    [
        # It would clear the number before its scratch, wherever that lies.
        ("convolution_int8", _WINDOW | {"input_channels": 0}, _PLACES | {"scratch": -(2**31)}, "a size of 0"),
        # Rows of a negative width would hide the size of its taps.
        (
            "depthwise_int8",
            _WINDOW | {"output_width": 0, "stride_width": 4096, "kernel_height": 4096, "kernel_width": 64},
            _PLACES,
            "a size of 0",
        ),
        # An average of no elements.
        ("average_pool_int8", _WINDOW | {"input_height": 0, "output_height": 1}, _PLACES, "a size of 0"),
        ("average_pool_float", _WINDOW | {"input_width": 0, "output_width": 1}, _PLACES, "a size of 0"),
        # The outputs would become the places of the taps.
        ("depthwise_int8", _WINDOW, _PLACES | {"output": 5120}, "overlap"),
        ("depthwise_int8_fixed", _WINDOW, _PLACES | {"output": 5120 - 100}, "overlap"),
        # A value that grows after the highest was found is looked up behind the table.
        ("softmax_int8", _SOFTMAX, {"output": 2049, "table": 12288}, "overlap"),
        ("softmax_int8_fixed", _SOFTMAX | {"output_bytes": 2}, {"output": 2048}, "overlap"),
        # The sums of votes would become nodes and roots.
        ("trees", _TREES, {"nodes": 5120, "output": 4096, "scratch": 5120}, "overlap"),
        # States, and the scales of rows, are written.
        ("svdf_int8", _SVDF, {"output": 4096, "state": 0}, "outside"),
        ("quantize_rows", {"rows": 2, "columns": 8, "output_bytes": 4}, {"output": 4096, "parameters": 0}, "outside"),
        ("svdf_int8", _SVDF | {"rank": 3}, {}, "a rank of 3"),
        ("svdf_int8", _SVDF | {"time_shift": 99}, {}, "a shift"),
        ("requantize", {"count": 8, "input_bytes": 8, "output_bytes": 4}, {}, "input_bytes of 8"),
        ("convolution_hybrid", _WINDOW, _PLACES | {"weights": 8192, "output": 15888}, "outside"),
        ("arg_max", {"rows": 2, "columns": 0}, {}, "a size of 0"),
        ("normalize_rows", {"rows": 2, "columns": 8, "kind": 3}, {}, "a norm of kind 3"),
        ("distances", {"rows": 2**12, "columns": 2**12, "count": 2**12}, {}, "a size of"),
        ("pair_votes", {"rows": 1, "classes": 2**20}, {}, "a size of"),
        ("pair_votes", {"rows": 1, "classes": 2**12, "has_probabilities": 1}, {}, "a size of"),
        ("pair_votes", {"rows": 1, "classes": 3}, {"output": 4096, "scratch": 4100}, "overlap"),
        ("trees", _TREES | {"targets": 0, "rows": 2**30, "trees": 2**30}, {}, "a size of"),
        # Loops around nothing that would take years.
        ("copy", {f"size_{i}": 2**31 - 1 for i in range(4)}, {}, "a size of"),
        ("add_int8", {"size_0": 2**31 - 1, "size_2": 9, "size_3": 2}, {}, "a size of"),
        ("gather", {"outer": 2**30, "rows": 1, "count": 2**30}, {}, "a size of"),
        # Between the elements.
        ("unary_float", {"count": 4}, {"input": 2049, "output": 2064}, "between elements"),
        ("convolution_int8", _WINDOW, _PLACES | {"bias": 4097}, "between elements"),
        ("gather", {"outer": 1, "rows": 1, "count": 1, "block": 1}, {"positions": 1026}, "between elements"),
    ],
)
def test_a_call_that_would_leave_its_memory_is_refused(
    kernel: str, integers: dict[str, int], places: dict[str, int], reason: str
) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        read_compiled(one_call(kernel, integers, places))


def test_damaged_trees_do_not_leave_their_nodes() -> None:
    """What a node says is not checked before: the kernel itself leaves a tree that leads out of its nodes, or back."""
    rng = np.random.default_rng(9)
    edges = np.array([-1, 0, 1, 4, 5, 6, 1 << 27, 2**31 - 1, -(2**31), 0x13, 0x1B])
    sizes = {"rows": 1, "columns": 4, "targets": 3, "node_count": 5, "vote_count": 6, "trees": 2}
    names = ("output", "base", "scratch")
    rows = {"input": 1024, "nodes": 64, "votes": 192, "roots": 256} | dict(zip(names, (4096, 288, 5120), strict=True))
    for _ in range(200):
        content = one_call("trees", sizes, rows)
        compiled = read_compiled(content)
        constants = bytearray(compiled.constants)
        constants[64:512] = rng.choice(edges, 112).astype(np.int32).tobytes()
        model = ProgramModel(compiled._replace(constants=bytes(constants)))
        feeds = {"x": EdgeTensor(b"\x7f" * 16, "int8", (16,))}
        assert model.run(feeds, ["y"], {}, ())["y"].shape == (16,)


def test_an_output_in_the_constants_cannot_be_written() -> None:
    content = with_document(_set("outputs", 0, "offset", 0))
    call = ProgramModel(read_compiled(content)).bind({"image": (1, 1, 49, 10)})
    (output,) = call.outputs.values()
    before = bytes(call._image.constants)

    with suppress(TypeError):  # a copy in Python 3.11, read-only memory later
        output.data()[:] = bytes(output.nbytes)

    assert any(before[: output.nbytes])
    assert bytes(call._image.constants) == before


def test_an_output_of_no_elements_is_given() -> None:
    model = ProgramModel(read_compiled(with_document(_set("outputs", 0, "shape", [1, 0]))))
    (spec,) = model.inputs
    shape = tuple(1 if isinstance(dim, str) else dim for dim in spec.shape)
    feeds = {spec.name: EdgeTensor(bytes(spec.dtype.nbytes(shape)), spec.dtype, shape)}
    name = model.outputs[0].name

    assert model.run(feeds, [name], {}, ())[name].shape == (1, 0)


def test_an_unknown_operation_is_refused() -> None:
    # The fourth word of the convolution, a place, is the operation of the other kernel.
    content = with_document(lambda found: found["calls"][CONVOLUTION].__setitem__(0, "unary_float"))

    with pytest.raises(UnsupportedModel, match="`unary_float` has no operation"):
        read_compiled(content)


@pytest.mark.parametrize("content", [b"", b"\0asm", CONTENT[:8], CONTENT[8:], b"\0asm\1\0\0\0" + b"\xff" * 9])
def test_what_is_no_module_is_refused(content: bytes) -> None:
    with pytest.raises(UnsupportedModel):
        read_compiled(content)


def test_a_module_that_is_cut_short_is_refused() -> None:
    for size in range(0, len(CONTENT) - 1, 997):
        with pytest.raises(UnsupportedModel):
            read_compiled(CONTENT[:size])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(rest: bytes) -> None:
    with pytest.raises(UnsupportedModel):
        read_compiled(wasm.MAGIC + rest)


_RUN = """
import random, struct, sys
from edge_infer.backends.compiled import ProgramModel
from edge_infer.errors import UnsupportedModel
from edge_infer.formats.program import read_compiled
from edge_infer.kernels.declarations import KERNELS
from edge_infer.tensors.tensor import Tensor
from tests.hostile import test_compiled_files as files
from tests.support.kernels import compiled_models

seed, ran = int(sys.argv[1]), 0
source = getattr(compiled_models, sys.argv[2])
chance = random.Random(seed)
edges = [-1, 0, 1, 2, 3, 7, 8, 16, 17, 255, 1000, 2**15, 2**31 - 1, -(2**31)]
for _ in range(150):
    call = chance.randrange(len(source.program.calls))
    declared = KERNELS[source.program.calls[call][0]]
    words = range(len(declared.tensors) + len(declared.integers))
    changes = {chance.choice(words): chance.choice(edges) for _ in range(chance.randint(1, 2))}
    try:
        model = ProgramModel(read_compiled(files.with_row(call, changes, source)))
    except UnsupportedModel:
        continue
    shapes = {s.name: tuple(1 if isinstance(dim, str) else dim for dim in s.shape) for s in model.inputs}
    feeds = {s.name: Tensor(b"\\x7f" * s.dtype.nbytes(shapes[s.name]), s.dtype, shapes[s.name]) for s in model.inputs}
    model.run(feeds, [s.name for s in model.outputs], {}, ())
    ran += 1
print(ran)
"""


@pytest.mark.parametrize("source", ["COMPILED", "RECURRENT", "FILTERED"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_damaged_calls_do_not_leave_their_memory(seed: int, source: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _RUN, str(seed), source], capture_output=True, text=True, timeout=120, check=False
    )

    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 0
