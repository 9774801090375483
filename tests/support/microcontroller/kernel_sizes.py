"""The kernels of models in C as files of their own, and the compiler of a Cortex-M4."""

from __future__ import annotations

from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.microcontroller import kernel_source
from edge_infer_converters.writers.microcontroller.kernel_source import Known
from edge_infer_converters.writers.microcontroller.layout import element_type

ARM = (
    "arm-none-eabi-gcc",
    "-mcpu=cortex-m4",
    "-mthumb",
    "-std=c99",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
)
LEVELS = {"size": "-Os", "speed": "-O2"}


def names(way: str) -> dict[str, str]:
    """Return by its name in C each kernel of the program."""
    found = {
        kernel
        if not kernel.startswith(("convolution_int8", "depthwise_int8"))
        else kernel.removesuffix("_fixed"): kernel
        for kernel in KERNELS
    }
    if way == "speed":
        found |= {"connected_int8": "convolution_int8_fixed", "depthwise_3x3_int8": "depthwise_int8_fixed"}
    return found


def source(name: str, kernel: str, way: str, known: Known = Known()) -> str:  # noqa: B008  nothing in it changes
    """Return the C of a kernel and all that it needs, as a file of its own."""
    body = "\n\n".join(kernel_source.needed({name: kernel}, way, {name: known}))
    head = f"void {name}(const struct {name}_call *a)"
    body = body.replace(f"static {head}", f"{head};\n{head}")
    lines = ["#include <stdint.h>", "#include <string.h>", "#include <math.h>", struct(name, kernel), body, ""]
    return "\n".join(lines)


def struct(name: str, kernel: str) -> str:
    """Return the arguments of a kernel as C has them."""
    declared = KERNELS[kernel]
    lines = [f"struct {name}_call {{"]
    for tensor in declared.tensors:
        kind = element_type(kernel, tensor) if tensor in ("bias", "multipliers") else "void"
        const = "" if tensor in ("output", "scratch", "hidden", "cell", "state", "parameters") else "const "
        lines.append(f"  {const}{'int8_t' if tensor == 'shifts' else kind} *{tensor};")
    lines += [f"  int16_t {one};" for one in declared.integers] + [f"  float {one};" for one in declared.floats]
    return "\n".join([*lines, "};"])
