"""The image processors of transformers: `preprocessor_config.json` to steps.

Sources: transformers 5.23, `models/*/image_processing_*.py`, whose classes hold the defaults below, and
`image_transforms.py`. A type that is not listed is refused by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import BundleError, UnsupportedError, listed
from edge_infer.tasks.sources.images import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from edge_infer.tasks.sources.fields import Fields
    from edge_infer.tasks.sources.images import ImageInput

    StepJson = dict[str, Any]

_HALF = [0.5, 0.5, 0.5]
_CLIP_MEAN, _CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
#: Pillow's numbers of filters (`PIL.Image.Resampling`).
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_MAX_SIDE = 16_384


class _Defaults(NamedTuple):
    """The defaults of a processor's class, where its file names none."""

    resample: int
    mean: list[float]
    std: list[float]
    size: dict[str, int]
    crop: int = 0
    crops: bool = False
    normalizes: bool = True
    flips: bool = False
    is_square: bool = False  # whether a size of one number is that of both sides
    crop_pct: float = 0.0
    refuses: tuple[str, ...] = ()  # flags that ask for what no step does


_SIDES = {"shortest_edge": 800, "longest_edge": 1333}
_DETR = _Defaults(2, IMAGENET_MEAN, IMAGENET_STD, _SIDES)
_SQUARE = {"height": 224, "width": 224}
PROCESSORS = {
    "BeitImageProcessor": _Defaults(3, _HALF, _HALF, _SQUARE, 224, is_square=True),
    "BitImageProcessor": _Defaults(3, _CLIP_MEAN, _CLIP_STD, {"shortest_edge": 224}, 224, True),
    "CLIPImageProcessor": _Defaults(3, _CLIP_MEAN, _CLIP_STD, {"shortest_edge": 224}, 224, True),
    "ConditionalDetrImageProcessor": _DETR,
    "ConvNextImageProcessor": _Defaults(3, _HALF, _HALF, {"shortest_edge": 384}, crop_pct=224 / 256),
    "DPTImageProcessor": _Defaults(3, _HALF, _HALF, {"height": 384, "width": 384}, is_square=True, refuses=("do_pad",)),
    "DeformableDetrImageProcessor": _DETR,
    "DeiTImageProcessor": _Defaults(3, _HALF, _HALF, {"height": 256, "width": 256}, 224, True, is_square=True),
    "DetrImageProcessor": _DETR,
    "EfficientNetImageProcessor": _Defaults(
        3, _HALF, _HALF, {"height": 346, "width": 346}, 289, is_square=True, refuses=("rescale_offset",)
    ),
    "LevitImageProcessor": _Defaults(3, IMAGENET_MEAN, IMAGENET_STD, {"shortest_edge": 224}, 224, True),
    "MobileNetV1ImageProcessor": _Defaults(2, _HALF, _HALF, {"shortest_edge": 256}, 224, True),
    "MobileNetV2ImageProcessor": _Defaults(2, _HALF, _HALF, {"shortest_edge": 256}, 224, True),
    "MobileViTImageProcessor": _Defaults(
        3, _HALF, _HALF, {"shortest_edge": 224}, 256, True, normalizes=False, flips=True
    ),
    "PvtImageProcessor": _Defaults(3, IMAGENET_MEAN, IMAGENET_STD, _SQUARE, is_square=True),
    "RTDetrImageProcessor": _Defaults(
        2, IMAGENET_MEAN, IMAGENET_STD, {"height": 640, "width": 640}, normalizes=False, refuses=("do_pad",)
    ),
    "SegformerImageProcessor": _Defaults(2, IMAGENET_MEAN, IMAGENET_STD, {"height": 512, "width": 512}, is_square=True),
    "SiglipImageProcessor": _Defaults(3, _HALF, _HALF, _SQUARE),
    "ViTImageProcessor": _Defaults(2, _HALF, _HALF, _SQUARE, is_square=True),
    "YolosImageProcessor": _DETR,
}


def steps_of(config: Fields, image: ImageInput) -> list[StepJson]:
    """Return the steps of an image processor.

    Args:
        config: The folder's `preprocessor_config.json`.
        image: The model's input.

    Raises:
        BundleError: A field has the wrong type.
        UnsupportedError: The type is unknown, it asks for what no step does, or the model takes another size.
    """
    name = processor_type(config)
    if name not in PROCESSORS:
        raise UnsupportedError(
            f"the image processor `{name or 'without a name'}` is not supported; supported are "
            + listed(sorted(PROCESSORS)),
            hint="say what the steps are: --preprocess FILE.json",
        )
    default = PROCESSORS[name]
    for flag in default.refuses:
        if config.values.get(flag):
            raise UnsupportedError(f"`{flag}` of {name} is not supported", hint="--preprocess FILE.json")
    steps = [image.decode()]
    width, height = None, None
    if config.flag("do_resize", True):
        resizes, (width, height) = _resize(config, name, default)
        steps += resizes
    if config.flag("do_center_crop", default.crops):
        crop = _size(config, "crop_size", {"height": default.crop, "width": default.crop}, is_square=True)
        if "height" not in crop or "width" not in crop:
            raise UnsupportedError(
                f"`crop_size` of {name} is {crop}, expected height and width", hint=_write_size("crop_size")
            )
        width, height = crop["width"], crop["height"]
        steps.append({"step": "image.center_crop", "width": width, "height": height})
    image.check(width, height, "preprocessor_config.json")
    if config.flag("do_flip_channel_order", default.flips):
        steps.append({"step": "image.flip_channels"})
    scale = config.real("rescale_factor", 1 / 255) if config.flag("do_rescale", True) else 1.0
    own_mean = config.numbers("image_mean", default.mean) or []
    own_std = config.numbers("image_std", default.std) or []
    if len(own_mean) != len(own_std) or len(own_mean) not in (1, 3) or 0 in own_std:
        raise BundleError(
            f"`{config.where}`: `image_mean` and `image_std` are {own_mean} and {own_std}",
            hint='write 1 or 3 numbers, none of them 0: "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]',
        )
    normalizes = config.flag("do_normalize", default.normalizes)
    mean, std = (own_mean, own_std) if normalizes else ([0.0] * len(own_std), [1.0] * len(own_std))
    if name == "EfficientNetImageProcessor" and config.flag("include_top", True):
        std = [a * b for a, b in zip(std, own_std, strict=True)]  # classifiers of it divide by the deviation once more
    steps.append(image.tensor(scale, mean, std))
    return steps


def processor_type(config: Fields) -> str:
    """Return the class: older files call it a feature extractor, and others its fast version."""
    name = config.text("image_processor_type") or config.text("feature_extractor_type")
    name = name.removesuffix("Fast").removesuffix("Pil")
    return name.replace("FeatureExtractor", "ImageProcessor")


def _resize(config: Fields, name: str, default: _Defaults) -> tuple[list[StepJson], tuple[int | None, int | None]]:
    """Return the steps that resize, with the width and height that come out where they are always the same."""
    size = _size(config, "size", default.size, is_square=default.is_square)
    number = config.whole("resample", default.resample)
    if number not in _FILTERS:
        raise UnsupportedError(
            f"`resample` {number} of {name} is not one of Pillow's filters",
            hint='write "resample": 2 for bilinear, or another number from 0 to 5',
        )
    how = {"filter": _FILTERS[int(number)]}
    if "height" in size and "width" in size:
        exact = (size["width"], size["height"])
        if name == "DPTImageProcessor":
            return _dpt(config, *exact, how)
        return [{"step": "image.resize", "width": exact[0], "height": exact[1], **how}], exact
    shortest, longest = size.get("shortest_edge"), size.get("longest_edge")
    if shortest is None and longest is None:
        raise UnsupportedError(
            f"`size` of {name} is {size}, expected height and width, or shortest_edge", hint=_write_size("size")
        )
    if name == "YolosImageProcessor":
        raise UnsupportedError(
            "YolosImageProcessor brings sides to multiples of 16, which no step does",
            hint='write a fixed size into preprocessor_config.json: "size": {"height": 512, "width": 512}',
        )
    if name == "ConvNextImageProcessor" and shortest is not None:
        return _convnext(config, shortest, default.crop_pct, how)
    if name == "LevitImageProcessor" and shortest is not None:
        shortest = int((256 / 224) * shortest)
    return [{"step": "image.resize", "shortest": shortest, "longest": longest, **how}], (None, None)


def _dpt(
    config: Fields, width: int, height: int, how: dict[str, str]
) -> tuple[list[StepJson], tuple[int | None, int | None]]:
    """Return DPT's own rule: both sides are multiples, and the proportions may be kept."""
    multiple = config.whole("ensure_multiple_of", 1) or 1
    if not 1 <= multiple <= 1024:
        raise BundleError(
            f"`{config.where}`: `ensure_multiple_of` is {multiple}, expected 1 to 1024",
            hint='write "ensure_multiple_of": 32',
        )
    if config.flag("keep_aspect_ratio"):
        keeps: StepJson = {"step": "image.resize", "width": width, "height": height, "multiple": multiple, **how}
        return [keeps], (None, None)
    width, height = (max(round(side / multiple), 1) * multiple for side in (width, height))
    return [{"step": "image.resize", "width": width, "height": height, **how}], (width, height)


def _convnext(
    config: Fields, side: int, crop_pct: float, how: dict[str, str]
) -> tuple[list[StepJson], tuple[int, int]]:
    """Return ConvNeXT's own rule: a crop below 384 pixels, and a warp from there on."""
    if side >= 384:
        return [{"step": "image.resize", "width": side, "height": side, **how}], (side, side)
    part = config.real("crop_pct", crop_pct)
    if not 0.1 <= part <= 1:
        raise BundleError(f"`{config.where}`: `crop_pct` is {part}, expected 0.1 to 1", hint='write "crop_pct": 0.875')
    resize = {"step": "image.resize", "shortest": int(side / part), **how}
    return [resize, {"step": "image.center_crop", "width": side, "height": side}], (side, side)


def _size(config: Fields, field: str, default: dict[str, int], *, is_square: bool) -> dict[str, int]:
    """Read a size: an object, or as older files have it one number or two."""
    value = config.values.get(field)
    longest = config.whole("max_size") if field == "size" else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        side = config.whole(field) or 0
        found = {"height": side, "width": side} if is_square else {"shortest_edge": side}
        if longest is not None and not is_square:
            found["longest_edge"] = longest
    elif isinstance(value, list):
        sides = config.numbers(field) or []
        if len(sides) != 2:
            raise BundleError(
                f"`{config.where}`: `{field}` is {value}, expected [height, width]", hint=_write_size(field)
            )
        found = {"height": int(sides[0]), "width": int(sides[1])}
    else:
        part = config.part(field)
        found = default
        if part is not None:
            found = {key: part.whole(key) or 0 for key in part.values if part.values[key] is not None}
    for key, side in found.items():
        if key not in ("height", "width", "shortest_edge", "longest_edge") or not 1 <= side <= _MAX_SIDE:
            raise UnsupportedError(
                f"`{config.where}`: `{field}` has {key} {side}, expected 1 to {_MAX_SIDE} pixels",
                hint=_write_size(field),
            )
    return found


def _write_size(field: str) -> str:
    return f'write "{field}": {{"height": 224, "width": 224}}'
