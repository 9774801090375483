"""The options of `convert`, declared once: the command, the docstring of the Python function and the docs read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F", bound="Callable[..., object]")

#: The methods for ranges of static int8; `edge_infer_converters.passes.ranges` implements them, and loads the engines.
CALIBRATIONS = ("minmax", "percentile", "mse", "auto")
FORMATS = ("onnx", "tflite", "compiled")
#: The inputs and outputs that integer TFLite files can have.
INTERFACES = ("float", "int8")
#: The orders of an image's axes that can be asked for.
LAYOUTS = ("onnx", "nhwc")


#: What a file can be made small for.
TRANSPORTS = ("palette",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: The keyword of the Python function; the command's flag too, unless `flag` differs.
        type: The Python type, as the function annotates it. A `bool` is a switch of the command.
        help: The help text, for Python and for the command.
        default: The value unless given.
        flag: The command's flag where it is not `--name`.
        choices: All values, where they are few.
        unit: The unit or form of a value, as the command's help shows it.
        in_recipe: Whether it belongs to the recipe: what to make, and not where from and to.
        repeats: Whether the command takes it more than once.
    """

    name: str
    type: str
    help: str
    default: Any = None
    flag: str = ""
    choices: tuple[str, ...] = ()
    unit: str = ""
    in_recipe: bool = False
    repeats: bool = False

    @property
    def command_flag(self) -> str:
        """The flag on the command line: `--max-loss`."""
        return self.flag or f"--{self.name.replace('_', '-')}"


def _recipe(name: str, type_: str, help_: str, **more: Any) -> Option:
    return Option(name=name, type=type_, help=help_, in_recipe=True, **more)


def _file(name: str, help_: str, **more: Any) -> Option:
    return Option(name=name, type="FilePath | None", help=help_, unit="FILE", **more)


#: In the order of the command's help.
OPTIONS = (
    _recipe(
        "target",
        "str | Sequence[str]",
        "The targets of the bundle: web, pi, cuda, mcu or any; may be repeated. Decides formats and precisions. "
        "Default: any.",
        default="any",
        unit="TARGET",
        repeats=True,
    ),
    Option(name="name", type="str | None", help="The model's name. Default: the file's name."),
    Option(
        name="version",
        type="str",
        help="The version of this model. Bundles of one name and several versions are served as one model.",
        default="1",
        flag="--model-version",
        unit="VERSION",
    ),
    _file(
        "calibration",
        "Typical inputs, for the ranges of int8 and for matrices in int4 (ONNX): .npz .npy .safetensors, a folder of "
        ".npy or .npz files or images, or module:function that yields samples. With a pipeline raw data too: a folder "
        "of images or sounds, .csv or .jsonl. For a model that generates text: a text, on which perplexity is "
        "measured.",
    ),
    _recipe(
        "calibrate",
        "str",
        "The method for the ranges of static int8; auto takes the best.",
        default="minmax",
        choices=CALIBRATIONS,
    ),
    _file(
        "evaluation",
        "Inputs to measure on, as --calibration; an array `labels` in it holds the right classes. Of raw data the "
        "folder of each image is its class, or the column `label`.",
        flag="--eval",
    ),
    _file("labels", "Class names: a JSON list, or one on each line."),
    Option(
        name="task",
        type="str | None",
        help="What the model is for, such as image-classification. Default: what the model, or the files beside it, "
        "say.",
        unit="NAME",
    ),
    Option(
        name="preprocess",
        type="FilePath | None",
        help="What stands before the model: imagenet (resize, crop, normalise), yolo (letterbox), "
        "speech-commands (the MFCC of MLPerf Tiny's keyword model), or a JSON file with the manifest's `pipeline`, or "
        "its `inputs` alone. Default: what the model, or the files beside it, say.",
        unit="WHAT",
    ),
    Option(
        name="license",
        type="str | None",
        help="The licence of the weights, as an SPDX expression or in words: kept in the manifest, and shown by pages.",
        unit="TEXT",
    ),
    Option(
        name="samples",
        type="FilePath | Sequence[FilePath]",
        help="A picture or sound to try the model on, kept in the bundle: its page starts with it. May be repeated.",
        default=(),
        flag="--sample",
        unit="FILE",
        repeats=True,
    ),
    _recipe(
        "precision",
        "str | Sequence[str] | None",
        "The precisions, separated by commas: fp32, fp16, int8, int8-dynamic, int8-reduced (for x86 CPUs without "
        "VNNI), int8x16 (TFLite: values in 16 bits), int4, mixed (searched: the smallest within the budget), or auto "
        "for the target's usual ones and mixed. Default: the target's usual ones, fp32,fp16,int8 for any; with a "
        "budget, mixed too.",
        unit="LIST",
    ),
    _recipe(
        "max_loss",
        "str | float | None",
        "The share of the metric that may be lost on --eval: 1% or 0.01. For a model that generates text: how much "
        "more perplexity may be on --calibration.",
        unit="SHARE",
    ),
    _recipe("min_sqnr", "float | None", "The least signal-to-noise ratio of the outputs, in dB.", unit="DB"),
    _recipe("max_size", "str | int | None", "The largest file: 5MB, 900kB; a number is bytes.", unit="SIZE"),
    _recipe(
        "max_latency_ratio",
        "float | None",
        "The longest time of a call against fp32, by --measured or else by the cost model: 1.0 for no slower.",
        unit="RATIO",
    ),
    _recipe(
        "max_latency",
        "str | None",
        "The longest time of a call by --measured: 30ms, or pi=30ms of the variants for that target.",
        unit="TIME",
    ),
    _recipe(
        "max_ram",
        "str | int | None",
        "The most memory of a process by --measured, of `bench --host`: 64MB; a number is bytes.",
        unit="SIZE",
    ),
    _file("measured", "Times of the device, as `edge-infer tune BUNDLE --json` prints them there, or `bench --host`."),
    _recipe(
        "metric",
        "str | None",
        "accuracy, top5, map, map50, spearman, cosine, equal, or module:function of (outputs, labels). Default: "
        "accuracy with labels, map with objects, else cosine, or equal without float outputs.",
        unit="NAME",
    ),
    _recipe(
        "format",
        "str | Sequence[str] | None",
        "The formats to write: compiled is a small model with its kernels, which needs no engine; both stands for ONNX "
        "and TFLite. Default: those that the target reads, and compiled where the model fits.",
        choices=(*FORMATS, "both"),
    ),
    _recipe(
        "shape",
        "Mapping[str, Shape] | None",
        "Fix free dimensions of an input; ? leaves one free (None in Python). May be repeated.",
        unit="INPUT=1x3x224x224",
        repeats=True,
    ),
    _recipe(
        "dynamic",
        "str | Sequence[str] | None",
        "Make dimensions free that the model fixes: batch, height, width, sequence, or INPUT:AXIS=NAME, with commas "
        "between. The model must run with twice the size.",
        unit="LIST",
        repeats=True,
    ),
    _recipe(
        "bind",
        "Mapping[str, Any] | None",
        "Turn an input into a constant; what follows from it is computed now, branches of If too. May be repeated.",
        unit="INPUT=VALUE",
        repeats=True,
    ),
    _recipe(
        "layout",
        "str | None",
        "The axes of images at both ends: the model's own, or channels last, data included.",
        default="onnx",
        choices=LAYOUTS,
    ),
    _recipe(
        "tflite_io",
        "str | None",
        "Inputs and outputs of tflite/int8. Default: float; int8 with --target mcu alone.",
        choices=INTERFACES,
    ),
    _recipe(
        "keep_names",
        "bool",
        "Keep the names of tensors inside TFLite files, which makes these larger.",
        default=False,
    ),
    _recipe(
        "allow_baked", "bool", "Keep a decision or a size that an export took from its example inputs.", default=False
    ),
    _recipe("opset", "int | None", "Write ONNX's operator set N instead of the source's own.", unit="N"),
    _recipe(
        "layers",
        "bool",
        "Measure the layers of static int8 too, each alone in 8 bits: they join the table of layers, worst first.",
        default=False,
    ),
    _file("report", "Also write an HTML page about the conversion, such as report.html."),
    _recipe("prune_dead_channels", "bool", "Remove channels that are the same for every input.", default=False),
    _recipe(
        "prune",
        "str | float | None",
        "Let mixed in ONNX do without up to this share of each layer's channels, where the budget allows it and the "
        "file gets smaller: 30% or 0.3.",
        unit="SHARE",
    ),
    _recipe(
        "transport",
        "str | None",
        "What mixed in ONNX is made small for: palette counts its bytes on the wire, and lets weights be numbers of 16 "
        "to 64 values. Default: the file.",
        choices=TRANSPORTS,
    ),
    _recipe(
        "goldens",
        "int | None",
        "Keep N golden examples. Default: up to 32 that take 64 kB or 15 % of the variants together, and at least one.",
        unit="N",
    ),
    _recipe(
        "drift",
        "bool",
        "Keep in the bundle what 200 rows or more of --calibration or --eval look like: bins and counts, and no row.",
        default=True,
        flag="--drift/--no-drift",
    ),
    _recipe("keep_all", "bool", "Keep variants that fail their limits too.", default=False),
    _recipe(
        "cache",
        "bool",
        "Keep the measurements of a search in the user's cache folder, for the next search.",
        default=True,
        flag="--cache/--no-cache",
    ),
    Option(name="force", type="bool", help="Replace an existing bundle.", default=False),
)
#: The default of each option of the recipe, by name.
RECIPE_DEFAULTS = {one.name: one.default for one in OPTIONS if one.in_recipe}


def documented(function: _F) -> _F:
    """Write the options into a docstring, in place of the line `{options}`."""
    lines = [f"{one.name}: {_choices(one)}{_plain(one.help)}" for one in OPTIONS]
    function.__doc__ = (function.__doc__ or "").replace("{options}", "\n        ".join(lines))
    return function


def table() -> str:
    """Write the options as a table in Markdown: flag, keyword, default and meaning."""
    rows = [
        f"| `{one.command_flag}{' ' * bool(one.unit)}{one.unit}` | `{one.name}` | "
        f"{'' if one.default is None else f'`{one.default}`'} | {_choices(one)}{one.help} |"
        for one in OPTIONS
    ]
    return "\n".join(["| option | in Python | default | meaning |", "|---|---|---|---|", *rows])


def _choices(one: Option) -> str:
    return f"One of {', '.join(f'`{word}`' for word in one.choices)}. " if one.choices else ""


def _plain(text: str) -> str:
    """Name options by their keyword instead of their flag."""
    flags = {one.command_flag: one.name for one in OPTIONS}
    return re.sub(r"--[a-z-]+", lambda found: f"`{flags.get(found[0], found[0])}`", text)
