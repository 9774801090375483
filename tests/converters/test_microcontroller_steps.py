"""The steps of a bundle beside a model in C: features of sounds and the best classes, equal to Python's."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edge_infer.tasks.definition import read_definition
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters import convert
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.writers.microcontroller import features
from edge_infer_converters.writers.microcontroller.steps import steps_of
from tests.support import real_models, zoo

ZOO = real_models.folder()
SANITIZED = [
    "-std=c99",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pedantic",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]
QUANTIZE = {"step": "tensor.quantize", "scale": 0.10217524319887161, "zero_point": -128}
LABELS = ["silence", "unknown", "ja", 'n"e\\in?']


def definition(*steps: dict[str, Any], last: dict[str, Any] | None = None) -> Any:
    document = {"version": 1, "inputs": {"x": [{"step": "audio.decode"}, *steps]}}
    return read_definition("audio-classification", document | {"outputs": [last or {"step": "post.top_k"}]})


def loud(count: int) -> list[int]:
    """Silence, noise from one unit to clipping, and the number of 16 bits that has no positive one."""
    drawn = random.Random(1)
    samples = [round(drawn.gauss(0, 1) * 10 ** (i // 1500 % 5 + drawn.random())) for i in range(count)]
    samples[:1000], samples[3000:3050] = [0] * 1000, [-32_768] * 50
    return [max(-32_768, min(32_767, one)) for one in samples]


@pytest.mark.parametrize(
    ("steps", "dtype"),
    [
        ([{"step": "audio.micro_features", "hop": 320, "unit": "int8"}], "int8"),
        ([{"step": "audio.micro_features"}], "float32"),
        ([{"step": "audio.micro_features", "gain": False}], "float32"),
        ([{"step": "audio.micro_features"}, QUANTIZE, {"step": "tensor.frames", "rows": 3, "samples": 160}], "int8"),
        ([{"step": "audio.micro_features", "rate": 8000, "window": 100, "hop": 50, "channels": 10, "high_hz": 4000.0}],
         "float32"),
        ([{"step": "audio.micro_features", "window": 1100, "hop": 900}], "float32"),
    ],
    ids=["int8", "real", "without a gain", "quantized", "8 kHz", "2048 points"],
)  # fmt: skip
def test_features_in_c_are_those_of_python(steps: list[dict[str, Any]], dtype: str, tmp_path: Path) -> None:
    made = features.features_of(definition(*steps), [TensorSpec("x", dtype, ["n", 40])])
    assert made is not None
    for path, text in features.files("net", made).items():
        (tmp_path / path).write_text(text)
    count = 9000
    frames = (count - made.settings.window) // made.settings.step + 1
    (tmp_path / "main.c").write_text(f"""
#include "net_features.h"
#include <stdio.h>
static int16_t heard[{count}];
int main(void) {{
  int i, k;
  {"int8_t" if made.levels else "float"} found[NET_CHANNELS];
  if (fread(heard, 2, {count}, stdin) != {count}) return 1;
  net_features_reset();
  for (i = 0; i < {frames}; i++) {{
    net_features(heard + i * NET_HOP, found);
    for (k = 0; k < NET_CHANNELS; k++) printf("%.9g\\n", (double)found[k]);
  }}
  return 0;
}}
""")
    subprocess.run(["gcc", *SANITIZED, "-o", "program", "main.c", "net_features.c"], cwd=tmp_path, check=True)

    samples = loud(count)
    done = subprocess.run([tmp_path / "program"], input=array("h", samples).tobytes(), capture_output=True, check=True)

    found = np.array(done.stdout.split(), np.float32)
    np.testing.assert_array_equal(found, np.array(made.of(samples), np.float32))
    assert len(set(found.tolist())) > 50


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="no arm-none-eabi-gcc: tests/setup.sh all")
def test_the_bytes_that_are_said_are_those_of_the_compiler(tmp_path: Path) -> None:
    spec = TensorSpec("x", "int8", ["n", 40])
    made = features.features_of(definition({"step": "audio.micro_features", "unit": "int8"}), [spec])
    assert made is not None
    for path, text in features.files("net", made).items():
        (tmp_path / path).write_text(text)
    command = "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -std=c99 -Os -c net_features.c"
    subprocess.run(command.split(), cwd=tmp_path, check=True)

    done = subprocess.run(
        ["arm-none-eabi-size", "net_features.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    flash, _, ram = map(int, done.stdout.split("\n")[1].split()[:3])
    said = features.sizes(made)
    assert said.ram == ram
    assert abs(said.flash - flash) <= 200


def test_other_steps_are_left_out() -> None:
    spec = [TensorSpec("x", "float32", ["n", 40])]

    assert steps_of(definition({"step": "audio.log_mel"}), LABELS, spec).features is None
    assert steps_of(definition({"step": "audio.micro_features", "unit": "int8"}), LABELS, spec).features is None
    louder: list[dict[str, Any]] = [{"step": "audio.scale", "factor": 2.0}, {"step": "audio.micro_features"}]
    assert steps_of(definition(*louder), LABELS, spec).features is None
    assert not steps_of(
        definition({"step": "audio.log_mel"}, last={"step": "post.top_k", "threshold": 0.5}), LABELS, spec
    ).ranks
    assert steps_of(definition({"step": "audio.log_mel"}), LABELS, spec).ranks


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier of features: 4 frames of 40 channels."""
    from onnx import helper

    folder = tmp_path_factory.mktemp("bundle")
    rng = np.random.default_rng(3)
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["r"]),
        helper.make_node("Gemm", ["r", "w", "b"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=1),
    ]
    weights = {"w": rng.standard_normal((160, 4)).astype("f4") / 40, "b": np.zeros(4, "f4")}
    weights |= {"flat": np.array([1, 160], np.int64)}
    (folder / "net.onnx").write_bytes(zoo.model(nodes, [value("x", 1, [4, 40])], [value("y", 1, [1, 4])], weights))
    (folder / "labels.json").write_text(json.dumps(LABELS))
    inputs = [{"step": "audio.decode"}, {"step": "audio.fit", "samples": 960}, {"step": "audio.micro_features"}]
    pipeline = {"task": "audio-classification", "inputs": {"x": inputs}, "outputs": [{"step": "post.top_k"}]}
    (folder / "pipeline.json").write_text(json.dumps(pipeline))
    convert(
        folder / "net.onnx",
        folder / "net.bundle",
        format="tflite",
        precision="fp32",
        preprocess=str(folder / "pipeline.json"),
        labels=str(folder / "labels.json"),
    )
    return folder / "net.bundle"


def compiled(bundle: Path, folder: Path, to: str = "c") -> Path:
    done = CliRunner().invoke(compile_, [str(bundle), "-o", str(folder), "--to", to, "--prefix", "net"])
    assert done.exit_code == 0, done.output
    return folder


def test_the_folder_proves_its_steps_and_finds_a_wrong_one(bundle: Path, tmp_path: Path) -> None:
    folder = compiled(bundle, tmp_path / "c")

    def tested() -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", "-s", "-C", str(folder), "test"], capture_output=True, text=True, check=False)

    done = tested()
    assert done.returncode == 0, done.stderr
    assert "net: 2 of 2 goldens as they should be\nnet: 4 of 4 frames of features as they should be" in done.stdout
    main = folder / "test_main.c"
    text = main.read_text()
    main.write_text(re.sub(r"(wanted\[160\] = \{\n  )([^,]+),", r"\g<1>99.0f,", text))
    assert "net: 3 of 4 frames" in (done := tested()).stdout
    assert done.returncode
    main.write_text(re.sub(r"(best\[2\]\[3\] = \{\n  \{)(\d), (\d)", r"\g<1>\3, \2", text))
    assert "golden 0 differs" in (done := tested()).stdout
    assert done.returncode


def test_labels_are_texts_in_c(bundle: Path, tmp_path: Path) -> None:
    folder = compiled(bundle, tmp_path / "c")
    lines = ['#include "net_classes.h"', "#include <stdio.h>", "int main(void) {", "  int i;"]
    lines += ["  for (i = 0; i < NET_CLASSES; i++) puts(net_labels[i]);", "  return 0;", "}", ""]
    (folder / "say.c").write_text("\n".join(lines))

    parts = ["say.c", "net.c", "net_classes.c"]
    subprocess.run(["gcc", *SANITIZED, "-o", "say", *parts, "-lm"], cwd=folder, check=True)

    done = subprocess.run([folder / "say"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == LABELS


@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "avr-gcc -mmcu=atmega2560"])
def test_boards_compile_the_steps_without_a_warning(compiler: str, bundle: Path, tmp_path: Path) -> None:
    command = compiler.split()
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]}: tests/setup.sh all")
    folder = compiled(bundle, tmp_path / "library", "arduino")
    flags = ("-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c")

    for name in ("net_features", "net_classes"):
        subprocess.run([*command, *flags, f"src/{name}.c", "-o", f"{name}.o"], cwd=folder, check=True)
    named = re.findall(r"`([\w/]+\.(?:[ch]|ino))`", (folder / "README.md").read_text())
    assert {one for one in named if not (folder / one).is_file()} == set()
    sketch = (folder / "examples/net/net.ino").read_text()
    assert "net_features(heard" in sketch
    assert '#include "net_classes.h"' in sketch


@pytest.mark.long
@pytest.mark.skipif(ZOO is None, reason="no real models")
def test_micro_speech_with_its_steps_here_and_on_a_cortex_m4(tmp_path: Path) -> None:
    assert ZOO is not None
    guide = (Path(__file__).parents[2] / "docs/guide/microcontroller.md").read_text("utf-8")
    (pipeline,) = re.findall(r"^```json\n(.*?)^```$", guide, re.M | re.S)
    (tmp_path / "words.json").write_text(pipeline)
    (tmp_path / "labels.json").write_text(json.dumps(["silence", "unknown", "yes", "no"]))
    bundle = tmp_path / "words.bundle"
    convert(
        ZOO / "micro_speech.tflite",
        bundle,
        preprocess=str(tmp_path / "words.json"),
        labels=str(tmp_path / "labels.json"),
    )
    folder = compiled(bundle, tmp_path / "c")

    places = ["test", "qemu"] if shutil.which("qemu-system-arm") else ["test"]
    for place in places:
        done = subprocess.run(["make", "-s", "-C", str(folder), place], capture_output=True, text=True, check=True)
        assert "net: 2 of 2 goldens as they should be\nnet: 4 of 4 frames" in done.stdout
