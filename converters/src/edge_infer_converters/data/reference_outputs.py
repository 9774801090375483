"""The outputs of the source model for the evaluation inputs, and the noise of other outputs against them."""

from __future__ import annotations

from math import inf, log10
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.report.reporter import Reporter

    Outputs = Mapping[str, np.ndarray]

#: The source's outputs are kept to compare with, and those of one variant beside them.
MAX_BYTES = 2**30


def reference_outputs(
    data: CalibrationSet, run: Callable[[dict[str, np.ndarray]], Outputs], reporter: Reporter
) -> tuple[CalibrationSet, list[Outputs]]:
    """Run a model on its inputs.

    Args:
        data: The inputs.
        run: Runs the model once.
        reporter: The receiver of a warning where not all inputs are used.

    Returns:
        The inputs, only the first where outputs take more than `MAX_BYTES`, and the outputs for each.
    """
    outputs: list[Outputs] = []
    nbytes = 0
    with reporter.progress(f"Running the source on {data}", len(data.calls)) as advance:
        for call in data.calls:
            outputs.append(run(call))
            advance(1)
            nbytes += sum(value.nbytes for value in outputs[-1].values())
            if nbytes >= MAX_BYTES:
                break
    if len(outputs) < len(data.calls):
        reporter.warn(
            f"Measured on the first {len(outputs)} of {data}: the outputs, which are kept to compare with, take "
            f"{nbytes / 1e6:.0f} MB",
            "",
        )
    return data.first(len(outputs)), outputs


def noise(references: Sequence[Outputs], results: Sequence[Outputs]) -> float:
    """Return the error's energy over the signal's, pooled over all calls, of the worst float output.

    Values that are not finite in the reference are left out; where only the result is not finite, noise is infinite.
    """
    worst = 0.0
    for name in references[0] if references else ():
        if references[0][name].dtype.kind != "f":
            continue
        signal = error = 0.0
        for reference, result in zip(references, results, strict=True):
            want, got = reference[name].astype(np.float64), result[name].astype(np.float64)
            if want.shape != got.shape:
                return inf
            finite = np.isfinite(want)
            signal += float(np.square(want[finite]).sum())
            error += float(np.square(want[finite] - got[finite]).sum())
        if error:
            worst = max(worst, error / signal if signal and np.isfinite(error) else inf)
    return worst


def decibels(noise: float) -> float:
    """Return the signal to noise ratio in dB; infinite without noise."""
    if noise == inf:
        return -inf
    return -10 * log10(noise) if noise > 0 else inf
