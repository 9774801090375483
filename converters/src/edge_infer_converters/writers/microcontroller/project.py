"""Write what stands beside a model in C: tests, build files and a README, or the sketch of a library for Arduino."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from edge_infer_converters.writers.microcontroller.steps import Steps
from edge_infer_converters.writers.microcontroller.steps import tested as step_tests
from edge_infer_converters.writers.microcontroller.text import comment, number, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.microcontroller.golden import Golden
    from edge_infer_converters.writers.microcontroller.layout import Layout
    from edge_infer_converters.writers.microcontroller.text import End

_FOLDER = Path(__file__).parent / "templates"
_FILLED = ("test_main.c", "host_main.c", "Makefile", "CMakeLists.txt", "README.md")
_FIXED = ("cortex_m4.c", "cortex_m4.ld")
#: Of a library for Arduino, by the templates.
_LIBRARY = {
    "library.properties": "library.properties",
    "README.md": "arduino.md",
}
_BESIDE = {
    "features": "| `FOLDERNAME.h`, `FOLDERNAME.c` | the features of a sound, which the model takes |\n",
    "image": "| `FOLDERNAME.h`, `FOLDERNAME.c` | the steps from an image to the model's input |\n",
    "boxes": "| `FOLDERNAME.h`, `FOLDERNAME.c` | the objects that a run finds |\n",
    "classes": "| `FOLDERNAME.h`, `FOLDERNAME.c` | the best classes of a run |\n",
}
_ROUNDINGS = {
    "litert": "LiteRT with XNNPACK does (`--rounding litert`)",
    "reference": "LiteRT's reference kernels do (`--rounding reference`)",
    "tflm": "TFLite Micro does (`--rounding tflm`)",
}


def files(
    prefix: str,
    name: str,
    layout: Layout,
    inputs: list[End],
    outputs: list[End],
    goldens: Sequence[Golden],
    rounding: str,
    *,
    is_fast: bool,
    has_math: bool,
    is_library: bool = False,
    steps: Steps = Steps(),  # noqa: B008  it holds nothing that changes
) -> dict[str, str]:
    """Return the text of each file by its name.

    Args:
        prefix: What the names in C begin with.
        name: What comments call the model.
        layout: The model.
        inputs: Its inputs.
        outputs: Its outputs.
        goldens: What the test checks.
        rounding: How its integers are rounded.
        is_fast: Whether convolutions are computed for speed.
        has_math: Whether it includes math.h.
        is_library: Whether it is a library for Arduino.
        steps: What stands before and behind it.
    """
    reset = f"  {prefix}_reset();\n" if layout.state else ""
    first, last = inputs[0], outputs[0]
    example = (f"{prefix}_reset();\n" if layout.state else "") + (
        f"{first.kind} *input = {first.name}();   /* {first.size} elements */\n"
        f"/* ... fill it ... */\n{prefix}_run();\n"
        f"const {last.kind} *output = {last.name}(); /* {last.size} elements */\n"
    )
    words = {
        "prefix": prefix,
        "name": comment(name),
        "count": str(len(goldens)),
        "reset": reset,
        "libraries": "-lm" if has_math else "",
        "link": f"target_link_libraries({prefix} PUBLIC m)\n" if has_math else "",
        "headers": ", `string.h`, `math.h`" if has_math else ", `string.h`",
        "level": "-O2" if is_fast else "-Os",
        "rounding": _ROUNDINGS[rounding],
        "example": example,
        "more": " A run leaves its variables for the next one; `_reset()` starts over." if layout.state else "",
        "dsp": template("dsp.md") if is_fast else "",
        "compare": template("is_near.c") if any(one.kind == "float" for one in outputs) else "",
        "arrays": "\n".join(_arrays(inputs, outputs, goldens)),
        "feeds": "".join(
            f"    memcpy({one.name}(), inputs_{i}[place], sizeof inputs_{i}[place]);\n" for i, one in enumerate(inputs)
        ),
        "checks": "".join(_check(i, one) for i, one in enumerate(outputs)),
        "reads": "".join(f'  read_array({one.name}(), "{_numpy(one)}", {_size(one)}, {one.size});\n' for one in inputs),
        "writes": "".join(
            f'  write_array({one.name}(), "{_numpy(one)}", "{_shape(one)}", {_size(one)}, {one.size});\n'
            for one in outputs
        ),
    }
    parts = (
        ("features", steps.features),
        ("image", steps.image),
        ("boxes", steps.detector),
        ("classes", steps.ranks),
    )
    beside = [f"{prefix}_{part}" for part, has in parts if has]
    words |= step_tests(prefix, steps, goldens)
    words["classes"] = f"    int classes[{min(3, outputs[0].size)}];\n" if steps.ranks else ""
    words["parts"] = " ".join(f"{one}.c" for one in (prefix, *beside))
    words["part_headers"] = "".join(f" {one}.c {one}.h" for one in beside)
    where = "src/" if is_library else ""
    words["beside"] = "".join(
        _BESIDE[one.removeprefix(f"{prefix}_")].replace("FOLDER", where).replace("NAME", one) for one in beside
    )
    if is_library:
        found = {path: Template(template(one)).substitute(words) for path, one in _LIBRARY.items()}
        return found | {f"examples/{prefix}/{prefix}.ino": Template(template("sketch.ino")).substitute(words)}
    return {path: Template(template(path)).substitute(words) for path in _FILLED} | {
        path: template(path) for path in _FIXED
    }


def template(path: str) -> str:
    """Return a file of `templates/` as it is."""
    return (_FOLDER / path).read_text()


def _arrays(inputs: list[End], outputs: list[End], goldens: Sequence[Golden]) -> list[str]:
    lines = []
    for side, group in (("inputs", inputs), ("outputs", outputs)):
        for i, one in enumerate(group):
            lines.append(f"static const {one.kind} {side}_{i}[{len(goldens)}][{one.size}] = {{")
            for golden in goldens:
                values = getattr(golden, side)[i].reshape(-1)
                lines += ["  {", *rows([number(value) for value in values]), "  },"]
            lines += ["};", ""]
    return lines


def _check(place: int, one: End) -> str:
    if one.kind == "float":
        return f"    differs |= !is_near(outputs_{place}[place], {one.name}(), {one.size});\n"
    return f"    differs |= memcmp({one.name}(), outputs_{place}[place], sizeof outputs_{place}[place]) != 0;\n"


def _numpy(one: End) -> str:
    code = np.dtype(one.tensor.dtype).str
    return f"'{code}'"


def _size(one: End) -> int:
    return np.dtype(one.tensor.dtype).itemsize


def _shape(one: End) -> str:
    return "".join(f"{size}, " for size in one.tensor.shape).rstrip()
