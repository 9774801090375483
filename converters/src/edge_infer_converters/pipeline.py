"""Run a recipe: read, convert, measure, write."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer import codec
from edge_infer.errors import AccuracyError, BackendError, ConversionError, InputError, UnsupportedModel
from edge_infer.manifest import Variant
from edge_infer.tensors import DType, Tensor
from edge_infer_converters import validate
from edge_infer_converters.bundle_writer import EXAMPLES_NAME, LABELS_NAME, BundleWriter
from edge_infer_converters.calibration import RANDOM_SIZES, CalibrationSet, random_set, read_set
from edge_infer_converters.recipe import Recipe
from edge_infer_converters.report import LogReporter, Reporter, decibels, step
from edge_infer_converters.sources import onnx as source
from edge_infer_converters.steps.clean_up import clean_up
from edge_infer_converters.steps.fp16 import has_float_weights, to_fp16
from edge_infer_converters.steps.int8_static import is_quantizable, to_int8
from edge_infer_converters.targets import onnx as onnx_target

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy as np
    import onnx

    from edge_infer_converters.recipe import VariantPlan
    from edge_infer_converters.sources.onnx import Reference, SourceModel

GOLDEN_EXAMPLES = 32
#: More calibration data than this change no range and take time.
MAX_CALIBRATION_CALLS = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class ConvertedVariant:
    """A variant that was made and measured.

    Attributes:
        variant: What the manifest says of it.
        nbytes: The size of its file.
        quality: How good it is.
        is_kept: Whether it is in the bundle; one that is not good enough is left out.
    """

    variant: Variant
    nbytes: int
    quality: validate.Quality
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `convert` made.

    Attributes:
        path: The bundle's folder.
        name: The model's name.
        revision: The sha256 of the manifest.
        nbytes: The size of all files.
        variants: What was made, in the order of the manifest, those that were left out too.
        not_made: Why a variant could not be made, by its id.
        data: Where the inputs come from that it was measured on.
    """

    path: Path
    name: str
    revision: str
    nbytes: int
    variants: tuple[ConvertedVariant, ...]
    not_made: dict[str, str]
    data: str

    def to_json(self) -> dict[str, Any]:
        """Describe this for `--json`."""
        made = [
            {"id": one.variant.id, "file": one.variant.file, "size": one.nbytes, **one.quality.to_json()}
            for one in self.variants
            if one.is_kept
        ]
        left_out = {one.variant.id: one.quality.verdict.reason for one in self.variants if not one.is_kept}
        return {
            "bundle": str(self.path),
            "name": self.name,
            "revision": self.revision,
            "size": self.nbytes,
            "data": self.data,
            "variants": made,
            "left_out": left_out | self.not_made,
        }


def convert(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    version: str = "1",
    calibration: str | os.PathLike[str] | None = None,
    evaluation: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    recipe: Recipe | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> Conversion:
    """Convert an ONNX model into a bundle, each variant measured against the model as it came.

    Args:
        model: The `.onnx` file.
        output: The folder to write.
        name: What to call the model; the file's name unless given.
        version: The publisher's word for this state of the model.
        calibration: Inputs for the ranges of int8: a `.npz`, `.npy` or `.safetensors` file. See `calibration.read_set`.
        evaluation: Inputs to measure on, with the right classes as `labels` if it is a classifier.
        labels: Class names: a JSON list, or a text file with one on each line.
        recipe: Which variants to make; all that can be made unless given.
        force: Whether to replace a bundle that is there.
        reporter: Who is told what is done; the log unless given.

    Raises:
        ConversionError: The model cannot be read or run, or no variant is good enough.
        UnsupportedModel: The model uses what ONNX Runtime does not know.
        InputError: An argument, or the data, do not fit.
        BundleError: The output exists or cannot be written.

    >>> from edge_infer_converters import convert
    >>> result = convert("digits.onnx", "digits.bundle", evaluation="eval.npz")  # doctest: +SKIP
    >>> [one.variant.id for one in result.variants]  # doctest: +SKIP
    ['onnx/fp32', 'onnx/fp16', 'onnx/int8', 'tflite/fp32']
    """
    reporter = reporter or LogReporter()
    recipe = recipe or Recipe()
    with BundleWriter(output, force=force) as writer:
        origin = source.load(model)
        title = _checked_name(name, origin)
        reporter.talk(
            step("Read", Path(model).name, f"{origin.nbytes / 1000:.1f} kB, {len(origin.proto.graph.node)} nodes")
        )
        reference = source.Reference(origin)
        data, ranges = _inputs(origin, reference, calibration, evaluation, recipe, reporter)
        outputs = [reference.run(call) for call in data.calls]

        writer.add(EXAMPLES_NAME, codec.write_examples(_golden(data, outputs)))
        if labels is not None:
            writer.add(LABELS_NAME, _read_labels(Path(labels), origin))
        made, not_made = _make(origin, recipe, ranges, writer, reporter)
        if not made:
            raise ConversionError(f"No variant of `{title}` can be made: {'; '.join(not_made.values())}")

        writer.write_manifest(title, version, origin.inputs, origin.outputs, [variant for variant, _ in made])
        measured = _measure(made, data, outputs, recipe, writer, reporter, not_made)
        kept = [one.variant for one in measured if one.is_kept]
        revision = writer.write_manifest(title, version, origin.inputs, origin.outputs, kept)
        result = Conversion(writer.target, title, revision, writer.size, tuple(measured), not_made, _describe(data))
        writer.write_quality(_quality(result, data, ranges))
        writer.commit()
    return result


def _inputs(
    model: SourceModel,
    reference: Reference,
    calibration: str | os.PathLike[str] | None,
    evaluation: str | os.PathLike[str] | None,
    recipe: Recipe,
    reporter: Reporter,
) -> tuple[CalibrationSet, CalibrationSet]:
    """Return the inputs to measure on, and those that give int8 its ranges."""
    given = {path: read_set(path, model.inputs) for path in (calibration, evaluation) if path is not None}
    if not given:
        drawn = _random_inputs(model, reference)
        reporter.warn(
            "There are no calibration data: int8 ranges and all figures come from random inputs, and say little about "
            "real ones"
            if "int8" in recipe.precisions
            else "There are no evaluation data: all figures come from random inputs",
            "--calibration FILE.npz, with an array for each input: " + ", ".join(str(spec) for spec in model.inputs),
        )
        return drawn, drawn
    if calibration is None and evaluation is not None and "int8" in recipe.precisions:
        reporter.warn(
            "The int8 ranges come from the evaluation data, so its figures look a little better than they are",
            "--calibration FILE.npz, with other data",
        )
    measured_on = evaluation if evaluation is not None else calibration
    ranged_on = calibration if calibration is not None else evaluation
    if measured_on is None or ranged_on is None:
        raise AssertionError("one of both is given")
    return given[measured_on], given[ranged_on].first(MAX_CALIBRATION_CALLS)


def _random_inputs(model: SourceModel, reference: Reference) -> CalibrationSet:
    """Draw inputs with which the model runs: free dimensions have limits that no spec tells."""
    free = any(isinstance(dim, str) for spec in model.inputs for dim in spec.shape[1:])
    sizes = RANDOM_SIZES if free else RANDOM_SIZES[:1]
    for size in sizes:
        drawn = random_set(model.inputs, size)
        try:
            reference.run(drawn.calls[0])
        except ConversionError as error:
            if size != sizes[-1]:
                continue
            raise ConversionError(
                f"The model does not run on random inputs: {error.message}",
                hint="give it real ones: --calibration FILE.npz",
            ) from error
        return drawn
    raise AssertionError("RANDOM_SIZES is empty")


def _make(
    model: SourceModel, recipe: Recipe, ranges: CalibrationSet, writer: BundleWriter, reporter: Reporter
) -> tuple[list[tuple[Variant, int]], dict[str, str]]:
    """Write the file of each variant; return what was made, with its size, and why the others were not."""
    cleaned = clean_up(model.proto)
    made: list[tuple[Variant, int]] = []
    not_made: dict[str, str] = {}
    if model.precision != "fp32":
        reporter.talk(step("Kept", "as it is", f"its weights are {model.precision} already"))
    for plan in recipe.plans(model.precision):
        try:
            data, note = _encode(plan, model, cleaned, ranges)
        except (ConversionError, UnsupportedModel) as error:
            if plan.id == f"onnx/{model.precision}":
                raise
            not_made[plan.id] = error.message
            reporter.warn(f"{plan.id} is left out: {error.message}", error.hint)
            continue
        writer.add(plan.file, data)
        variant = Variant(plan.id, plan.format, plan.precision, plan.file, targets=plan.targets, options=plan.options)
        made.append((variant, len(data)))
        reporter.talk(step("Converted", plan.id, f"{len(data) / 1000:.1f} kB{note}"))
    return made, not_made


def _encode(
    plan: VariantPlan, model: SourceModel, cleaned: onnx.ModelProto, ranges: CalibrationSet
) -> tuple[bytes, str]:
    """Return the bytes of a variant's file and what to say of it."""
    if plan.format == "tflite":
        from edge_infer_converters.targets import tflite

        written = tflite.write(cleaned, model.name)
        note = ", batch fixed to 1" if written.is_batch_fixed else ""
        return written.data, f", {len(written.operators)} operators{note}"
    if plan.precision == model.precision:
        return onnx_target.write(cleaned), ""
    if plan.precision == "fp16":
        if not has_float_weights(cleaned):
            raise ConversionError("The model has no float32 weights to make smaller")
        return _checked(onnx_target.write(to_fp16(cleaned)), plan), ""
    if not is_quantizable(cleaned):
        raise ConversionError("The model has no operator with weights that int8 can hold (Conv, Gemm, MatMul)")
    note = f", ranges from {len(ranges.calls)} {'random ' if ranges.is_random else ''}samples"
    return _checked(onnx_target.write(to_int8(cleaned, ranges.calls)), plan), note


def _checked(data: bytes, plan: VariantPlan) -> bytes:
    """Return the bytes of a model that ONNX Runtime loads."""
    source.make_session(data, plan.id)
    return data


def _measure(
    made: Sequence[tuple[Variant, int]],
    data: CalibrationSet,
    outputs: Sequence[dict[str, np.ndarray]],
    recipe: Recipe,
    writer: BundleWriter,
    reporter: Reporter,
    not_made: dict[str, str],
) -> list[ConvertedVariant]:
    """Measure the variants in the folder, and drop those that are not good enough."""
    golden = min(GOLDEN_EXAMPLES, len(data.calls))
    measured: list[ConvertedVariant] = []
    for variant, nbytes in made:
        try:
            quality = validate.measure(writer.folder, variant, data, outputs, golden)
        except BackendError as error:
            not_made[variant.id] = error.message
            reporter.warn(f"{variant.id} is left out: {error.message}", error.hint)
            writer.drop(variant.file)
            continue
        is_good = quality.verdict.word != "fail"
        if not is_good and not recipe.keep_all:
            reporter.warn(
                f"{variant.id} is left out: {quality.verdict.reason}",
                "calibrate on real data, or --keep-all" if data.is_random else "--keep-all keeps it",
            )
            writer.drop(variant.file)
        elif quality.verdict.word != "ok":
            reporter.warn(f"{variant.id}: {quality.verdict.reason}", "")
        reporter.talk(step("Measured", variant.id, f"{decibels(quality.parity.sqnr_db)} on {quality.engine}"))
        measured.append(ConvertedVariant(variant, nbytes, quality, is_good or recipe.keep_all))
    if not any(one.is_kept for one in measured):
        raise AccuracyError("No variant is good enough", hint="--keep-all writes them nevertheless")
    return measured


def _golden(data: CalibrationSet, outputs: Sequence[dict[str, np.ndarray]]) -> list[codec.Example]:
    pairs = list(zip(data.calls, outputs, strict=True))[:GOLDEN_EXAMPLES]
    return [(_tensors(inputs), _tensors(results)) for inputs, results in pairs]


def _tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: _tensor(array) for name, array in arrays.items()}


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind in "OU":
        return Tensor([str(text) for text in array.reshape(-1)], DType.STRING, array.shape)
    return Tensor(array.tobytes(), DType.parse(array.dtype), array.shape)


def _checked_name(name: str | None, model: SourceModel) -> str:
    if name is None:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", model.name).strip("-._")[:128] or "model"
    if not _NAME.fullmatch(name):
        raise InputError(f"Name {name!r} does not fit, expected letters, digits, `.`, `_` and `-`", got=name)
    return name


def _read_labels(path: Path, model: SourceModel) -> bytes:
    """Read class names, and return them as the bundle's JSON list."""
    try:
        text = path.read_text("utf-8")
        names = json.loads(text) if path.suffix == ".json" else text.splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"Labels `{path}` cannot be read: {error}") from error
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"Labels `{path}` are no list of texts", hint='write ["cat", "dog"], or one name on each line')
    classes = model.outputs[0].shape[-1] if model.outputs[0].shape else None
    if isinstance(classes, int) and classes != len(names):
        raise InputError(
            f"Labels `{path}` name {len(names)} classes, output `{model.outputs[0].name}` has {classes}",
            expected=classes,
            got=len(names),
        )
    return (json.dumps(names, ensure_ascii=False) + "\n").encode()


def _quality(result: Conversion, data: CalibrationSet, ranges: CalibrationSet) -> dict[str, Any]:
    return {
        "revision": result.revision,
        "machine": validate.describe_machine(),
        "evaluation": {"origin": data.origin, "sha256": data.sha256, "calls": len(data.calls)},
        "calibration": {"origin": ranges.origin, "sha256": ranges.sha256, "calls": len(ranges.calls)},
        "variants": {
            one.variant.id: {"size": one.nbytes, "is_kept": one.is_kept, **one.quality.to_json()}
            for one in result.variants
        },
        "not_made": result.not_made,
    }


def _describe(data: CalibrationSet) -> str:
    return f"{len(data.calls)} random samples" if data.is_random else f"{len(data.calls)} samples of {data.origin}"
