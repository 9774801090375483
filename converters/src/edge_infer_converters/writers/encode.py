"""Make the file of one variant: the passes and the writer that its plan stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ConversionError
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.data.reference_outputs import noise
from edge_infer_converters.engine import fast_session, make_session, run_tflite
from edge_infer_converters.passes.exact_settings import exact_settings
from edge_infer_converters.passes.fp16 import engine_options, has_float_weights, to_fp16
from edge_infer_converters.passes.graphs import nbytes_of
from edge_infer_converters.passes.int8_dynamic import to_dynamic_int8
from edge_infer_converters.passes.int8_static import is_quantizable, to_int8, why_not_quantizable
from edge_infer_converters.passes.ranges import METHODS
from edge_infer_converters.passes.sessions import referring, session_of, write_values
from edge_infer_converters.passes.weight_only import engine_options as weight_options
from edge_infer_converters.passes.weight_only import prepare, rewrite, weights_of
from edge_infer_converters.targets import TARGETS
from edge_infer_converters.writers import onnx as onnx_writer
from edge_infer_converters.writers.fitted_blocks import fit_blocks
from edge_infer_converters.writers.plan import ENGINE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import onnx

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.passes.weights_in_files import WeightsInFiles
    from edge_infer_converters.writers.compiled.writer import Compiled
    from edge_infer_converters.writers.plan import VariantPlan
    from edge_infer_converters.writers.tflite import FloatGraph, TFLiteModel

    Specs = tuple[TensorSpec, ...]


#: How many calls decide between the methods of `auto`.
AUTO_CALLS = 32
#: What can be made of weights that are read one at a time.
_PER_TENSOR = ("onnx/fp16", "onnx/int8-dynamic")
#: A larger file has its weights beside it, which engines map instead of reading.
_ONE_FILE_BYTES = 2**30
_LITTLE_MEMORY = {"session.disable_prepacking": "1"}


class Encoded(NamedTuple):
    """A model file.

    Attributes:
        data: Its bytes.
        note: What to say of it beside its size.
        options: The engine settings that it needs, where they are not the plan's.
        inputs: Its input specs where they differ from the source's, else None.
        outputs: Likewise its output specs.
        targets: What it is for, where that is not the plan's.
        write_apart: Writes the weights that the file refers to, as `apart_of` calls them; None where it has them.
        ranges_by: How the ranges of static int8 were found, one of `ranges.METHODS`.
        compiled: Of a compiled file what is reported of it.
    """

    data: bytes
    note: str = ""
    options: Mapping[str, Mapping[str, str]] | None = None
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    targets: tuple[str, ...] | None = None
    write_apart: Callable[[Path], None] | None = None
    ranges_by: str = "minmax"
    compiled: Compiled | None = None


def encode_tflite(
    plan: VariantPlan,
    graph: FloatGraph,
    specs: tuple[Specs, Specs],
    ranges: CalibrationSet,
    calibrate: str = "minmax",
) -> Encoded:
    """Write a TFLite graph in the precision that a plan asks for.

    Args:
        plan: The precision of a TFLite file.
        graph: The model in TFLite operators.
        specs: The source's inputs and outputs.
        ranges: The inputs that give int8 its ranges.
        calibrate: How, one of `ranges.WORDS`.

    Raises:
        ConversionError: It cannot be made of this model.
    """
    word = plan.word or plan.precision
    halves = [spec.name for side in specs for spec in side if spec.dtype is DType.FLOAT16]
    if plan.integer_interface and halves:
        raise ConversionError(
            f"`{halves[0]}` is of float16: inputs and outputs of float32 become integers",
            hint="export it with float32 inputs and outputs",
        )
    is_static = word in ("int8", "int8x16") and graph.scales is None
    method = "minmax"
    if is_static:
        written, method = _static_tflite(graph, word, ranges, calibrate, integer_interface=plan.integer_interface)
    else:
        written = graph.write(word, ranges.calls, integer_interface=plan.integer_interface)
    takes_float = all(TARGETS[target].takes("tflite", "fp32") for target in plan.targets)
    if word != "fp32" and graph.scales is None and takes_float and len(written.data) >= graph.nbytes:
        raise ConversionError(
            f"It is not smaller than in fp32: {len(written.data)} bytes, in fp32 there are {graph.nbytes}"
        )
    notes = [f"{len(written.operators)} operators"] + ([written.note] if written.note else [])
    if is_static:
        notes.append(f"ranges from {ranges}" + ("" if method == calibrate == "minmax" else f" by {method}"))
    if not written.is_batch_fixed:
        return Encoded(written.data, ", ".join(notes), ranges_by=method)
    batches = {spec.shape[0] for spec in specs[0] if spec.shape and isinstance(spec.shape[0], str)}
    inputs, outputs = (with_batch_of_one(one, batches) for one in specs)
    return Encoded(written.data, ", ".join([*notes, "batch fixed to 1"]), None, inputs, outputs, ranges_by=method)


def _static_tflite(
    graph: FloatGraph, word: str, ranges: CalibrationSet, calibrate: str, *, integer_interface: bool
) -> tuple[TFLiteModel, str]:
    """Write a file in integers, as `_static` does for ONNX; return it, and the method."""

    def made(method: str, *, has_integer_ends: bool = integer_interface) -> TFLiteModel:
        # Drawn inputs have other means than real ones: 2 dB less on photographs by biases that learnt from them.
        corrects = not ranges.is_made_up
        return graph.write(word, ranges.calls, integer_interface=has_integer_ends, method=method, corrects=corrects)

    if calibrate != "auto":
        return made(calibrate), calibrate
    calls = ranges.calls[:AUTO_CALLS]
    references = run_tflite(graph.write().data, calls)
    files = {method: made(method, has_integer_ends=False) for method in METHODS}
    errors = {method: noise(references, run_tflite(file.data, calls)) for method, file in files.items()}
    best = min(errors, key=lambda method: errors[method])
    return made(best) if integer_interface else files[best], best


def encode(
    plan: VariantPlan,
    source_precision: str,
    cleaned: onnx.ModelProto,
    ranges: CalibrationSet,
    calibrate: str = "minmax",
    in_files: WeightsInFiles | None = None,
    *,
    fits: bool = False,
) -> Encoded:
    """Make the file that a plan asks for.

    Args:
        plan: The precision of an ONNX file.
        source_precision: The precision of the source.
        cleaned: The source after `clean_up`.
        ranges: The inputs that give int8 its ranges.
        calibrate: How, one of `ranges.WORDS`.
        in_files: The values of the source's initializers that have none.
        fits: Whether matrices in int4 are fitted to `ranges`, where that wins.

    Raises:
        ConversionError: It cannot be made of this model.
        UnsupportedModel: ONNX Runtime does not load what was made.
    """
    if in_files is not None and not is_made_apart(plan, source_precision):
        raise needs_memory(plan.word or plan.precision)
    if plan.precision == source_precision and in_files is not None:
        light = in_files.refer(cleaned, apart_of(plan.file).rpartition("/")[2])
        options = {"onnxruntime": {**exact_settings(cleaned).get("onnxruntime", {}), **_LITTLE_MEMORY}}
        return Encoded(
            onnx_writer.write(light), options=options, write_apart=lambda path: in_files.write(cleaned, path)
        )
    if plan.precision == source_precision:
        data = onnx_writer.write(cleaned)
        options = engine_options(cleaned) if plan.precision == "fp16" else exact_settings(cleaned)
        return Encoded(data, options=options or (ENGINE_OPTIONS if _is_precise(plan, data) else {}))
    if plan.precision == "fp16":
        if not has_float_weights(cleaned):
            raise ConversionError("The model has no float32 weights to make smaller")
        half = to_fp16(cleaned, in_files)
        return _written(half, plan, cleaned, engine_options(half), in_files)
    if plan.precision == "int4":
        return _checked(_int4(cleaned, ranges if fits else None), plan, cleaned)
    if plan.word == "int8-dynamic":
        return _written(to_dynamic_int8(cleaned, in_files=in_files), plan, cleaned, None, in_files)
    if not is_quantizable(cleaned):
        raise why_not_quantizable(cleaned)
    note = f"ranges from {ranges}"
    is_reduced = plan.word == "int8-reduced"
    data, method = _static(cleaned, ranges, calibrate, is_reduced=is_reduced)
    note += "" if method == calibrate == "minmax" else f" by {method}"
    return _checked(Encoded(data, note, ranges_by=method), plan, cleaned)


def _is_precise(plan: VariantPlan, data: bytes) -> bool:
    """Tell whether a quantized file runs in ONNX Runtime's precise mode, which lacks kernels for some signed ones."""
    if plan.precision != "int8":
        return False
    try:
        fast_session(data)
    except Exception:  # onnxruntime's classes have no common base but this
        return False
    return True


def _static(cleaned: onnx.ModelProto, ranges: CalibrationSet, calibrate: str, *, is_reduced: bool) -> tuple[bytes, str]:
    """Quantize with the ranges asked for; of `auto` the method whose outputs are nearest to the float model's.

    Returns:
        The file, and the method.
    """

    def made(method: str) -> bytes:
        settings = {"reduce_range": is_reduced, "corrects": not ranges.is_made_up}  # as in `_static_tflite`
        return onnx_writer.write(to_int8(cleaned, ranges.calls, method=method, **settings))

    if calibrate != "auto":
        return made(calibrate), calibrate
    calls = [dict(call) for call in ranges.calls[:AUTO_CALLS]]
    references = _run(onnx_writer.write(cleaned), calls)
    files = {method: made(method) for method in METHODS}
    errors = {method: noise(references, _run(data, calls)) for method, data in files.items()}
    best = min(errors, key=lambda method: errors[method])
    return files[best], best


def _run(data: bytes, calls: Sequence[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    session = fast_session(data)
    names = [value.name for value in session.get_outputs()]
    return [dict(zip(names, session.run(names, call), strict=True)) for call in calls]


def _int4(cleaned: onnx.ModelProto, data: CalibrationSet | None) -> Encoded:
    """Store every weight in the fewest bits that it can have, matrices fitted to data."""
    prepared = prepare(cleaned)
    weights = weights_of(prepared)
    choice = {weight.name: weight.encodings[-1] for weight in weights}
    count = list(choice.values()).count("int4")
    if not count:
        raise ConversionError(
            "The model has no MatMul, Gemm or table with weights that int4 can hold", hint="--precision fp16 or int8"
        )
    blocks, said = ({}, "") if data is None else fit_blocks(prepared, weights, data)
    written = onnx_writer.write(rewrite(prepared, weights, choice, fitted=blocks))
    note = ", ".join([f"{count} of {len(weights)} weights in int4", *([said] if said else [])])
    return Encoded(written, note, weight_options(weights, choice))


def with_batch_of_one(specs: Sequence[TensorSpec], batches: set[str]) -> tuple[TensorSpec, ...]:
    """Return specs whose free first dimensions of these names are 1."""
    return tuple(
        TensorSpec(spec.name, spec.dtype, [1 if dim in batches and isinstance(dim, str) else dim for dim in spec.shape])
        for spec in specs
    )


def _written(
    model: onnx.ModelProto,
    plan: VariantPlan,
    source: onnx.ModelProto,
    options: Mapping[str, Mapping[str, str]] | None,
    in_files: WeightsInFiles | None,
) -> Encoded:
    """Write a model that ONNX Runtime loads and that is worth its place; see `_checked`."""
    session_of(model, plan.id)
    if in_files is None or nbytes_of(model) <= _ONE_FILE_BYTES:
        size = nbytes_of(source) + (0 if in_files is None else in_files.total)
        return _worth_it(Encoded(onnx_writer.write(model), options=options), size)
    name = apart_of(plan.file).rpartition("/")[2]
    settings = {"onnxruntime": {**(options or {}).get("onnxruntime", {}), **_LITTLE_MEMORY}}
    light, large = referring(model, name)
    return Encoded(onnx_writer.write(light), options=settings, write_apart=lambda path: write_values(large, path))


def is_made_apart(plan: VariantPlan, source_precision: str) -> bool:
    """Tell whether a file is made of weights that are read one at a time."""
    return plan.precision == source_precision or plan.id in _PER_TENSOR


def needs_memory(word: str) -> ConversionError:
    """Return the error of a precision for which all weights would have to be in memory."""
    return ConversionError(
        f"{word} is not made of a model with more than 2 GB: all weights would have to be in memory",
        hint="--precision fp32,fp16,int8-dynamic",
    )


def apart_of(file: str) -> str:
    """Name the file beside a model that has its weights, as Optimum and transformers.js do."""
    return f"{file}_data"


def _checked(encoded: Encoded, plan: VariantPlan, source: onnx.ModelProto) -> Encoded:
    """Return a file that ONNX Runtime loads and that is worth its place."""
    make_session(encoded.data, plan.id)
    return _worth_it(encoded, nbytes_of(source))


def _worth_it(encoded: Encoded, size: int) -> Encoded:
    if len(encoded.data) >= size:
        raise ConversionError(f"It is not smaller than the source: {len(encoded.data)} bytes, the source has {size}")
    return encoded
