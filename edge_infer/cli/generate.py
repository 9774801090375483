"""`edge-infer generate`: go on from a text."""

from __future__ import annotations

import sys
from typing import Any

import click

from edge_infer.cli import options, output
from edge_infer.cli.sampling import Speed, sampling, split
from edge_infer.errors import InputError


@click.command()
@click.argument("source")
@click.argument("prompt")
@sampling
@options.as_json
def generate(source: str, prompt: str, as_json: bool, **given: Any) -> None:
    """Go on from a text, and write what is generated as it arrives.

    SOURCE is a bundle of a model that generates text. PROMPT is the text; `-` reads it from the input. The speed is
    written beside it, and the seed, with which the same text comes again.

    \b
    edge-infer generate smol.bundle "Once upon a time" --max-tokens 100
    edge-infer generate smol.bundle - < prompt.txt --temperature 0 --json
    edge-infer generate smol.bundle "A person:" --schema person.json
    """  # noqa: D301  click reads the \b
    import edge_infer

    load, asked = split(given)
    text = _read() if prompt == "-" else prompt
    with edge_infer.generate(source, **load) as generator, generator.stream(text, **asked) as stream:
        speed = Speed()
        speed.show(stream, is_shown=not as_json)
        done = stream.completion
        if as_json:
            output.data_json(
                {
                    "text": done.text,
                    "finish_reason": done.finish_reason,
                    "usage": done.usage._asdict(),
                    "seed": done.seed,
                    "tokens": list(done.tokens),
                    "speed": speed.to_json(done.usage.completion_tokens),
                }
            )
            return
        output.piece("\n")
        output.talk(speed.line(stream))


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the input is not UTF-8 at byte {error.start}", hint="iconv -t UTF-8") from error
