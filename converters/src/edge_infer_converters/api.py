"""The Python function `convert`; its signature is written out for editors, and a test compares it with the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer_converters import convert_run
from edge_infer_converters.given import Given
from edge_infer_converters.option_values import taken
from edge_infer_converters.options import RECIPE_DEFAULTS, documented
from edge_infer_converters.recipe import Recipe
from edge_infer_converters.report.reporter import Reporter

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.sources.options import Shape

    FilePath = str | os.PathLike[str]


@documented
def convert(  # noqa: D417  the options are described in their declaration
    model: FilePath,
    output: FilePath,
    *,
    target: str | Sequence[str] = "any",
    name: str | None = None,
    version: str = "1",
    calibration: FilePath | None = None,
    calibrate: str = "minmax",
    evaluation: FilePath | None = None,
    labels: FilePath | None = None,
    task: str | None = None,
    preprocess: FilePath | None = None,
    license: str | None = None,  # noqa: A002  the manifest's word
    samples: FilePath | Sequence[FilePath] = (),
    precision: str | Sequence[str] | None = None,
    max_loss: str | float | None = None,
    min_sqnr: float | None = None,
    max_size: str | int | None = None,
    max_latency_ratio: float | None = None,
    max_latency: str | None = None,
    max_ram: str | int | None = None,
    measured: FilePath | None = None,
    metric: str | None = None,
    format: str | Sequence[str] | None = None,  # noqa: A002  the command's word
    shape: Mapping[str, Shape] | None = None,
    dynamic: str | Sequence[str] | None = None,
    bind: Mapping[str, Any] | None = None,
    layout: str | None = "onnx",
    tflite_io: str | None = None,
    keep_names: bool = False,
    allow_baked: bool = False,
    opset: int | None = None,
    layers: bool = False,
    report: FilePath | None = None,
    prune_dead_channels: bool = False,
    prune: str | float | None = None,
    transport: str | None = None,
    goldens: int | None = None,
    drift: bool = True,
    keep_all: bool = False,
    cache: bool = True,
    force: bool = False,
    reporter: Reporter | None = None,
    recipe: Recipe | None = None,
) -> Conversion:
    """Convert a model into a bundle, each variant measured against the source: `edge-infer convert` for Python.

    Args:
        model: The file (ONNX, TFLite, PyTorch, GGUF), a folder of the Hugging Face Hub with `onnx/model.onnx` or of a
            model that generates text, or `package.module:function` that makes a model (`sources.factory.open_source`).
        output: The folder to write.
        {options}
        reporter: The receiver of progress and warnings. Default: the log.
        recipe: An object in place of all options that say what to make: all but `name`, `version`, `calibration`,
            `evaluation`, `labels`, `task`, `preprocess`, `license`, `samples`, `measured`, `report` and `force`.

    Raises:
        ConversionError: The model cannot be read or run, or no variant is good enough.
        UnsupportedOperator: A target lacks operators of the model: all of them are named, before any work.
        AccuracyError: No variant is good enough; or none is as small as the budget asks, and the bundle, which is
            written nevertheless, holds the smallest that is good enough.
        UnsupportedModel: The model has types or an operator set that its engine does not know.
        InputError: An argument, or the data, do not fit.
        BundleError: The output exists or cannot be written.

    >>> from edge_infer_converters import convert
    >>> result = convert("digits.onnx", "digits.bundle", evaluation="eval.npz", max_loss="1%")  # doctest: +SKIP
    >>> [one.variant.id for one in result.variants]  # doctest: +SKIP
    ['onnx/fp32', 'onnx/fp16', 'onnx/int8', 'onnx/mixed', 'tflite/fp32', 'tflite/fp16', 'tflite/int8', 'tflite/mixed']
    """
    given = dict(locals())
    for wanted in (Recipe, Reporter):
        one = given.pop(wanted.__name__.lower())
        if one is not None and not isinstance(one, wanted):
            raise InputError(
                f"`{wanted.__name__.lower()}` is a `{type(one).__name__}`, expected a `{wanted.__name__}`",
                hint="leave it out for the usual one",
            )
    asked = Recipe.of(**{one: given.pop(one) for one in RECIPE_DEFAULTS})
    beside = taken(given)
    if recipe is not None and asked != Recipe():
        raise InputError(
            "`recipe` says what to make, and so do other arguments of `convert`", hint="put all of it into the recipe"
        )
    told = Given(**{one: beside.pop(one) for one in Given._fields})
    return convert_run.convert(recipe=recipe or asked, given=told, reporter=reporter, **beside)
