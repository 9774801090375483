"""Generator: a model that generates text, for texts and conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.generation.answer import Answer
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.shared_slots import SharedSlots
from edge_infer.generation.template import checked_values, open_template
from edge_infer.generation.text_stream import TextStream
from edge_infer.generation.vocabulary import Vocabulary
from edge_infer.platform.host import run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from edge_infer.generation.completion import Completion
    from edge_infer.generation.definition import GenerateDefinition
    from edge_infer.generation.slots import SlotDecoder
    from edge_infer.generation.template import Template
    from edge_infer.tasks.text.tokenizer import Tokenizer

    Messages = Sequence[Mapping[str, Any]]

_MESSAGE = '{"role": "user", "content": "Hello"}'


class GenerationReport(NamedTuple):
    """What runs, and what was done so far.

    Attributes:
        model: The bundle's name with the first digits of its revision.
        variant: The weights.
        architecture: The family.
        context: Positions of each slot.
        slots: Sequences at once.
        threads: How many compute the next token; where the number was left open, it changes with the load.
        running: Slots in use.
        waiting: Generations without a slot.
        prompt_tokens: Tokens of all prompts.
        completion_tokens: Tokens of all answers.
        cached_tokens: Tokens of prompts that needed no computing.
    """

    model: str
    variant: str
    architecture: str
    context: int
    slots: int
    threads: int
    running: int
    waiting: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


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
        self._template: Template | None = None
        self._slots = SharedSlots(decoder, definition.eos)

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
        return TextStream(self._slots, self._slots.submit(ids, chosen, grammar), answer, self.token_text)

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
        """Return the text of tokens.

        Raises:
            InputError: The model does not have one of them.
        """
        size = self.vocabulary.size
        unknown = next((token for token in tokens if not 0 <= token < size), None)
        if unknown is not None:
            raise InputError(
                f"the model has no token {unknown}", hint=f"its tokens are 0 to {size - 1}", expected=size, got=unknown
            )
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
            UnsupportedError: The model has no chat template, or jinja2 is not installed (a page needs none).
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
            self._template = open_template(self._source, self.definition.special_tokens)
        return self._template.render([_message(one) for one in messages], tools=tools, **values)

    def report(self) -> GenerationReport:
        """Tell what runs, and what was done so far."""
        running, waiting, totals = self._slots.counts()
        return GenerationReport(
            self._label,
            self._variant,
            self.definition.architecture,
            self._decoder.context,
            self._decoder.slots,
            self._decoder.threads,
            running,
            waiting,
            *totals,
        )

    def close(self) -> None:
        """End all generations and give the memory back."""
        self._slots.close()

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


def _message(message: Any) -> Mapping[str, Any]:
    """Check a message, and join the parts of its content."""
    if not hasattr(message, "get") or not isinstance(message.get("role"), str):
        raise InputError(f"{str(message)[:80]!r} is no message", hint=_MESSAGE, option="messages")
    content = message.get("content")
    if not isinstance(content, list):
        if content is not None and not isinstance(content, str):
            raise InputError(
                f"the content of a message is {str(content)[:80]!r}, expected a text", hint=_MESSAGE, option="messages"
            )
        return dict(message)
    texts = []
    for part in content:
        if not hasattr(part, "get") or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InputError(
                f"a message has the part {str(part)[:80]!r}, only texts are read",
                hint='{"type": "text", "text": "..."}',
                option="messages",
            )
        texts.append(part["text"])
    return {**message, "content": "".join(texts)}
