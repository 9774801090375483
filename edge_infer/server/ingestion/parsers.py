"""Parsers: one for each model that is loaded, made when first needed and dropped with its model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from edge_infer.server.protocol.fast import Parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.execution.loaded_model import LoadedModel

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: How many large bodies of JSON are parsed in threads at once, over HTTP and WebSockets together.
_MAX_AT_ONCE = 4


class Parsers:
    """The parsers of all models."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_MAX_AT_ONCE)
        self._known: WeakKeyDictionary[LoadedModel, Parser] = WeakKeyDictionary()

    def of(self, model: LoadedModel) -> Parser:
        """Return the parser of a model."""
        parser = self._known.get(model)
        if parser is None:
            parser = self._known[model] = Parser(model.inputs, model.outputs, model.max_rows)
        return parser

    async def in_thread(self, parse: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Parse a large body in a thread, once there is room: parsing takes several times its memory."""
        async with self._room:
            return await asyncio.to_thread(parse, *arguments, **named)
