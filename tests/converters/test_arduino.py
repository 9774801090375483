"""A model as a library for Arduino: compiled as its build system does, and its sketch run on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_infer_converters.compilation import compile_to_c
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.writers.microcontroller.kernel_source import blocks
from edge_infer_converters.written_files import LIST
from tests.support import real_models, zoo
from tests.support.microcontroller import networks

CORE = Path(__file__).parents[1] / "support/microcontroller/arduino"
ZOO = real_models.folder()
#: By the prefix of the compilers: the processor, and the options of Arduino's cores (`platform.txt`), with warnings.
BOARDS = {
    "avr-": ("-mmcu=atmega2560",),
    "arm-none-eabi-": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}
WARN = ("-Wall", "-Wextra", "-Werror", "-Os", "-ffunction-sections", "-fdata-sections")


def library(tmp_path: Path, source: Path, prefix: str) -> Path:
    folder = tmp_path / "library"
    arguments = [str(source), "-o", str(folder), "--to", "arduino", "--prefix", prefix]
    done = CliRunner().invoke(compile_, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"open the example `{prefix}`" in done.output
    return folder


def compiled(folder: Path, board: str, prefix: str) -> list[str]:
    """Compile the C as C and the sketch as C++, as Arduino does; return the objects."""
    flags = (*BOARDS[board], *WARN, f"-I{folder}/src", f"-I{CORE}", "-c")
    made = [str(folder / f"{name}.o") for name in ("model", "sketch")]
    sketch = folder / f"examples/{prefix}/{prefix}.ino"
    subprocess.run([f"{board}gcc", "-std=gnu11", *flags, "-o", made[0], folder / f"src/{prefix}.c"], check=True)
    core = ("-include", "Arduino.h", "-x", "c++")
    subprocess.run([f"{board}g++", "-std=gnu++11", *flags, *core, "-o", made[1], sketch], check=True)
    return made


@pytest.fixture
def residual(tmp_path: Path) -> Path:
    path = tmp_path / "residual.tflite"
    path.write_bytes(networks.residual())
    return path


def test_the_sketch_finds_the_goldens_right_and_a_changed_one_wrong(tmp_path: Path, residual: Path) -> None:
    folder = library(tmp_path, residual, "net")
    sketch = folder / "examples/net/net.ino"

    def said() -> str:
        objects = compiled(folder, "", "net")
        flags = (*BOARDS[""], f"-I{CORE}")
        program = folder / "program"
        subprocess.run(["g++", *flags, *objects, CORE / "host.cpp", "-o", program], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout

    assert said() == "net: 2 of 2 goldens as they should be, 7 microseconds for a run\n"
    text = sketch.read_text()
    changed = re.sub(r"(outputs_0\[2\]\[5\] = \{\n  \{\n  )(-?\d+)", lambda m: f"{m[1]}{int(m[2]) ^ 1}", text)
    assert changed != text
    sketch.write_text(changed)
    assert said() == "net: 1 of 2 goldens as they should be, 7 microseconds for a run\n"


@pytest.mark.parametrize("board", [one for one in BOARDS if one])
def test_boards_compile_the_library_without_a_warning(board: str, tmp_path: Path, residual: Path) -> None:
    if not shutil.which(f"{board}g++"):
        pytest.skip(f"no {board}g++: tests/setup.sh all")
    compiled(library(tmp_path, residual, "net"), board, "net")


def test_floats_are_not_fused_though_a_library_has_no_options(tmp_path: Path) -> None:
    if not shutil.which("arm-none-eabi-g++"):
        pytest.skip("no arm-none-eabi-g++: tests/setup.sh all")
    path = tmp_path / "floats.onnx"
    path.write_bytes(zoo.mlp())
    folder = library(tmp_path, path, "floats")

    def has_fused() -> bool:
        objects = compiled(folder, "arm-none-eabi-", "floats")
        command = ["arm-none-eabi-objdump", "-d", objects[0]]
        return (
            re.search(r"vfn?m[as]", subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            is not None
        )

    assert not has_fused()
    source = folder / "src/floats.c"
    source.write_text(source.read_text().replace('"fp-contract=off"', '"O2"'))
    assert has_fused()


def test_the_properties_are_those_of_the_specification(tmp_path: Path, residual: Path) -> None:
    folder = library(tmp_path, residual, "net")

    lines = (folder / "library.properties").read_text().splitlines()

    fields = dict(line.split("=", 1) for line in lines)
    assert {*fields} >= {
        "name",
        "version",
        "author",
        "maintainer",
        "sentence",
        "paragraph",
        "category",
        "url",
        "architectures",
    }
    assert all(fields.values()), fields
    assert fields["url"].startswith("https://")
    assert (fields["name"], fields["includes"], fields["architectures"]) == ("net", "net.h", "*")
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        *("library.properties", "README.md", "examples/net/net.ino", LIST),
        *(f"src/net{end}" for end in (".h", ".c", "_kernels.h", "_weights.h")),
    }


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("avr-g++") or ZOO is None, reason="no avr-g++, or no real models")
def test_the_sine_fits_an_uno(tmp_path: Path) -> None:
    assert ZOO is not None
    made, _ = compile_to_c((ZOO / "microflow_sine.tflite").read_bytes(), "sine", "sine", is_library=True)
    for path, text in made.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = ["avr-gcc", "-mmcu=atmega328p", "-std=gnu11", *WARN, "-c", "-o", "sine.o", "src/sine.c"]
    subprocess.run(command, cwd=tmp_path, check=True)

    done = subprocess.run(["avr-size", "sine.o"], cwd=tmp_path, capture_output=True, text=True, check=True)

    text_bytes, data, bss = map(int, done.stdout.split("\n")[1].split()[:3])
    assert text_bytes + data <= 4096
    assert data + bss <= 2048


def test_products_of_shorts_are_whole_where_an_int_has_16_bits(tmp_path: Path) -> None:
    """The compiler computes them itself; what it finds wrong stays in the object as a call."""
    if not shutil.which("avr-gcc"):
        pytest.skip("no avr-gcc: tests/setup.sh all")
    wanted = ("least", "most", "saturated", "short_product", "halved")
    parts = [one.text for one in blocks("size") if {*one.names} & {*wanted}]
    checks = ["short_product(20000, 20000) != 12207", "halved(INT32_C(1) << 20, 19) != 2"]
    calls = [f"  if ({check}) wrong_{i}();" for i, check in enumerate(checks)]
    declared = [f"void wrong_{i}(void);" for i in range(len(checks))]
    lines = ["#include <stdint.h>", *declared, *parts, "void run(void) {", *calls, "}", ""]
    (tmp_path / "fold.c").write_text("\n".join(lines))

    subprocess.run(
        ["avr-gcc", "-mmcu=atmega2560", "-std=c99", "-O2", "-c", "fold.c", "-o", "fold.o"], cwd=tmp_path, check=True
    )

    found = subprocess.run(["avr-nm", "fold.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "run" in found
    assert "wrong_" not in found
