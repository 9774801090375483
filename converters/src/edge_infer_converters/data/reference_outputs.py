"""What the source says to the inputs that its variants are measured on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.report.reporter import Reporter

    Outputs = Mapping[str, np.ndarray]

#: The source's outputs are kept to compare with, and those of one variant beside them.
MAX_BYTES = 2**30


def answers_to(
    data: CalibrationSet, run: Callable[[dict[str, np.ndarray]], Outputs], reporter: Reporter
) -> tuple[CalibrationSet, list[Outputs]]:
    """Run a model on its inputs.

    Args:
        data: The inputs.
        run: Runs the model once.
        reporter: Who is told that not all inputs are used.

    Returns:
        The inputs, only the first where outputs take more than `MAX_BYTES`, and the outputs for each.
    """
    outputs: list[Outputs] = []
    nbytes = 0
    for call in data.calls:
        outputs.append(run(call))
        nbytes += sum(value.nbytes for value in outputs[-1].values())
        if nbytes >= MAX_BYTES and len(outputs) < len(data.calls):
            reporter.warn(
                f"Measured on the first {len(outputs)} of {data}: the outputs, which are kept to compare with, take "
                f"{nbytes / 1e6:.0f} MB",
                "",
            )
            break
    return data.first(len(outputs)), outputs
