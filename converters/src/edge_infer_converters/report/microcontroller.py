"""What is said of a model in C before it is flashed: its layers, its memory and its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.cli.output import size
from edge_infer_converters.report.timeline import Drawn
from edge_infer_converters.writers.compiled.windows import multiply_accumulates
from edge_infer_converters.writers.compiled.writer import Layer, Span
from edge_infer_converters.writers.microcontroller.boxes import sizes as sizes_of_boxes
from edge_infer_converters.writers.microcontroller.features import sizes as sizes_of_features
from edge_infer_converters.writers.microcontroller.flash import STACK_BYTES, flash_bytes
from edge_infer_converters.writers.microcontroller.image import sizes as sizes_of_image

if TYPE_CHECKING:
    from edge_infer_converters.writers.microcontroller.features import Sizes
    from edge_infer_converters.writers.microcontroller.writer import Folder

COLUMNS = ["OPERATOR", "KERNEL", "MULTIPLICATIONS", "CONSTANTS", "MEMORY IN USE"]
_BESIDES = {"features": "Features of sounds", "image": "Steps of the image", "boxes": "Decoding of boxes"}


def table(made: Folder) -> list[tuple[str, ...]]:
    """Return a row for each call."""
    return [
        (
            one["operator"],
            one["kernel"],
            f"{one['multiply_accumulates']:,}" if one["multiply_accumulates"] else "",
            f"{one['constant_bytes']:,}" if one["constant_bytes"] else "",
            f"{one['arena_bytes']:,}",
        )
        for one in _layers(made)
    ]


def summary(made: Folder, way: str) -> list[str]:
    """Return what a model takes, in words."""
    arena, stack, flash = made.layout.arena_bytes, STACK_BYTES[way], flash_bytes(made.layout, way)
    return [
        f"{len(made.layout.layers)} calls, {made.multiply_accumulates:,} multiplications",
        f"RAM {size(arena + stack)}: arena {arena:,} bytes, stack at most {stack}",
        f"Flash about {size(flash)} on a Cortex-M4: constants {made.constant_bytes:,} bytes, code and arguments "
        f"{flash - made.constant_bytes:,}",
        *(
            f"{_BESIDES[what]} besides: RAM {one.ram:,} bytes, flash about {size(one.flash)}"
            for what, one in _besides(made).items()
        ),
    ]


def document(made: Folder, way: str, rounding: str, checked: str) -> dict[str, Any]:
    """Return the same for machines."""
    flash = flash_bytes(made.layout, way)
    return {
        "files": {path: len(text.encode()) for path, text in made.files.items()},
        "rounding": rounding,
        "optimize": way,
        "checked": checked,
        "arena_bytes": made.layout.arena_bytes,
        "stack_bytes": STACK_BYTES[way],
        "flash_bytes": flash,
        "constant_bytes": made.constant_bytes,
        "multiply_accumulates": made.multiply_accumulates,
        "layers": _layers(made),
        **{what: one._asdict() for what, one in _besides(made).items()},
    }


def timed(made: Folder) -> Drawn:
    """Return what the picture of the memory shows."""
    return Drawn(
        tuple(
            Layer(one["operator"], one["kernel"], one["output"], one["multiply_accumulates"], one["arena_bytes"])
            for one in _layers(made)
        ),
        made.layout.arena_bytes,
        tuple(Span(*one) for one in made.layout.spans),
    )


def _besides(made: Folder) -> dict[str, Sizes]:
    """Return what the steps before the model take, by their name."""
    found = {}
    if made.steps.features is not None:
        found["features"] = sizes_of_features(made.steps.features)
    if made.steps.image is not None:
        found["image"] = sizes_of_image(made.steps.image)
    if made.steps.detector is not None:
        found["boxes"] = sizes_of_boxes(made.steps.detector)
    return found


def _layers(made: Folder) -> list[dict[str, Any]]:
    found, seen = [], set()
    for layer in made.layout.layers:
        arrays = {
            one.array.name: one.array.data.nbytes
            for one in layer.tensors.values()
            if one is not None and one.array is not None and one.array.name not in seen
        }
        seen |= {*arrays}
        output = layer.call.tensors["output"]
        found.append(
            {
                "operator": layer.call.operator,
                "kernel": layer.kernel,
                "output": "" if output is None else output.value.name,
                "multiply_accumulates": multiply_accumulates(layer.call.kernel, layer.call.integers),
                "constant_bytes": sum(arrays.values()),
                "arena_bytes": layer.used,
            }
        )
    return found
