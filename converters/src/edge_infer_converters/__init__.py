"""Convert models: smaller files for the browser, devices and servers, each measured against the source.

from edge_infer_converters import convert

convert("digits.onnx", "digits.bundle", calibration="calibration.npz", evaluation="eval.npz")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_infer_converters.api import convert
    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.measure.budget import Budget
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.recipe import Recipe

__version__ = "0.1.0"

__all__ = ["Budget", "Conversion", "ConvertedVariant", "Recipe", "convert"]

_HOMES = {
    "Budget": "edge_infer_converters.measure.budget",
    "Conversion": "edge_infer_converters.conversion",
    "ConvertedVariant": "edge_infer_converters.measure.variants",
    "Recipe": "edge_infer_converters.recipe",
    "convert": "edge_infer_converters.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: onnx and numpy take a second."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
