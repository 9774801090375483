"""What a model in C takes of a board: flash as it is said before, the stack, and an AVR."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from edge_infer_converters.compilation import compile_to_c
from edge_infer_converters.writers.microcontroller import flash
from edge_infer_converters.writers.microcontroller.flash import STACK_BYTES, flash_bytes, sizes
from tests.support import real_models
from tests.support.microcontroller import flash_table, kernel_sizes, networks
from tests.support.microcontroller.folders import flash_of, needs_arm, written

if TYPE_CHECKING:
    from pathlib import Path

ZOO = real_models.folder()
WAYS = ("size", "speed")


@needs_arm
@pytest.mark.parametrize(("rounding", "way"), [("reference", "size"), ("tflm", "speed"), ("litert", "speed")])
def test_flash_is_said_within_a_quarter(rounding: str, way: str, tmp_path: Path) -> None:
    made, _ = compile_to_c(networks.residual(), "residual", "net", rounding, way)

    code = flash_of(written(tmp_path, made)) - made.constant_bytes
    assert 0.8 <= (flash_bytes(made.layout, way) - made.constant_bytes) / code <= 1.25


@pytest.mark.parametrize("way", WAYS)
def test_each_form_of_a_kernel_has_a_size(way: str) -> None:
    forms = list(flash_table.forms(way))

    assert {form for form, _, _ in forms} == sizes()[way].keys()
    for form, name, kernel in forms:
        assert flash.form(flash_table.calls(form, name, kernel, 2, are_alike=False).layers) == form


@needs_arm
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_the_sizes_of_the_kernels_are_those_of_the_compiler(way: str, tmp_path: Path) -> None:
    """`python -m tests.support.microcontroller.flash_table` writes them anew where a kernel has changed."""
    for one in flash_table.forms(way):
        found = flash_table.measured(*one, way, tmp_path)
        assert found == pytest.approx(sizes()[way][one[0]], rel=0.15, abs=40), one


@needs_arm
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_the_stack_is_bounded(way: str, tmp_path: Path) -> None:
    folder = written(tmp_path, compile_to_c(networks.residual(), "residual", "net", "reference", way).folder)
    level = kernel_sizes.LEVELS[way]
    command = [*kernel_sizes.ARM[:5], level, "-fstack-usage", "-c", "-o", str(folder / "net.o"), str(folder / "net.c")]

    subprocess.run(command, check=True)

    lines = [line.split("\t") for line in (folder / "net.su").read_text().split("\n") if line]
    assert all(kind == "static" for _, _, kind in lines)
    assert sum(sorted((int(size) for _, size, _ in lines), reverse=True)[:3]) <= STACK_BYTES[way]


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("avr-gcc") or ZOO is None, reason="no avr-gcc, or no real models")
def test_the_sine_fits_an_avr(tmp_path: Path) -> None:
    assert ZOO is not None
    content = (ZOO / "microflow_sine.tflite").read_bytes()
    folder = written(tmp_path, compile_to_c(content, "sine", "sine").folder)
    flags = ("-mmcu=atmega328p", "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c")

    subprocess.run(["avr-gcc", *flags, "-o", "sine.o", "sine.c"], cwd=folder, check=True)

    done = subprocess.run(["avr-size", "sine.o"], cwd=folder, capture_output=True, text=True, check=True)
    text, data, bss = map(int, done.stdout.split("\n")[1].split()[:3])
    assert text + data <= 4096
    assert data + bss <= 2048
