"""Requests for text: `/v1/chat/completions`, `/v1/completions`, `/inference` of a model that generates, and tokens.

A request's way is that of `infer`: it is let in before its body is read; its body is read and parsed; its prompt is
rendered and cut into tokens in a thread; it waits in its model's queue until a slot is free. Pieces are sent as they
are generated. A client that leaves frees its slot within one token; one that does not read only fills its own part of
the memory.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

from edge_infer.errors import EdgeInferError, InputError, ModelNotFound, listed
from edge_infer.server.errors import ClientLeft, MethodNotAllowed, problem_parts, status_of
from edge_infer.server.execution.text_model import TextModel
from edge_infer.server.execution.text_request import Piece
from edge_infer.server.headers import echoed
from edge_infer.server.ingestion.generation import Generation, News, Prompt, Watched, all_of
from edge_infer.server.ingestion.http_call import HttpCall
from edge_infer.server.ingestion.prompts import prepared
from edge_infer.server.ingestion.text_fields import (
    read_chat,
    read_completion,
    read_content,
    read_inference,
    read_tokens,
)
from edge_infer.server.protocol.head import JSON
from edge_infer.server.response.completions import DONE, Writer, error_document, openai_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.repository import ModelRepository
    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.ingestion.http_call import Reply
    from edge_infer.server.ingestion.text_fields import TextAsked

#: How many prompts are rendered and cut into tokens at once.
_THREADS = 2
#: Bodies up to this size are parsed on the event loop: it takes some 0.1 ms.
_SMALL_BYTES = 8 * 2**10
_EVENTS = b"text/event-stream"


class GenerateEndpoint:
    """Answers requests for text.

    Args:
        context: What all requests share.
        max_body_bytes: The most bytes of a body, packed or not.
        headers: What every answer carries.
    """

    def __init__(self, context: ServerContext, max_body_bytes: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._context = context
        self._max_body_bytes = max_body_bytes
        self._headers = [*headers, (b"cache-control", b"no-store")]
        self._room = asyncio.Semaphore(_THREADS)
        self._routes: dict[str, ASGIApp] = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completions,
            "/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
        }

    def route(self, method: str, path: str) -> ASGIApp | None:
        """Return what answers a request; None where it is for others."""
        if path == "/v1/models" or path.startswith("/v1/models/"):
            name = path.removeprefix("/v1/models").strip("/")
            return partial(self.models, name=name) if method == "GET" else partial(self._not_allowed, allowed="GET")
        found = self._routes.get(path)
        return found if found is None or method == "POST" else partial(self._not_allowed, allowed="POST")

    async def _not_allowed(self, scope: Scope, _receive: Receive, send: Send, allowed: str) -> None:
        async def answer(_call: HttpCall) -> bytes:
            raise MethodNotAllowed(f"{scope['path']} does not take {scope['method']}", hint=allowed)

        await self._answer(scope, send, answer, allowed=allowed)

    # -- what is asked for --

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the last message of a conversation."""
        await self._generate(scope, receive, send, read_chat)

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on from prompts."""
        await self._generate(scope, receive, send, read_completion)

    async def inference(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        """Go on from one prompt, with a short answer: `{"text", "tokens_generated", "latency_ms"}`."""

        async def answer(call: HttpCall) -> bytes:
            asked = await self._asked(call, receive, read_inference)
            model = await self._open(call, asked.model or name)
            prompts = await self._prepare(model, asked)
            async with Watched(receive, Generation(call, model)) as generation:
                generation.start(prompts, is_chat=False)
                (found,) = await all_of(generation, 1)
            self._answered(call, generation)
            document = {
                "text": found.text,
                "tokens_generated": generation.requests[0].completion_tokens,
                "latency_ms": round((perf_counter() - call.start) * 1000, 3),
            }
            return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")

        await self._answer(scope, send, answer, is_openai=False)

    async def tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Cut a text into tokens, as a prompt is."""

        async def answer(call: HttpCall) -> bytes:
            name, content = await self._asked(call, receive, read_content)
            model = await self._settled(call, name)
            async with self._room:
                tokens = await asyncio.to_thread(model.generator.tokenize, content)
            return json.dumps({"tokens": tokens, "count": len(tokens)}).encode()

        await self._answer(scope, send, answer, is_openai=False)

    async def detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write tokens as text."""

        async def answer(call: HttpCall) -> bytes:
            name, tokens = await self._asked(call, receive, read_tokens)
            model = await self._settled(call, name)
            async with self._room:
                text = await asyncio.to_thread(model.generator.detokenize, tokens)
            return json.dumps({"content": text}, ensure_ascii=False).encode("utf-8", "replace")

        await self._answer(scope, send, answer, is_openai=False)

    async def models(self, scope: Scope, _receive: Receive, send: Send, name: str = "") -> None:
        """List the models that generate text or embed it, or describe one of them."""

        async def answer(call: HttpCall) -> bytes:
            call.admit()
            repository = self._context.engine.repository
            found = await repository.readers.call(_described, repository)
            if not name:
                return json.dumps({"object": "list", "data": list(found.values())}).encode()
            if name not in found:
                raise ModelNotFound(
                    f"Model `{name[:128]}` is not one of those for texts; there is {listed(list(found))}",
                    hint="GET /v1/models",
                    model=name[:128],
                )
            return json.dumps(found[name]).encode()

        await self._answer(scope, send, answer)

    async def only(self) -> str:
        """Return the name of the only model that generates text; empty where there is none or several."""
        names = await self._names()
        return names[0] if len(names) == 1 else ""

    async def _names(self) -> list[str]:
        repository = self._context.engine.repository
        found = await repository.readers.call(_described, repository, is_text_only=True)
        return list(found)

    # -- the way of a request --

    async def _asked(self, call: HttpCall, receive: Receive, read: Callable[[bytes], Any]) -> Any:
        """Let a request in, and read its body; the event loop does not wait for the parser."""
        head = call.admit()  # before a byte of the body is read
        head.check_media_type()
        body = await call.body(receive, self._context.parsers.most(head, self._max_body_bytes))
        head.check_body(body)
        return read(body) if len(body) < _SMALL_BYTES else await asyncio.to_thread(read, body)

    async def _name(self, name: str) -> str:
        """Return the name of the model that is asked for, or of the only one that generates text."""
        if name:
            return name
        names = await self._names()
        if len(names) == 1:
            return names[0]
        raise InputError(
            f"The request names no `model`, and this server has {len(names)} that generate text",
            hint="GET /v1/models lists them",
            option="model",
        )

    async def _open(self, call: HttpCall, name: str) -> TextModel:
        """Hold the model for a request; see `HttpCall.open`."""
        model, _ = await call.open((await self._name(name), None))
        return _generating(model)

    async def _settled(self, call: HttpCall, name: str) -> TextModel:
        """Return the model for what runs nothing."""
        return _generating(await self._context.engine.settled(await self._name(name), None, call.tenant.name))

    async def _prepare(self, model: TextModel, asked: TextAsked) -> list[Prompt]:
        """Render, cut into tokens and check, in a thread."""
        async with self._room:
            return await asyncio.to_thread(prepared, model, asked)

    def _answered(self, call: HttpCall, generation: Generation) -> None:
        answer = generation.answer
        assert answer is not None
        call.answered(answer.timings, 0.0, "")

    async def _generate(self, scope: Scope, receive: Receive, send: Send, read: Callable[[bytes], TextAsked]) -> None:
        is_begun = False

        async def answer(call: HttpCall) -> bytes | None:
            nonlocal is_begun
            asked = await self._asked(call, receive, read)
            model = await self._open(call, asked.model)
            prompts = await self._prepare(model, asked)
            is_chat = bool(asked.messages)
            writer = Writer(
                model.name,
                f"fp_{model.session.bundle.revision[:12]}",
                model.generator.vocabulary,
                model.generator.token_text,
                int(time()),
                is_chat=is_chat,
                has_logprobs=prompts[0].ways[0][0].logprobs is not None,
                has_usage=asked.has_usage,
            )
            echoes = await self._echoes(model, asked)
            async with Watched(receive, Generation(call, model)) as generation:
                generation.start(prompts, is_chat=is_chat)
                if not asked.is_stream:
                    answers = await all_of(generation, len(generation.requests))
                    for found in answers:
                        found.text = echoes[found.index // asked.answers] + found.text
                    self._answered(call, generation)
                    return await asyncio.to_thread(writer.whole, answers, generation.usage(prompts))
                news = await generation.next()  # before this, what is wrong has a status of its own
                is_begun = True
                await self._begin(scope, send)
                await self._stream(generation, writer, echoes, asked, news, send)
                await send(_part(writer.usage(generation.usage(prompts)) + DONE, is_last=True))
            self._answered(call, generation)
            return None

        await self._answer(scope, send, answer, is_begun=lambda: is_begun)

    async def _echoes(self, model: TextModel, asked: TextAsked) -> list[str]:
        """Return what the answers to each prompt begin with."""
        if not asked.has_echo:
            return [""] * max(1, len(asked.prompts))
        return [
            prompt if isinstance(prompt, str) else await asyncio.to_thread(model.generator.detokenize, prompt)
            for prompt in asked.prompts
        ]

    async def _begin(self, scope: Scope, send: Send) -> None:
        headers = [(b"content-type", _EVENTS), (b"x-accel-buffering", b"no"), *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers + echoed(scope["headers"])})

    async def _stream(
        self,
        generation: Generation,
        writer: Writer,
        echoes: Sequence[str],
        asked: TextAsked,
        news: list[News],
        send: Send,
    ) -> None:
        """Send the pieces of all answers until each has ended; those that wait go out together."""
        lengths: dict[int, int] = {}
        left = len(generation.requests)
        while True:
            data = b""
            for index, what, _ in news:
                if index not in lengths:
                    lengths[index] = 0
                    data += writer.begin(index, echoes[index // asked.answers])
                if isinstance(what, Piece):
                    choices = [what.choice] if what.choice is not None else []
                    data += writer.piece(index, what.text, choices, lengths[index]) if what.text or choices else b""
                    lengths[index] += len(what.text)
                else:
                    left -= 1
                    data += writer.end(index, generation.requests[index].finish_reason)
            if data:
                await send(_part(data))
            generation.taken(news)
            if not left:
                return
            news = await generation.next()

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        work: Callable[[HttpCall], Awaitable[bytes | None]],
        *,
        is_openai: bool = True,
        is_begun: Callable[[], bool] = bool,
        allowed: str = "",
    ) -> None:
        """Send what the work gives, or its error; None where it has sent all by itself."""
        call = HttpCall(self._context, scope)

        async def answer() -> Reply | None:
            body = await work(call)
            return None if body is None else ((body,), [(b"content-type", JSON.encode())])

        async def end(error: EdgeInferError) -> bool:
            if is_begun() and not isinstance(error, ClientLeft):
                document = error_document(error, status_of(error))
                await send(_part(b"data: %s\n\n" % json.dumps(document).encode() + DONE, is_last=True))
            return is_begun() or isinstance(error, ClientLeft)

        always = [*self._headers, *([(b"allow", allowed.encode())] if allowed else [])]
        problem = openai_error if is_openai else problem_parts
        await call.answer(send, answer(), always, problem=problem, end=end)


def _part(data: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": not is_last}


def _described(repository: ModelRepository, *, is_text_only: bool = False) -> dict[str, dict[str, Any]]:
    """Describe the models that generate text, and those that embed it, as OpenAI does; it reads manifests."""
    found: dict[str, dict[str, Any]] = {}
    for name in repository.names():
        with suppress(EdgeInferError):
            served = repository.get(name)
            manifest = served.bundle().manifest
            embeds = manifest.task == "feature-extraction" and not is_text_only
            if manifest.generate is not None or embeds:
                created = served.stamp()[-1:] or (0,)
                found[name] = {
                    "id": name,
                    "object": "model",
                    "created": created[0] // 10**9,
                    "owned_by": "edge-infer",
                }
    return found


def _generating(model: LoadedModel) -> TextModel:
    """Return a model if it generates text.

    Raises:
        InputError: It does not.
    """
    if isinstance(model, TextModel):
        return model
    raise InputError(
        f"`{model.name}` generates no text", hint="GET /v1/models; tensors go to /v2/models/NAME/infer", option="model"
    )
