"""`post.boxes`: what a detector gives, in the many forms they have, to detections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError, did_you_mean, listed
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.box_formats import FORMATS, Detector, classes_of

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.post.detection import Detection
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "format": Parameter("choice", choices=tuple(FORMATS)),
    # Which output is what: `{"boxes": "…", "scores": "…"}`. Formats of one output need none.
    "tensors": Parameter("names", {}),
    "threshold": Parameter("real", 0.5, low=0, high=1, is_argument=True),
    # How the four numbers of a box are ordered, and whether they are pixels of the input or parts of its sides.
    "order": Parameter("choice", "xyxy", choices=("xyxy", "yxyx", "cxcywh")),
    "unit": Parameter("choice", "pixel", choices=("pixel", "ratio")),
    # The class that stands for "nothing"; it is left out, and the classes behind it move down by one.
    "background": Parameter("choice", "none", choices=("none", "first", "last")),
    "activation": Parameter("choice", "none", choices=("none", "sigmoid", "softmax")),
    "strides": Parameter("numbers", [8, 16, 32], low=1, high=1024),
    # Four numbers for each anchor: the centre's x and y, width and height, as parts of the input's sides.
    "anchors": Parameter("numbers", None),
    # What the four numbers of `ssd` are divided by, and whether sizes are exponents.
    "variances": Parameter("numbers", [10.0, 10.0, 5.0, 5.0], length=4),
    "exponential": Parameter("flag", True),
    "points": Parameter("whole", 0, low=0, high=1000),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that decodes detections of a score above `threshold`, in pixels of the model's input.

    Raises:
        ManifestError: An output that the format needs is not named, or the model has none of this name.
    """
    reads = FORMATS[parameters["format"]]
    names = dict(parameters["tensors"])
    for what in names:
        if what not in (known := reads.needs + reads.by_stride):
            raise ManifestError(
                f"pipeline: `post.boxes` of the format `{parameters['format']}` reads no `{what}`, expected "
                f"{listed(list(known))}",
                hint=did_you_mean(what, list(known)) or f'leave "{what}" out of "tensors"',
                field=what,
            )
    for what in reads.needs:
        if what in names or len(reads.needs) == 1:
            names[what] = place.output(names.get(what), "post.boxes")
        else:
            hint = f'"tensors": {{"{what}": "{next(iter(place.outputs), "NAME")}"}}'
            raise ManifestError(f"pipeline: `post.boxes` does not say which output is `{what}`", hint=hint)
    if reads.by_stride:
        names = {
            f"{what}_{stride}": _by_stride(names.get(what, what), stride)
            for what in reads.by_stride
            for stride in map(int, parameters["strides"])
        }
        for name in names.values():
            place.output(name, "post.boxes")

    def apply(outputs: dict[str, Tensor], item: Item) -> list[Detection]:
        chosen = {what: outputs[name] for what, name in names.items()}
        size = (item.input_width, item.input_height)
        classes = classes_of(parameters, chosen)
        if classes is not None:
            place.check_labels(classes)
        detector = Detector(chosen, parameters, size, item.argument("threshold", parameters["threshold"]))
        return reads.decode(detector)

    return apply


def _by_stride(name: str, stride: int) -> str:
    return name.replace("{s}", str(stride)) if "{s}" in name else f"{name}_{stride}"
