"""Write a TFLite graph as a folder of C for a microcontroller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ConversionError
from edge_infer_converters.writers.compiled.lowering import lower
from edge_infer_converters.writers.compiled.windows import multiply_accumulates
from edge_infer_converters.writers.compiled.writer import check_size
from edge_infer_converters.writers.microcontroller import layout as layouts
from edge_infer_converters.writers.microcontroller import project, text
from edge_infer_converters.writers.microcontroller.steps import Steps, fitting
from edge_infer_converters.writers.microcontroller.steps import files as step_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer_converters.writers.compiled.writer import Compiled
    from edge_infer_converters.writers.microcontroller.golden import Golden
    from edge_infer_converters.writers.microcontroller.layout import Layout
    from edge_infer_converters.writers.tflite.graph import Graph, Tensor

WAYS = ("size", "speed")


class Folder(NamedTuple):
    """A model in C.

    Attributes:
        files: The text of each file by its name.
        layout: Its layers and its memory.
        constant_bytes: The bytes of its weights and tables.
        multiply_accumulates: The multiplications of all convolutions of a run.
        steps: What stands before and behind it.
    """

    files: dict[str, str]
    layout: Layout
    constant_bytes: int
    multiply_accumulates: int
    steps: Steps = Steps()


def write(
    graph: Graph,
    compiled: Compiled,
    prefix: str,
    name: str,
    goldens: Sequence[Golden],
    way: str = "size",
    arena_max: int | None = None,
    initial: Mapping[str, np.ndarray] | None = None,
    *,
    is_library: bool = False,
    steps: Steps = Steps(),  # noqa: B008  it holds nothing that changes
) -> Folder:
    """Write a model.

    Args:
        graph: The model.
        compiled: The same as a program, whose numbers were compared with an engine's.
        prefix: What the names in C begin with.
        name: What comments call the model.
        goldens: What `test_main.c` checks.
        way: `size`, or `speed`: convolutions copy what two places see into columns of int16 first.
        arena_max: The most bytes that its tensors may take, or None.
        initial: The first values of its variables, by name.
        is_library: Whether to write a library for Arduino: the C in `src/`, and a sketch.
        steps: The steps of its bundle that stand before and behind it.

    Raises:
        UnsupportedOperator: No kernel computes some operators; all of them are named.
        ConversionError: It is too large, or its tensors take more than `arena_max`.
    """
    check_size(graph)
    program = compiled.program
    calls, inputs, outputs = lower(graph, program.rounding, initial, filter_lanes=1)
    layout = layouts.lay_out(calls, inputs, outputs, way)
    if arena_max is not None and layout.arena_bytes > arena_max:
        raise _too_large(layout, arena_max, way, graph.inputs)
    given, made = text.ends(program, layout, prefix)
    files = {
        f"{prefix}.h": text.header(prefix, name, layout, given, made),
        f"{prefix}.c": text.source(prefix, name, layout, given, made, way),
        f"{prefix}_kernels.h": text.kernels(prefix, layout, way),
        f"{prefix}_weights.h": text.weights(prefix, layout),
    }
    steps = fitting(steps, given, made)
    files |= step_files(prefix, steps, made)
    has_math = any("<math.h>" in content for content in files.values())
    if is_library:
        for path in (f"{prefix}.c", f"{prefix}_boxes.c"):
            if path in files:
                files[path] = text.unfused(files[path])
        files = {f"src/{path}": content for path, content in files.items()}
    files |= project.files(
        prefix,
        name,
        layout,
        given,
        made,
        goldens,
        program.rounding,
        is_fast=way == "speed",
        has_math=has_math,
        is_library=is_library,
        steps=steps,
    )
    total = sum(multiply_accumulates(one.call.kernel, one.call.integers) for one in layout.layers)
    return Folder(files, layout, sum(one.data.nbytes for one in layout.arrays), total, steps)


def _too_large(layout: Layout, most: int, way: str, inputs: Sequence[Tensor]) -> ConversionError:
    """Name the call that needs the most memory, and what would fit."""
    worst = max(range(len(layout.layers)), key=lambda place: layout.layers[place].used)
    call = layout.layers[worst].call
    held = sorted((one for one in layout.spans if one[1] <= worst <= one[2]), key=lambda one: -one[4])[:3]
    said = ", ".join(f"`{one[0][:40]}` of {one[4]}" for one in held)
    sizes = [one.shape[1:3] for one in inputs if len(one.shape) == 4 and min(one.shape[1:3]) > 1]
    share = (most / layout.arena_bytes) ** 0.5
    smaller = (
        f"an input of about {int(sizes[0][0] * share)} by {int(sizes[0][1] * share)}" if sizes else "a smaller input"
    )
    fewer = "--optimize size, " if way == "speed" else ""
    return ConversionError(
        f"The tensors take {layout.arena_bytes} bytes, expected at most {most}; operator {call.layer}, "
        f"{call.operator}, needs the most: {said}",
        hint=f"--arena-max {layout.arena_bytes}, {fewer}{smaller}, or fewer channels there",
        layer=call.layer,
        needed=layout.arena_bytes,
    )
