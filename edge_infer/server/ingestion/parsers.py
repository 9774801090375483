"""Parsers: one for each model that is loaded, made when first needed and dropped with its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.server.ingestion.fast import Parser

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded import LoadedModel


class Parsers:
    """The parsers of all models."""

    def __init__(self) -> None:
        self._known: dict[LoadedModel, Parser] = {}

    def of(self, model: LoadedModel) -> Parser:
        """Return the parser of a model."""
        parser = self._known.get(model)
        if parser is None:
            for known in [known for known in self._known if known.is_retired]:
                del self._known[known]
            parser = self._known[model] = Parser(model.inputs, model.outputs)
        return parser
