"""Measure a source's own error: no variant is asked to be nearer to the source than that.

Two ways to ask: the inputs move by one rounding, and the engine optimises the model as its users' engines do. One in
half precision computes in float32 then.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer.parity.comparison import INTEGER_MIN_SQNR_DB, Parity, compare_outputs, worst_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Outputs = Mapping[str, np.ndarray]
    Run = Callable[[Outputs], Outputs]

#: A larger model is not loaded a second time.
MAX_BYTES = 128_000_000
#: Over how many calls, and bytes of outputs, it is compared at most.
_MOST_CALLS, _MOST_BYTES = 32, 2**27
#: Half precision has 13 bits less than single precision, so its roundings are so many times as large: 78 dB.
_HALF, _HALF_DB = 2.0**13, 78.3


def own_error(
    run: Run,
    load_optimised: Callable[[], Run] | None,
    calls: Sequence[Outputs],
    outputs: Sequence[Outputs],
    count: int = _MOST_CALLS,
) -> dict[str, Parity]:
    """Measure the source against itself.

    Args:
        run: Runs the source once, without optimisation.
        load_optimised: Loads it with the engine's usual optimisation; None where it is too large to load again.
        calls: Inputs: those that variants are judged by, of which the worst may be any.
        outputs: The source's outputs for each.
        count: How many of the calls run again with moved inputs, without the engine's optimisations, which is slow.

    Returns:
        The worst of both ways, by output; nothing where neither can run.
    """
    found: list[dict[str, Parity]] = []
    with suppress(ConversionError, UnsupportedModel):
        if any(array.dtype.kind == "f" for array in calls[0].values()):
            found.append(compare_outputs(outputs[:count], [run(call) for call in moved(calls[:count])]))
    with suppress(ConversionError, UnsupportedModel):
        if load_optimised is not None:
            optimised = load_optimised()
            nbytes = sum(array.nbytes for array in outputs[0].values())
            most = max(count, min(_MOST_CALLS, _MOST_BYTES // max(nbytes, 1)))
            found.append(compare_outputs(outputs[:most], [optimised(call) for call in calls[:most]]))
    return {name: worst_of([one[name] for one in found]) for name in (found[0] if found else ())}


def moved(calls: Sequence[Outputs]) -> list[dict[str, np.ndarray]]:
    """Return the inputs with each float value moved by one rounding, up or down by chance, the same in each run."""
    rng = np.random.default_rng(0)
    return [
        {
            name: np.nextafter(array, np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype))
            if array.dtype.kind == "f"
            else array
            for name, array in call.items()
        }
        for call in calls
    ]


class OwnError(NamedTuple):
    """The source's own error.

    Attributes:
        by_output: What `own_error` measured.
        is_half: Whether the source computes in half precision, so that this is the error of that.
    """

    by_output: Mapping[str, Parity]
    is_half: bool

    def at(self, precision: str) -> dict[str, Parity]:
        """Return what it is where weights and values have this precision."""
        if precision != "fp16" or self.is_half:
            return dict(self.by_output)
        return {
            name: one._replace(
                max_err=one.max_err * _HALF,
                sqnr_db=max(one.sqnr_db - _HALF_DB, INTEGER_MIN_SQNR_DB),
                probability_err=one.probability_err * _HALF,
            )
            for name, one in self.by_output.items()
        }
