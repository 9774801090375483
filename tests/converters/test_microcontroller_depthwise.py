"""Depthwise convolutions of 3 by 3 taps for speed: the bytes of the plain kernel, also over their own input."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer_converters.compilation import compile_to_c
from edge_infer_converters.writers.microcontroller import memory, project
from edge_infer_converters.writers.microcontroller.kernel_source import Known
from tests.support.microcontroller import kernel_sizes, networks

if TYPE_CHECKING:
    from pathlib import Path

ARM = shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")
_COMMON = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
_SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_KERNEL = "depthwise_int8_fixed"
#: Every geometry, by the plain kernel into memory of its own and by the other one over its input.
_MAIN = """
static uint32_t state = 1;
static int32_t drawn(int32_t low, int32_t high) {
  state = state * 1664525u + 1013904223u;
  return low + (int32_t)((state >> 8) % (uint32_t)(high - low + 1));
}
static int8_t image[4096], both[8192], want[8192], weights[9 * 8], shifts[8];
static int32_t bias[8], multipliers[8];
static int64_t scratch[32];
int main(void) {
  int32_t run, i;
  for (run = 0; run < 3000; run++) {
    struct depthwise_int8_call a;
    struct depthwise_3x3_int8_call c;
    int32_t channels = drawn(1, 7), below, size;
    memset(&a, 0, sizeof a);
    a.batch = (int16_t)drawn(1, 2);
    a.kernel_height = a.kernel_width = 3;
    a.dilation_height = a.dilation_width = 1;
    a.stride_height = (int16_t)drawn(1, 3);
    a.stride_width = (int16_t)drawn(1, 3);
    a.pad_top = (int16_t)drawn(0, 2);
    a.pad_left = (int16_t)drawn(0, 2);
    a.input_height = (int16_t)drawn(3 - a.pad_top, 9);
    a.input_width = (int16_t)drawn(3 - a.pad_left, 9);
    a.output_height = (int16_t)((a.input_height + a.pad_top - 3 + drawn(0, 2)) / a.stride_height + 1);
    a.output_width = (int16_t)((a.input_width + a.pad_left - 3 + drawn(0, 2)) / a.stride_width + 1);
    a.input_channels = a.output_channels = (int16_t)channels;
    a.input_zero = (int16_t)drawn(-128, 127);
    a.output_zero = (int16_t)drawn(-128, 127);
    a.weights_zero = (int16_t)(drawn(0, 3) ? 0 : drawn(-128, 127));
    a.low = (int16_t)(drawn(0, 1) ? -128 : drawn(-128, 0));
    a.high = (int16_t)(drawn(0, 1) ? 127 : drawn(0, 127));
    for (i = 0; i < 9 * channels; i++) weights[i] = (int8_t)drawn(-128, 127);
    for (i = 0; i < channels; i++) {
      bias[i] = drawn(-50000, 50000);
      multipliers[i] = drawn(1 << 30, 2147483646);
      shifts[i] = (int8_t)drawn(-12, -6);
    }
    size = a.batch * a.input_height * a.input_width * channels;
    for (i = 0; i < size; i++) image[i] = (int8_t)drawn(-128, 127);
    a.input = image;
    a.weights = weights;
    a.bias = bias;
    a.multipliers = multipliers;
    a.shifts = shifts;
    a.output = want;
    a.scratch = scratch;
    depthwise_int8(&a);
    memcpy(&c, &a, sizeof c);
    /* the distance of `memory.distance_of_rows`, in a plain way */
    below = 0;
    for (i = 0; i < a.batch * a.output_height; i++) {
      int32_t image_of = i / a.output_height, row = i % a.output_height;
      int32_t read = row * a.stride_height - a.pad_top + 3;
      if (read < 0) read = 0;
      if (read > a.input_height) read = a.input_height;
      read = (i + 1) * a.output_width - (image_of * a.input_height + read) * a.input_width;
      if (read > below) below = read;
    }
    below = (below + drawn(0, 2)) * channels;
    memcpy(both + below, image, (uint32_t)size);
    c.input = both + below;
    c.output = both;
    depthwise_3x3_int8(&c);
    if (memcmp(both, want, (uint32_t)(a.batch * a.output_height * a.output_width * channels)) != 0) {
      printf("run %d differs\\n", (int)run);
      return 1;
    }
  }
  printf("%d equal\\n", (int)run);
  return 0;
}
"""


def _write(folder: Path, *, is_small: bool) -> list[str]:
    """Write both kernels and the program that compares them, and return the names of the files."""
    for name, way in (("depthwise_int8", "size"), ("depthwise_3x3_int8", "speed")):
        (folder / f"{name}.c").write_text(kernel_sizes.source(name, _KERNEL, way, Known(is_small=is_small)))
    names = ("depthwise_int8", "depthwise_3x3_int8")
    heads = [f"{kernel_sizes.struct(one, _KERNEL)}\nvoid {one}(const struct {one}_call *a);" for one in names]
    includes = "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
    (folder / "main.c").write_text(includes + "\n".join(heads) + _MAIN)
    return ["main.c", "depthwise_int8.c", "depthwise_3x3_int8.c"]


@pytest.mark.parametrize("is_small", [False, True])
def test_three_by_three_taps_give_the_bytes_of_the_plain_kernel(is_small: bool, tmp_path: Path) -> None:
    files = _write(tmp_path, is_small=is_small)

    subprocess.run(["gcc", *_COMMON, *_SANITIZED, "-o", "both", *files], cwd=tmp_path, check=True)

    done = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=False)
    assert done.stdout == "3000 equal\n", done.stdout + done.stderr


@pytest.mark.skipif(not ARM, reason="no arm-none-eabi-gcc and qemu-system-arm: tests/setup.sh all")
@pytest.mark.parametrize("is_small", [False, True])
def test_they_give_the_same_bytes_by_the_instructions_of_a_cortex_m4(is_small: bool, tmp_path: Path) -> None:
    files = _write(tmp_path, is_small=is_small)
    for path in ("cortex_m4.c", "cortex_m4.ld"):
        (tmp_path / path).write_text(project.template(path))
    flags = ("-mcpu=cortex-m4", "-mthumb", *_COMMON, "--specs=rdimon.specs", "-T", "cortex_m4.ld")

    subprocess.run(["arm-none-eabi-gcc", *flags, "-o", "both.elf", *files, "cortex_m4.c"], cwd=tmp_path, check=True)

    board = ("qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting", "-kernel", "both.elf")
    done = subprocess.run(
        board, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=120
    )
    assert done.stdout == "3000 equal\n", done.stdout + done.stderr
    code = subprocess.run(["arm-none-eabi-objdump", "-d", "both.elf"], cwd=tmp_path, capture_output=True, text=True)
    assert "smlad" in code.stdout


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_no_row_overwrites_what_is_still_read(data: st.DataObject) -> None:
    draw = data.draw
    sizes = {"batch": draw(st.integers(1, 2)), "input_channels": draw(st.integers(1, 4))}
    for side, pad in (("height", "pad_top"), ("width", "pad_left")):
        stride = draw(st.integers(1, 3))
        sizes |= {f"stride_{side}": stride, pad: draw(st.integers(0, 2)), f"input_{side}": draw(st.integers(3, 6))}
        sizes[f"output_{side}"] = (sizes[f"input_{side}"] + sizes[pad] - 3) // stride + 1
    channels, width, height = (sizes[name] for name in ("input_channels", "input_width", "input_height"))
    below = memory.distance_of_rows(sizes) + channels * draw(st.integers(0, 2))

    places, columns = sizes["output_height"] * sizes["output_width"], sizes["output_width"]
    overwritten: set[int] = set()  # elements of the input, which starts at 0, and the output below it
    for image in range(sizes["batch"]):
        for channel in range(channels):
            read = 0
            for row in range(sizes["output_height"]):
                while read < min(row * sizes["stride_height"] - sizes["pad_top"] + 3, height):
                    start = (image * height + read) * width
                    assert not overwritten & {(start + x) * channels + channel for x in range(width)}
                    read += 1
                start = image * places + row * columns
                overwritten |= {(start + x) * channels + channel - below for x in range(columns)}


def test_a_network_for_speed_has_the_kernel_and_its_arena_shrinks() -> None:
    made = compile_to_c(networks.residual(), "residual", "net", "tflm", "speed").folder
    layer = next(one for one in made.layout.layers if one.kernel == "depthwise_3x3_int8")
    given_at, made_at = layer.tensors["input"], layer.tensors["output"]

    assert given_at is not None
    assert made_at is not None
    assert given_at.offset - made_at.offset >= 0
    assert (given_at.offset - made_at.offset) % 6 == 0
    assert "depthwise_3x3_int8(&" in made.files["net.c"]
