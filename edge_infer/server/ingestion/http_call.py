"""HttpCall: a request for a model over ASGI, with its body and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from edge_infer.server.errors import ClientLeft, problem_parts
from edge_infer.server.headers import ANSWERING, IS_GONE, REFUSED, echoed
from edge_infer.server.ingestion.admission import Call
from edge_infer.server.ingestion.bodies import read_body, unpacked
from edge_infer.server.metrics.access_log import note
from edge_infer.server.protocol.head import RequestHead
from edge_infer.server.response.parts import size_of, together

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Receive, Scope, Send

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.response.parts import Part, Parts

    Headers = list[tuple[bytes, bytes]]
    Reply = tuple[Parts, Headers]


class HttpCall(Call):
    """A request over ASGI.

    Args:
        context: What it shares with others.
        scope: ASGI's.

    Attributes:
        is_gone: Tells whether the client left; None where the ASGI server does not say so without waiting.
    """

    __slots__ = ("_scope", "is_gone")

    def __init__(self, context: ServerContext, scope: Scope) -> None:
        super().__init__(context, scope["path"])
        self._scope = scope
        self.is_gone: Callable[[], bool] | None = scope.get(IS_GONE)

    def admit(self) -> RequestHead:
        """Let the request in before it is known which model it is for; return what its headers say.

        Raises:
            ShuttingDown: The server is stopping.
            Unauthorized: The server does not know its key.
            InputError: A header is wrong.
        """
        if self.head is None:
            headers = self._scope["headers"]
            self.tenant = self.context.admit(headers)
            note(self._scope, tenant=self.tenant.name)
            self.head = RequestHead(headers)
        return self.head

    def enter(self) -> RequestHead:
        """Let in a request that may need no model; return what its headers say.

        Raises:
            EdgeInferError: What `admit` raises.
            OverShare: Its tenant asks too often, or uses too many connections.
        """
        head = self.admit()
        refusal = self._over_bounds()
        if refusal is not None:
            self.rejected(refusal)
            raise refusal
        self._connect()
        return head

    async def open(self, target: tuple[str, str | None]) -> tuple[LoadedModel, RequestHead]:
        """Let the request in: return its model, which is held until `close`, and what its headers say.

        Args:
            target: The model and its version.

        Raises:
            EdgeInferError: There is no such model, no room for the request, or another reason not to take it.
        """
        scope, engine = self._scope, self.context.engine
        head = self.admit()
        model = engine.current(*target, self.tenant.name)
        while True:
            if model is None:
                model = await engine.get(*target, self.tenant.name)
            note(scope, model=model.name, version=model.version)
            refusal = self.refusal(model)
            if refusal is not None:
                self.rejected(refusal)
                raise refusal
            if self.hold(model):
                scope[ANSWERING] = model.version
                return model, head
            self.model = model = None

    async def body(self, receive: Receive, most: int) -> bytes:
        """Read the body and unpack it; it counts as it arrives.

        Args:
            receive: ASGI's.
            most: The most bytes, packed or not.

        Raises:
            PayloadTooLarge: It has more.
            QueueFull: There is no room.
            InputError: It is not what its encoding says.
            ClientDisconnect: The client left.
        """
        head = self.head
        assert head is not None
        self.check_room(head.content_length)
        body = await read_body(receive, head.content_length, most, self.grow)
        if head.content_encoding:
            body = await unpacked(body, head.content_encoding, most)
            self.grow(len(body))
        return body

    def failed(self, error: Exception) -> EdgeInferError:
        """Take note of what went wrong; return what the client is told."""
        told = super().failed(error)
        note(self._scope, code=told.code)
        return told

    async def answer(
        self,
        send: Send,
        work: Awaitable[Reply | None],
        always: Iterable[tuple[bytes, bytes]],
        *,
        problem: Callable[[EdgeInferError], tuple[int, bytes, Headers]] = problem_parts,
        end: Callable[[EdgeInferError], Awaitable[bool]] | None = None,
    ) -> None:
        """Send what the work gives, or its error, and let go of everything.

        Args:
            send: ASGI's.
            work: Gives the body and its headers; None where it has sent all by itself.
            always: What every answer carries.
            problem: Writes an error.
            end: Ends an answer of which the work has sent a part; false where it has sent none.
        """
        status = 200
        try:
            try:
                found = await work
                if found is None:
                    return
                parts, headers = together(found[0]), found[1]
                del found  # who has the parts now lets go of each as it is sent
            except ClientDisconnect:
                self.left()
                return
            except Exception as error:
                told = self.failed(error)
                error.__traceback__ = None  # its frames hold the body, and this one the error
                if end is not None and await end(told):
                    return
                status, body, headers = problem(told)
                parts = [body]
            self.keep(size_of(parts))
            await self.reply(send, status, [*headers, *always], parts)
        finally:
            self.close()

    async def reply(self, send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], parts: list[Part]) -> None:
        """Send a whole answer, a result or an error, and empty the list of its parts; each counts until it is sent."""
        if self.is_gone is None:  # another server than ours wants bytes
            parts = [b"".join(parts)]
        left = size_of(parts)
        headers = [*headers, (b"content-length", b"%d" % left), *echoed(self._scope["headers"])]
        if self.context.engine.is_draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while parts:
            part = parts.pop(0)
            left -= len(part)
            await send({"type": "http.response.body", "body": part, "more_body": bool(parts)})
            self.keep(left)  # the connection counts what the client has not read

    def left(self) -> None:
        """Take note of a client that left before its body was there, unless it was hung up on."""
        if REFUSED not in self._scope:
            self.failed(ClientLeft("The client left before its body was there"))
