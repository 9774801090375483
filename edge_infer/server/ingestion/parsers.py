"""Parsers: one for each model that is loaded, made when first needed and dropped with its model."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from edge_infer.server.protocol.fast import Parser

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded import LoadedModel


class Parsers:
    """The parsers of all models."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[LoadedModel, Parser] = WeakKeyDictionary()

    def of(self, model: LoadedModel) -> Parser:
        """Return the parser of a model."""
        parser = self._known.get(model)
        if parser is None:
            parser = self._known[model] = Parser(model.inputs, model.outputs, model.max_rows)
        return parser
