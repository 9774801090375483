"""The steps of an image beside a model in C: the input that they make is Python's, byte for byte."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from edge_infer.errors import InputError
from edge_infer.formats.program import ProgramTensor
from edge_infer.tasks.definition import read_definition
from edge_infer.tasks.image.image import Image
from edge_infer_converters import convert
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.writers.microcontroller import image as images
from edge_infer_converters.writers.microcontroller.text import End
from tests.support import real_models, zoo

if TYPE_CHECKING:
    from pathlib import Path

SANITIZED = ["gcc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZED += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
DECODE = {"step": "image.decode"}
GREY = {"step": "image.decode", "mode": "L"}
LEVELS = {"step": "image.to_tensor"}
NORMALIZE = {"step": "image.rescale_normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
ZOO = real_models.folder()
ARM = shutil.which("arm-none-eabi-gcc")


def resize(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"step": "image.resize", "width": width, "height": height, **more}


def crop(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"step": "image.center_crop", "width": width, "height": height, **more}


def resized(size: tuple[int, int], steps: list[dict[str, Any]], shape: tuple[int, ...], dtype: str) -> images.Resized:
    definition = read_definition(
        "image-classification", {"version": 1, "inputs": {"x": steps}, "outputs": [{"step": "post.top_k"}]}
    )
    kind = "float" if dtype == "float32" else f"{dtype}_t"
    end = End(ProgramTensor("x", dtype, shape, 0), "net_input", kind, int(np.prod(shape)), 0)
    return images.resized_of(images.source_of(definition, *size), [end])


def written(folder: Path, made: images.Resized) -> None:
    """Write the steps, and a model that is nothing but an input."""
    for path, text in images.files("net", made).items():
        (folder / path).write_text(text)
    size = made.width * made.height * made.source.channels
    (folder / "net.h").write_text(f"#include <stdint.h>\n#define SIZE {size}\n{made.kind} *net_input(void);\n")


CASES: dict[str, tuple[tuple[int, int], list[dict[str, Any]], tuple[int, ...], str]] = {
    "bilinear to int8": ((40, 30), [DECODE, resize(24, 24), LEVELS], (1, 24, 24, 3), "int8"),
    "larger by lanczos, blue first": (
        (13, 9), [DECODE, {"step": "image.flip_channels"}, resize(31, 30, filter="lanczos"), LEVELS], (1, 30, 31, 3),
        "uint8",
    ),
    "shortest side and a crop, planes of floats": (
        (41, 30), [DECODE, resize(0, 0) | {"width": None, "height": None, "shortest": 18, "filter": "bicubic"},
                   crop(17, 16, rule="torchvision"), {"step": "image.flip_channels"}, NORMALIZE],
        (1, 3, 16, 17), "float32",
    ),
    "letterbox of grey": (
        (40, 23), [GREY, {"step": "image.letterbox", "width": 20, "height": 16, "filter": "hamming"}, LEVELS],
        (1, 16, 20, 1), "float32",
    ),
    "letterbox at its corner, cropped": (
        (40, 23), [DECODE, {"step": "image.letterbox", "width": 20, "height": 20, "anchor": "top_left"}, crop(15, 18),
                   NORMALIZE], (1, 18, 15, 3), "float32",
    ),
    "padded and quantized": (
        (20, 33), [DECODE, crop(23, 30), {"step": "image.rescale_normalize", "mean": [0.5], "std": [0.3]},
                   {"step": "tensor.quantize", "scale": 0.02, "zero_point": -3}], (1, 30, 23, 3), "int8",
    ),
    "nearest": ((50, 37), [GREY, resize(17, 61, filter="nearest"), LEVELS], (61, 17, 1), "int8"),
    "down alone by box": ((12, 64), [DECODE, resize(12, 5, filter="box"), LEVELS], (1, 5, 12, 3), "int8"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_input_in_c_is_that_of_python(case: Any, tmp_path: Path) -> None:
    (width, height), steps, shape, dtype = case
    steps = [{key: value for key, value in step.items() if value is not None} for step in steps]
    made = resized((width, height), steps, shape, dtype)
    written(tmp_path, made)
    (tmp_path / "main.c").write_text(f"""
#include "net.h"
#include "net_image.h"
#include <stdio.h>
#include <string.h>
static uint8_t seen[NET_IMAGE_WIDTH * NET_IMAGE_HEIGHT * NET_IMAGE_CHANNELS];
static {made.kind} input[SIZE];
{made.kind} *net_input(void) {{ return input; }}
int main(void) {{
  while (fread(seen, 1, sizeof seen, stdin) == sizeof seen) {{
    memset(input, 99, sizeof input);
    net_image(seen);
    fwrite(input, 1, sizeof input, stdout);
  }}
  return 0;
}}
""")
    subprocess.run([*SANITIZED, "-o", "program", "main.c", "net_image.c"], cwd=tmp_path, check=True)
    depth = made.source.channels
    rng = np.random.default_rng(0)
    contrasts = rng.choice(np.array([0, 255], np.uint8), (height, width, depth))
    seen = [rng.integers(0, 256, (height, width, depth), np.uint8), contrasts, np.full_like(contrasts, 255)]

    done = subprocess.run(
        [tmp_path / "program"], input=b"".join(one.tobytes() for one in seen), capture_output=True, check=True
    )

    wanted = [made.of(Image(one.tobytes(), width, height, depth)) for one in seen]
    assert len({one.tobytes() for one in wanted}) == 3
    np.testing.assert_array_equal(np.frombuffer(done.stdout, dtype).reshape(3, -1), np.stack(wanted))


@pytest.mark.skipif(not ARM, reason="no arm-none-eabi-gcc: tests/setup.sh all")
@pytest.mark.parametrize("name", ["bilinear to int8", "letterbox at its corner, cropped"])
def test_the_bytes_that_are_said_are_those_of_the_compiler(name: str, tmp_path: Path) -> None:
    made = resized(*CASES[name])
    written(tmp_path, made)
    command = "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -std=c99 -Os -Wall -Wextra -Werror -pedantic -c net_image.c"
    subprocess.run(command.split(), cwd=tmp_path, check=True)

    done = subprocess.run(
        ["arm-none-eabi-size", "net_image.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    flash, _, ram = map(int, done.stdout.split("\n")[1].split()[:3])
    said = images.sizes(made)
    assert said.ram == ram
    assert abs(said.flash - flash) <= 100


@pytest.mark.parametrize(
    ("size", "steps", "said"),
    [
        ((40, 30), [DECODE, resize(30, 20), resize(24, 24), LEVELS], "`image.resize` behind `image.resize`"),
        ((40, 30), [DECODE, crop(30, 20), resize(24, 24), LEVELS], "`image.resize` behind `image.center_crop`"),
        ((40, 30), [DECODE, resize(24, 24), LEVELS, {"step": "tensor.normalize"}], "`tensor.normalize` is not written"),
        ((9, 1000), [DECODE, resize(24, 24, order="pillow12.2"), LEVELS], "`pillow12.2`, which resizes this size down"),
        ((40, 30), [DECODE, LEVELS], "make 40 x 30 pixels of 3 channels"),
        ((40, 30), [DECODE, resize(24, 24), NORMALIZE], "`image.rescale_normalize` makes floats"),
        ((40, 30), [DECODE, {"step": "image.letterbox", "width": 24, "height": 20}, crop(24, 24), LEVELS],
         "pads with black behind `image.letterbox` of level 114"),
        ((5, 90), [DECODE, {"step": "image.letterbox", "width": 90, "height": 90, "anchor": "top_left"}, crop(24, 24),
                   LEVELS], "none of them shows it"),
    ],
)  # fmt: skip
def test_what_is_not_written_is_named(size: tuple[int, int], steps: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        resized(size, steps, (1, 24, 24, 3), "int8")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier of images of 12 x 10 pixels."""
    from onnx import helper

    folder = tmp_path_factory.mktemp("bundle")
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    weights = {"w": np.random.default_rng(3).standard_normal((4, 3, 3, 3)).astype("f4")}
    (folder / "net.onnx").write_bytes(
        zoo.model(nodes, [value("x", 1, [1, 3, 10, 12])], [value("y", 1, [1, 4])], weights)
    )
    inputs = [DECODE, resize(16, 12), crop(12, 10), NORMALIZE]
    pipeline = {"task": "image-classification", "inputs": {"x": inputs}, "outputs": [{"step": "post.top_k"}]}
    (folder / "pipeline.json").write_text(json.dumps(pipeline))
    convert(
        folder / "net.onnx", folder / "net.bundle", format="tflite", precision="fp32",
        preprocess=str(folder / "pipeline.json"),
    )  # fmt: skip
    return folder / "net.bundle"


def compiled(bundle: Path, folder: Path, *options: str) -> Any:
    return CliRunner().invoke(compile_, [str(bundle), "-o", str(folder), "--prefix", "net", *options])


def test_the_folder_proves_its_steps_and_finds_a_wrong_one(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    done = compiled(bundle, folder, "--to", "c", "--source-size", "20x15", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["image"]["ram"] == 112  # 3 rows of 12 pixels, and a number

    def tested(place: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", "-s", "-C", str(folder), place], capture_output=True, text=True, check=False)

    for place in ["test", "qemu"] if ARM and shutil.which("qemu-system-arm") else ["test"]:
        made = tested(place)
        assert made.returncode == 0, made.stderr
        assert "net: 2 of 2 goldens as they should be\nnet: 10 of 10 rows of the image as they should be" in made.stdout
    assert "`net_image.h`" in (folder / "README.md").read_text()
    source = folder / "net_image.c"
    source.write_text(re.sub(r"weights\[(\d+)\] = \{\n  (\d+),", r"weights[\1] = {\n  99,", source.read_text()))
    made = tested("test")
    assert made.returncode
    assert "net: 0 of 10 rows" in made.stdout


def test_boards_compile_the_library_without_a_warning(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    done = compiled(bundle, folder, "--to", "arduino", "--source-size", "20x15")
    assert done.exit_code == 0, done.output
    assert "Steps of the image besides: RAM 112 bytes, flash about" in done.output
    assert "net_image_row(place, row)" in (folder / "examples/net/net.ino").read_text()
    for command in ("arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "avr-gcc -mmcu=atmega2560"):
        if shutil.which(command.split()[0]):
            flags = "-std=c99 -Os -Wall -Wextra -Werror -pedantic -c src/net_image.c -o net_image.o"
            subprocess.run([*command.split(), *flags.split()], cwd=folder, check=True)


def test_the_size_is_asked_for_and_refused_where_it_says_nothing(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    for size in ("160", "0x10", "160x120x3", "4097x1", "-1x5", "\u0661x5"):
        done = compiled(bundle, folder, "--to", "c", "--source-size", size)
        assert done.exit_code == 2
        assert "is not WIDTHxHEIGHT" in done.output
    done = CliRunner().invoke(compile_, [str(bundle), "-o", str(folder), "--source-size", "20x15"])
    assert isinstance(done.exception, InputError)
    assert "--source-size is for C" in str(done.exception)
    done = compiled(bundle.parent / "net.onnx", folder, "--to", "c", "--source-size", "20x15")
    assert isinstance(done.exception, InputError)
    assert "has none" in str(done.exception)
    assert not folder.exists()
    done = compiled(bundle, folder, "--to", "c")
    assert "--source-size 160x120 writes them" in done.output
    assert not (folder / "net_image.c").exists()


@pytest.mark.long
@pytest.mark.skipif(ZOO is None, reason="no real models")
def test_person_detection_with_a_camera_here_and_on_a_cortex_m4(tmp_path: Path) -> None:
    assert ZOO is not None
    pipeline = {"task": "image-classification", "inputs": {"input": [GREY, resize(96, 96), LEVELS]}}
    (tmp_path / "camera.json").write_text(json.dumps(pipeline | {"outputs": [{"step": "post.top_k"}]}))
    bundle = tmp_path / "person.bundle"
    convert(ZOO / "person_detect.tflite", bundle, preprocess=str(tmp_path / "camera.json"))

    done = compiled(bundle, tmp_path / "c", "--to", "c", "--source-size", "160x120", "--rounding", "tflm")

    assert done.exit_code == 0, done.output
    for place in ["test", "qemu"] if ARM and shutil.which("qemu-system-arm") else ["test"]:
        command = ["make", "-s", "-C", str(tmp_path / "c"), place]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "net: 2 of 2 goldens as they should be\nnet: 96 of 96 rows of the image" in made.stdout
