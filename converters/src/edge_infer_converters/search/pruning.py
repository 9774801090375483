"""Find how many channels a model can lack within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.engine import make_session
from edge_infer_converters.passes.prune_weak import measure_channels, prune_weak
from edge_infer_converters.report.reporter import decibels, step

if TYPE_CHECKING:
    import onnx

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.judge import Judge
    from edge_infer_converters.report.reporter import Reporter

#: The share that is asked for is tried first, then less of it.
PARTS = (1.0, 0.75, 0.5, 0.25, 0.125)


def prune_within(
    model: onnx.ModelProto,
    ranges: CalibrationSet,
    share: float,
    data: CalibrationSet,
    judge: Judge,
    reporter: Reporter,
) -> onnx.ModelProto | None:
    """Return the model with as few channels as the budget allows in float, or None where none can go.

    Args:
        model: The source after `clean_up`.
        ranges: The inputs that tell which channels matter.
        share: How many of each layer at most.
        data: The inputs that judge what is left.
        judge: Compares outputs with the source's, within the budget.
        reporter: The receiver of what was removed.
    """
    channels = measure_channels(model, ranges.calls)
    names = list(judge.references[0])
    best = float("-inf")
    for part in PARTS:
        pruned, removed = prune_weak(model, channels, share * part)
        if not removed:
            break
        session = make_session(pruned.SerializeToString(), "the pruned model")
        results = [dict(zip(names, session.run(names, dict(call)), strict=True)) for call in data.calls]
        judged = judge.judge(results)
        best = max(best, judged.sqnr_db)
        if judged.is_within:
            said = f"{removed} channels, {share * part:.1%} of each layer: {decibels(judged.sqnr_db)}"
            reporter.talk(step("Pruned", "onnx/mixed  ", said))
            return pruned
    reason = f"the best has {decibels(best)}" if channels and best > float("-inf") else "no layer has channels to spare"
    reporter.talk(step("Pruned", "onnx/mixed  ", f"nothing ({judge.limits()}): {reason}"))
    return None
