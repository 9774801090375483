"""Write `quality.json`: the measurements of a bundle, with their data and machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer_converters.measure.variant_quality import describe_machine

if TYPE_CHECKING:
    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.speed import DeviceTimes
    from edge_infer_converters.search.mixed_onnx import MixedModel


def document(
    result: Conversion,
    data: CalibrationSet,
    ranges: CalibrationSet,
    mixed: MixedModel | None,
    times: DeviceTimes | None = None,
) -> dict[str, Any]:
    """Describe what was measured.

    Args:
        result: What was made.
        data: The inputs that it was measured on.
        ranges: The inputs that gave int8 its ranges.
        mixed: What the search ended with, or None where there was none.
        times: The device's times that decided, or None.
    """
    searched = {} if mixed is None else {"search": mixed.to_json()}
    return {
        "revision": result.revision,
        "machine": describe_machine(),
        "evaluation": {"origin": data.origin, "sha256": data.sha256, "calls": len(data.calls)},
        "calibration": {"origin": ranges.origin, "sha256": ranges.sha256, "calls": len(ranges.calls)},
        **({} if times is None else {"measured": {"origin": times.name, "sha256": times.digest}}),
        "variants": {one.variant.id: {"is_kept": one.is_kept, **one.to_json()} for one in result.variants},
        "not_made": result.not_made,
        **searched,
    }
