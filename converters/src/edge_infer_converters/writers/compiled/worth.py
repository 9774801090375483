"""When a compiled variant is worth its place in a bundle unasked: small enough, and not slower than an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.compiled.writer import Compiled

#: Beside a larger model an engine's 2.4 MB are a small part of what a page fetches.
MAX_FILE_BYTES = 5_000_000
#: A source of more bytes gives no int8 file of `MAX_FILE_BYTES`.
_MAX_SOURCE_BYTES = 4 * MAX_FILE_BYTES
#: Float models of more multiplications ran as fast in engines of pages (benchmarks/LOG.md, compile).
_MAX_FLOAT_MULTIPLICATIONS = 20_000_000


def check_worth(source_bytes: int) -> None:
    """Refuse a source that no compiled variant is worth its place for, before it is turned into operators.

    Raises:
        ConversionError: It is too large.
    """
    if source_bytes > _MAX_SOURCE_BYTES:
        raise ConversionError(
            f"The model has {source_bytes / 1e6:.0f} MB; beyond {_MAX_SOURCE_BYTES / 1e6:.0f} MB an engine is a small "
            "part of the download",
            hint="--format compiled asks for it nevertheless",
        )


def targets_of(compiled: Compiled, precision: str, asked: Sequence[str], *, is_asked_for: bool) -> tuple[str, ...]:
    """Return the targets that a compiled variant is for.

    Args:
        compiled: The model.
        precision: `int8` or `fp32`.
        asked: The targets of its plan.
        is_asked_for: Whether the format was asked for by name.

    Raises:
        ConversionError: It is not worth its place, and nobody asked for it.
    """
    if not is_asked_for and len(compiled.wasm) > MAX_FILE_BYTES:
        raise ConversionError(
            f"The compiled file has {len(compiled.wasm) / 1e6:.1f} MB; beyond {MAX_FILE_BYTES / 1e6:.0f} MB an engine "
            "is a small part of the download",
            hint="--format compiled asks for it nevertheless",
        )
    if precision != "fp32" or compiled.multiply_accumulates <= _MAX_FLOAT_MULTIPLICATIONS:
        return tuple(asked)
    places = ("pi",) if "any" in asked else tuple(target for target in asked if target != "web")
    if not places and not is_asked_for:
        raise ConversionError(
            f"A run takes {compiled.multiply_accumulates / 1e6:.0f} million multiplications of floats; beyond "
            f"{_MAX_FLOAT_MULTIPLICATIONS / 1e6:.0f} million an engine is faster in a page",
            hint="--format compiled asks for it nevertheless",
        )
    return places or tuple(asked)
