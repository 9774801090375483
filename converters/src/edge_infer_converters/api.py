"""`convert` for Python: the command's options by the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer_converters import convert_run
from edge_infer_converters.recipe import Recipe

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.sources.options import Shape

    FilePath = str | os.PathLike[str]


def convert(
    model: FilePath,
    output: FilePath,
    *,
    target: str | Sequence[str] = "any",
    format: str | None = None,  # noqa: A002  the command's word
    precision: str | Sequence[str] | None = None,
    calibration: FilePath | None = None,
    calibrate: str = "minmax",
    evaluation: FilePath | None = None,
    metric: str | None = None,
    max_loss: str | float | None = None,
    min_sqnr: float | None = None,
    max_size: str | int | None = None,
    max_latency_ratio: float | None = None,
    tflite_io: str | None = None,
    keep_names: bool = False,
    shape: Mapping[str, Shape] | None = None,
    opset: int | None = None,
    layout: str | None = None,
    name: str | None = None,
    version: str = "1",
    labels: FilePath | None = None,
    prune_dead_channels: bool = False,
    keep_all: bool = False,
    cache: bool = True,
    force: bool = False,
    report: FilePath | None = None,
    reporter: Reporter | None = None,
    recipe: Recipe | None = None,
) -> Conversion:
    """Convert a model into a bundle: what `edge-infer convert` does, option for option.

    Args:
        model: The file, or `package.module:function` that makes a model (`sources.factory.open_source`).
        output: The folder to write.
        target: What the bundle is for: `web`, `pi`, `cuda`, `mcu`, `any`, or several of them.
        format: `onnx`, `tflite` or `both`; what the target reads unless given.
        precision: One or several of `fp32`, `fp16`, `int8`, `int8-dynamic`, `int8-reduced`, `int8x16`, `int4`, `mixed`,
            `auto`, also with commas between; what suits the target unless given.
        calibration: Inputs for the ranges of int8: a `.npz`, `.npy` or `.safetensors` file, a folder of `.npy` files
            or images, or `package.module:function` that yields samples (`calibration.read_set`).
        calibrate: How static int8 of ONNX finds its ranges: `minmax`, `percentile`, `mse` or `auto`.
        evaluation: The command's `--eval`: inputs to measure on, with the right classes as `labels`.
        metric: `accuracy`, `top5`, `cosine`, `equal`, or `module:function`.
        max_loss: The share of the metric that may be lost: `"1%"` or 0.01.
        min_sqnr: The least signal to noise ratio of the outputs, in dB.
        max_size: The largest file: `"5MB"`, or bytes.
        max_latency_ratio: The longest time of a call against fp32 on this CPU, 1.0 for no slower.
        tflite_io: `float` or `int8`: the inputs and outputs of `tflite/int8`; `int8` for the target `mcu` alone.
        keep_names: Whether tensors inside TFLite files keep their names; they weigh.
        shape: For each input named, its dimensions; None leaves one as it is.
        opset: The version of ONNX's operator set to write instead of the source's own.
        layout: `onnx`, or `nhwc` for images with their channels last at both ends, in every file and in the data.
        name: What to call the model; the file's name unless given.
        version: The command's `--model-version`: the publisher's word for this state of the model.
        labels: Class names: a JSON list, or a text file with one on each line.
        prune_dead_channels: Whether channels that are the same for every input are removed first.
        keep_all: Whether to keep variants that are not as good as they must be.
        cache: Whether a search keeps its figures for the next, in the user's cache folder.
        force: Whether to replace a bundle that is there.
        report: An HTML page to write about it.
        reporter: Who is told what is done; the log unless given.
        recipe: What to make, as an object, in place of `target`, `format`, `precision`, the budget, `shape`, `opset`,
            `layout`, `tflite_io`, `keep_names`, `calibrate`, `prune_dead_channels`, `cache` and `keep_all`.

    Raises:
        ConversionError: The model cannot be read or run, or no variant is good enough.
        UnsupportedOperator: A target lacks operators of the model: all of them are named, before any work.
        AccuracyError: No variant is good enough; or none is as small as the budget asks, and the bundle, which is
            written nevertheless, holds the smallest that is good enough.
        UnsupportedModel: The model uses what ONNX Runtime does not know.
        InputError: An argument, or the data, do not fit.
        BundleError: The output exists or cannot be written.

    >>> from edge_infer_converters import convert
    >>> result = convert("digits.onnx", "digits.bundle", evaluation="eval.npz", max_loss="1%")  # doctest: +SKIP
    >>> [one.variant.id for one in result.variants]  # doctest: +SKIP
    ['onnx/fp32', 'onnx/fp16', 'onnx/int8', 'onnx/mixed', 'tflite/fp32', 'tflite/fp16', 'tflite/int8', 'tflite/mixed']
    """
    asked = Recipe.of(
        target=target,
        format=format,
        precision=precision,
        metric=metric,
        max_loss=max_loss,
        min_sqnr=min_sqnr,
        max_size=max_size,
        max_latency_ratio=max_latency_ratio,
        shape=shape,
        opset=opset,
        layout=layout,
        tflite_io=tflite_io,
        keep_names=keep_names,
        calibrate=calibrate,
        prune_dead_channels=prune_dead_channels,
        keep_all=keep_all,
        cache=cache,
    )
    if recipe is not None and asked != Recipe():
        raise InputError(
            "`recipe` says what to make, and so do other arguments of `convert`", hint="put all of it into the recipe"
        )
    return convert_run.convert(
        model,
        output,
        name=name,
        version=version,
        calibration=calibration,
        evaluation=evaluation,
        labels=labels,
        recipe=recipe or asked,
        force=force,
        report=report,
        reporter=reporter,
    )
