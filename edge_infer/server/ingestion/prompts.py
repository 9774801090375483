"""The prompts of a request for text: rendered, cut into tokens and checked; in a thread, as it may take long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edge_infer.errors import BundleError, InputError, PayloadTooLarge
from edge_infer.generation.template import checked_values
from edge_infer.server.ingestion.generation import Prompt
from edge_infer.server.ingestion.text_fields import CHAT_EXAMPLE, MAX_CHARACTERS

if TYPE_CHECKING:
    from edge_infer.generation.options import GenerationOptions
    from edge_infer.generation.sampler import Grammar
    from edge_infer.server.execution.text_model import TextModel
    from edge_infer.server.ingestion.text_fields import TextAsked


def prepared(model: TextModel, asked: TextAsked) -> list[Prompt]:
    """Return the tokens of each prompt with the options of its answers.

    Raises:
        InputError: A prompt is longer than the context, or an option out of range.
    """
    generator = model.generator
    prompts: list[list[int]] = []
    if asked.messages:
        text = _rendered(model, asked)
        if len(text) > 2 * MAX_CHARACTERS:
            raise PayloadTooLarge(f"The prompt has {len(text)} characters", hint="shorten the conversation")
        encode = generator.tokenizer.encode
        prompts.append(encode(text, add_special_tokens=False, truncation=None, padding=None).ids)
    prompts += [generator.tokenize(one) if isinstance(one, str) else one for one in asked.prompts]
    found = []
    for ids in prompts:
        model.slots.check(ids)
        options = asked.options(generator.definition.defaults, len(ids), generator.decoder.context)
        found.append(Prompt(ids, [_way(model, options, number) for number in range(asked.answers)]))
    return found


def _rendered(model: TextModel, asked: TextAsked) -> str:
    generator = model.generator
    if generator.definition.chat_template is None:
        raise InputError(
            f"`{model.name}` has no chat template, so that it takes no messages",
            hint="POST /v1/completions",
            option="messages",
        )
    values = checked_values(asked.template_values, "chat_template_kwargs")
    try:
        return generator.render(asked.messages, asked.tools, **values)
    except (BundleError, TypeError) as error:  # what it takes depends on the messages
        raise InputError(str(error).partition("\n")[0], hint=CHAT_EXAMPLE, option="messages") from error


def _way(model: TextModel, options: GenerationOptions, number: int) -> tuple[GenerationOptions, Grammar | None]:
    """Return the options of one of several answers: each has a seed of its own, and a grammar of its own."""
    seed = options.seed or 0
    own = replace(options, seed=seed + number if seed < 2**63 else seed - number)
    if own.response_format is None:
        return own, None
    from edge_infer.generation.grammar import grammar_of

    generator = model.generator
    return own, grammar_of(own.response_format, generator.vocabulary, generator.definition.eos)
