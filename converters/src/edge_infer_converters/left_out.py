"""The variants that a conversion cannot make, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.report.reporter import step

if TYPE_CHECKING:
    from edge_infer.errors import EdgeInferError
    from edge_infer_converters.report.reporter import Reporter


class LeftOut:
    """The variants that cannot be made.

    Args:
        reporter: The receiver of a warning for each reason.
        is_compiled_asked_for: Whether compiled variants were asked for by name: most models are no small networks.
    """

    def __init__(self, reporter: Reporter, *, is_compiled_asked_for: bool) -> None:
        self.reasons: dict[str, str] = {}
        self.is_compiled_asked_for = is_compiled_asked_for
        self._reporter = reporter

    def __contains__(self, id_: object) -> bool:
        return id_ in self.reasons

    def add(self, id_: str, error: EdgeInferError) -> None:
        """Leave a variant out; what keeps a format from being written keeps all its precisions, and is said once."""
        is_said = error.message in self.reasons.values()
        self.reasons[id_] = error.message
        if is_said:
            return
        if id_.startswith("compiled/") and not self.is_compiled_asked_for:
            self._reporter.talk(step("Skipped", id_, error.message))
            return
        self._reporter.warn(f"{id_} is left out: {error.message}", error.hint)
