"""Measure the kernels of models in C on a Cortex-M4; `python -m tests.support.microcontroller.kernel_sizes`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.microcontroller import kernel_source
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
    return found | ({"connected_int8": "convolution_int8_fixed"} if way == "speed" else {})


def measure(name: str, kernel: str, way: str, folder: Path) -> int:
    """Return the bytes of a kernel and all that it needs, compiled alone."""
    declared = KERNELS[kernel]
    lines = ["#include <stdint.h>", "#include <string.h>", "#include <math.h>", f"struct {name}_call {{"]
    for tensor in declared.tensors:
        kind = element_type(kernel, tensor) if tensor in ("bias", "multipliers") else "void"
        const = "" if tensor in ("output", "scratch", "hidden", "cell", "state", "parameters") else "const "
        lines.append(f"  {const}{'int8_t' if tensor == 'shifts' else kind} *{tensor};")
    lines += [f"  int16_t {one};" for one in declared.integers] + [f"  float {one};" for one in declared.floats]
    body = "\n\n".join(kernel_source.needed({name: kernel}, way, {}))
    head = f"void {name}(const struct {name}_call *a)"
    body = body.replace(f"static {head}", f"{head};\n{head}")
    (folder / "kernel.c").write_text("\n".join([*lines, "};", body, ""]))
    made = folder / "kernel.o"
    subprocess.run([*ARM, LEVELS[way], "-c", "-o", str(made), str(folder / "kernel.c")], check=True)
    done = subprocess.run(["arm-none-eabi-size", str(made)], capture_output=True, text=True, check=True)
    return int(done.stdout.split("\n")[1].split()[0])


def main() -> None:
    """Print the sizes of all kernels."""
    with tempfile.TemporaryDirectory() as folder:
        found = {way: {name: measure(name, of, way, Path(folder)) for name, of in names(way).items()} for way in LEVELS}
    json.dump(found, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
