"""Public `generate` and `generate_async`: text from a bundle."""

from __future__ import annotations

import tempfile
import weakref
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BundleError, ExecutionError, InputError, UnsupportedError
from edge_infer.generation.answer import Answer
from edge_infer.generation.decoder import MAX_SLOTS, Decoder
from edge_infer.generation.definition import definition_of
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.slots import Event, Slots
from edge_infer.generation.template import ChatTemplate, checked_values
from edge_infer.generation.vocabulary import Vocabulary
from edge_infer.platform.host import at_once, in_browser, run_in_thread
from edge_infer.tasks.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from edge_infer.bundle.manifest import Manifest, Variant
    from edge_infer.generation.definition import GenerateDefinition
    from edge_infer.generation.slots import Job, SlotDecoder

    Messages = Sequence[Mapping[str, Any]]

#: Positions of a slot where nobody says: a model's own context may need gigabytes.
DEFAULT_CONTEXT = 4096
_SMALLEST_FIRST = ("int4", "mixed", "int8", "fp16", "fp32")


class Usage(NamedTuple):
    """What an answer took.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens of the answer.
        cached_tokens: Tokens of the prompt that were in the cache already.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class TokenLogprob(NamedTuple):
    """How likely a token was by the model alone.

    Attributes:
        token: Its id.
        text: Its text.
        logprob: The natural logarithm of its probability.
        top: The best tokens: id, text, logarithm.
    """

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    Args:
        text: What was generated.
        finish_reason: `stop` at the end of the answer or a stop string, `length` at `max_tokens` or the end of the
            context, `cancelled` where the caller ended it.
        usage: Its tokens.
        logprobs: Of each token, where they were asked for; else None.
        seed: With it the same options give the same answer again.
        tokens: The new tokens.
    """

    text: str
    finish_reason: str
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None
    seed: int
    tokens: tuple[int, ...]


class GenerationReport(NamedTuple):
    """What runs, and what was done so far.

    Attributes:
        model: The bundle's name with the first digits of its revision.
        variant: The weights.
        mode: `exact`: the same tokens in every place.
        architecture: The family.
        context: Positions of each slot.
        slots: Sequences at once.
        running: Slots in use.
        waiting: Generations without a slot.
        prompt_tokens: Tokens of all prompts.
        completion_tokens: Tokens of all answers.
        cached_tokens: Tokens of prompts that needed no computing.
    """

    model: str
    variant: str
    mode: str
    architecture: str
    context: int
    slots: int
    running: int
    waiting: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


def generate(
    bundle: str | os.PathLike[str] | Bundle,
    *,
    variant: str | None = None,
    slots: int = 1,
    context: int | None = None,
    threads: int | None = None,
) -> Generator:
    """Load a model that generates text.

    Args:
        bundle: A bundle with `generate` in its manifest: a folder, a `.zip` or a URL.
        variant: The weights to use, such as `decoder/int8`; None for the smallest.
        slots: How many generations run at once; further ones wait.
        context: Tokens of prompt and answer together; None for the model's own, at most 4096. Each slot's cache takes
            memory for all of them.
        threads: Threads that compute; the kernels have one.

    Raises:
        BundleError: There is no bundle, or a file of it is damaged.
        UnsupportedError: The bundle generates no text.
        InputError: A number is out of range.

    >>> generator = generate("smol.bundle")
    >>> for piece in generator.stream("Hello", seed=1, max_tokens=8):
    ...     print(piece, end="")
    """
    return at_once(_opened(bundle, variant, slots, context, threads))


async def generate_async(
    bundle: str | os.PathLike[str] | Bundle,
    *,
    variant: str | None = None,
    slots: int = 1,
    context: int | None = None,
    threads: int | None = None,
) -> Generator:
    """Load a model that generates text as `generate` does, without blocking; in a page it starts the kernels first."""
    if not in_browser():
        return await run_in_thread(
            lambda: generate(bundle, variant=variant, slots=slots, context=context, threads=threads)
        )
    from edge_infer.backends.web.decoder import start

    await start()
    return await _opened(bundle, variant, slots, context, threads, may_wait=True)


async def _opened(
    bundle: str | os.PathLike[str] | Bundle,
    variant: str | None,
    slots: int,
    context: int | None,
    threads: int | None,
    *,
    may_wait: bool = False,
) -> Generator:
    """Load a model; nothing is awaited unless this may wait."""
    if isinstance(bundle, Bundle):
        made = bundle
    else:
        made = await Bundle.open_async(bundle) if may_wait else Bundle.open(bundle)

    async def read(path: str) -> bytes:
        return await made.read_async(path) if may_wait else made.read(path)

    definition = definition_of(made.manifest)
    chosen = _variant(made.manifest, variant)
    longest = context if context is not None else min(definition.context, DEFAULT_CONTEXT)
    workers = 1 if threads is None else threads
    numbers: tuple[tuple[str, object, int], ...] = (
        ("slots", slots, MAX_SLOTS),
        ("context", longest, definition.context),
        ("threads", workers, 1024),
    )
    for name, value, most in numbers:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InputError(f"`{name}` is {value!r}, expected 1 to {most}", option=name)
    tokenizer = Tokenizer.from_bytes(await read(definition.tokenizer))
    template = None
    if definition.chat_template is not None:
        template = _text(await read(definition.chat_template), definition.chat_template)
    data = await read(chosen.file) if may_wait and made.file_path(chosen.file) is None else None
    decoder = open_decoder(made, chosen, slots=slots, context=longest, threads=workers, data=data)
    if decoder.config.vocab_size != definition.vocab_size:
        decoder.close()
        raise BundleError(
            f"`{chosen.file}` has {decoder.config.vocab_size} tokens, the manifest says {definition.vocab_size}",
            hint="convert the model again",
        )
    return Generator(decoder, tokenizer, definition, template=template, label=made.label, variant=chosen.id)


def _variant(manifest: Manifest, wanted: str | None) -> Variant:
    if wanted is not None:
        chosen = manifest.variant(wanted)
        if chosen.format != "decoder":
            raise UnsupportedError(
                f"variant `{wanted}` is {chosen.format}, which generates no text",
                hint=f"edge-infer info {manifest.name}",
            )
        return chosen
    known = [one for one in manifest.variants if one.format == "decoder"]
    if not known:
        raise UnsupportedError(f"`{manifest.name}` has no variant that generates text", hint="edge_infer.load(...)")
    return min(known, key=lambda one: _SMALLEST_FIRST.index(one.precision))


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"`{path}` is not UTF-8 at byte {error.start}") from error


def open_decoder(
    bundle: Bundle, variant: Variant, *, slots: int, context: int, threads: int = 1, data: bytes | None = None
) -> Decoder:
    """Open the weights of a variant, checked against the manifest.

    Args:
        bundle: Where they are.
        variant: Which.
        slots: Sequences that the cache holds.
        context: Positions kept for each.
        threads: Threads that compute.
        data: The weight file, where it was read already.

    Raises:
        BundleError: They are damaged.
        BackendError: They cannot run here.
    """
    path = bundle.file_path(variant.file) if data is None else None
    if path is not None:
        return Decoder.open(path, slots=slots, context=context, threads=threads)
    # The kernels map a file: the bytes of a zip or a URL become one, which goes away with its mapping.
    with tempfile.TemporaryDirectory(prefix="edge-infer-") as folder:
        file = Path(folder) / "weights.safetensors"
        file.write_bytes(bundle.read(variant.file) if data is None else data)
        return Decoder.open(file, slots=slots, context=context, threads=threads)


class Generator:
    """A model that generates text; made by `generate`. It may be used by several threads.

    Args:
        decoder: The model.
        tokenizer: Its tokens.
        definition: What its bundle says.
        template: Its chat template; None for none.
        label: Its name, for reports.
        variant: Its weights, for reports.
    """

    def __init__(
        self,
        decoder: SlotDecoder,
        tokenizer: Tokenizer,
        definition: GenerateDefinition,
        *,
        template: str | None = None,
        label: str = "",
        variant: str = "",
    ) -> None:
        self.tokenizer = tokenizer
        self.definition = definition
        self.vocabulary = Vocabulary(tokenizer, decoder.config.vocab_size)
        self._decoder = decoder
        self._label, self._variant = label, variant
        self._source = template
        self._template: ChatTemplate | None = None
        # A stream may end inside a step, where its last reference goes away: the lock lets its thread in again.
        self._lock = RLock()
        self._slots = Slots(decoder, definition.eos)
        self._streams: weakref.WeakValueDictionary[int, TextStream] = weakref.WeakValueDictionary()
        self._is_closed = False
        self._totals = Usage(0, 0, 0)

    @property
    def decoder(self) -> SlotDecoder:
        """The model itself, for a program that drives slots of its own and generates nothing here."""
        return self._decoder

    def __repr__(self) -> str:
        return (
            f"Generator({self._label}, {self._variant}, {self._decoder.slots} slots of {self._decoder.context} tokens)"
        )

    def stream(
        self,
        prompt: str | Messages,
        *,
        tools: Messages | None = None,
        template_values: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> TextStream:
        """Generate text piece by piece.

        Args:
            prompt: A text to go on from, or the messages of a conversation, each with `role` and `content`.
            tools: Functions that the template tells the model of; their calls come as text.
            template_values: More that the template reads, such as `{"enable_thinking": False}`.
            options: Those of `GenerationOptions`: `max_tokens`, `temperature`, `top_k`, `top_p`, `min_p`, `seed`,
                `stop`, `repetition_penalty`, `frequency_penalty`, `presence_penalty`, `logit_bias`, `logprobs`,
                `response_format`. What is not given is the bundle's default.

        Returns:
            An iterator of pieces of text; its `completion` is the answer so far. Closing it ends the generation.

        Raises:
            InputError: An option is unknown or out of range, or the prompt is longer than the context.
            ExecutionError: While iterating: the model's numbers are not numbers.
        """
        chosen = GenerationOptions.of(options, self.definition.defaults).seeded()
        is_chat = not isinstance(prompt, str)
        ids = self._ids(prompt, tools, template_values)
        grammar = None
        if chosen.response_format is not None:
            from edge_infer.generation.grammar import grammar_of

            grammar = grammar_of(chosen.response_format, self.vocabulary, self.definition.eos)
        answer = Answer(self.vocabulary, chosen.stop, is_chat=is_chat)
        with self._lock:
            if self._is_closed:
                raise UnsupportedError("the generator is closed", hint="edge_infer.generate(...) opens another")
            job = self._slots.submit(ids, chosen, grammar)
            stream = TextStream(self, job, answer)
            self._streams[id(job)] = stream
        return stream

    def complete(self, prompt: str, **options: Any) -> Completion:
        """Go on from a text; the options are those of `stream`."""
        if not isinstance(prompt, str):
            raise InputError("`prompt` is not a text", hint="generator.chat(messages)")
        return self.stream(prompt, **options).result()

    def chat(self, messages: Messages, **options: Any) -> Completion:
        """Answer the last message of a conversation; the options are those of `stream`."""
        if isinstance(messages, str):
            raise InputError("`messages` is a text", hint='generator.chat([{"role": "user", "content": "Hello"}])')
        return self.stream(messages, **options).result()

    async def stream_async(self, prompt: str | Messages, **options: Any) -> AsyncGenerator[str, None]:
        """Generate text piece by piece as `stream` does, without blocking."""
        stream = await run_in_thread(lambda: self.stream(prompt, **options))
        try:
            while (piece := await run_in_thread(stream.next_piece)) is not None:
                yield piece
        finally:
            stream.close()

    async def complete_async(self, prompt: str, **options: Any) -> Completion:
        """Go on from a text as `complete` does, without blocking."""
        if not isinstance(prompt, str):
            raise InputError("`prompt` is not a text", hint="await generator.chat_async(messages)")
        return await self._result_async(prompt, options)

    async def chat_async(self, messages: Messages, **options: Any) -> Completion:
        """Answer as `chat` does, without blocking."""
        if isinstance(messages, str):
            raise InputError("`messages` is a text", hint='[{"role": "user", "content": "Hello"}]')
        return await self._result_async(messages, options)

    async def _result_async(self, prompt: str | Messages, options: Mapping[str, Any]) -> Completion:
        stream = await run_in_thread(lambda: self.stream(prompt, **options))
        try:
            # One piece for each call, so that a cancelled task ends the generation within one token.
            while await run_in_thread(stream.next_piece) is not None:
                pass
        finally:
            stream.close()
        return stream.completion

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a prompt, with those that the model wants at its beginning."""
        ids = self.tokenizer.encode(text, truncation=None, padding=None).ids
        bos = self.definition.bos
        if self.definition.add_bos and bos is not None and ids[:1] != [bos]:
            ids = [bos, *ids]
        return ids

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self.tokenizer.decode(tokens)

    def token_text(self, token: int) -> str:
        """Return the text of one token, marks such as `</s>` included; bytes that are no character are U+FFFD."""
        data = self.vocabulary.bytes_of(token)
        return data.decode("utf-8", "replace") if data else (self.tokenizer.id_to_token(token) or "")

    def render(self, messages: Messages, tools: Messages | None = None, **values: Any) -> str:
        """Write the prompt of a conversation by the model's chat template.

        Args:
            messages: Each with `role` and `content`: a text, or a list of parts `{"type": "text", "text": ...}`.
            tools: Functions that the model may call.
            values: More that the template reads.

        Raises:
            UnsupportedError: The model has no chat template, or jinja2 is not installed.
            InputError: The messages are not what the template takes.
        """
        if self._source is None:
            raise UnsupportedError(
                f"`{self._label}` has no chat template, so that it takes no messages", hint='generator.stream("Hello")'
            )
        if not isinstance(messages, (list, tuple)):
            raise InputError(
                f"the messages are {type(messages).__name__}, expected a list",
                hint='[{"role": "user", "content": "Hello"}]',
            )
        if self._template is None:
            self._template = ChatTemplate(self._source, self.definition.special_tokens)
        return self._template.render([_message(one) for one in messages], tools=tools, **values)

    def report(self) -> GenerationReport:
        """Tell what runs, and what was done so far."""
        with self._lock:
            return GenerationReport(
                self._label,
                self._variant,
                "exact",
                self.definition.architecture,
                self._decoder.context,
                self._decoder.slots,
                self._slots.running,
                self._slots.waiting,
                *self._totals,
            )

    def close(self) -> None:
        """End all generations and give the memory back."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for stream in list(self._streams.values()):
                self._slots.cancel(stream.job)
            close = getattr(self._decoder, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ids(
        self, prompt: str | Messages, tools: Messages | None, template_values: Mapping[str, Any] | None
    ) -> list[int]:
        if isinstance(prompt, str):
            if tools is not None:
                raise InputError("`tools` are for messages, which a template renders", hint="generator.chat(messages)")
            return self.tokenize(prompt)
        values = checked_values(template_values or {}, "template_values")
        rendered = self.render(prompt, tools, **values)
        # The template writes the tokens at the beginning itself, as it does for transformers.
        return self.tokenizer.encode(rendered, add_special_tokens=False, truncation=None, padding=None).ids

    def _advance(self, stream: TextStream) -> None:
        """Compute until a stream has an event: whoever waits computes for all."""
        with self._lock:
            if stream.events or stream.job.finish_reason is not None:
                return
            for event in self._slots.step():
                other = self._streams.get(id(event.job))
                if other is not None:
                    other.events.append(event)

    def _end(self, stream: TextStream, tokens: int) -> None:
        """Free the slot of a stream, and count what it took."""
        with self._lock:
            job = stream.job
            self._slots.cancel(job)
            if self._streams.pop(id(job), None) is not None:
                taken = (len(job.prompt), tokens, job.cached_tokens)
                self._totals = Usage(*(one + more for one, more in zip(self._totals, taken, strict=True)))


class TextStream:
    """Pieces of one answer as they are generated; an iterator that belongs to one thread.

    Attributes:
        job: Its generation.
        events: What was computed and not read yet.
    """

    def __init__(self, generator: Generator, job: Job, answer: Answer) -> None:
        self.job = job
        self.events: deque[Event] = deque()
        self._generator = generator
        self._answer = answer
        self._parts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._tokens: list[int] = []
        self._reason: str | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = self.next_piece()
        if piece is None:
            raise StopIteration
        return piece

    def next_piece(self) -> str | None:
        """Return the next piece of text, which is never empty; None at the end.

        Raises:
            ExecutionError: The generation failed.
        """
        while self._reason is None:
            if not self.events:
                if self.job.finish_reason is not None:
                    self._finish("cancelled")
                    break
                self._generator._advance(self)
                continue
            piece = self._read(self.events.popleft())
            if piece:
                self._parts.append(piece)
                return piece
        return None

    def _read(self, event: Event) -> str:
        if event.finish_reason == "error":
            self._finish("error")
            raise event.error or ExecutionError("the generation failed")
        text = ""
        if event.choice is not None:
            self._tokens.append(event.choice.token)
            if event.choice.logprob is not None:
                self._logprobs.append(self._logprob(event))
            found = self._answer.add(event.choice.token)
            text = found.text
            if found.is_stopped:
                self._finish("stop")
                return text
        if event.finish_reason is not None:
            rest = self._answer.end()
            self._finish("stop" if rest.is_stopped else event.finish_reason)
            text += rest.text
        return text

    def _finish(self, reason: str) -> None:
        self._reason = reason
        self._generator._end(self, len(self._tokens))

    def _logprob(self, event: Event) -> TokenLogprob:
        assert event.choice is not None
        token, logprob, top = event.choice
        assert logprob is not None
        text = self._generator.token_text
        return TokenLogprob(token, text(token), logprob, tuple((one, text(one), value) for one, value in top))

    def result(self) -> Completion:
        """Generate to the end, and return the answer."""
        with self:
            for _ in self:
                pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """The answer as far as it was read; `finish_reason` is `cancelled` before its end."""
        job = self.job
        return Completion(
            "".join(self._parts),
            self._reason or "cancelled",
            Usage(len(job.prompt), len(self._tokens), job.cached_tokens),
            tuple(self._logprobs) if job.options.logprobs is not None else None,
            job.options.seed or 0,
            tuple(self._tokens),
        )

    def close(self) -> None:
        """End the generation where it goes on still."""
        if self._reason is None:
            self._finish("cancelled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A stream that nobody reads any more would keep its slot.
        if getattr(self, "_reason", "") is None:
            self.close()


def _message(message: Any) -> Mapping[str, Any]:
    """Check a message, and join the parts of its content."""
    if not hasattr(message, "get") or not isinstance(message.get("role"), str):
        raise InputError(f"{str(message)[:80]!r} is no message", hint='{"role": "user", "content": "Hello"}')
    content = message.get("content")
    if not isinstance(content, list):
        if content is not None and not isinstance(content, str):
            raise InputError(f"the content of a message is {str(content)[:80]!r}, expected a text")
        return dict(message)
    texts = []
    for part in content:
        if not hasattr(part, "get") or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InputError(
                f"a message has the part {str(part)[:80]!r}, only texts are read",
                hint='{"type": "text", "text": "..."}',
            )
        texts.append(part["text"])
    return {**message, "content": "".join(texts)}
