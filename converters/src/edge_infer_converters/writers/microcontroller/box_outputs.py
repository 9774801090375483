"""The outputs of a detector that C reads: which there are, of which shapes and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Outputs of `yunet` for each stride, and their numbers for each place.
BY_STRIDE = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}


class Output(NamedTuple):
    """An output of the model, as the C of a detector reads it.

    Attributes:
        what: What the format calls it.
        function: Its function in C.
        kind: The type of its elements.
        scale: What a step of integers means; None for floats.
        zero: The integer of zero.
    """

    what: str
    function: str
    kind: str = "float"
    scale: float | None = None
    zero: int = 0

    def pointer(self, name: str, offset: str) -> str:
        """Declare a pointer to a part of it."""
        return f"const {self.kind} *{name} = {self.function}() + {offset};"

    def value(self, element: str) -> str:
        """Return the real value of an element."""
        return element if self.scale is None else f"real_{self.what}({element})"

    @property
    def reader(self) -> str:
        """The function that makes the real value of an integer; empty for floats."""
        if self.scale is None:
            return ""
        less = f"- INT32_C({self.zero})" if self.zero >= 0 else f"+ INT32_C({-self.zero})"
        return (
            f"\n/* The real value of an element of {self.function}(). */\n"
            f"static float real_{self.what}({self.kind} step) {{ return (float)((step {less}) * {self.scale!r}); }}\n"
        )


def is_scored(p: Mapping[str, Any]) -> bool:
    """Tell whether a format has scores of classes that the step's `activation` is for."""
    return p["format"] in ("ssd", "decoded")


def reason_against(p: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return why outputs of these shapes are not read in C; empty where they are."""
    try:
        tensors = tensors_of(p, shapes)
    except KeyError as error:
        return f"a model without the output {error}"
    rank = {"fastestdet": 3, "yunet": 0}.get(p["format"], 2)
    for what, name in tensors.items():
        if rank and len(shapes[name]) != rank and (p["format"] != "tflite" or what == "boxes"):
            return f"an output `{name}` of {len(shapes[name])} dimensions, where {rank} are expected"
    if p["format"] == "tflite":
        sizes = {what: int(np.prod(shapes[name])) for what, name in tensors.items()}
        if sizes["classes"] < sizes["scores"] or sizes["boxes"] < 4 * sizes["scores"] or not sizes["count"]:
            return f"{sizes['boxes'] // 4} boxes and {sizes['classes']} classes beside {sizes['scores']} scores"
    if is_scored(p):
        count, classes = shapes[tensors["scores"]]
        if classes <= (p["background"] != "none"):
            return "scores of no class but the background"
        wide = 4 + 2 * p["points"] * (p["format"] == "ssd")
        if shapes[tensors["boxes"]][0] != count or shapes[tensors["boxes"]][1] < wide:
            return f"boxes of shape {shapes[tensors['boxes']]} beside scores of shape {(count, classes)}"
        if p["format"] == "ssd" and len(p["anchors"] or []) != 4 * count:
            return f"{len(p['anchors'] or []) // 4} anchors for {count} boxes"
    return ""


def tensors_of(p: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Return the name of each output by what it is.

    Raises:
        KeyError: The model has no output of that name.
    """
    names = dict(p["tensors"])
    if p["format"] == "yunet":
        made = {}
        for what in BY_STRIDE:
            for stride in map(int, p["strides"]):
                name = names.get(what, what)
                made[f"{what}_{stride}"] = name.replace("{s}", str(stride)) if "{s}" in name else f"{name}_{stride}"
        names = made
    elif not is_scored(p) and p["format"] != "tflite":
        names = {"out": names.get("out", next(iter(shapes)))}
    for name in names.values():
        if name not in shapes:
            raise KeyError(name)
    return names
