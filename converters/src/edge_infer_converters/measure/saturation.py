"""Measure what int8 loses on x86 CPUs without VNNI, whose kernels overflow in 16 bits.

The same file in ONNX Runtime's precise mode (`session.x64quantprecision`) computes what pages, ARM and newer x86
compute. On a CPU that has VNNI both are equal and nothing can be seen; which one measured is written beside the
figure.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.engine import fast_session, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edge_infer.platform.cpu import Processor

    Outputs = Mapping[str, np.ndarray]

#: From how many dB on a gap is worth a warning.
MIN_GAP_DB = 1.0


class Saturation(NamedTuple):
    """The quality of one integer file in both modes of ONNX Runtime.

    Attributes:
        precise_db: The SQNR in precise mode.
        plain_db: The SQNR on the default kernels of this CPU.
        can_be_seen: Whether this is a CPU whose default kernels may saturate.
    """

    precise_db: float
    plain_db: float
    can_be_seen: bool

    @property
    def gap_db(self) -> float:
        """The loss by saturation, in dB."""
        return self.precise_db - self.plain_db if isfinite(self.precise_db) else 0.0

    def to_json(self) -> dict[str, Any]:
        """Describe this as `quality.json` does."""
        shown = [round(value, 2) if isfinite(value) else None for value in (self.precise_db, self.plain_db)]
        return {"precise_sqnr_db": shown[0], "plain_sqnr_db": shown[1], "can_be_seen_here": self.can_be_seen}


def measure(file: Path, calls: Sequence[Outputs], references: Sequence[Outputs], processor: Processor) -> Saturation:
    """Run a file in both modes.

    Args:
        file: The `.onnx` file.
        calls: The inputs.
        references: The source's outputs for these.
        processor: What runs it.

    Raises:
        ConversionError: ONNX Runtime does not run the file in one of the modes.
    """
    names = list(references[0])
    figures = [decibels(noise(references, _run(file, calls, names, precise=mode))) for mode in (True, False)]
    return Saturation(figures[0], figures[1], processor.saturates)


def _run(file: Path, calls: Sequence[Outputs], names: list[str], *, precise: bool) -> list[Outputs]:
    try:
        session = fast_session(str(file), precise=precise)
        results = [session.run(names, dict(call)) for call in calls]
    except Exception as error:  # ONNX Runtime's classes have no base of their own
        raise ConversionError(f"ONNX Runtime does not run it: {first_line(error)}") from error
    return [dict(zip(names, map(np.asarray, one), strict=True)) for one in results]
