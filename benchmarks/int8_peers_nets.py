"""The nets of `int8_peers.py`, and photographs as their samples: some to calibrate, others held out.

Nets come from the folder of real models. Photographs are those of scikit-learn and of scikit-image's wheel; no scene
is on both sides. A sample is a random square of one, or of the net's shape, which is resized and may be mirrored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import sklearn.datasets
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many samples calibrate a net, and how many compare what became of it.
CALIBRATES, COMPARES = 16, 8
_SKLEARN = ("china.jpg", "flower.jpg")
_CALIBRATES = ("china.jpg", "coffee.png", "motorcycle_left.png", "lfw")
_COMPARES = ("flower.jpg", "chelsea.png", "rocket.jpg", "astronaut.png")
# The faces of Labeled Faces in the Wild that scikit-image has: gray, 25 by 25 pixels each, the first hundred.
_FACES = (slice(100), 10)


class Net(NamedTuple):
    """A net, and what it takes.

    Attributes:
        file: Its file's name.
        input: Its input's name.
        size: Height and width of its image.
        mean: What is taken from values of 0 to 255.
        scale: By what they are divided then.
        axes: The order of its axes of one image: `chw` or `hwc`.
        channels: `rgb`, `bgr` or `gray`.
    """

    file: str
    input: str
    size: tuple[int, int]
    mean: float = 0.0
    scale: float = 1.0
    axes: str = "chw"
    channels: str = "rgb"


NETS = (
    Net("yunet_320.onnx", "input", (320, 320), channels="bgr"),
    Net("ultraface_rfb320.onnx", "input", (240, 320), 127, 128),
    Net("superres.onnx", "input", (224, 224), 0, 255, channels="gray"),
    Net("fastestdet.onnx", "input.1", (352, 352), 0, 255, channels="bgr"),
    Net("vww_f32.tflite", "input_1", (96, 96), 0, 255, axes="hwc"),
    Net("resnet8_f32.tflite", "input_1", (32, 32), axes="hwc"),
)


def samples(net: Net, photographs: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples that calibrate a net, and those held out, each of shape [samples, ...].

    Args:
        net: The net.
        photographs: The folder of scikit-image's data.
    """
    rng = np.random.default_rng(0)
    sides = ((_CALIBRATES, CALIBRATES), (_COMPARES, COMPARES))
    calibrating, comparing = (
        np.stack([_taken(net, one) for one in _parts(names, count, net, photographs, rng)]) for names, count in sides
    )
    return calibrating, comparing


def _parts(
    names: Sequence[str], count: int, net: Net, photographs: Path, rng: np.random.Generator
) -> list[Image.Image]:
    """Draw parts of photographs, in turn."""
    whole = [_open(name, photographs) for name in names]
    found = []
    for i in range(count):
        image = whole[i % len(whole)]
        height, width = net.size
        most = min(image.width / width, image.height / height)
        times = rng.uniform(0.4, 1) * most
        wide, high = round(width * times), round(height * times)
        left, top = rng.integers(0, image.width - wide + 1), rng.integers(0, image.height - high + 1)
        part = image.crop((left, top, left + wide, top + high)).resize((width, height), Image.Resampling.BILINEAR)
        found.append(part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.integers(2) else part)
    return found


def _open(name: str, photographs: Path) -> Image.Image:
    if name == "lfw":
        which, across = _FACES
        faces = np.load(photographs / "lfw_subset.npy")[which]
        rows = [np.concatenate(list(faces[i : i + across]), axis=1) for i in range(0, len(faces), across)]
        return Image.fromarray((np.concatenate(rows) * 255).astype(np.uint8)).convert("RGB")
    folder = Path(sklearn.datasets.__file__).parent / "images" if name in _SKLEARN else photographs
    return Image.open(folder / name).convert("RGB")


def _taken(net: Net, image: Image.Image) -> np.ndarray:
    """Turn an image into what a net takes."""
    pixels = np.asarray(image.convert("L" if net.channels == "gray" else "RGB"), np.float32)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    pixels = pixels[:, :, ::-1] if net.channels == "bgr" else pixels
    values = (pixels - np.float32(net.mean)) / np.float32(net.scale)
    return np.ascontiguousarray(values.transpose(2, 0, 1) if net.axes == "chw" else values)
