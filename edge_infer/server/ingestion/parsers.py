"""Parse requests: one parser for each model that is loaded; large JSON in processes, which start when first needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from edge_infer.errors import EdgeInferError, PayloadTooLarge
from edge_infer.server.errors import InternalError
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.parsing_process import ParsingProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.protocol.steps import Plan

_T = TypeVar("_T")
#: How many large bodies of JSON are parsed at once, over HTTP and WebSockets together.
_MAX_PROCESSES = 2
#: How long a process waits for more; it takes about 40 MB.
_IDLE_S = 60.0
#: The most bytes of a request's JSON, unless the caller says otherwise.
MAX_JSON_BYTES = 16 * 2**20


class Parsers:
    """The parsers of all models.

    Args:
        max_json_bytes: The most bytes of the JSON of a request.
    """

    def __init__(self, max_json_bytes: int = MAX_JSON_BYTES) -> None:
        self._max_json_bytes = max_json_bytes
        self._room = asyncio.Semaphore(_MAX_PROCESSES)
        self._known: WeakKeyDictionary[LoadedModel, Parser] = WeakKeyDictionary()
        self._idle: dict[ParsingProcess, asyncio.TimerHandle] = {}

    def of(self, model: LoadedModel) -> Parser:
        """Return the parser of a model."""
        parser = self._known.get(model)
        if parser is None:
            parser = self._known[model] = Parser(model.inputs, model.outputs, model.max_rows)
        return parser

    def most(self, head: RequestHead, max_body_bytes: int) -> int:
        """Return the most bytes of the body of a request.

        Args:
            head: What its headers say.
            max_body_bytes: The most bytes of any body.

        Raises:
            PayloadTooLarge: The JSON in front of its tensors is too long.
        """
        if head.is_raw:
            return max_body_bytes
        if head.json_length is None:
            return min(max_body_bytes, self._max_json_bytes)
        self.check_length(head.json_length)
        return max_body_bytes

    def check_length(self, json_length: int) -> None:
        """Refuse JSON that is too long.

        Raises:
            PayloadTooLarge: It has more bytes than the server takes.
        """
        if json_length > self._max_json_bytes:
            raise PayloadTooLarge(
                f"The JSON has more than {self._max_json_bytes} bytes",
                hint="send tensors in binary, or serve with a larger --max-json-mb",
                expected=self._max_json_bytes,
                got=json_length,
            )

    async def parse_large(self, model: LoadedModel, body: bytes, json_length: int | None) -> InferRequest:
        """Parse a request of much JSON in a process.

        Raises:
            InputError: It does not fit the model.
            PayloadTooLarge: It has too many values.
            InternalError: The process failed.
        """
        known = model.inputs, model.outputs, model.max_rows
        return await self._in_process(lambda process: process.infer(body, *known, json_length))

    async def parse_large_plan(self, model: LoadedModel, body: bytes) -> Plan:
        """Parse a request for steps of much JSON in a process; it fails as `parse_large` does."""
        known = model.inputs, model.outputs, model.max_rows, model.session.state_pairs
        return await self._in_process(lambda process: process.steps(body, *known))

    def close(self) -> None:
        """End the processes that wait."""
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            process.close()

    async def _in_process(self, parse: Callable[[ParsingProcess], _T]) -> _T:
        async with self._room:
            if self._idle:
                process, timer = self._idle.popitem()
                timer.cancel()
            else:
                starting = asyncio.get_running_loop().run_in_executor(None, ParsingProcess)
                try:
                    process = await asyncio.shield(starting)
                except asyncio.CancelledError:  # the process starts all the same
                    starting.add_done_callback(_end_started)
                    raise
                except OSError as error:
                    raise InternalError(
                        f"The process that parses JSON cannot be started: {error}", hint="send tensors in binary"
                    ) from error
            is_whole = False
            try:
                parsed = await asyncio.to_thread(parse, process)
                is_whole = True
            except EdgeInferError as error:
                is_whole = not isinstance(error, InternalError)
                raise
            finally:
                if is_whole:
                    timer = asyncio.get_running_loop().call_later(_IDLE_S, self._end, process)
                    self._idle[process] = timer
                else:  # it failed, or nobody waits any more
                    process.close()
            return parsed

    def _end(self, process: ParsingProcess) -> None:
        del self._idle[process]
        process.close()


def _end_started(starting: asyncio.Future[ParsingProcess]) -> None:
    """End a process that nobody waits for any more."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
