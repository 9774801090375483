"""The steps from an image of one size to a model's input, as C that stands before the model."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.image.layout import is_channels_first
from edge_infer.tasks.image.resampling import Taps, is_vertical_first, nearest_places, taps
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import prepare_chain
from edge_infer.tasks.values import flat
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.writers.microcontroller.features import Sizes
from edge_infer_converters.writers.microcontroller.text import number, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.steps import Step
    from edge_infer_converters.writers.microcontroller.text import End

_FOLDER = Path(__file__).parent / "templates"
_CHANNELS = {"RGB": 3, "L": 1}
_ONE = 1 << 22
_LEVELS = 256
_RESIZES = ("image.resize", "image.letterbox")
_MOVES = (*_RESIZES, "image.center_crop")
_TENSORS = ("image.rescale_normalize", "image.to_tensor")
_WRITTEN = ("image.decode", "image.flip_channels", *_MOVES, *_TENSORS, "tensor.quantize", "tensor.reshape")
#: Bytes of code on a Cortex-M4 by arm-none-eabi-gcc 12.2 for size.
_CODE = 430


class Source(NamedTuple):
    """An image of one size, and the steps that make the model's input of it.

    Attributes:
        width: In pixels.
        height: Likewise.
        steps: Each is written in C.
    """

    width: int
    height: int
    steps: tuple[Step, ...]

    @property
    def channels(self) -> int:
        """The bytes of a pixel."""
        return _CHANNELS[self.steps[0].parameters["mode"]]


class Resized(NamedTuple):
    """What is written of the steps of an image.

    Attributes:
        source: The image and the steps.
        spec: The model's input.
        kind: The type of its elements in C.
        name: Its function in C.
        width: Of the pixels that reach the model.
        height: Likewise.
        left: Where the image lies in them.
        top: Likewise.
        across: What each pixel of a row is made of.
        down: What each row is made of.
        color: The level around the image; None where it has no margin.
        item: How the image became the input.
    """

    source: Source
    spec: TensorSpec
    kind: str
    name: str
    width: int
    height: int
    left: int
    top: int
    across: tuple[Taps, ...]
    down: tuple[Taps, ...]
    color: int | None
    item: Item

    @property
    def rows(self) -> int:
        """The rows that are kept: as many as one of the input is made of."""
        return max(len(one.weights) for one in self.down)

    def of(self, image: Image) -> np.ndarray:
        """Return the input that the steps make of an image, as Python computes it."""
        return _applied(self.source.steps, self.spec, image)


def is_image(definition: Definition) -> bool:
    """Tell whether the steps of a bundle read an image."""
    return any(steps[0].name == "image.decode" for steps in definition.inputs.values())


def source_of(definition: Definition, width: int, height: int) -> Source:
    """Return the steps of a bundle for images of one size.

    Raises:
        InputError: They read no image, or one of them is not written in C.
    """
    found = [steps for steps in definition.inputs.values() if steps[0].name == "image.decode"]
    if len(found) != 1 or len(definition.inputs) != 1:
        raise InputError(
            f"--source-size is for a model that takes one image, and the steps of this one make "
            f"{len(definition.inputs)} inputs, {len(found)} of an image",
            hint="leave --source-size out",
        )
    steps, moved = found[0], ""
    for step in steps:
        if step.name not in _WRITTEN:
            raise _refused(f"`{step.name}`")
        if step.name in _RESIZES and moved:
            raise _refused(f"`{step.name}` behind `{moved}`")
        if step.name in _MOVES:
            moved = step.name
    return Source(width, height, tuple(steps))


def resized_of(source: Source, inputs: Sequence[End]) -> Resized:
    """Return what is written for the inputs of a model in C.

    Raises:
        InputError: The steps do not fit the input, or resize down before they resize across.
    """
    if len(inputs) != 1:
        raise InputError(
            f"--source-size is for a model of one input, and this one has {len(inputs)}",
            hint="leave --source-size out",
        )
    (end,) = inputs
    spec = TensorSpec(end.tensor.name, end.tensor.dtype, list(end.tensor.shape))
    image, item = Image(bytes(source.width * source.height), source.width, source.height, 1), Item({})
    across, down = _kept(source.width), _kept(source.height)
    left = top = 0
    color: int | None = None
    for step in (one for one in source.steps if one.name in _MOVES):
        before, p = image, step.parameters
        image = step.prepare(_place(spec))(before, item)
        move = item.geometry[-1]
        left, top = left + int(move.left), top + int(move.top)
        if step.name == "image.center_crop":
            if image.width > before.width or image.height > before.height:
                if color:
                    raise _refused(f"`{step.name}` that pads with black behind `image.letterbox` of level {color}")
                color = 0
            continue
        width, height = image.width, image.height
        if step.name == "image.letterbox":
            width, height = (max(round(side * move.scale_x), 1) for side in (before.width, before.height))
            color = p["color"] if (width, height) != (image.width, image.height) else None
        if is_vertical_first(before, width, height, p["order"]):
            raise _refused(f"`{step.name}` of order `{p['order']}`, which resizes this size down first,")
        across, down = (_taps(old, new, p["filter"]) for old, new in ((before.width, width), (before.height, height)))
    if image.width * image.height * source.channels != end.size:
        raise InputError(
            f"the steps make {image.width} x {image.height} pixels of {source.channels} channels of an image of "
            f"{source.width} x {source.height}, and input `{spec.name}` has {end.size} elements",
            hint="a --source-size of which they make the input's size",
        )
    across, down = across[max(-left, 0) : image.width - left], down[max(-top, 0) : image.height - top]
    if not across or not down:
        raise InputError(
            f"the steps make {image.width} x {image.height} pixels of an image of {source.width} x {source.height}, "
            "and none of them shows it",
            hint="a --source-size of other proportions, or a crop that is larger",
        )
    place = (image.width, image.height, max(left, 0), max(top, 0))
    item.width, item.height = source.width, source.height
    item.input_width, item.input_height = image.width, image.height
    made = Resized(source, spec, end.kind, end.name, *place, across, down, color, item)
    _numbers(made)
    return made


def _refused(what: str) -> InputError:
    return InputError(
        f"{what} is not written in C; these are: {', '.join(f'`{one}`' for one in _WRITTEN)}, one of them a resize",
        hint="leave --source-size out, and write the model's input yourself",
    )


def _kept(size: int) -> tuple[Taps, ...]:
    return tuple(Taps(place, (_ONE,)) for place in range(size))


def _taps(old: int, new: int, name: str) -> tuple[Taps, ...]:
    if old == new:
        return _kept(old)
    if name == "nearest":
        return tuple(Taps(place, (_ONE,)) for place in nearest_places(old, new))
    return taps(old, new, name)


def _place(spec: TensorSpec) -> Place:
    return Place(lambda _: b"", [], [spec], [], spec.name)


def _applied(steps: Sequence[Step], spec: TensorSpec, image: Image) -> np.ndarray:
    value: Any = image
    item = Item({})
    for apply in prepare_chain(steps, _place(spec)):
        value = apply(value, item)
    return np.array(flat(value), str(spec.dtype))


def _numbers(made: Resized) -> np.ndarray:
    """Return what the model takes of each level: [channels, 256]."""
    channels = made.source.channels
    levels = Image(bytes(np.repeat(np.arange(_LEVELS, dtype=np.uint8), channels)), _LEVELS, 1, channels)
    steps = [one for one in made.source.steps if one.name in (*_TENSORS, "tensor.quantize")]
    try:
        found = _applied(steps, made.spec, levels)
    except ManifestError as error:
        raise InputError(
            f"the steps do not fit the input of the model in C: {error.message}", hint="another --variant"
        ) from error
    return found.reshape(channels, -1) if _is_planar(made) else found.reshape(-1, channels).T


def _is_planar(made: Resized) -> bool:
    step = next(one for one in made.source.steps if one.name in _TENSORS)
    return is_channels_first(step.parameters["layout"], made.spec)


def sizes(made: Resized) -> Sizes:
    """Return what the steps take of a Cortex-M4, in bytes; the code is what GCC makes of it for size."""
    weights, kind, taken = _weights(made)
    numbers = _number(made)[0]
    constants = 4 * len(weights) + 3 * (2 if kind == "int16_t" else 4) * sum(map(len, taken))
    element = made.spec.dtype.bits // 8
    table = element * _LEVELS * (made.source.channels if "[CHANNELS]" in numbers else 1) if numbers else 0
    kept = made.rows * len(made.across) * made.source.channels
    return Sizes(-(-kept // 4) * 4 + 4, constants + table + _CODE)


def _weights(made: Resized) -> tuple[list[int], str, list[list[str]]]:
    """Return the weights, each sequence of them once, the type of places in C, and the taps across and down."""
    places: dict[tuple[int, ...], int] = {}
    weights: list[int] = []
    for one in (*made.across, *made.down):
        if one.weights not in places:
            places[one.weights] = len(weights)
            weights += one.weights
    lists = [
        [f"{{{one.first}, {len(one.weights)}, {places[one.weights]}}}" for one in axis]
        for axis in (made.across, made.down)
    ]
    return weights, "int16_t" if len(weights) < 2**15 else "int32_t", lists


def _number(made: Resized) -> tuple[str, str]:
    """Return the table of what the model takes of each level, where there is one, and its use."""
    numbers = _numbers(made)
    is_same = bool((numbers == numbers[0]).all())
    for offset, use in ((0, "level"), (128, f"({made.kind})(level - 128)")):
        if (
            is_same
            and np.array_equal(numbers[0].astype(np.int64) + offset, range(_LEVELS))
            and (np.array_equal(numbers[0], np.rint(numbers[0])))
        ):
            return "", use
    said = "/* What the model takes of each level. */\n"
    if is_same:
        lines = rows([number(one) for one in numbers[0]])
        text = "\n".join([f"static const {made.kind} numbers[{_LEVELS}] = {{", *lines, "};"])
        return said + text, "numbers[level]"
    lines = [line for one in numbers for line in ("  {", *rows([number(value) for value in one]), "  },")]
    text = "\n".join([f"static const {made.kind} numbers[CHANNELS][{_LEVELS}] = {{", *lines, "};"])
    return said + text, "numbers[channel][level]"


def files(prefix: str, made: Resized) -> dict[str, str]:
    """Return the header and the source of the steps."""
    source = made.source
    weights, kind, (across, down) = _weights(made)
    table, use = _number(made)
    is_flipped = sum(one.name == "image.flip_channels" for one in source.steps) % 2 and source.channels > 1
    channel = "(CHANNELS - 1 - channel)" if is_flipped else "channel"
    index = f"(y * WIDTH + x) * CHANNELS + {channel}"
    if _is_planar(made):
        index = f"({channel} * HEIGHT + y) * WIDTH + x"
    words = {
        "prefix": prefix,
        "upper": prefix.upper(),
        "place": kind,
        "input": made.name,
        "source_width": str(source.width),
        "source_height": str(source.height),
        "channels": str(source.channels),
        "mode": "red, green, blue" if source.channels > 1 else "grey alone",
        **{name: str(getattr(made, name)) for name in ("width", "height", "left", "top", "rows")},
        "across": str(len(across)),
        "down": str(len(down)),
        "tables": "\n\n".join(
            [
                _array("struct taps", "across", "ACROSS", across),
                _array("struct taps", "down", "DOWN", down),
                "/* What several pixels have in common stands here once. */\n"
                + _array("int32_t", "weights", str(len(weights)), [number(one) for one in weights]),
                *([table] if table else []),
            ]
        ),
        "index": index,
        "number": use.replace("[channel]", f"[{channel.strip('()')}]"),
        "fill": "" if made.color is None else _FILL.replace("COLOR", str(made.color)),
        "begin": "made = 0;" if made.color is None else "{\n    made = 0;\n    fill();\n  }",
    }
    return {
        f"{prefix}_image.{end}": Template((_FOLDER / f"image.{end}").read_text()).substitute(words)
        for end in ("h", "c")
    }


_FILL = """
/* The margins. A run may overwrite them, so each image writes them again. */
static void fill(void) {
  int x, y, channel;
  for (y = 0; y < HEIGHT; y++) {
    for (x = 0; x < WIDTH; x++) {
      for (channel = 0; channel < CHANNELS; channel++) put(x, y, channel, COLOR);
    }
  }
}
"""


def _array(kind: str, name: str, size: str, items: list[str]) -> str:
    return "\n".join([f"static const {kind} {name}[{size}] = {{", *rows(items), "};"])


def picture(source: Source) -> Image:
    """Return an image of noise, half of it black and white, made of whole numbers alone."""
    state, found = 1, bytearray()
    for _ in range(source.width * source.height * source.channels):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        found.append(state >> 22 & 255 if state >> 31 else 255 * (state >> 30))
    return Image(bytes(found), source.width, source.height, source.channels)


def golden(prefix: str, made: Resized) -> tuple[str, str]:
    """Return what a test has of the steps: a camera and sums of the input's rows, and the lines that compare them."""
    wanted = made.of(picture(made.source)).reshape(made.height, -1)
    sums = [f"{_sum(one.tobytes()):#010x}" for one in wanted]
    bytes_of_row = wanted.shape[1] * wanted.dtype.itemsize
    words = {"prefix": prefix, "upper": prefix.upper(), "rows": str(made.height), "bytes": str(bytes_of_row)}
    words |= {"wanted": _array("uint32_t", "wanted", str(made.height), sums), "input": made.name}
    return Template(_CAMERA).substitute(words), Template(_COMPARED).substitute(words)


def _sum(data: bytes) -> int:
    """Return FNV-1a of 32 bits."""
    found = 0x811C9DC5
    for byte in data:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found


_CAMERA = """
/* The checksum of each row of the input, FNV-1a. */
$wanted

static uint32_t sum_of(const uint8_t *bytes, int count) {
  uint32_t sum = UINT32_C(0x811c9dc5);
  while (count--) sum = (sum ^ *bytes++) * UINT32_C(0x01000193);
  return sum;
}

/* A camera that sees noise, half of it black and white. */
static uint32_t noise;

static uint8_t seen(void) {
  noise = UINT32_C(1664525) * noise + UINT32_C(1013904223);
  if (noise >> 31) return noise >> 22 & 255;
  return noise >> 30 ? 255 : 0;
}
"""
_COMPARED = """\
  noise = 1;
  for (place = 0; place < ${upper}_IMAGE_HEIGHT; place++) {
    static uint8_t row[${upper}_IMAGE_WIDTH * ${upper}_IMAGE_CHANNELS];
    int i;
    for (i = 0; i < ${upper}_IMAGE_WIDTH * ${upper}_IMAGE_CHANNELS; i++) row[i] = seen();
    ${prefix}_image_row(place, row);
  }
  for (place = 0; place < $rows; place++) {
    missed += sum_of((const uint8_t *)${input}() + place * $bytes, $bytes) != wanted[place];
  }
"""
