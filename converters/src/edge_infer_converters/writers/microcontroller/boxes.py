"""The objects that a detector finds, as C that stands behind the model: decoded, thinned out, moved to the image."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.tasks.image.layout import is_channels_first
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.post.sigmoid import sigmoid
from edge_infer.tasks.steps import prepare_chain
from edge_infer.tensors.tensor import Tensor, TensorSpec
from edge_infer_converters.writers.microcontroller import box_formats
from edge_infer_converters.writers.microcontroller.box_outputs import Output, is_scored
from edge_infer_converters.writers.microcontroller.box_outputs import reason_against as reason_against_outputs
from edge_infer_converters.writers.microcontroller.features import Sizes
from edge_infer_converters.writers.microcontroller.text import number, quoted, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.post.detection import Detection
    from edge_infer.tasks.steps import Step
    from edge_infer_converters.writers.microcontroller.golden import Golden
    from edge_infer_converters.writers.microcontroller.text import End

_FOLDER = Path(__file__).parent / "templates"
#: Steps behind a detector that are written, besides those that make floats of its integers.
_CHAINS = (["post.boxes", "post.detections"], ["post.boxes", "post.nms", "post.detections"])
#: Detections of a golden that a test compares.
_TESTED = 10
#: Bytes of code on a Cortex-M4 for size, with the exponential of the C library in double precision.
_CODE = 2600
_MOST_LOGIT = 100.0
#: Types of outputs that `tensor.dequantize` makes floats of.
_INTEGERS = ("int8_t", "uint8_t", "int16_t")


class Detector(NamedTuple):
    """What is written of the steps behind a detector.

    Attributes:
        steps: Perhaps `tensor.dequantize`, `post.boxes`, perhaps `post.nms`, and `post.detections`.
        item: The sizes of the image and of the model's input, and how one became the other.
        outputs: The model's outputs.
        labels: The names of the classes; empty where there are none.
    """

    steps: tuple[Step, ...]
    item: Item
    outputs: tuple[End, ...]
    labels: tuple[str, ...]

    @property
    def decoding(self) -> dict[str, Any]:
        """The parameters of `post.boxes`."""
        return next(step.parameters for step in self.steps if step.name == "post.boxes")

    @property
    def thinning(self) -> dict[str, Any] | None:
        """Those of `post.nms`, where it is one of the steps."""
        return next((step.parameters for step in self.steps if step.name == "post.nms"), None)

    @property
    def form(self) -> box_formats.Form:
        """How its outputs are read."""
        ends = {one.tensor.name: Output("", one.name, one.kind) for one in self.outputs}
        for name, (scale, zero) in _steps_of_integers(self.steps, self.outputs).items():
            if ends[name].kind != "float":
                ends[name] = ends[name]._replace(scale=scale, zero=zero)
        return box_formats.written(self.decoding, ends, _shapes(self.outputs))

    @property
    def is_weighted(self) -> bool:
        """Whether boxes are means of those they stand for, in double precision."""
        return self.thinning is not None and self.thinning["method"] == "weighted"

    def of(self, outputs: Sequence[np.ndarray]) -> list[tuple[Detection, tuple[float, float, float, float]]]:
        """Return what the steps find in the model's outputs, as Python computes it, with boxes in the image."""
        specs = [TensorSpec(one.tensor.name, one.tensor.dtype, one.tensor.shape[1:]) for one in self.outputs]
        tensors: Any = {
            spec.name: Tensor(np.ascontiguousarray(value).tobytes(), spec.dtype, tuple(map(int, spec.shape)))
            for spec, value in zip(specs, outputs, strict=True)
        }
        *first, last = prepare_chain(self.steps, Place(lambda _: b"", [], [], specs))
        for apply in first:
            tensors = apply(tensors, self.item)
        answers = [one["box"] for one in last(tensors, self.item)]
        return [
            (one, (box["xmin"], box["ymin"], box["xmax"], box["ymax"]))
            for one, box in zip(tensors, answers, strict=True)
        ]


def is_detector(definition: Definition) -> bool:
    """Tell whether the steps of a bundle find boxes."""
    return any(step.name == "post.boxes" for step in definition.outputs)


def reason_against(definition: Definition, outputs: Sequence[End]) -> str:
    """Return why the steps behind a detector are not written in C; empty where they are."""
    names = [step.name for step in definition.outputs]
    if [name for name in names if name != "tensor.dequantize"] not in _CHAINS or names[-1] != "post.detections":
        return f"the steps {', '.join(names)}"
    if "tensor.dequantize" in names[names.index("post.boxes") :]:
        return "a step `tensor.dequantize` behind post.boxes"
    parameters = next(step.parameters for step in definition.outputs if step.name == "post.boxes")
    if parameters["format"] not in box_formats.FORMATS:
        return f"the format `{parameters['format']}`"
    known = _steps_of_integers(definition.outputs, outputs)
    for one in outputs:
        if one.kind != "float" and (one.tensor.name not in known or one.kind not in _INTEGERS):
            return f"an output `{one.tensor.name}` of {one.tensor.dtype} without a step `tensor.dequantize`"
        if one.kind != "float" and parameters["format"] == "yunet":
            return f"the format `yunet` with outputs of {one.tensor.dtype}"
    if not any(steps[0].name == "image.decode" for steps in definition.inputs.values()):
        return "a model whose input is not an image"
    return reason_against_outputs(parameters, _shapes(outputs))


def _steps_of_integers(steps: Sequence[Step], outputs: Sequence[End]) -> dict[str, tuple[float, int]]:
    """Return by output the scale and zero point that the steps before `post.boxes` say."""
    return {
        step.parameters["tensor"] or outputs[0].tensor.name: (
            float(step.parameters["scale"]),
            int(step.parameters["zero_point"]),
        )
        for step in steps
        if step.name == "tensor.dequantize"
    }


def detector_of(
    definition: Definition, inputs: Sequence[End], outputs: Sequence[End], labels: Sequence[str], item: Item | None
) -> Detector:
    """Return what is written of the steps behind a detector.

    Args:
        definition: The steps, of which `reason_against` said nothing.
        inputs: The model's inputs.
        outputs: Its outputs.
        labels: The names of the classes.
        item: What is known of an image of one size; None for boxes in pixels of the model's input.
    """
    if item is None:
        item = Item()
        (steps,) = [steps for steps in definition.inputs.values() if steps[0].name == "image.decode"]
        layout = next(one.parameters["layout"] for one in steps if "layout" in one.parameters)
        end = inputs[0].tensor
        first = 2 if is_channels_first(layout, TensorSpec(end.name, end.dtype, end.shape)) else 1
        height, width = map(int, end.shape[first : first + 2])
        item.height = item.input_height = height
        item.width = item.input_width = width
    return Detector(tuple(definition.outputs), item, tuple(outputs), tuple(labels))


def _shapes(outputs: Sequence[End]) -> dict[str, tuple[int, ...]]:
    return {one.tensor.name: tuple(map(int, one.tensor.shape[1:])) for one in outputs}


def least_above(threshold: float) -> np.float32:
    """Return the least float32 that is above a number."""
    found = np.float32(threshold)
    return found if float(found) > threshold else np.nextafter(found, np.float32(np.inf))


def least_logit(threshold: float) -> np.float32:
    """Return the least float32 whose sigmoid, clipped at 100, is above a number; NaN where none is."""
    low, high = np.float32(-_MOST_LOGIT), np.float32(_MOST_LOGIT)
    if not sigmoid(float(high)) > threshold:
        return np.float32(np.nan)
    if sigmoid(float(low)) > threshold:
        return np.float32(-np.inf)
    while np.nextafter(low, high) < high:
        middle = np.float32((low + high) / 2)
        low, high = (low, middle) if sigmoid(float(middle)) > threshold else (middle, high)
    return high


def files(prefix: str, detector: Detector) -> dict[str, str]:
    """Return the header and the source of the steps."""
    p, thin = detector.decoding, detector.thinning
    form = detector.form
    least_of = least_logit if p["activation"] == "sigmoid" and is_scored(p) else least_above
    least = least_of(p["threshold"])
    item, points = detector.item, form.points
    limit = form.places if thin is None else min(thin["limit"], form.places)
    real = "double" if detector.is_weighted else "float"
    names = "".join(f"  {quoted(label)},\n" for label in detector.labels)
    size, labels = len(detector.labels), bool(detector.labels)
    defines = {"LEAST_SCORE": number(least), "THRESHOLD": repr(float(p["threshold"]))}
    defines |= {"INPUT_WIDTH": f"{item.input_width}.0", "INPUT_HEIGHT": f"{item.input_height}.0", "POINTS": str(points)}
    if thin is not None:
        iou = repr(float(thin["iou"])) if detector.is_weighted else number(least_above(thin["iou"]))
        defines |= {"LEAST_OVERLAP": iou}
    kind = "plain" if thin is None else "weighted" if detector.is_weighted else "greedy"
    text = {name: _TEXTS[name] for name in ("move", kind)}
    chosen = text[kind].replace("SAME_CLASS", " && one->label == other->label" if thin and thin["by_class"] else "")
    for word, line in _POINT_LINES.items():
        chosen = chosen.replace(f"  {word}\n", f"  {line}\n" if points else "")
    if kind == "weighted" and not points:
        chosen = chosen.replace("  int k;\n", "").replace("label = 0, k;", "label = 0;")
    moved = _moved(item, points)
    words = {
        "prefix": prefix,
        "upper": prefix.upper(),
        "limit": str(limit),
        "label_lines": f"\nextern const char *const {prefix}_labels[{size}];\n" if labels else "",
        "labels": f"\nconst char *const {prefix}_labels[{size}] = {{\n{names}}};\n" if labels else "",
        "pixels": "the image" if item.geometry else "the model's input",
        "real": real,
        "point_field": f"\n  {real} points[{2 * points}]; /* x and y of each */" if points else "",
        "threshold": f"{p['threshold']:g}",
        "order": "the best first" if thin is not None else "in the model's order",
        "memory": f"{-(-form.places // 8)} bytes" if detector.is_weighted else "`found`",
        "format": p["format"],
        "count": str(form.places),
        "tables": form.tables,
        "score": form.score,
        "decode": form.decode,
    }
    body = (moved + chosen).replace("PREFIX", prefix).replace("UPPER", prefix.upper()).strip("\n")
    source = "\n".join([form.score, form.decode, form.tables, body])
    said = "logit whose sigmoid is" if least_of is least_logit else "score"
    meant = {"LEAST_SCORE": f" /* the least {said} above {p['threshold']:g} */"}
    words["defines"] = "".join(
        f"#define {name} {value}{meant.get(name, '')}\n" for name, value in defines.items() if name in source
    )
    words["chosen"] = "\n" + body
    header, plain = (Template((_FOLDER / f"boxes.{end}").read_text()).substitute(words) for end in ("h", "c"))
    if "memset" not in plain:
        plain = _without(plain, "#include <string.h>")
    if plain.count("set_corners(") == 1:
        plain = _without(plain, "static void set_corners")
    while "\n\n\n" in plain:
        plain = plain.replace("\n\n\n", "\n\n")
    return {f"{prefix}_boxes.h": header, f"{prefix}_boxes.c": plain}


def _without(text: str, start: str) -> str:
    """Leave out a line, or a function with the empty line behind it."""
    first = text.index(start)
    last = text.index("\n}\n\n", first) + 4 if "void" in start else text.index("\n", first) + 1
    return text[:first] + text[last:]


def _moved(item: Item, points: int) -> str:
    """Return the functions that move a box from the model's input to the image."""
    lines = []
    for axis in "xy":
        moves = "".join(
            f"  {axis} = ({axis} - {float(getattr(one, 'left' if axis == 'x' else 'top'))!r}) / "
            f"{float(getattr(one, f'scale_{axis}'))!r};\n"
            for one in reversed(item.geometry)
        )
        lines.append(f"static real {axis}_of(double {axis}) {{\n{moves}  return (real){axis};\n}}\n")
    return (
        _TEXTS["move"]
        .replace("MOVES", "\n".join(lines))
        .replace("WIDTH_", f"{item.width}.0f")
        .replace("HEIGHT_", f"{item.height}.0f")
        .replace("POINTED", _TEXTS["points"] if points else "")
    )


def sizes(detector: Detector) -> Sizes:
    """Return what the steps take of a Cortex-M4 besides the caller's boxes, in bytes."""
    form = detector.form
    anchors = 4 * len(detector.decoding["anchors"] or []) if detector.decoding["format"] == "ssd" else 0
    return Sizes(-(-form.places // 8) if detector.is_weighted else 0, anchors + _CODE)


def golden(prefix: str, detector: Detector, goldens: Sequence[Golden]) -> tuple[str, str]:
    """Return what a test has of the steps: the objects of each golden, and the line that compares them."""
    counts, lists = [], []
    for one in goldens:
        found = detector.of(one.outputs)
        counts.append(str(min(len(found), _TESTED)))
        lists += [
            [number(np.float32(value)) for value in (*box, each.score, each.label)] for each, box in found[:_TESTED]
        ] or [["0.0f"] * 6]
    starts = np.concatenate([[0], np.cumsum([max(int(one), 1) for one in counts])[:-1]])
    lines = "\n".join("  {" + ", ".join(one) + "}," for one in lists)
    arrays = "\n".join(
        [
            "/* The objects of each golden: where they begin, how many, and of each the box, score and class. */",
            f"static const int objects[{len(counts)}][2] = {{",
            *rows([f"{{{start}, {count}}}" for start, count in zip(starts, counts, strict=True)]),
            "};",
            f"static const float object[{len(lists)}][6] = {{",
            lines,
            "};",
        ]
    )
    return f"\n{arrays}\n{_TEXTS['test'].replace('PREFIX', prefix).replace('MOST', str(_TESTED))}", (
        "    differs |= !are_near(objects[place][1], object + objects[place][0]);\n"
    )


#: What is done with the points of an object, where it has some.
_POINT_LINES = {
    "ADDED": "for (k = 0; k < 2 * POINTS; k++) sum->points[k] += one->score * one->points[k];",
    "DIVIDED": "for (k = 0; k < 2 * POINTS; k++) sum->points[k] /= sum->score;",
}
_TEXTS = {
    one.split("\n", 1)[0]: one.split("\n", 1)[1] for one in (_FOLDER / "boxes_parts.c").read_text().split("/*** ")[1:]
}
