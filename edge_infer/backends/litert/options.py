"""Typed options of LiteRT: threads, and delegates that run on accelerators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge_infer.backends.litert.backend import DELEGATES
from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteRTOptions:
    """Settings of LiteRT, for `load(..., options=...)`; what is left out stays the engine's default.

    A delegate takes the operators that it knows and leaves the others to LiteRT, which does not tell which. One that
    does not load is an error, `strict` or not.

    Attributes:
        delegates: The library of each delegate, such as `libedgetpu.so.1` of a Coral, or a pair of it and its settings.
        intra_op_threads: The threads that one operator may use.

    Raises:
        InputError: A delegate is neither, or the threads are less than 1.

    >>> LiteRTOptions(delegates=[("libedgetpu.so.1", {"device": "usb"})]).settings()
    {'user.delegates': '[["libedgetpu.so.1", {"device": "usb"}]]'}
    """

    delegates: Sequence[str | tuple[str, Mapping[str, str]]] = ()
    intra_op_threads: int | None = None

    def __post_init__(self) -> None:
        if self.intra_op_threads is not None and self.intra_op_threads < 1:
            raise InputError(f"`intra_op_threads` is {self.intra_op_threads}, expected 1 or more")
        given: Any = self.delegates
        for one in given if isinstance(given, (list, tuple)) else [None]:
            pair: Any = (one, {}) if isinstance(one, str) else one
            if not (
                isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Mapping)
            ):
                raise InputError(
                    f"`delegates` is {given!r}, expected a list of libraries, or of pairs of one and its settings",
                    hint='LiteRTOptions(delegates=["libedgetpu.so.1"])',
                )

    @property
    def backend(self) -> str:
        """The backend that these are for."""
        return "litert"

    @property
    def device(self) -> str | None:
        """The device that they imply: none, a delegate's operators run where it likes."""
        return None

    def settings(self) -> dict[str, str]:
        """Return what `Backend.prepare` takes."""
        found = {}
        if self.intra_op_threads is not None:
            found["intra_op_threads"] = str(self.intra_op_threads)
        if self.delegates:
            pairs = [(one, {}) if isinstance(one, str) else one for one in self.delegates]
            named = [[library, {key: str(value) for key, value in given.items()}] for library, given in pairs]
            found[DELEGATES] = json.dumps(named)
        return found
