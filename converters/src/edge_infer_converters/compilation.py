"""Compile a TFLite file, and compare the result with LiteRT before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer_converters.measure import table_check
from edge_infer_converters.measure.compiled_check import check, has_separate_samples, samples
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.compiled.tables.graph import graph_of
from edge_infer_converters.writers.compiled.variables import initial_values
from edge_infer_converters.writers.compiled.worth import targets_of
from edge_infer_converters.writers.encode import Encoded, with_batch_of_one
from edge_infer_converters.writers.microcontroller import writer as microcontroller
from edge_infer_converters.writers.microcontroller.golden import Golden
from edge_infer_converters.writers.microcontroller.steps import Steps
from edge_infer_converters.writers.tflite import reading

if TYPE_CHECKING:
    import onnx

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.writers.compiled.writer import Compiled
    from edge_infer_converters.writers.microcontroller.writer import Folder
    from edge_infer_converters.writers.plan import VariantPlan

#: The random inputs that the test of a model in C runs.
_GOLDENS = 2


class Compilation(NamedTuple):
    """A compiled model that was compared with its source.

    Attributes:
        model: The model.
        checked: What was compared, in words.
    """

    model: Compiled
    checked: str


def compile_file(
    content: bytes,
    name: str,
    rounding: str = writer.ROUNDINGS[0],
    arena_max: int | None = None,
    *,
    for_size: bool = False,
) -> Compilation:
    """Compile a file.

    Args:
        content: The bytes of a `.tflite` file.
        name: What messages call it.
        rounding: How integers are rounded; see `writer.write`.
        arena_max: The most bytes that its tensors may take, or None.
        for_size: Whether to write the smaller file; see `writer.write`.

    Raises:
        UnsupportedModel: It cannot be read, or its interface cannot be compiled.
        UnsupportedOperator: No kernel computes some operators; all of them are named.
        ConversionError: It is too large.
        AccuracyError: The result differs from LiteRT.
    """
    graph = reading.read(content, name, with_variables=True).graph
    has_variables = any(operator.code == "CALL_ONCE" for operator in graph.operators)
    initial = initial_values(content, name) if has_variables else None
    made = writer.write(graph, rounding, arena_max, for_size=for_size, initial=initial)
    if made.program.is_row and not has_separate_samples(made, content):
        made = writer.write(graph, rounding, arena_max, fixes_batch=True, for_size=for_size)
    return Compilation(made, check(made, content))


def compile_table(model: onnx.ModelProto, arena_max: int | None = None) -> Compilation:
    """Compile a model over tables, with operators of ONNX-ML: trees, linear models, support vectors.

    Args:
        model: The model, cleaned up.
        arena_max: The most bytes that its tensors may take, or None.

    Raises:
        UnsupportedModel: Its interface cannot be compiled.
        UnsupportedOperator: No kernel computes some operators; all of them are named.
        ConversionError: It is too large.
        AccuracyError: The result differs from onnxruntime.
    """
    made = writer.write(graph_of(model), arena_max=arena_max)
    return Compilation(made, table_check.check(made, model))


class CFolder(NamedTuple):
    """A compiled model as C, which was compared with its source.

    Attributes:
        folder: Its files, its layers and its memory.
        checked: What was compared, in words.
    """

    folder: Folder
    checked: str


def compile_to_c(
    content: bytes | onnx.ModelProto,
    name: str,
    prefix: str,
    rounding: str = "reference",
    way: str = "size",
    arena_max: int | None = None,
    goldens: int = _GOLDENS,
    *,
    is_library: bool = False,
    steps: Steps = Steps(),  # noqa: B008  it holds nothing that changes
) -> CFolder:
    """Compile a model to C for a microcontroller.

    Args:
        content: The bytes of a `.tflite` file, or a model over tables, cleaned up.
        name: What messages and comments call it.
        prefix: What the names in C begin with.
        rounding: How integers are rounded; see `writer.write`.
        way: `size`, or `speed`.
        arena_max: The most bytes that its tensors may take, or None.
        goldens: How many random inputs its test runs.
        is_library: Whether to write a library for Arduino.
        steps: The steps of its bundle that stand before and behind it.

    Raises:
        UnsupportedModel: It cannot be read, or its interface cannot be compiled.
        UnsupportedOperator: No kernel computes some operators; all of them are named.
        ConversionError: It is too large.
        AccuracyError: The result differs from the engine's.
        BackendUnavailable: There are no kernels for this CPU, by which the goldens are computed.
    """
    initial = None
    if isinstance(content, bytes):
        compiled, checked = compile_file(content, name, rounding)
        graph = reading.read(content, name, with_variables=True).graph
        if any(operator.code == "CALL_ONCE" for operator in graph.operators):
            initial = initial_values(content, name)
    else:
        compiled, checked = compile_table(content)
        graph = graph_of(content)
    program = compiled.program
    made = [
        Golden(tuple(feeds[one.name] for one in program.inputs), tuple(results[one.name] for one in program.outputs))
        for feeds, results in samples(compiled, goldens)
    ]
    folder = microcontroller.write(
        graph, compiled, prefix, name, made, way, arena_max, initial, is_library=is_library, steps=steps
    )
    return CFolder(folder, checked)


def encode_table(plan: VariantPlan, model: onnx.ModelProto, *, is_asked_for: bool = False) -> Encoded:
    """Compile a model over tables for a bundle; see `compile_table` and `encode_compiled`."""
    compiled, checked = compile_table(model)
    targets = targets_of(compiled, plan.precision, plan.targets, is_asked_for=is_asked_for)
    return Encoded(compiled.wasm, f"{len(compiled.layers)} calls, {checked}", targets=targets, compiled=compiled)


def encode_compiled(
    plan: VariantPlan,
    source: Encoded,
    specs: tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]],
    *,
    is_asked_for: bool = False,
) -> Encoded:
    """Compile a TFLite file of the precision that a plan asks for.

    Args:
        plan: The precision of a compiled file.
        source: The TFLite file.
        specs: The source's inputs and outputs.
        is_asked_for: Whether compiled variants were asked for by name: then a large one is written too.

    Raises:
        ConversionError: It cannot be compiled, computes other numbers than LiteRT, or is not worth its place.
        UnsupportedModel: Its interface cannot be compiled.
    """
    compiled, checked = compile_file(source.data, plan.id)
    targets = targets_of(compiled, plan.precision, plan.targets, is_asked_for=is_asked_for)
    note = f"{len(compiled.layers)} calls, {checked}"
    if compiled.program.is_row or source.inputs is not None:
        return Encoded(compiled.wasm, note, None, source.inputs, source.outputs, targets, compiled=compiled)
    batches = {spec.shape[0] for spec in specs[0] if spec.shape and isinstance(spec.shape[0], str)}
    if not batches:
        return Encoded(compiled.wasm, note, targets=targets, compiled=compiled)
    inputs, outputs = (with_batch_of_one(one, batches) for one in specs)
    return Encoded(compiled.wasm, f"{note}, batch fixed to 1", None, inputs, outputs, targets, compiled=compiled)
