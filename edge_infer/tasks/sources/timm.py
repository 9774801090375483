"""Read the `config.json` that timm writes: sizes, crop and normalisation.

The rules are those of timm/data/config.py (`resolve_data_config`) and timm/data/transforms_factory.py
(`transforms_imagenet_eval`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError, UnsupportedError
from edge_infer.tasks.sources.found import made
from edge_infer.tasks.sources.images import IMAGENET_MEAN, IMAGENET_STD, ImageInput

if TYPE_CHECKING:
    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.fields import Fields
    from edge_infer.tasks.sources.found import Found

SOURCE = "timm"
_FILTERS = {"bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "lanczos", "nearest": "nearest", "box": "box"}
_CROP = 0.875


def find(config: Fields, facts: Facts) -> Found | None:
    """Return the definition of a model of timm; None for another model.

    Args:
        config: The folder's `config.json`.
        facts: What the model takes and gives.

    Raises:
        BundleError: A field has the wrong type.
        UnsupportedError: It asks for what no step does.
    """
    given = config.part("pretrained_cfg")
    if given is None:
        return None
    image = ImageInput(facts.inputs[0])
    size = given.numbers("input_size", [3.0, 224.0, 224.0]) or []
    if len(size) != 3 or not all(one.is_integer() and 1 <= one <= 16_384 for one in size):
        raise BundleError(
            f"`{given.where}`: `input_size` is {size}, expected [channels, height, width]",
            hint='write "input_size": [3, 224, 224]',
        )
    height, width = image.height or int(size[1]), image.width or int(size[2])
    crop, mode = given.real("crop_pct", _CROP) or _CROP, given.text("crop_mode", "center") or "center"
    if not 0.1 <= crop <= 1:
        raise BundleError(f"`{given.where}`: `crop_pct` is {crop}, expected 0.1 to 1", hint='write "crop_pct": 0.875')
    interpolation = given.text("interpolation", "bicubic")
    if interpolation not in _FILTERS:
        raise UnsupportedError(
            f"`{given.where}`: the interpolation `{interpolation}` is not supported",
            hint='write "interpolation": "bicubic"',
        )
    larger_height, larger_width = math.floor(height / crop), math.floor(width / crop)
    if mode == "squash":
        resize: dict[str, Any] = {"width": larger_width, "height": larger_height}
    elif mode == "center" and height == width:
        resize = {"shortest": larger_height}
    else:
        raise UnsupportedError(
            f"`{given.where}`: the crop mode `{mode}` to {width} x {height} is not supported",
            hint="say what the steps are: --preprocess FILE.json",
        )
    mean, std = (given.numbers(*one) or one[1] for one in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)))
    before: list[dict[str, Any]] = [
        image.decode(),
        {"step": "image.resize", **resize, "filter": _FILTERS[interpolation]},
        {"step": "image.center_crop", "width": width, "height": height, "rule": "torchvision"},
        image.tensor(1 / 255, mean, std),
    ]
    output = facts.output("logits", "output")
    tensor = output.name if output is not None and len(facts.outputs) > 1 else None
    if config.whole("num_classes", given.whole("num_classes", 1)) == 0:
        steps: list[dict[str, Any]] = [{"step": "post.tensor", "tensor": tensor}]
        return made("image-feature-extraction", SOURCE, {image.name: before}, steps)
    after: list[dict[str, Any]] = [{"step": "post.softmax", "tensor": tensor}, {"step": "post.top_k"}]
    return made("image-classification", SOURCE, {image.name: before}, after, _labels(config, given))


def _labels(config: Fields, given: Fields) -> list[str]:
    """Return the names of the classes, with their descriptions where there are some."""
    names = config.texts("label_names") or given.texts("label_names")
    if not names:
        return config.labels("id2label")
    described = config.part("label_descriptions") or given.part("label_descriptions")
    if described is None:
        return names
    return [described.text(name, name) for name in names]
