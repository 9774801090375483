"""`edge-infer chat`: talk with a model in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edge_infer.cli import options, output
from edge_infer.cli.sampling import Speed, sampling, split
from edge_infer.errors import EdgeInferError, InputError

if TYPE_CHECKING:
    from edge_infer.generation.generator import Generator
    from edge_infer.generation.text_stream import TextStream

_COMMANDS = "/clear begins anew, /exit or Ctrl-D ends, Ctrl-C ends an answer, /help says this"
_EXITS = ("/exit", "/quit", "/bye")


@click.command()
@click.argument("source")
@click.option("--system", metavar="TEXT", help="What the model is told before the conversation.")
@sampling
@options.as_json
def chat(source: str, system: str | None, as_json: bool, **given: Any) -> None:
    """Talk with a model: each line of the input is a message, each answer is written as it arrives.

    SOURCE is a bundle of a model with a chat template. Messages of a pipe are answered one after the other; with --json
    each answer is a line of JSON. Where the conversation outgrows the context, its oldest messages are left out.

    \b
    edge-infer chat smol.bundle --system "Answer in one sentence."
    echo "What is a bundle?" | edge-infer chat smol.bundle --temperature 0
    """  # noqa: D301  click reads the \b
    import edge_infer

    load, asked = split(given)
    with edge_infer.generate(source, **load) as generator:
        opening = [{"role": "system", "content": system}] if system else []
        generator.render([*opening, {"role": "user", "content": ""}])  # a model without a template is refused here
        is_terminal = sys.stdin.isatty()
        if is_terminal:
            output.talk(f"{generator!r}\n{_COMMANDS}")
        talk = list(opening)
        while (message := output.ask("> ")) is not None and message.strip() not in _EXITS:
            if message.strip() == "/clear":
                talk = list(opening)
                continue
            if message.strip() == "/help":
                output.talk(_COMMANDS)
                continue
            if not message.strip():
                continue
            talk.append({"role": "user", "content": message})
            try:
                talk = _answered(generator, talk, len(opening), asked, as_json=as_json)
            except EdgeInferError as error:
                if not is_terminal:
                    raise
                output.error(error)
                talk.pop()


def _answered(
    generator: Generator, talk: list[dict[str, str]], first: int, asked: dict[str, Any], *, as_json: bool
) -> list[dict[str, str]]:
    """Answer the last message, and return the conversation with the answer."""
    stream, talk = _begun(generator, talk, first, asked)
    speed = Speed()
    with stream:
        try:
            speed.show(stream, is_shown=not as_json)
        except KeyboardInterrupt:
            stream.close()
        done = stream.completion
    if as_json:
        output.data_json_line({"text": done.text, "finish_reason": done.finish_reason, "usage": done.usage._asdict()})
    else:
        output.piece("\n")
        output.talk(speed.line(stream))
    return [*talk, {"role": "assistant", "content": done.text}]


def _begun(
    generator: Generator, talk: list[dict[str, str]], first: int, asked: dict[str, Any]
) -> tuple[TextStream, list[dict[str, str]]]:
    """Begin an answer, without the oldest messages where all of them are longer than the context."""
    left_out = 0
    while True:
        try:
            stream = generator.stream(talk, **asked)
        except InputError as error:
            is_too_long = isinstance(error.details.get("expected"), int) and "context" in error.message
            if not is_too_long or len(talk) < first + 3:
                raise
            # A question and its answer, so that the roles still alternate.
            del talk[first : first + 2]
            left_out += 2
        else:
            if left_out:
                room = generator.report().context
                output.warn(f"left out the {left_out} oldest messages: the context has room for {room} tokens")
            return stream, talk
