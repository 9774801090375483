"""Write a TFLite graph as one WebAssembly file."""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ConversionError
from edge_infer.formats.program import ALIGNMENT, Program, ProgramState, ProgramTensor
from edge_infer.kernels.declarations import ABI, KERNELS
from edge_infer.kernels.library import dot_bytes, wasm_bytes
from edge_infer_converters.writers.compiled import arena
from edge_infer_converters.writers.compiled.linker import link
from edge_infer_converters.writers.compiled.lowering import lower
from edge_infer_converters.writers.compiled.windows import multiply_accumulates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer_converters.writers.compiled.calls import Call, Value
    from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor

#: Beyond this an engine is the better choice: it has threads, and the download is no longer most of the wait.
MAX_MULTIPLY_ACCUMULATES = 50_000_000
#: The arguments of kernels are places in 32 bits, with a sign.
MAX_IMAGE_BYTES = 2**31
#: Names in messages and reports are cut behind so many letters.
MAX_NAME = 40
ROUNDINGS = ("litert", "reference", "tflm")


class Layer(NamedTuple):
    """One call, for the report.

    Attributes:
        operator: The operator of the model.
        kernel: What computes it.
        output: The name of its output.
        multiply_accumulates: The multiplications of its convolution; 0 for others.
        arena_bytes: The memory in use while it runs.
    """

    operator: str
    kernel: str
    output: str
    multiply_accumulates: int
    arena_bytes: int


class Span(NamedTuple):
    """Memory of the arena while it is in use, for the report.

    Attributes:
        name: The tensor.
        first: The call that writes it first.
        last: The call that uses it last.
        offset: Where it lies in the arena, in bytes.
        nbytes: Its size.
    """

    name: str
    first: int
    last: int
    offset: int
    nbytes: int


class Compiled(NamedTuple):
    """A compiled model.

    Attributes:
        wasm: The file.
        program: Its calls.
        constants: The start of its image.
        layers: What it computes, in order.
        arena_bytes: The memory of its tensors.
        spans: Where each of them lies, and from which call to which.
    """

    wasm: bytes
    program: Program
    constants: bytes
    layers: tuple[Layer, ...]
    arena_bytes: int
    spans: tuple[Span, ...] = ()

    @property
    def multiply_accumulates(self) -> int:
        """The multiplications of all convolutions of a run."""
        return sum(layer.multiply_accumulates for layer in self.layers)


def write(
    graph: Graph,
    rounding: str = "litert",
    arena_max: int | None = None,
    *,
    fixes_batch: bool = False,
    for_size: bool = False,
    initial: Mapping[str, np.ndarray] | None = None,
) -> Compiled:
    """Compile a graph.

    Args:
        graph: The model. Where the batch of every input and output is free, a run computes one sample of a batch, else
            free batches become 1.
        rounding: How integers are rounded: `litert` as LiteRT with XNNPACK does, `reference` as LiteRT's reference
            kernels do, `tflm` as TFLite Micro does.
        arena_max: The most bytes that its tensors may take, or None.
        fixes_batch: Whether a free batch becomes 1 in any case: the samples of a batch depend on one another.
        for_size: Whether to leave out the int8 convolution for browsers on processors with a dot product of bytes.
        initial: The first values of its variables, by name; see `variables.initial_values`.

    Raises:
        UnsupportedOperator: No kernel computes some operators; all of them are named.
        UnsupportedModel: Its interface cannot be compiled.
        ConversionError: It is too large, or its tensors take more than `arena_max`.
    """
    check_size(graph)
    calls, inputs, outputs = lower(graph, rounding, initial)
    kept = [value for variable in calls.variables.values() for value in variable if value is not None]
    values = _values(calls.calls, (*inputs, *outputs, *kept))
    plan = arena.place([one for one in values if one.data is None], ALIGNMENT)
    if arena_max is not None and plan.nbytes > arena_max:
        raise _too_large(calls.calls, values, plan.nbytes, arena_max, graph.inputs)
    constants = bytearray()
    places = dict(plan.places)
    weights: dict[int, int] = {}
    for value in values:
        if value.data is not None:
            constants += bytes(-len(constants) % ALIGNMENT)
            weights[id(value)] = len(constants)
            constants += value.data
    constants += bytes(-len(constants) % 4)
    rows = len(constants)
    row_bytes = sum(4 * KERNELS[call.kernel].words for call in calls.calls)
    start = -(-(rows + row_bytes) // ALIGNMENT) * ALIGNMENT
    for identity, place in plan.places.items():
        places[identity] = start + place
    places |= weights
    listed = []
    for call in calls.calls:
        listed.append((call.kernel, len(constants)))
        constants += _row(call, places)
    constants += bytes(-len(constants) % ALIGNMENT)
    program = Program(
        rounding,
        start + plan.nbytes,
        len(constants),
        tuple(_end(one, places[id(value.root)]) for one, value in zip(graph.inputs, inputs, strict=True)),
        tuple(_end(one, places[id(value.root)]) for one, value in zip(graph.outputs, outputs, strict=True)),
        tuple(listed),
        abi=ABI,
        state=tuple(
            ProgramState(places[id(value)], value.nbytes, -1 if first is None else places[id(first)])
            for value, first in calls.variables.values()
        ),
        operators=tuple(call.layer for call in calls.calls),
        is_row=not kept
        and not fixes_batch
        and all(one.signature[:1] == (-1,) for one in (*graph.inputs, *graph.outputs)),
    )
    if program.image_bytes >= MAX_IMAGE_BYTES:
        raise ConversionError(
            f"The model takes {program.image_bytes} bytes of memory, a compiled one less than {MAX_IMAGE_BYTES}",
            hint="a smaller input, or `edge-infer convert` for an engine",
        )
    layers = tuple(
        Layer(
            call.operator,
            call.kernel,
            _output(call).name,
            multiply_accumulates(call.kernel, call.integers),
            _in_use(values, place),
        )
        for place, call in enumerate(calls.calls)
    )
    last = max(len(calls.calls) - 1, 0)
    spans = tuple(
        Span(value.name, max(value.first, 0), min(value.last, last), plan.places[id(value)], value.nbytes)
        for value in values
        if value.data is None
    )
    wasm = link(wasm_bytes(), program, bytes(constants), None if for_size else dot_bytes())
    return Compiled(wasm, program, bytes(constants), layers, plan.nbytes, spans)


def check_size(graph: Graph) -> None:
    """Refuse a model for which an engine is the better choice, before any work.

    Raises:
        ConversionError: A run takes more than `MAX_MULTIPLY_ACCUMULATES` multiplications.
    """
    total = sum(_multiplications(operator) for operator in graph.operators)
    if total > MAX_MULTIPLY_ACCUMULATES:
        raise ConversionError(
            f"The model takes {total / 1e6:.0f} million multiplications a run, a compiled one at most "
            f"{MAX_MULTIPLY_ACCUMULATES / 1e6:.0f}",
            hint="`edge-infer convert` writes a bundle for an engine, which has threads",
        )


def _multiplications(operator: Operator) -> int:
    """Return the multiplications of a convolution or of a layer: each output reads one filter."""
    if operator.code not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"):
        return 0
    weights = operator.inputs[1] if len(operator.inputs) > 1 else None
    if weights is None or not weights.rank:
        return 0
    if operator.code == "DEPTHWISE_CONV_2D":
        filters, moved = weights.shape[-1], operator.outputs[0]
    elif operator.code == "TRANSPOSE_CONV":  # each input is multiplied by every filter
        given = operator.inputs[2] if len(operator.inputs) > 2 else None
        filters, moved = weights.shape[-1], given or operator.outputs[0]
    else:
        filters, moved = weights.shape[0], operator.outputs[0]
    return prod(moved.shape) * (prod(weights.shape) // max(filters, 1))


def _values(calls: Sequence[Call], ends: Sequence[Value]) -> list[Value]:
    """Return the owners of all memory, each once, in the order of their first use."""
    found: dict[int, Value] = {id(one.root): one.root for one in ends}
    for call in calls:
        for part in call.tensors.values():
            if part is not None:
                found[id(part.value.root)] = part.value.root
    return list(found.values())


def _row(call: Call, places: dict[int, int]) -> bytes:
    """Return the arguments of a call as 32-bit words."""
    tensors = [-1 if part is None else places[id(part.value.root)] + part.offset for part in call.tensors.values()]
    numbers = [*tensors, *call.integers.values()]
    return struct.pack(f"<{len(numbers)}i{len(call.floats)}f", *numbers, *call.floats.values())


def _end(tensor: Tensor, place: int) -> ProgramTensor:
    found = tensor.quantization
    scale, zero = (float(found.scales[0]), int(found.zero_point)) if found and len(found.scales) == 1 else (0.0, 0)
    return ProgramTensor(tensor.name, str(tensor.dtype), tensor.shape, place, scale, zero)


def _output(call: Call) -> Value:
    part = call.tensors["output"]
    if part is None:
        raise AssertionError("each kernel has an output")
    return part.value


def _in_use(values: Sequence[Value], place: int) -> int:
    return sum(one.nbytes for one in values if one.data is None and one.first <= place <= one.last)


def _too_large(
    calls: Sequence[Call], values: Sequence[Value], nbytes: int, most: int, inputs: Sequence[Tensor]
) -> ConversionError:
    """Name the call that needs the most memory, what lies in it, and what would fit."""
    needs = [_in_use(values, place) for place in range(len(calls))]
    worst = max(range(len(calls)), key=lambda place: needs[place])
    call = calls[worst]
    held = sorted((one for one in values if one.data is None and one.first <= worst <= one.last), key=_by_size)[:3]
    said = ", ".join(f"`{short_name(one.name)}` of {one.nbytes}" for one in held)
    return ConversionError(
        f"The tensors take {nbytes} bytes, expected at most {most}; operator {call.layer}, {call.operator}, "
        f"alone needs {needs[worst]}: {said}",
        hint=f"--arena-max {nbytes}, {_smaller(inputs, most / nbytes)}, or fewer channels there",
        layer=call.layer,
        needed=nbytes,
    )


def short_name(name: str, most: int = MAX_NAME) -> str:
    """Return the start of a name: converters join those of all operators that they fused."""
    return name if len(name) <= most else f"{name[:most]}…"


def _by_size(value: Value) -> int:
    return -value.nbytes


def _smaller(inputs: Sequence[Tensor], share: float) -> str:
    """Say which input would fit: the tensors of an image grow with its sides."""
    for one in inputs:
        if len(one.shape) == 4 and min(one.shape[1:3]) > 1:
            height, width = (max(int(side * share**0.5), 1) for side in one.shape[1:3])
            return f"an input `{short_name(one.name)}` of about {height} by {width}"
    return "a smaller input"
