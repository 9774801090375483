"""The steps that bring an image to a model, as several sources need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import UnsupportedError
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from edge_infer.tensors.tensor import TensorSpec

    StepJson = dict[str, Any]

IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
_LEVELS = (DType.UINT8, DType.INT8)


class ImageInput:
    """An input that takes images.

    Args:
        spec: The model's input.

    Attributes:
        name: The input's name.
        width: In pixels, None where it is free.
        height: In pixels, None where it is free.
        channels: 1 or 3.
        layout: `NCHW` or `NHWC` where the shape does not show it, else None.
    """

    def __init__(self, spec: TensorSpec) -> None:
        self.name = spec.name
        self._spec = spec
        if not is_image(spec):
            raise UnsupportedError(
                f"input `{spec}` does not take images, expected [batch, channels, height, width] or channels last",
                hint="say what the steps are: --preprocess FILE.json",
            )
        first, *_, last = spec.shape[-3:]
        channels_last = last in (1, 3) and first not in (1, 3)
        # Where no dimension tells, ONNX models of images have their channels first.
        self.layout = None if (first in (1, 3)) != (last in (1, 3)) else "NCHW"
        sizes = spec.shape[-3:-1] if channels_last else spec.shape[-2:]
        channels = last if channels_last else first
        self.height, self.width = (size if isinstance(size, int) else None for size in sizes)
        self.channels = channels if isinstance(channels, int) else 3

    @property
    def takes_levels(self) -> bool:
        """Whether it takes the levels 0 to 255 themselves, since it is quantized."""
        return self._spec.dtype in _LEVELS

    def decode(self) -> StepJson:
        """Return the first step."""
        return {"step": "image.decode", "mode": "L" if self.channels == 1 else None}

    def tensor(self, scale: float, mean: list[float], std: list[float]) -> StepJson:
        """Return the last step: `(level * scale - mean) / std`, or the levels themselves for a quantized input.

        A quantized image model takes levels, whatever its metadata say of normalisation: that is for float models, and
        its own scale and zero point say the same.
        """
        if self.takes_levels or (scale == 1 and not any(mean) and set(std) == {1.0}):
            return {"step": "image.to_tensor", "layout": self.layout}
        means, stds = (one if len(one) == self.channels else one[:1] * self.channels for one in (mean, std))
        return {"step": "image.rescale_normalize", "scale": scale, "mean": means, "std": stds, "layout": self.layout}

    def check(self, width: int | None, height: int | None, where: str) -> None:
        """Refuse a size that the model does not take; None is one that depends on the image.

        Raises:
            UnsupportedError: It is another than the model's.
        """
        fixed = self.width is not None and self.height is not None
        if fixed and (width, height) != (self.width, self.height):
            said = "images of different sizes" if width is None else f"{width} x {height} pixels"
            raise UnsupportedError(
                f"`{where}` makes {said}, and input `{self._spec}` takes {self.width} x {self.height}",
                hint="export the model with free height and width, or change the size there",
            )


def is_image(spec: TensorSpec) -> bool:
    """Tell whether an input may be an image: three or four dimensions, 1 or 3 channels."""
    shape = spec.shape
    if spec.dtype not in (DType.FLOAT32, DType.FLOAT16, *_LEVELS) or len(shape) not in (3, 4):
        return False
    first, _, last = shape[-3:]
    if len(shape) == 3 and not all(isinstance(dim, int) for dim in shape):
        return False
    return first in (1, 3) or last in (1, 3) or all(isinstance(dim, str) for dim in shape)
