"""Find the axis of the channels in a model's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError

if TYPE_CHECKING:
    from edge_infer.tensors.tensor import TensorSpec

LAYOUTS = ("auto", "NCHW", "NHWC")


def is_channels_first(layout: str, spec: TensorSpec) -> bool:
    """Tell whether the channels come before the rows.

    Args:
        layout: `NCHW`, `NHWC`, or `auto` for what the input's shape says, which may differ from variant to variant.
        spec: The model's input.

    Raises:
        ManifestError: The shape does not say.
    """
    if layout != "auto":
        return layout == "NCHW"
    shape = spec.shape[-3:]
    first, last = (len(shape) == 3 and shape[axis] in (1, 3) for axis in (0, 2))
    if first == last:
        raise ManifestError(
            f"pipeline: input `{spec}` does not show where its channels are", hint='give the step "layout": "NCHW"'
        )
    return first
