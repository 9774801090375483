"""The C of microcontrollers: one source with the kernels of compiled models, with what all calls have in common."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from edge_infer_converters.compilation import compile_to_c
from edge_infer_converters.writers.microcontroller import kernel_source, macros
from tests.support.microcontroller import networks

if TYPE_CHECKING:
    from pathlib import Path

#: Kernels whose C differs: tables of 2 kB on the stack are for large processors, as is a loop for each operation.
OWN = {"add_int8_fixed", "add_int8", "binary_float", "dot_int8", "dot_float"}
_SOURCE = """#define TWICE(count, BODY) \\
  for (int i = 0; i < 2 * (count); i++) BODY

#define ADD_TWICE(name) \\
  static void add_##name(int *x) { \\
    TWICE(name(1, 2), *x += name(i, 3);) \\
  }

ADD_TWICE(most)

void f(int *x) {
  TWICE(3, {
    int y = least(i, 4);
    *x += y;
  })
}
"""
_WRITTEN_OUT = """static void add_##most(int *x) {
  for (int i = 0; i < 2 * (most(1, 2)); i++) *x += most(i, 3);
}

void f(int *x) {
  for (int i = 0; i < 2 * (3); i++) {
    int y = least(i, 4);
    *x += y;
  }
}
"""


def test_macros_are_written_out() -> None:
    assert macros.expanded(_SOURCE).strip() == _WRITTEN_OUT.strip()


@pytest.mark.parametrize("way", ["size", "speed"])
def test_a_kernel_without_vectors_stands_once(way: str) -> None:
    ours = {
        word
        for name in kernel_source.SHARED
        for path in [kernel_source.FOLDER / f"{name}.c"]
        if path.is_file()
        for word in re.findall(r"^static [\w\s*]+?(\w+)\(", path.read_text(), re.MULTILINE)
    }
    code = "\n".join(block.text for block in kernel_source.blocks(way))

    assert ours == OWN
    assert not re.search(r"\b(?:COLD|KERNEL|INLINE|BROADCAST|POOL|AT)\(|__builtin", code)


def test_what_all_calls_have_in_common_is_a_constant_of_the_kernel() -> None:
    made = compile_to_c(networks.residual(), "residual", "net").folder
    text = made.files["net_kernels.h"]
    members = text[text.index("struct convolution_int8_call {") :].split("}")[0]
    body = text[text.index("static void convolution_int8(") :].split("\n}\n")[0]

    assert "const int32_t batch = 1, stride_height = 1" in body
    assert "a->batch" not in body
    assert "batch" not in members
    assert ".batch" not in made.files["net.c"].split("struct convolution_int8_call layer_0")[1].split("};")[0]
    assert "input_channels" in members  # they differ


@pytest.mark.parametrize("way", ["size", "speed"])
def test_channels_without_weights_do_not_cost_the_short_rounding(way: str, tmp_path: Path) -> None:
    made = compile_to_c(networks.residual(has_empty=True), "residual", "net", "tflm", way).folder
    for path, text in made.files.items():
        (tmp_path / path).write_text(text)

    done = subprocess.run(["make", "-s", "-C", tmp_path, "test"], capture_output=True, text=True, check=True)

    assert "2 of 2 goldens" in done.stdout  # of TFLite Micro
    assert "small_result(" in made.files["net_kernels.h"]
    assert "fixed_result(" not in made.files["net_kernels.h"]


@pytest.mark.parametrize("way", ["size", "speed"])
def test_the_short_rounding_is_that_of_tflite(way: str, tmp_path: Path) -> None:
    names = {"least", "most", "scaled_twice", "fixed_result", "rounded_high", "small_result"}
    code = "\n".join(block.text for block in kernel_source.blocks(way) if names.intersection(block.names))
    (tmp_path / "both.c").write_text(
        f"""#include <stdint.h>
{code}
int main(void) {{
  uint32_t state = 1;
  for (int32_t i = 0; i < 2000000; i++) {{
    state = state * 1664525u + 1013904223u;
    int32_t sum = (int32_t)(state & 0x7FFFFFFF) - 0x40000000, shift = -1 - i % 30;
    if (i & 1) sum >>= state >> 27;
    if (sum == -0x40000000) sum++;
    state = state * 1664525u + 1013904223u;
    int32_t multiplier = i % 5 ? (int32_t)((state >> 2) + 0x40000000) : 0x40000000;
    if (fixed_result(sum, multiplier, shift, 3, -128, 127) != small_result(sum, multiplier, shift, 3, -128, 127))
      return 1;
  }}
  return 0;
}}
"""
    )
    subprocess.run(["gcc", "-O2", "-o", tmp_path / "both", tmp_path / "both.c"], check=True)

    assert subprocess.run([tmp_path / "both"], check=False).returncode == 0
