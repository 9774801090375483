"""The objects of a detector beside a model in C: the boxes, scores and classes are Python's."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.formats.program import ProgramTensor
from edge_infer.tasks.definition import read_definition
from edge_infer_converters import convert
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.writers.microcontroller import boxes
from edge_infer_converters.writers.microcontroller import image as images
from edge_infer_converters.writers.microcontroller.text import End
from tests.support import real_models

if TYPE_CHECKING:
    from pathlib import Path

STRICT = ["gcc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
SANITIZED = [*STRICT, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
ZOO = real_models.folder()
COUNT, CLASSES, SIZE = 40, 4, 64
DRAWN = np.random.default_rng(5)
ANCHORS = np.concatenate([DRAWN.random((COUNT, 2)), 0.1 + 0.3 * DRAWN.random((COUNT, 2))], 1).astype("f4")
NMS = {"step": "post.nms", "iou": 0.3}
BOTH = {"boxes": "boxes", "scores": "scores"}
SSD = {"format": "ssd", "tensors": BOTH, "anchors": ANCHORS.reshape(-1).tolist()}
YUNET: dict[str, tuple[int, ...]] = {f"{what}_{stride}": (64 // stride * (64 // stride), size)
         for what, size in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)) for stride in (8, 16, 32)}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, tuple[int, ...]]]] = {
    "ssd": ({**SSD, "activation": "sigmoid", "order": "yxyx", "background": "first"}, NMS,
            {"boxes": (COUNT, 4), "scores": (COUNT, CLASSES)}),
    "blazeface": ({**SSD, "activation": "sigmoid", "variances": [64.0] * 4, "exponential": False, "points": 2,
                   "threshold": 0.6}, {**NMS, "method": "weighted"}, {"boxes": (COUNT, 8), "scores": (COUNT, 1)}),
    "weighted": ({"format": "decoded", "tensors": BOTH, "unit": "ratio"}, {**NMS, "method": "weighted", "limit": 5},
                 {"boxes": (COUNT, 4), "scores": (COUNT, CLASSES)}),
    "softmax": ({"format": "decoded", "tensors": BOTH, "activation": "softmax", "background": "last",
                 "order": "cxcywh", "unit": "ratio", "threshold": 0.3}, {**NMS, "by_class": False, "limit": 7},
                {"boxes": (COUNT, 4), "scores": (COUNT, CLASSES)}),
    "decoded": ({"format": "decoded", "tensors": BOTH, "order": "yxyx"}, NMS,
                {"boxes": (COUNT, 4), "scores": (COUNT, CLASSES)}),
    "centres": ({"format": "decoded", "tensors": BOTH, "order": "cxcywh"}, None,
                {"boxes": (COUNT, 4), "scores": (COUNT, CLASSES)}),
    "yolov5": ({"format": "yolov5", "threshold": 0.2}, NMS, {"out": (COUNT, 5 + CLASSES)}),
    "yolov8": ({"format": "yolov8", "points": 2}, NMS, {"out": (4 + CLASSES + 6, COUNT)}),
    "yolov10": ({"format": "yolov10"}, None, {"out": (COUNT, 6)}),
    "yunet": ({"format": "yunet", "threshold": 0.4}, {**NMS, "limit": 9}, YUNET),
    "fastestdet": ({"format": "fastestdet", "threshold": 0.3}, NMS, {"out": (5 + CLASSES, 8, 8)}),
    "tflite": ({"format": "tflite", "order": "yxyx", "unit": "ratio",
                "tensors": {**BOTH, "classes": "classes", "count": "count"}}, None,
               {"boxes": (COUNT, 4), "scores": (COUNT,), "classes": (COUNT,), "count": (1,)}),
}  # fmt: skip
#: Detectors of which the outputs are integers too.
INTEGERS = {"ssd": "int8", "blazeface": "int16", "softmax": "uint8", "decoded": "int16", "yolov5": "int8",
            "yolov8": "uint8", "yolov10": "int16", "fastestdet": "int8", "tflite": "uint8"}  # fmt: skip
RUNS = [*((name, "float32") for name in CASES), *INTEGERS.items()]
QUICK = (("softmax", "float32"), ("yunet", "float32"), ("ssd", "int8"))


def steps_of_integers(shapes: dict[str, tuple[int, ...]], name: str, dtype: str) -> dict[str, tuple[float, int]]:
    """By output the scale and zero point that reach over what `draws` gives first."""
    found = {}
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for what, values in zip(shapes, draws(name)[0], strict=True):
        scale = max(float(np.ptp(values)), 1.0) / (high - low)
        found[what] = (scale, int(low - round(float(values.min()) / scale)))
    return found


def ends(shapes: dict[str, tuple[int, ...]], dtype: str = "float32") -> list[End]:
    several, kind = len(shapes) > 1, "float" if dtype == "float32" else f"{dtype}_t"
    return [
        End(ProgramTensor(name, dtype, (1, *shape), 0), f"net_output{f'_{i}' if several else ''}", kind,
            int(np.prod(shape)), 0)
        for i, (name, shape) in enumerate(shapes.items())
    ]  # fmt: skip


def detector(name: str, size: tuple[int, int] | None, dtype: str = "float32") -> boxes.Detector:
    decode, thin, shapes = CASES[name]
    steps = [{"step": "post.boxes", **decode}, *([thin] if thin else []), {"step": "post.detections"}]
    if dtype != "float32":
        steps[:0] = [
            {"step": "tensor.dequantize", "tensor": what if len(shapes) > 1 else None, "scale": one, "zero_point": zero}
            for what, (one, zero) in steps_of_integers(shapes, name, dtype).items()
        ]
    first = [
        {"step": "image.decode"},
        {"step": "image.letterbox", "width": SIZE, "height": SIZE},
        {"step": "image.to_tensor"},
    ]
    document = {"version": 1, "inputs": {"x": first}, "outputs": steps}
    definition = read_definition("object-detection", document)
    given = [End(ProgramTensor("x", "float32", (1, 3, SIZE, SIZE), 0), "net_input", "float", 3 * SIZE * SIZE, 0)]
    item = None if size is None else images.resized_of(images.source_of(definition, *size), given).item
    made = ends(shapes, dtype)
    assert boxes.reason_against(definition, made) == ""
    return boxes.detector_of(definition, given, made, ["a", "b"], item)


def drawn(name: str, dtype: str) -> list[list[np.ndarray]]:
    """What `draws` gives, as integers where they are asked for: without numbers that are none."""
    if dtype == "float32":
        return draws(name)
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    scales = steps_of_integers(CASES[name][2], name, dtype).values()
    return [
        [
            np.clip(np.rint(values / scale) + zero, low, high).astype(dtype)
            for values, (scale, zero) in zip(one, scales, strict=True)
        ]
        for one in draws(name)[:6]
    ]


def draws(name: str) -> list[list[np.ndarray]]:
    """Random outputs, then those with nothing, with everything, and with numbers that are none."""
    _, _, shapes = CASES[name]
    found, rng = [], np.random.default_rng(len(name))
    for turn in range(8):
        one = []
        for what, shape in shapes.items():
            values = rng.random(shape).astype("f4")
            if name in ("ssd", "blazeface", "softmax") and what == "scores":
                values = 6 * values - 3
            if what == "boxes" and name in ("decoded", "centres"):
                values *= SIZE
            if name in ("ssd", "blazeface") and what == "boxes":
                values = values * (20 if name == "blazeface" else 2) - 1
            if what == "out" and name in ("yolov5", "yolov10"):
                values[:, :4] *= SIZE
                values[:, 5:] *= 5 if name == "yolov10" else 1
            if name == "yolov8":
                values[:4] *= SIZE
            if what == "count":
                values = np.array([COUNT - 3 if turn else COUNT + 5], "f4")
            if what == "classes":
                values = np.floor(values * CLASSES)
            if name in ("decoded", "yolov8", "yolov10"):  # ties
                values = np.round(values * 8) / 8
            if turn == 4 and what not in ("boxes", "bbox", "kps", "count", "classes"):
                values = np.full_like(values, -9 if what != "out" else 0)
            if turn == 5 and what not in ("boxes", "bbox", "kps", "out", "count", "classes"):
                values = np.full_like(values, 9)
            if turn >= 6 and what not in ("count", "classes"):
                odd = rng.random(shape) < 0.1
                values[odd] = np.nan if turn == 6 else rng.choice([np.inf, -np.inf, 1e30], int(odd.sum()))
                if name == "yolov10":
                    values[:, 5] = 1
            one.append(values.astype("f4"))
        found.append(one)
    return found


def program(folder: Path, made: boxes.Detector, command: list[str], most: int = COUNT + 70) -> Path:
    for path, text in boxes.files("net", made).items():
        (folder / path).write_text(text)
    declared = "".join(f"const {one.kind} *{one.name}(void);\n" for one in made.outputs)
    (folder / "net.h").write_text(f"#include <stdint.h>\n{declared}")
    defined = "".join(
        f"static {one.kind} data_{i}[{one.size}];\nconst {one.kind} *{one.name}(void) {{ return data_{i}; }}\n"
        for i, one in enumerate(made.outputs)
    )
    reads = "".join(
        f"  if (fread(data_{i}, sizeof *data_{i}, {one.size}, stdin) != {one.size}) return 1;\n"
        for i, one in enumerate(made.outputs)
    )
    points = 0
    if "points[" in (folder / "net_boxes.h").read_text():
        points = 2 * (5 if made.decoding["format"] == "yunet" else made.decoding["points"])
    marks = f'    for (k = 0; k < {points}; k++) printf(" %.17g", (double)found[i].points[k]);\n' if points else ""
    (folder / "main.c").write_text(f"""#include <stdio.h>
#include "net.h"
#include "net_boxes.h"
{defined}
int main(void) {{
  static struct net_box found[{most}];
  int i, {"k, " if points else ""}count;
{reads}  count = net_boxes(found, {most});
  for (i = 0; i < count; i++) {{
    printf("%.17g %.17g %.17g %.17g", (double)found[i].left, (double)found[i].top, (double)found[i].right,
           (double)found[i].bottom);
    printf(" %.17g %d", (double)found[i].score, found[i].label);
{marks}    puts("");
  }}
  return 0;
}}
""")
    subprocess.run([*command, "-o", "program", "main.c", "net_boxes.c", "-lm"], cwd=folder, check=True)
    return folder / "program"


@pytest.mark.parametrize(
    ("name", "dtype"), [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.long) for one in RUNS]
)
def test_objects_in_c_are_those_of_python(name: str, dtype: str, tmp_path: Path) -> None:
    made = detector(name, None if name in ("softmax", "yolov8") else (100, 75), dtype)
    run, seen = program(tmp_path, made, SANITIZED), 0
    for outputs in drawn(name, dtype):
        done = subprocess.run(run, input=b"".join(one.tobytes() for one in outputs), capture_output=True, check=True)
        found = [list(map(float, line.split())) for line in done.stdout.decode().splitlines()]
        wanted = made.of(outputs)
        assert len(found) == len(wanted)
        seen += len(found)
        for got, (one, box) in zip(found, wanted, strict=True):
            # The order of choices is equal; the last rounding to float32 differs, in the box that is moved.
            assert int(got[5]) == one.label
            np.testing.assert_allclose(got[4], one.score, rtol=1e-7)
            np.testing.assert_allclose(got[:4], box, rtol=3e-7, atol=2e-5)
            np.testing.assert_allclose(np.reshape(got[6:], (-1, 2)), points_of(made, one), rtol=1e-6, atol=1e-4)
    assert seen > 20
    assert not [path.name for path in tmp_path.rglob("*_boxes.c") if "\n\n\n" in path.read_text()]


def points_of(made: boxes.Detector, one: Any) -> np.ndarray:
    """The points of a detection, moved to the image."""
    moved = np.array(one.points, np.float64).reshape(-1, 2)
    for step in reversed(made.item.geometry):
        moved = (moved - [step.left, step.top]) / [step.scale_x, step.scale_y]
    return moved


def test_the_caller_may_ask_for_fewer(tmp_path: Path) -> None:
    made = detector("yolov8", None)
    outputs = draws("yolov8")[0]
    run = program(tmp_path, made, SANITIZED, most=3)

    done = subprocess.run(run, input=outputs[0].tobytes(), capture_output=True, check=True)

    assert len(made.of(outputs)) > 3
    scores = [float(line.split()[4]) for line in done.stdout.decode().splitlines()]
    np.testing.assert_allclose(scores, [one.score for one, _ in made.of(outputs)[:3]], rtol=1e-7)


@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "avr-gcc -mmcu=atmega2560"])
def test_boards_compile_each_format_without_a_warning(compiler: str, tmp_path: Path) -> None:
    command = compiler.split()
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]}: tests/setup.sh all")
    flags = ["-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "net_boxes.c", "-o", "net_boxes.o"]
    for name, dtype in RUNS:
        made = detector(name, (100, 75), dtype)
        for path, text in boxes.files("net", made).items():
            (tmp_path / path).write_text(text)
        (tmp_path / "net.h").write_text(
            "#include <stdint.h>\n" + "".join(f"const {one.kind} *{one.name}(void);\n" for one in made.outputs)
        )
        subprocess.run([*command, *flags], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("change", "shapes", "said"),
    [
        (
            {"format": "tflite", "tensors": {**BOTH, "classes": "scores", "count": "boxes"}},
            {"boxes": (COUNT, 4), "scores": (COUNT + 1, 1)},
            "40 boxes and 41 classes beside 41 scores",
        ),
        ({"anchors": [0.5] * 4}, {"boxes": (COUNT, 4), "scores": (COUNT, 4)}, "1 anchors for 40 boxes"),
        ({}, {"boxes": (COUNT, 4), "other": (COUNT, 4)}, "without the output 'scores'"),
        ({}, {"boxes": (COUNT, 4), "scores": (COUNT, 4, 1)}, "`scores` of 3 dimensions"),
        ({"background": "first"}, {"boxes": (COUNT, 4), "scores": (COUNT, 1)}, "no class but the background"),
        ({}, {"boxes": (COUNT, 3), "scores": (COUNT, 4)}, "boxes of shape (40, 3)"),
    ],
)
def test_what_is_not_written_says_why(change: dict[str, Any], shapes: dict[str, tuple[int, ...]], said: str) -> None:
    steps = [{"step": "post.boxes", **SSD, **change}, {"step": "post.detections"}]
    first = [{"step": "image.decode"}, {"step": "image.to_tensor"}]
    definition = read_definition("object-detection", {"version": 1, "inputs": {"x": first}, "outputs": steps})

    assert said in boxes.reason_against(definition, ends(shapes))


def test_integers_without_their_scale_are_not_read() -> None:
    shapes = CASES["ssd"][2]
    steps = [{"step": "post.boxes", **SSD}, {"step": "post.detections"}]
    first = [{"step": "image.decode"}, {"step": "image.to_tensor"}]
    definition = read_definition("object-detection", {"version": 1, "inputs": {"x": first}, "outputs": steps})

    assert "`boxes` of int8 without a step `tensor.dequantize`" in boxes.reason_against(
        definition, ends(shapes, "int8")
    )


@pytest.mark.long
@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
def test_a_picture_becomes_boxes_here_and_on_a_cortex_m4(tmp_path: Path) -> None:
    assert ZOO is not None
    from PIL import Image

    anchors = [
        number
        for side, several in ((16, 2), (8, 6))
        for place in range(side * side)
        for number in [(place % side + 0.5) / side, (place // side + 0.5) / side, 1.0, 1.0] * several
    ]
    before = [
        {"step": "image.decode"},
        {"step": "image.letterbox", "width": 128, "height": 128, "color": 0},
        {"step": "image.rescale_normalize", "scale": 1 / 127.5, "mean": [1.0] * 3, "std": [1.0] * 3},
    ]
    decode = {
        "step": "post.boxes",
        "format": "ssd",
        "anchors": anchors,
        "variances": [128.0] * 4,
        "exponential": False,
        "points": 6,
        "activation": "sigmoid",
        "tensors": {"boxes": "regressors", "scores": "classificators"},
    }
    steps = [decode, {**NMS, "method": "weighted"}, {"step": "post.detections"}]
    (tmp_path / "steps.json").write_text(
        json.dumps({"version": 1, "task": "object-detection", "inputs": {"input": before}, "outputs": steps})
    )
    bundle, folder = tmp_path / "face.bundle", tmp_path / "c"
    convert(ZOO / "blazeface.tflite", bundle, format="tflite", precision="fp32",
            preprocess=str(tmp_path / "steps.json"))  # fmt: skip
    picture = Image.open("examples/faces/astronaut.jpg").convert("RGB").crop((130, 0, 330, 150))
    picture.save(tmp_path / "picture.png")
    options = ["-o", str(folder), "--to", "c", "--prefix", "face", "--source-size", "200x150"]
    done = CliRunner().invoke(compile_, [str(bundle), *options])
    assert done.exit_code == 0, done.output
    assert "Decoding of boxes besides: RAM 112 bytes" in done.output
    pixels = ",".join(map(str, picture.tobytes()))
    (folder / "test_main.c").write_text(f"""#include <stdio.h>
#include "face.h"
#include "face_boxes.h"
#include "face_image.h"
static const unsigned char pixels[] = {{{pixels}}};
int main(void) {{
  static struct face_box found[4];
  int i, count;
  face_image(pixels);
  face_run();
  count = face_boxes(found, 4);
  for (i = 0; i < count; i++) {{
    printf("%.9g %.9g %.9g ", found[i].score, found[i].left, found[i].top);
    printf("%.9g %.9g\\n", found[i].right, found[i].bottom);
  }}
  return 0;
}}
""")
    (wanted,) = edge_infer.pipeline(bundle)(tmp_path / "picture.png")
    for target in [
        "test",
        *(["qemu"] if shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc") else []),
    ]:
        made = subprocess.run(["make", "-s", "-C", str(folder), target], capture_output=True, text=True, check=True)
        found = list(map(float, made.stdout.split()))
        np.testing.assert_allclose(found, [wanted["score"], *wanted["box"].values()], rtol=1e-4)
