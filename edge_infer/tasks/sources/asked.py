"""A definition from what the user asks for: a task, a preset or a file of steps."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, UnsupportedError, listed
from edge_infer.tasks.definition import VERSION, read_definition
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.sources import tables
from edge_infer.tasks.sources.fields import read_json
from edge_infer.tasks.sources.found import Found, made
from edge_infer.tasks.sources.images import IMAGENET_MEAN, IMAGENET_STD, ImageInput, is_image
from edge_infer.tasks.sources.tflite_metadata import dequantized

if TYPE_CHECKING:
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.sources.facts import Facts

    StepJson = dict[str, Any]

SOURCE = "options"
PRESETS = ("imagenet", "speech-commands", "yolo")
# torchvision's weights: resize to 256, crop to 224.
_CROP = 224 / 256
_DEFAULT_SIZE = {"imagenet": 224, "yolo": 640}
_TASKS_OF = {"imagenet": "image-classification", "yolo": "object-detection"}
# The classes of Speech Commands in the order of TensorFlow Datasets, as MLPerf Tiny's keyword model gives them.
_WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown")
#: Its steps: github.com/mlcommons/tiny, benchmark/training/keyword_spotting/get_dataset.py.
SPEECH_COMMANDS: list[dict[str, Any]] = [
    {"step": "audio.decode"},
    {"step": "audio.resample", "rate": 16_000},
    {"step": "audio.scale", "by": "highest", "clip": 1.0},
    {"step": "audio.fit", "samples": 16_000},
    {
        "step": "audio.log_mel",
        "frame": 480,
        "fft": 512,
        "hop": 320,
        "mels": 40,
        "low_hz": 20.0,
        "high_hz": 4000.0,
        "scale": "htk",
        "slopes": "mel",
        "area_norm": False,
        "power": 1,
        "center": False,
        "log": "ln_plus_floor",
        "floor": 1e-6,
    },
    {"step": "audio.mfcc", "coefficients": 10, "norm": "tensorflow"},
]


def of_preset(preset: str, facts: Facts, task: str | None) -> Found:
    """Return the definition of a preset.

    Args:
        preset: `imagenet`: what torchvision's classifiers take; `yolo`: a letterbox and 0 to 1; `speech-commands`: the
            MFCC of MLPerf Tiny's keyword spotting.
        facts: What the model takes and gives.
        task: The task; None for the preset's usual one.

    Raises:
        InputError: The preset is unknown, or the task is not one of images.
        UnsupportedError: The model does not take what the preset makes.
    """
    if preset not in PRESETS:
        raise InputError(
            f"there is no preset `{preset}`; choose from {listed(list(PRESETS))}, or name a .json file",
            hint="--preprocess imagenet",
            allowed=list(PRESETS),
        )
    if preset == "speech-commands":
        return _keywords(facts, task or "audio-classification")
    task = task or _TASKS_OF[preset]
    if get_task(task).takes != "image":
        raise InputError(f"--preprocess {preset} is for images, and {task} is not", hint=f"--task {_TASKS_OF[preset]}")
    candidates = [spec for spec in facts.inputs if is_image(spec)] or list(facts.inputs)
    image = ImageInput(candidates[0])
    size = _DEFAULT_SIZE[preset]
    width, height = image.width or size, image.height or size
    if preset == "imagenet":
        larger = round(min(width, height) / _CROP)
        before: list[StepJson] = [
            image.decode(),
            {"step": "image.resize", "shortest": larger},
            {"step": "image.center_crop", "width": width, "height": height, "rule": "torchvision"},
            image.tensor(1 / 255, IMAGENET_MEAN, IMAGENET_STD),
        ]
    else:
        before = [
            image.decode(),
            {"step": "image.letterbox", "width": width, "height": height},
            image.tensor(1 / 255, [0.0], [1.0]),
        ]
    return made(task, SOURCE, {image.name: before}, after(task, facts))


def _keywords(facts: Facts, task: str) -> Found:
    """Return the definition of MLPerf Tiny's keyword model."""
    spec = facts.inputs[0]
    if task != "audio-classification":
        raise InputError(
            f"--preprocess speech-commands is for audio-classification, and not for {task}",
            hint="--task audio-classification",
        )
    if tuple(spec.shape[1:]) != (49, 10, 1):
        raise UnsupportedError(
            f"--preprocess speech-commands makes [1, 49, 10, 1], and the model takes `{spec}`",
            hint="--preprocess FILE.json, with `inputs` of other numbers",
        )
    steps = [*SPEECH_COMMANDS, {"step": "tensor.reshape", "shape": [49, 10, 1]}]
    if (found := facts.quantization.get(spec.name)) is not None:
        steps.append({"step": "tensor.quantize", "scale": found.scale, "zero_point": found.zero_point or None})
    last = facts.outputs[0].shape[-1] if facts.outputs[0].shape else 0
    return made(task, SOURCE, {spec.name: steps}, after(task, facts), _WORDS if last == len(_WORDS) else [])


def of_file(data: bytes, path: str, facts: Facts, task: str | None) -> Found:
    """Return the definition of a file: a manifest's `pipeline`, its `inputs` alone, or `features` of a table.

    Args:
        data: The file's bytes.
        path: Its path; the files that steps name, such as a graph or a tokenizer, lie beside it.
        facts: What the model takes and gives.
        task: The task; None for the file's own.

    Raises:
        BundleError: The file is not JSON.
        InputError: It does not say what it must.
        ManifestError: A step is wrong.
    """
    name = Path(path).name
    document = read_json(data, name)
    if "features" in document.values:
        return tables.with_features(document.values["features"], facts, task)
    task = task or document.text("task") or None
    if task is None:
        raise InputError(f"`{name}` does not name the task", hint="--task image-classification")
    values = document.values
    get_task(task)
    if "inputs" not in values:
        raise InputError(f"`{name}` has no `inputs`", hint='{"inputs": {"image": [{"step": "image.decode"}, ...]}}')
    steps = {
        "version": values.get("version", VERSION),
        "source": SOURCE,
        "inputs": values["inputs"],
        "outputs": values["outputs"] if "outputs" in values else after(task, facts),
    }
    definition = read_definition(task, steps)
    return Found(definition, [], _files_of(definition, Path(path).parent))


def _files_of(definition: Definition, folder: Path) -> dict[str, bytes]:
    """Return the files that steps read, from beside the definition."""
    found = {}
    for step in (step for chain in (*definition.inputs.values(), definition.outputs) for step in chain):
        file = step.parameters.get("file")
        if not isinstance(file, str):
            continue
        place = PurePosixPath(file)
        if place.is_absolute() or ".." in place.parts or "\\" in file:
            raise InputError(f"`{step.name}` reads `{file}`, which is outside of the folder", hint=place.name)
        try:
            found[file] = (folder / place).read_bytes()
        except OSError as error:
            raise InputError(
                f"`{step.name}` reads `{folder / place}`, which cannot be read: {error.strerror}",
                hint="put it beside the file of --preprocess",
            ) from error
    return found


def after(task: str, facts: Facts) -> list[StepJson]:
    """Return the usual steps after a model, for tasks that have some.

    Raises:
        InputError: The task needs more than its name.
    """
    first = facts.outputs[0]
    chain = [step for spec in facts.outputs for step in dequantized(facts, spec.name)]
    name = first.name if len(facts.outputs) > 1 else None
    if task in ("image-classification", "audio-classification"):
        is_sure = facts.has_probabilities(first.name)
        best: StepJson = {"step": "post.top_k", "tensor": name if is_sure else None}
        return [*chain, *([] if is_sure else [{"step": "post.softmax", "tensor": name}]), best]
    if task == "depth-estimation":
        return [*chain, {"step": "post.depth", "tensor": name}]
    if task == "image-to-image" and len(first.shape) == 4:
        channels = (1, 3)
        layout = "HWC" if first.shape[3] in channels and first.shape[1] not in channels else "CHW"
        return [*chain, {"step": "post.image", "tensor": name, "layout": layout}]
    if task in ("image-feature-extraction", "feature-extraction"):
        return [*chain, {"step": "post.tensor", "tensor": name}]
    if task == "object-detection":
        return [*chain, *_detections(facts)]
    if task == "image-segmentation" and len(first.shape) == 4:
        return [*chain, {"step": "post.mask", "tensor": name, "layout": _mask_layout(facts)}]
    raise InputError(
        f"the task {task} needs more than its name", hint="--preprocess FILE.json, with `inputs` and `outputs`"
    )


def _detections(facts: Facts) -> list[StepJson]:
    spec = facts.outputs[0]
    rows, columns = spec.shape[-2:] if len(spec.shape) == 3 else (None, None)
    tensors = {"out": spec.name} if len(facts.outputs) > 1 else None
    if columns == 6 and isinstance(rows, int) and rows <= 1000:
        return [{"step": "post.boxes", "format": "yolov10", "tensors": tensors}, {"step": "post.detections"}]
    if isinstance(rows, int) and rows >= 5 and (not isinstance(columns, int) or columns > rows):
        format_ = "yolov8"
    elif isinstance(columns, int) and columns >= 6:
        format_ = "yolov5"
    else:
        raise InputError(
            f"output `{spec}` is not that of a YOLO", hint="--preprocess FILE.json, with `inputs` and `outputs`"
        )
    decode: StepJson = {"step": "post.boxes", "format": format_, "tensors": tensors, "threshold": 0.25}
    return [decode, {"step": "post.nms"}, {"step": "post.detections"}]


def _mask_layout(facts: Facts) -> str:
    shape, taken = facts.outputs[0].shape, facts.inputs[0].shape
    is_first = len(taken) == 4 and taken[1] in (1, 3) and taken[3] not in (1, 3)
    return "CHW" if is_first and shape[3] not in (1, 3) else "HWC"
